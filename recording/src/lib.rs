//! Recordings: what a Linux kernel did with its memory, event by event.
//!
//! A [`Recording`] is a [`Header`] that says what was recorded and where, and [`Event`]s in order of
//! time. The same types hold a recording of this computer, of a kernel booted in an emulator, and
//! the text that `perf script` prints.

pub mod event;
pub mod header;

pub use event::{Event, What};
pub use header::Header;

/// A recording in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// What was recorded, where, and how complete it is.
    pub header: Header,
    /// Everything that happened, in order of time; events of one CPU keep the order in which the
    /// kernel wrote them.
    pub events: Vec<Event>,
}
