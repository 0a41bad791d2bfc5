//! Recordings: the memory-management events of a Linux kernel.
//!
//! A [`Recording`] is a [`Header`], which says what was recorded and where, and [`Event`]s in order
//! of time. The same types represent a recording of this computer, a recording of a kernel booted
//! in an emulator, and the output of `perf script`.

use std::io::Write;

mod contents;
pub mod error;
pub mod event;
pub mod format;
pub mod header;
mod input;
pub mod ring;
pub mod symbols;
pub mod text;

pub use contents::Contents;
pub use error::{ReadError, Warning, WriteError};
pub use event::{Event, Symbol, What};
pub use format::{Reader, Totals, Writer};
pub use header::Header;
pub use symbols::{Kallsyms, Symbols};

/// A recording in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The facts about the recording: what was recorded, where, and how complete it is.
    pub header: Header,
    /// All events in order of time; events of one CPU keep the order in which the kernel wrote
    /// them.
    pub events: Vec<Event>,
}

impl Recording {
    /// Sorts events by time, and events with the same time by CPU. Events of one CPU with the same
    /// time keep their order.
    pub fn sort(&mut self) {
        self.events.sort_by_key(|event| (event.time_ns, event.cpu));
    }

    /// Writes the whole recording in Plimsoll's format.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write<W: Write>(&self, out: W) -> Result<(W, Totals), WriteError> {
        let mut writer = Writer::new(out, &self.header)?;
        for event in &self.events {
            writer.push(event.clone())?;
        }
        writer.finish(&self.header)
    }
}
