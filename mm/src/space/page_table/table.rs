//! One page table of 512 entries.

use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use super::entry::{Entry, NONE, Page, YOUNG, is_page};
use crate::space::error::NoMemory;
use crate::units::Pfn;

/// The number of entries of a page table.
pub(in crate::space) const ENTRIES: u32 = 512;

/// The memory of a table. It is allocated before any lock is taken, and dropped while no lock is
/// held.
pub(in crate::space) struct Blank {
    /// The page that the table occupies.
    pub(in crate::space) frame: Pfn,
    /// The entries, all empty. They are in memory of the global allocator, because this code does
    /// not write into pages.
    entries: Vec<u64>,
}

impl Blank {
    /// Makes an empty table that occupies the page `frame`.
    pub(in crate::space) fn new(frame: Pfn) -> Result<Self, NoMemory> {
        let mut entries = Vec::new();
        entries
            .try_reserve_exact(ENTRIES as usize)
            .map_err(|_| NoMemory)?;
        entries.resize(ENTRIES as usize, NONE);
        Ok(Self { frame, entries })
    }
}

/// The contents of the place of a table: nothing, the table, or a huge page.
///
/// The lock of a [`Leaf`](super::Leaf) guards these contents. When a table is removed, its place
/// and lock remain, so a CPU that was about to use the table finds the place empty.
#[derive(Default)]
pub(in crate::space) struct Entries {
    /// The page of the table, while the table exists or is kept for splitting a huge page.
    frame: Option<Pfn>,
    what: What,
    used: u32,
    entries: Vec<u64>,
}

/// What is in the place of a page table: nothing, the table, or a huge page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::space) enum What {
    /// The place is empty.
    #[default]
    Nothing,
    /// The place holds a table.
    Table,
    /// The place holds a huge page.
    Huge(Page),
}

impl Entries {
    /// Returns what is in this place: nothing, a page table, or a huge page.
    pub(in crate::space) fn what(&self) -> What {
        self.what
    }

    pub(super) fn set_what(&mut self, what: What) {
        debug_assert!(
            self.frame.is_some(),
            "a live table, and one kept for a split, needs a page"
        );
        self.what = what;
    }

    /// Returns the number of entries that are not empty.
    pub(in crate::space) fn used(&self) -> u32 {
        self.used
    }

    /// Keeps `blank` as the memory of a table that faults cannot fill yet.
    pub(in crate::space) fn provide(&mut self, blank: Blank) {
        debug_assert!(self.frame.is_none(), "a table has one page");
        self.entries = blank.entries;
        self.frame = Some(blank.frame);
    }

    /// Removes an empty table, or the table kept for splitting a huge page, and returns its memory.
    /// The place of the table is empty afterwards.
    pub(super) fn take_blank(&mut self) -> Option<Blank> {
        debug_assert_eq!(self.used, 0, "a table that goes is empty");
        self.what = What::Nothing;
        let entries = mem::take(&mut self.entries);
        let frame = self.frame.take()?;
        Some(Blank { frame, entries })
    }

    /// Returns the entry at `index`, or `None` if it is empty.
    pub(in crate::space) fn get(&self, index: u32) -> Option<Entry> {
        Entry::decode(*self.entries.get(index as usize)?)
    }

    /// Replaces the entry at `index` of a table that faults may fill. If the new entry maps a page
    /// in memory, the page counts as touched.
    pub(in crate::space) fn set(&mut self, index: u32, entry: Entry) {
        let there = &mut self.entries[index as usize];
        self.used += u32::from(*there == NONE);
        *there = entry.encode();
        self.touch(index);
    }

    /// Marks the entry at `index` as touched, if it is a page in memory. On real hardware, the MMU
    /// does this at each access (x86: the accessed bit).
    pub(in crate::space) fn touch(&mut self, index: u32) {
        if let Some(there) = self.entries.get_mut(index as usize)
            && is_page(*there)
        {
            *there |= YOUNG;
        }
    }

    /// Returns whether the page of an entry was touched since the last call (Linux:
    /// `ptep_test_and_clear_young`).
    pub(in crate::space) fn take_touch(&mut self, index: u32) -> bool {
        let Some(there) = self.entries.get_mut(index as usize) else {
            return false;
        };
        let touched = is_page(*there) && *there & YOUNG != 0;
        *there &= !(u64::from(touched) * YOUNG);
        touched
    }

    /// Empties the entries of `range` in ascending order and passes the old value of each to
    /// `gone`, until `gone` returns `false`. Returns the index at which the method stopped. Every
    /// entry of `range` below this index is empty.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::page_table::PageKind;
    use crate::space::swap::SwapSlot;

    #[test]
    fn a_page_counts_as_touched_until_it_is_looked_at() {
        let mut entries = Entries::default();
        let blank = Blank::new(Pfn(9));
        entries.provide(blank.unwrap_or_else(|_| panic!("there is memory")));
        let page = Entry::Page(Page {
            pfn: Pfn(5),
            kind: PageKind::Anon,
        });
        entries.set(1, page);
        assert!(entries.take_touch(1) && !entries.take_touch(1));
        assert_eq!(entries.get(1), Some(page), "a look leaves the page mapped");
        entries.touch(1);
        assert!(entries.take_touch(1) && !entries.take_touch(1));
        let slot = Entry::Swap(SwapSlot(5));
        entries.set(1, slot);
        for index in [0, 1, ENTRIES] {
            entries.touch(index);
            assert!(!entries.take_touch(index), "there is no page in memory");
        }
        assert_eq!((entries.get(0), entries.get(1)), (None, Some(slot)));
    }
}
