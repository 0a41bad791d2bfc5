//! Page tables: where each virtual page is.
//!
//! ```text
//! PageTable ── Upper, 1 GiB: a lock ── Leaf, 2 MiB: a lock, and 512 entries or a huge page
//! ```
//!
//! `entry`: what an entry says. `table`: the entries of one table. `sparse`: how tables are found
//! without a lock: the place of a table stays once it was made, only the table in it comes and
//! goes. So nobody needs to wait for others to have left before a table is given back.
//!
//! Every table takes a page of memory, those of 1 GiB too; the levels above (a page per 512 GiB) are
//! not modelled.
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
use crate::units::{Pfn, Vpn};

/// log₂ of the entries of a table.
pub(super) const TABLE_BITS: u32 = 9;
/// Tables below an upper table.
const SLOTS: u64 = ENTRIES as u64;
/// log₂ of the pages of an address space: 128 TiB (x86-64 with four levels).
pub(super) const SPACE_BITS: u32 = 35;
/// Tables of an address space, all levels but the lowest left out.
pub(super) const TABLES: u64 = 1 << (SPACE_BITS - TABLE_BITS);

/// The table that `page` is in.
#[inline]
pub(super) const fn table_of(page: Vpn) -> u64 {
    page.0 >> TABLE_BITS
}

/// The first page of table `index`.
#[inline]
pub(super) const fn first_page(index: u64) -> Vpn {
    Vpn(index << TABLE_BITS)
}

/// See the module.
pub(super) struct PageTable<M: Machine> {
    uppers: Sparse<M, Upper<M>>,
    /// Pages that tables are in; also where those who make tables and those who empty them meet.
    frames: M::Word,
}

/// What 512 tables have in common.
pub(super) struct Upper<M: Machine> {
    /// Held while tables and huge pages come, and by those who take huge pages away unless what they
    /// take is theirs alone. Guards the page that this table is in.
    pub(super) frame: M::Lock<Option<Pfn>>,
    /// Not 0 if a page is there for this table.
    framed: M::Field,
    leaves: Sparse<M, Leaf<M>>,
}

/// The place of one table.
pub(super) struct Leaf<M: Machine> {
    pub(super) entries: M::Lock<Entries>,
    /// What is there, to look at without the lock.
    what: M::Field,
}

const NOTHING: u64 = 0;
const TABLE: u64 = 1;
const HUGE: u64 = 2;

impl<M: Machine> Leaf<M> {
    /// Whether there is a table. May be outdated unless the lock is held.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.what.get() == TABLE
    }

    /// Whether there is a huge page. May be outdated unless the lock is held.
    #[inline]
    pub(super) fn is_huge(&self) -> bool {
        self.what.get() == HUGE
    }

    /// From now on the table may be filled. A page was provided.
    pub(super) fn go_live(&self, entries: &mut Entries) {
        entries.set_what(What::Table);
        self.what.set(TABLE);
    }

    /// Puts a huge page where nothing is. A page for a table of its parts was provided.
    pub(super) fn set_huge(&self, entries: &mut Entries, page: Page) {
        entries.set_what(What::Huge(page));
        self.what.set(HUGE);
    }

    /// Takes an empty table, or what was kept for one; afterwards there is nothing.
    pub(super) fn take_blank(&self, entries: &mut Entries) -> Option<Blank> {
        self.what.set(NOTHING);
        entries.take_blank()
    }
}

/// A table and its place.
pub(super) struct Spot<'t, M: Machine> {
    /// Its number.
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
    /// No tables.
    pub(super) fn new(machine: &M) -> Self {
        Self {
            uppers: Sparse::new(machine, SPACE_BITS - 2 * TABLE_BITS),
            frames: machine.word(0),
        }
    }

    /// Pages that tables are in.
    pub(super) fn pages(&self, machine: &M) -> u64 {
        // Relaxed: a count.
        u64::try_from(self.frames.load(machine, Relaxed)).unwrap_or(0)
    }

    /// Counts pages of tables: some have come and their tables are live, or some have gone.
    ///
    /// Of two CPUs, one that makes a table live, counts it and then looks whether it may be filled,
    /// and one that makes filling wrong, [catches up](Self::catch_up) and then looks for live tables,
    /// at least one sees what the other did.
    pub(super) fn count(&self, machine: &M, frames: i64) {
        // AcqRel: pairs with that in `catch_up`, whichever is first.
        self.frames.add(machine, frames, AcqRel);
    }

    /// From here on every table is seen that is filled by somebody who does not see what was done
    /// before. Without this a table might still look as if it was not there, though nobody waits
    /// for its lock.
    pub(super) fn catch_up(&self, machine: &M) {
        // AcqRel: pairs with that in `count`, whichever is first.
        self.frames.add(machine, 0, AcqRel);
    }

    /// The place of the table that `page` is in, made if need be.
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

    /// The same if it was made already.
    #[inline]
    pub(super) fn find(&self, page: Vpn) -> Option<Spot<'_, M>> {
        let index = table_of(page);
        let upper = self.uppers.get(index >> TABLE_BITS)?;
        let leaf = upper.leaves.get(slot(index))?;
        Some(Spot { index, upper, leaf })
    }

    /// The first table from number `index` up whose place was made.
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

    /// The last table below number `index` whose place was made.
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

    /// The first upper table from number `index` up that was made, with its number.
    pub(super) fn next_upper(&self, index: u64) -> Option<(u64, &Upper<M>)> {
        self.uppers.next(index)
    }
}

/// The place of table `index` in its upper table.
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

    /// Whether a page is there for this table. May be outdated.
    pub(super) fn has_frame(&self) -> bool {
        self.framed.get() != 0
    }

    /// Takes the page of this table; all tables below are gone.
    pub(super) fn take_frame(&self, machine: &M, site: Site) -> Option<Pfn> {
        self.frame.with(machine, site, |frame| {
            self.framed.set(0);
            frame.take()
        })
    }

    /// Gives this table `page` to be in if it has none yet, and otherwise gives it back.
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
    /// Its first page.
    pub(super) fn start(&self) -> Vpn {
        first_page(self.index)
    }
}
