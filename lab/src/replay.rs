//! Running a recording again, on a machine of any size.

use std::num::{NonZeroU32, NonZeroUsize};

use plimsoll_sim::profile::Card;

use crate::error::Error;
use crate::machines;
use crate::progress::Progress;
use crate::report::Report;
use crate::trace::Recording;

/// What the user asked of a replay.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The recording, or `-` for standard input.
    pub file: String,
    /// A machine's name or a profile file.
    pub machine: String,
    /// How many times the recording runs side by side, each on CPUs of its own.
    pub scale: NonZeroU32,
    /// The design compared against, or the default.
    pub a: Option<String>,
    /// The design in question, or none to look at A alone.
    pub b: Option<String>,
    /// The seeds to run, each on both designs.
    pub seeds: Vec<u64>,
    /// How many cases run at once.
    pub jobs: NonZeroUsize,
    /// The card of costs.
    pub card: Card,
}

/// Replays a recording and reports its lock and page-list tables.
///
/// # Errors
/// For an unknown machine or design, a bad profile or a bad recording.
pub fn run(options: &ReplayOptions, _progress: &Progress) -> Result<Report, Error> {
    // Names first: a slip must not cost the time to read a recording.
    machines::load(&options.machine, options.card)?;
    for design in options.a.iter().chain(&options.b) {
        crate::designs::find(design)?;
    }
    let _recording = Recording::read(&options.file)?;
    Err(Error::Unimplemented("replaying a recording"))
}
