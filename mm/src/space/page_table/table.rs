//! One page table of 512 entries.

use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use super::entry::{Entry, NONE, Page};
use crate::space::error::NoMemory;
use crate::units::Pfn;

/// Entries of a table.
pub(in crate::space) const ENTRIES: u32 = 512;

/// What a table is made of: taken before any lock, dropped with none held.
pub(in crate::space) struct Blank {
    /// The page it is in.
    pub(in crate::space) frame: Pfn,
    /// Its entries, all empty. They are of the global allocator, as nothing is written into pages
    /// here.
    entries: Vec<u64>,
}

impl Blank {
    /// An empty table in `frame`.
    pub(in crate::space) fn new(frame: Pfn) -> Result<Self, NoMemory> {
        let mut entries = Vec::new();
        entries
            .try_reserve_exact(ENTRIES as usize)
            .map_err(|_| NoMemory)?;
        entries.resize(ENTRIES as usize, NONE);
        Ok(Self { frame, entries })
    }
}

/// What is in the place of a table: nothing, the table, or a huge page.
///
/// Guarded by the lock of a [`Leaf`](super::Leaf). A table that was taken away leaves its place and
/// lock behind, so whoever was on the way to it finds that it is gone.
#[derive(Default)]
pub(in crate::space) struct Entries {
    /// The page that the table is in, while it exists or is kept for the parts of a huge page.
    frame: Option<Pfn>,
    what: What,
    used: u32,
    entries: Vec<u64>,
}

/// What is in the place of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::space) enum What {
    /// Nothing.
    #[default]
    Nothing,
    /// A table.
    Table,
    /// A huge page.
    Huge(Page),
}

impl Entries {
    /// What is there.
    pub(in crate::space) fn what(&self) -> What {
        self.what
    }

    pub(super) fn set_what(&mut self, what: What) {
        debug_assert!(
            self.frame.is_some(),
            "a table, also one to be, needs a page"
        );
        self.what = what;
    }

    /// Entries that are not empty.
    pub(in crate::space) fn used(&self) -> u32 {
        self.used
    }

    /// Keeps `blank` for an empty table; it is not in use yet.
    pub(in crate::space) fn provide(&mut self, blank: Blank) {
        debug_assert!(self.frame.is_none(), "a table has one page");
        self.entries = blank.entries;
        self.frame = Some(blank.frame);
    }

    /// Takes an empty table, or what was kept for one; nothing is there afterwards.
    pub(super) fn take_blank(&mut self) -> Option<Blank> {
        debug_assert_eq!(self.used, 0, "a table that goes is empty");
        self.what = What::Nothing;
        let entries = mem::take(&mut self.entries);
        let frame = self.frame.take()?;
        Some(Blank { frame, entries })
    }

    /// What is at `index`.
    pub(in crate::space) fn get(&self, index: u32) -> Option<Entry> {
        Entry::decode(*self.entries.get(index as usize)?)
    }

    /// Writes an entry of a live table, replacing what is there.
    pub(in crate::space) fn set(&mut self, index: u32, entry: Entry) {
        let there = &mut self.entries[index as usize];
        self.used += u32::from(*there == NONE);
        *there = entry.encode();
    }

    /// Empties entries of `range` and tells `gone` of each, from the lowest on, until it says stop
    /// with `false`. Where it stopped: everything below is empty.
    pub(in crate::space) fn clear(
        &mut self,
        range: Range<u32>,
        mut gone: impl FnMut(Entry) -> bool,
    ) -> u32 {
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
