//! The number of pages that would be freed if the processes of an address space were killed. The
//! [OOM killer](crate::oom) compares candidates by this number.

use super::AddressSpace;
use crate::counter::{Range, Reading};
use crate::machine::Machine;
use crate::units::signed;

impl<M: Machine> AddressSpace<M> {
    /// Returns an estimate of the number of pages that the space has, with the range of that
    /// number. The number includes resident pages, pages in swap and pages of page tables (Linux:
    /// the sum in `oom_badness`).
    pub fn usage(&self, machine: &M) -> Reading {
        let Reading { estimate, range } = self.rss.usage(machine);
        let tables = self.tables(machine);
        Reading {
            estimate: estimate.saturating_add(tables),
            range: range + Range::exactly(tables),
        }
    }

    /// Returns the number of pages that [`AddressSpace::usage`] estimates. It is exact when no
    /// change is under way.
    pub fn usage_precise(&self, machine: &M) -> i64 {
        let pages = self.rss.usage_precise(machine);
        pages.saturating_add(self.tables(machine))
    }

    /// Returns the number of pages of the space's page tables.
    pub(crate) fn tables(&self, machine: &M) -> i64 {
        signed(self.table_pages(machine))
    }
}
