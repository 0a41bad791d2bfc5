//! The mappings of a victim in a recording. The load program read them from `/proc/PID/smaps`
//! before the kill.
//!
//! ```text
//! victim 169
//! mapping 10000000000-10000080000 inode=0 flags=rd,wr,mr,mw,me,ac,sd
//! ```
//!
//! Addresses are hexadecimal byte addresses. `flags` has the words of the `VmFlags` line, joined by
//! commas.

use std::ops::Range;

use plimsoll_mm::space::MappingKind;
use plimsoll_recording::Recording;

/// The name of the text in the recording's header that lists the mappings.
pub(crate) const TEXT: &str = "oom mappings";

const PAGE_SHIFT: u32 = 12;

/// A mapping of the victim: its page numbers and its kind of backing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) pages: Range<u64>,
    pub(super) kind: MappingKind,
}

/// Returns the mappings of each victim in the recording's header, with the victim's process id.
/// Also returns the number of unreadable lines.
pub(super) fn of(recording: &Recording) -> (Vec<(u32, Vec<Mapping>)>, usize) {
    recording.header.text(TEXT).map(parse).unwrap_or_default()
}

fn parse(text: &str) -> (Vec<(u32, Vec<Mapping>)>, usize) {
    let (mut victims, mut unreadable) = (Vec::<(u32, Vec<Mapping>)>::new(), 0);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let read = match word {
            "victim" => rest
                .trim()
                .parse()
                .ok()
                .map(|pid| victims.push((pid, Vec::new()))),
            "mapping" => Mapping::read(rest)
                .zip(victims.last_mut())
                .map(|(mapping, (_, mappings))| mappings.push(mapping)),
            _ => None,
        };
        unreadable += usize::from(read.is_none());
    }
    (victims, unreadable)
}

impl Mapping {
    fn read(rest: &str) -> Option<Self> {
        let mut words = rest.split(' ');
        let (start, end) = words.next()?.split_once('-')?;
        let page = |text| Some(u64::from_str_radix(text, 16).ok()? >> PAGE_SHIFT);
        let inode = words.next()?.strip_prefix("inode=")?;
        let flags: Vec<&str> = words.next()?.strip_prefix("flags=")?.split(',').collect();
        let has = |flag| flags.contains(&flag);
        Some(Self {
            pages: page(start)?..page(end)?,
            kind: if has("ht") {
                MappingKind::Reserved
            } else if has("pf") {
                MappingKind::Frames
            } else if has("sh") {
                MappingKind::Shared
            } else if inode == "0" {
                MappingKind::Anonymous
            } else {
                MappingKind::PrivateFile
            },
        })
    }
}

/// Merges each range with the previous range if the two ranges are adjacent. In Plimsoll, two
/// neighbouring mappings that differ only in their permissions are one mapping.
pub(super) fn joined(ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => all.push(range),
        }
    }
    all
}

/// The page numbers of a range of byte addresses. Both ends are rounded down.
pub(super) const fn pages(start: u64, end: u64) -> Range<u64> {
    start >> PAGE_SHIFT..end >> PAGE_SHIFT
}
