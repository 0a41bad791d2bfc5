//! Recording this computer: its kernel's events, while a command runs or for a while.
//!
//! ```text
//! ring buffer of CPU 0 ── reader 0 ──┐
//! ring buffer of CPU 1 ── reader 1 ──┼── memory ── converter (lowest priority) ── file
//! …                                  ┘
//! ```
//!
//! The trace clock is `mono`: all CPUs share it, so events of several CPUs can be put in order, and it
//! counts nanoseconds; `local` differs between CPUs, and `global` takes a lock for each event.

mod convert;
mod error;
mod events;
mod holds;
mod kernel;
mod pressure;
mod readers;
mod reclaim;
mod session;
mod setup;
mod summary;
mod wait;

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

pub use error::RecordError;
pub use events::Rss;
pub use holds::Holds;
pub use session::record;
pub use summary::{Counts, Summary};

/// What to record, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file to write; a pipe or a port will do.
    pub output: PathBuf,
    /// The command to run and its arguments; if empty, recording goes on for `length`.
    pub command: Vec<OsString>,
    /// How long to record at most; without it, until the command ends or a signal comes.
    pub length: Option<Duration>,
    /// The ring buffer of each CPU in MiB; by default a share of memory.
    pub buffer_mib: Option<NonZeroU32>,
    /// MiB of events that may wait in memory to be packed.
    pub memory_mib: NonZeroU32,
    /// When the ring buffers are read.
    pub reading: Reading,
    /// Whether changes of resident pages are recorded.
    pub rss: Rss,
    /// Whether ends of zone-lock holds are recorded.
    pub holds: Holds,
    /// A folder whose files become texts of the recording once the command has ended.
    pub texts: Option<PathBuf>,
}

/// When the ring buffers are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// While the load runs; then its length is not limited.
    Meanwhile,
    /// After it has ended, so that reading does not disturb it; events that do not fit into the
    /// buffers are lost.
    Afterwards,
}

/// How far a recording is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Events that were decoded.
    pub events: u64,
    /// Bytes in the file.
    pub bytes: u64,
    /// Events that the kernel dropped.
    pub lost: u64,
    /// Since recording began.
    pub elapsed: Duration,
}
