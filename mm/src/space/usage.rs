//! The memory that would come back if the processes of an address space were killed; a
//! [selection](crate::oom) asks for it.

use super::AddressSpace;
use super::rss::Rss;
use crate::counter::Range;
use crate::machine::Machine;
use crate::oom::{Reading, Slot};

impl<M: Machine> AddressSpace<M> {
    /// Returns the number of its pages, resident, in swap and of page tables, as far as the
    /// approximate sums tell (Linux: the sum in `oom_badness`).
    pub fn usage(&self, machine: &M) -> Reading {
        let Reading { estimate, range } = self.rss.usage(machine);
        let tables = self.tables(machine);
        Reading {
            estimate: estimate.saturating_add(tables),
            range: range + Range::exactly(tables),
        }
    }

    /// Returns the number of pages that [`AddressSpace::usage`] estimates; exact when nothing is
    /// under way.
    pub fn usage_precise(&self, machine: &M) -> i64 {
        let pages = self.rss.usage_precise(machine);
        pages.saturating_add(self.tables(machine))
    }

    /// Adds up [`AddressSpace::usage_precise`] of many address spaces at once, CPU by CPU, for
    /// [`Candidates::precise_many`]: to each slot, the pages of the space that `space_of` returns
    /// for its candidate. A candidate without a space is marked as exited. Leaves the slots in
    /// another order.
    ///
    /// [`Counting::batch_gain`] is how much faster this is.
    ///
    /// [`Candidates::precise_many`]: crate::oom::Candidates::precise_many
    /// [`Counting::batch_gain`]: crate::counter::Counting::batch_gain
    pub fn add_usages<'s>(
        machine: &M,
        slots: &mut [Slot],
        space_of: impl Fn(u32) -> Option<&'s Self>,
    ) {
        for slot in &mut *slots {
            match space_of(slot.candidate()) {
                Some(space) => slot.add(space.tables(machine)),
                None => slot.exited(),
            }
        }
        Rss::add_usages(machine, slots, |candidate| Some(&space_of(candidate)?.rss));
    }

    fn tables(&self, machine: &M) -> i64 {
        i64::try_from(self.table_pages(machine)).unwrap_or(i64::MAX)
    }
}
