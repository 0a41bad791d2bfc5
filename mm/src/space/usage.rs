//! How much would come back if whoever uses an address space were killed: what a
//! [selection](crate::oom) asks for.

use super::AddressSpace;
use super::rss::Rss;
use crate::counter::Range;
use crate::machine::Machine;
use crate::oom::{Reading, Slot};

impl<M: Machine> AddressSpace<M> {
    /// Its pages as a cheap look can tell: resident, in swap, and those of page tables (Linux: what
    /// `oom_badness` adds up).
    pub fn usage(&self, machine: &M) -> Reading {
        let Reading { estimate, range } = self.rss.usage(machine);
        let tables = self.tables(machine);
        Reading {
            estimate: estimate.saturating_add(tables),
            range: range + Range::exactly(tables),
        }
    }

    /// The same exactly, when nothing is under way.
    pub fn usage_precise(&self, machine: &M) -> i64 {
        let pages = self.rss.usage_precise(machine);
        pages.saturating_add(self.tables(machine))
    }

    /// The same of many at once, CPU by CPU, for [`Candidates::precise_many`]: adds to each slot the
    /// pages of what `space_of` says its candidate uses; those who use nothing have exited. Leaves
    /// slots in another order.
    ///
    /// How much is gained by it: [`Counting::batch_gain`].
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
