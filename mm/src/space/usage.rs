//! The memory that would come back if the processes of an address space were killed; a
//! [selection](crate::oom) asks for it.

use super::AddressSpace;
use crate::counter::{Range, Reading};
use crate::machine::Machine;
use crate::units::signed;

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

    /// Returns the number of pages of its page tables, as a part of a sum.
    pub(crate) fn tables(&self, machine: &M) -> i64 {
        signed(self.table_pages(machine))
    }
}
