//! Records the events of this computer's kernel, while a command runs or for a given time.
//!
//! ```text
//! ring buffer of CPU 0 ── reader 0 ──┐
//! ring buffer of CPU 1 ── reader 1 ──┼── memory ── converter (lowest priority) ── file
//! …                                  ┘
//! ```
//!
//! The trace clock is `mono`, which counts nanoseconds and is common to all CPUs, so that events of
//! several CPUs can be put in order. The clock `local` differs between CPUs, and `global` takes a
//! lock for each event.

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

/// The options of a recording.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file to write, which may also be a pipe or a serial port.
    pub output: PathBuf,
    /// The command to run and its arguments. If this is empty, no command runs, and `length` limits
    /// the recording.
    pub command: Vec<OsString>,
    /// The largest duration. If this is `None`, the recording ends when the command ends or a
    /// signal arrives.
    pub length: Option<Duration>,
    /// The size of each CPU's ring buffer, in MiB. If this is `None`, the size is a share of free
    /// memory.
    pub buffer_mib: Option<NonZeroU32>,
    /// The memory for events that wait to be packed, in MiB.
    pub memory_mib: NonZeroU32,
    /// The time at which the ring buffers are read.
    pub reading: Reading,
    /// Whether changes of resident pages are recorded.
    pub rss: Rss,
    /// Whether the moments at which CPUs release the zone lock are recorded.
    pub holds: Holds,
    /// A folder whose files become texts of the recording once the command has ended.
    pub texts: Option<PathBuf>,
}

/// The time at which the ring buffers are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The buffers are read while the load runs, so that their size does not limit the length of
    /// the load.
    Meanwhile,
    /// The buffers are read after the load has ended, so that reading does not disturb the load;
    /// the kernel drops events that do not fit into the buffers.
    Afterwards,
}

/// The progress of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The number of events that were decoded and written.
    pub events: u64,
    /// The number of bytes in the file.
    pub bytes: u64,
    /// The number of events that the kernel dropped.
    pub lost: u64,
    /// The time since recording began.
    pub elapsed: Duration,
}
