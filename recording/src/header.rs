//! The header of a recording: what was recorded, where, and how complete it is.

/// The largest count in [`Header::lost`] for one CPU. A larger count is reduced to this value. A
/// count comes from a ring buffer or a file, which may be damaged. With this limit, the sum over
/// all CPUs fits 64 bits.
pub const LOST_MAX: u64 = 1 << 40;

/// The facts about a recording: what was recorded, where, and how complete it is. Empty strings and
/// zeros mean that the recording does not say. The text of `perf script` provides only the symbols.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// The machine, as `uname -m` prints it.
    pub machine: String,
    /// The number of timer interrupts per second (`CONFIG_HZ`).
    pub hz: u32,
    /// The number of CPUs that were online.
    pub cpus: u32,
    /// The size of a page, in bytes.
    pub page_bytes: u32,
    /// The number of pages in a page block (`/proc/pagetypeinfo`).
    pub pageblock_pages: u32,
    /// The command that was run, as a person would type it.
    pub command: String,
    /// Texts that were read on the recorded computer. Each text has a name, and some names say when
    /// the text was read: `zoneinfo before`, `zoneinfo after`, `pagetypeinfo before`,
    /// `min_free_kbytes`, `percpu_pagelist_high_fraction`, `stat_interval`, and so on.
    pub texts: Vec<(String, String)>,
    /// The tracepoints and probes that were enabled.
    pub recorded: Vec<String>,
    /// A sentence for each thing that could not be recorded, with the reason and the remedy.
    pub missing: Vec<String>,
    /// The names of kernel functions to which events refer.
    pub symbols: Vec<String>,
    /// The number of events that the kernel dropped, by CPU, each at most [`LOST_MAX`].
    pub lost: Vec<(u32, u64)>,
}

impl Header {
    /// Returns the text with this name, if it was recorded.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        let found = self.texts.iter().find(|(known, _)| known == name);
        found.map(|(_, text)| text.as_str())
    }
}
