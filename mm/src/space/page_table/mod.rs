//! Page tables: for each virtual page, the frame or the swap slot that holds it.
//!
//! ```text
//! PageTable ── Upper, 1 GiB: a lock ── Leaf, 2 MiB: a lock, and 512 entries or a huge page
//! ```
//!
//! `entry` has the type of one entry, and `table` that of the entries of one table. `sparse` finds
//! tables without a lock. This is possible because the place of a table is never removed; only the
//! table itself is. So a CPU that frees a table need not wait for CPUs that still use the table's
//! place.
//!
//! Every table takes a page of memory, and so does every upper table, which covers 1 GiB. The
//! levels above (a page per 512 GiB) are not modelled.
//!
//! Locks: `UpperTable`, then `PageTable`.

mod entry;
mod sparse;
mod table;

use core::sync::atomic::Ordering::{AcqRel, Relaxed};

pub(super) use self::entry::{Entry, Page, PageKind};
use self::sparse::Sparse;
pub(super) use self::table::{Blank, ENTRIES, Entries, What};
use super::error::NoMemory;
use crate::machine::{Field, Lock, Machine, Word};
use crate::site::{LockClass, Site};
use crate::units::{Pfn, Vpn, at_least_0};

/// log₂ of the number of entries of a table.
pub(super) const TABLE_BITS: u32 = 9;
/// The number of page tables below an upper table (Linux: PMD page).
const SLOTS: u64 = ENTRIES as u64;
/// log₂ of the number of pages of an address space: 128 TiB (x86-64 with four levels).
pub(super) const SPACE_BITS: u32 = 35;
/// The number of lowest-level page tables of an address space.
pub(super) const TABLES: u64 = 1 << (SPACE_BITS - TABLE_BITS);

/// Returns the index of the table that maps `page`.
#[inline]
pub(super) const fn table_of(page: Vpn) -> u64 {
    page.0 >> TABLE_BITS
}

/// Returns the first page of table `index`.
#[inline]
pub(super) const fn first_page(index: u64) -> Vpn {
    Vpn(index << TABLE_BITS)
}

/// The page tables of one address space: for each virtual page, the frame or the swap slot that
/// holds it.
pub(super) struct PageTable<M: Machine> {
    uppers: Sparse<M, Upper<M>>,
    /// The number of pages that tables take. A CPU that makes a table changes this word, and so
    /// does a CPU that is about to empty tables. Therefore at least one of these two CPUs sees what
    /// the other did before; see [`PageTable::count`].
    frames: M::Word,
}

/// An upper table (Linux: PMD page), with the places of 512 page tables.
pub(super) struct Upper<M: Machine> {
    /// Guards the page of this upper table. A CPU also holds the lock while it installs a table or
    /// a huge page below the upper table, and while it removes a huge page that another CPU may be
    /// removing, too.
    pub(super) frame: M::Lock<Option<Pfn>>,
    /// 1 if this upper table has its page, otherwise 0. CPUs read it without the lock.
    framed: M::Field,
    leaves: Sparse<M, Leaf<M>>,
}

/// The place of one page table: the lock and the contents. The place remains when the table is
/// freed.
pub(super) struct Leaf<M: Machine> {
    pub(super) entries: M::Lock<Entries>,
    /// A copy of what is at this place (nothing, a page table, or a huge page), to be read without
    /// the lock.
    what: M::Field,
}

const NOTHING: u64 = 0;
const TABLE: u64 = 1;
const HUGE: u64 = 2;

impl<M: Machine> Leaf<M> {
    /// Returns whether this place holds a page table. The result may be outdated unless the caller
    /// holds the lock.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.what.get() == TABLE
    }

    /// Returns whether this place holds a huge page instead of a page table. The result may be
    /// outdated unless the caller holds the lock.
    #[inline]
    pub(super) fn is_huge(&self) -> bool {
        self.what.get() == HUGE
    }

    /// Allows faults to fill the table from now on. The caller has provided the table's page.
    pub(super) fn go_live(&self, entries: &mut Entries) {
        entries.set_what(What::Table);
        self.what.set(TABLE);
    }

    /// Puts a huge page into the empty place of a page table. The caller has provided the page of
    /// the table that a split would need.
    pub(super) fn set_huge(&self, entries: &mut Entries, page: Page) {
        entries.set_what(What::Huge(page));
        self.what.set(HUGE);
    }

    /// Removes an empty table, or the table kept for splitting a huge page, and returns its memory.
    /// The place of the table is empty afterwards.
    pub(super) fn take_blank(&self, entries: &mut Entries) -> Option<Blank> {
        self.what.set(NOTHING);
        entries.take_blank()
    }
}

/// The position of a page table: its index, and the records of the table and of its upper table.
pub(super) struct Spot<'t, M: Machine> {
    /// The index of the table in the address space.
    pub(super) index: u64,
    pub(super) upper: &'t Upper<M>,
    pub(super) leaf: &'t Leaf<M>,
}

impl<M: Machine> Clone for Spot<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Spot<'_, M> {}

impl<M: Machine> PageTable<M> {
    /// Makes the page tables of an address space. At first, there is no table.
    pub(super) fn new(machine: &M) -> Self {
        Self {
            uppers: Sparse::new(machine, SPACE_BITS - 2 * TABLE_BITS),
            frames: machine.word(0),
        }
    }

    /// Returns the number of pages that page tables occupy.
    pub(super) fn pages(&self, machine: &M) -> u64 {
        // Relaxed: this is only a count. It may be below 0 for a moment, if the removal of a table
        // is counted before its creation.
        at_least_0(self.frames.load(machine, Relaxed))
    }

    /// Adds `frames` to the number of pages that tables take; a negative value counts removed
    /// tables. The caller has already changed the state of the tables' places.
    ///
    /// Suppose that CPU 1 makes a table live, counts the table, and then checks whether it may fill
    /// the table. CPU 2 forbids filling the table, [catches up](Self::catch_up), and then looks for
    /// live tables. Then CPU 1 sees that it may not fill the table, or CPU 2 sees that the table is
    /// live, or both.
    pub(super) fn count(&self, machine: &M, frames: i64) {
        // AcqRel pairs with AcqRel in `catch_up`: the CPU that adds second sees what the other CPU
        // did before its addition.
        self.frames.add(machine, frames, AcqRel);
    }

    /// A CPU calls this method after it has forbidden other CPUs to fill tables, and before it
    /// looks for live tables. Another CPU may still fill a table, because it has not yet seen the
    /// caller's stores. After this call, the caller sees each such table. Otherwise the caller
    /// might skip the table without taking its lock.
    pub(super) fn catch_up(&self, machine: &M) {
        // AcqRel pairs with AcqRel in `count`. Of two CPUs that add to this word, the CPU whose
        // addition comes second sees what the other CPU did before the first addition.
        self.frames.add(machine, 0, AcqRel);
    }

    /// Returns the place of the table for `page`: the table's lock and state, which remain when the
    /// table is freed. Creates the place if needed.
    pub(super) fn spot(&self, machine: &M, page: Vpn) -> Result<Spot<'_, M>, NoMemory> {
        let index = table_of(page);
        let new_upper = || Upper::new(machine);
        let upper = self
            .uppers
            .get_or_make(machine, index >> TABLE_BITS, new_upper)?;
        let new_leaf = || Leaf {
            entries: machine.lock(LockClass::PageTable, machine.this_cpu(), Entries::default()),
            what: machine.field(NOTHING),
        };
        let leaf = upper.leaves.get_or_make(machine, slot(index), new_leaf)?;
        Ok(Spot { index, upper, leaf })
    }

    /// Returns the place of the page table for `page` (the lock and state of the table), if the
    /// place exists.
    #[inline]
    pub(super) fn find(&self, page: Vpn) -> Option<Spot<'_, M>> {
        let index = table_of(page);
        let upper = self.uppers.get(index >> TABLE_BITS)?;
        let leaf = upper.leaves.get(slot(index))?;
        Some(Spot { index, upper, leaf })
    }

    /// Returns the first place of a page table at or after `index`. A place exists from the first
    /// use of its table on, even if the table has since been freed.
    pub(super) fn next(&self, index: u64) -> Option<Spot<'_, M>> {
        let mut from = index;
        loop {
            let (number, upper) = self.uppers.next(from >> TABLE_BITS)?;
            let first = number << TABLE_BITS;
            from = from.max(first);
            if let Some((below, leaf)) = upper.leaves.next(slot(from)) {
                let index = first | below;
                return Some(Spot { index, upper, leaf });
            }
            from = (number + 1) << TABLE_BITS;
        }
    }

    /// Returns the place with the highest index below `index`. A place exists from the first use of
    /// its page table on, even if the table has since been freed.
    pub(super) fn prev(&self, index: u64) -> Option<Spot<'_, M>> {
        let mut end = index;
        loop {
            let (number, upper) = self.uppers.prev(end.div_ceil(SLOTS))?;
            let first = number << TABLE_BITS;
            let below = end.saturating_sub(first).min(SLOTS);
            if let Some((below, leaf)) = upper.leaves.prev(below) {
                let index = first | below;
                return Some(Spot { index, upper, leaf });
            }
            end = first;
        }
    }

    /// Returns the first existing upper table at or after `index`, together with its own index.
    pub(super) fn next_upper(&self, index: u64) -> Option<(u64, &Upper<M>)> {
        self.uppers.next(index)
    }
}

/// Converts the index that a page table has in the address space to its index among the 512 page
/// tables below one upper table.
const fn slot(index: u64) -> u64 {
    index & (SLOTS - 1)
}

impl<M: Machine> Upper<M> {
    fn new(machine: &M) -> Self {
        Self {
            frame: machine.lock(LockClass::UpperTable, machine.this_cpu(), None),
            framed: machine.field(0),
            leaves: Sparse::new(machine, TABLE_BITS),
        }
    }

    /// Returns whether a page is allocated for this upper table (Linux: PMD page). The answer may
    /// be outdated.
    pub(super) fn has_frame(&self) -> bool {
        self.framed.get() != 0
    }

    /// Removes the page frame that holds this upper table, and returns it. The caller has already
    /// removed all lower tables to which this table pointed.
    pub(super) fn take_frame(&self, machine: &M, site: Site) -> Option<Pfn> {
        self.frame.with(machine, site, |frame| {
            self.framed.set(0);
            frame.take()
        })
    }

    /// Gives this upper table (Linux: PMD page) the memory `page`, unless the table has memory
    /// already. In that case, returns `page`.
    pub(super) fn provide(&self, frame: &mut Option<Pfn>, page: Pfn) -> Option<Pfn> {
        if frame.is_some() {
            return Some(page);
        }
        *frame = Some(page);
        self.framed.set(1);
        None
    }
}

impl<M: Machine> Spot<'_, M> {
    /// Returns the first virtual page that the table maps.
    pub(super) fn start(&self) -> Vpn {
        first_page(self.index)
    }
}
