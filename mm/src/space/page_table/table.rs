//! One page table of 512 entries.

use alloc::vec::Vec;
use core::ops::Range;

use super::entry::{Entry, NONE};
use crate::space::error::NoMemory;
use crate::units::Pfn;

/// Entries of a table.
pub(in crate::space) const ENTRIES: u64 = 512;

/// The entries of a table and the page they are in, if there is a table at all.
///
/// What is guarded by the lock of a [`Leaf`](super::Leaf). A table that was taken away leaves its
/// place and lock behind, so whoever was on the way to it finds that it is gone.
#[derive(Default)]
pub(in crate::space) struct Entries {
    /// The page that the table is in, while it exists or is promised to a huge page's parts.
    frame: Option<Pfn>,
    /// Whether the table is in use, not only kept for the parts of a huge page.
    live: bool,
    used: u32,
    entries: Vec<u64>,
}

impl Entries {
    /// Whether the table exists and may be filled.
    pub(in crate::space) fn is_live(&self) -> bool {
        self.live
    }

    /// Whether a page is there for a table, live or not.
    pub(in crate::space) fn has_frame(&self) -> bool {
        self.frame.is_some()
    }

    /// Entries that are not empty.
    pub(in crate::space) fn used(&self) -> u32 {
        self.used
    }

    /// Keeps `frame` and memory for an empty table; it is not live yet.
    pub(in crate::space) fn provide(&mut self, frame: Pfn) -> Result<(), NoMemory> {
        debug_assert!(self.frame.is_none(), "a table has one page");
        let mut entries = Vec::new();
        entries
            .try_reserve_exact(ENTRIES as usize)
            .map_err(|_| NoMemory)?;
        entries.resize(ENTRIES as usize, NONE);
        self.entries = entries;
        self.frame = Some(frame);
        Ok(())
    }

    /// From now on it may be filled. A page was provided.
    pub(in crate::space) fn go_live(&mut self) {
        debug_assert!(self.frame.is_some(), "a table needs a page");
        self.live = true;
    }

    /// Takes the page of an empty table, which is no longer there.
    pub(in crate::space) fn take_frame(&mut self) -> Option<Pfn> {
        debug_assert_eq!(self.used, 0, "a table that goes is empty");
        self.live = false;
        self.entries = Vec::new();
        self.frame.take()
    }

    /// What is at `index`.
    pub(in crate::space) fn get(&self, index: u64) -> Option<Entry> {
        Entry::decode(*self.entries.get(index as usize)?)
    }

    /// Writes an entry of a live table, replacing what is there.
    pub(in crate::space) fn set(&mut self, index: u64, entry: Entry) {
        let there = &mut self.entries[index as usize];
        self.used += u32::from(*there == NONE);
        *there = entry.encode();
    }

    /// Empties entries of `range` and tells `gone` of each, from the lowest on, until it says stop
    /// with `false`. Where it stopped: everything below is empty.
    pub(in crate::space) fn clear(
        &mut self,
        range: Range<u64>,
        mut gone: impl FnMut(Entry) -> bool,
    ) -> u64 {
        for index in range.clone() {
            if self.used == 0 {
                break;
            }
            let there = &mut self.entries[index as usize];
            let Some(entry) = Entry::decode(*there) else {
                continue;
            };
            *there = NONE;
            self.used -= 1;
            if !gone(entry) {
                return index + 1;
            }
        }
        range.end
    }
}
