//! Presents the processes of an embedder as the [`Candidates`] of a selection.
//!
//! This file takes no lock.

use alloc::sync::Arc;
use core::fmt;
use core::iter;

use super::candidate::Candidates;
use super::facts::{Facts, GroupId};
use super::process::Process;
use super::select::Slot;
use super::usages::sum_spaces;
use crate::counter::{Counters, Range, Reading};
use crate::machine::Machine;
use crate::site::Work;
use crate::space::budget::Budget;
use crate::space::rss::{Rss, RssKind};
use crate::space::{AddressSpace, Flag};
use crate::topology::NodeSet;
use crate::units::count_of;

/// The id of the group of all processes that are under the budget that ran out of pages.
pub(super) const INSIDE: GroupId = GroupId(1);
/// The id of the group of all processes that are not under the budget that ran out of pages.
const OUTSIDE: GroupId = GroupId(0);

/// Presents processes, in the order in which they were made, as candidates of a selection, which is
/// a search for the process to kill.
pub struct Census<'p, M: Machine> {
    machine: &'p M,
    processes: &'p [Arc<Process<M>>],
    domain: Option<&'p Arc<Budget<M>>>,
    nodes: &'p dyn Fn(&Process<M>) -> NodeSet,
}

impl<'p, M: Machine> Census<'p, M> {
    /// Makes a census of all `processes`, each of which may use every node.
    pub fn new(machine: &'p M, processes: &'p [Arc<Process<M>>]) -> Self {
        Self {
            machine,
            processes,
            domain: None,
            nodes: &|_| NodeSet::ALL,
        }
    }

    /// Puts the processes under the budget `domain` into group 1 and all others into group 0. With
    /// `None`, all processes are in group 0.
    #[must_use]
    pub(super) fn within(self, domain: Option<&'p Arc<Budget<M>>>) -> Self {
        Self { domain, ..self }
    }

    /// Restricts each process to the nodes that `nodes` returns for it.
    #[must_use]
    pub(super) fn on_nodes(self, nodes: &'p dyn Fn(&Process<M>) -> NodeSet) -> Self {
        Self { nodes, ..self }
    }

    /// Returns the processes, in the order in which they were made.
    #[must_use]
    pub const fn processes(&self) -> &'p [Arc<Process<M>>] {
        self.processes
    }

    pub(super) const fn machine(&self) -> &'p M {
        self.machine
    }

    pub(super) fn process(&self, candidate: u32) -> Option<&'p Arc<Process<M>>> {
        self.processes.get(candidate as usize)
    }

    /// Returns whether the last user of a victim's address space is emptying it at this moment.
    pub(super) fn has_leaving_victim(&self) -> bool {
        let machine = self.machine;
        let processes = self.processes.iter();
        let mut spaces = processes.filter_map(|process| process.last_space());
        spaces.any(|space| {
            space.has(machine, Flag::Victim)
                && space.has(machine, Flag::Exiting)
                && !space.has(machine, Flag::Ended)
        })
    }

    fn space(&self, candidate: u32) -> Option<&'p AddressSpace<M>> {
        let space = self.process(candidate)?.space(self.machine)?;
        Some(space)
    }

    fn group_of(&self, process: &Process<M>) -> GroupId {
        let space = process.last_space();
        let budget = space.and_then(|space| space.budget());
        let inside = self.domain.is_some_and(|domain| {
            iter::successors(budget, |budget| budget.parent())
                .any(|budget| Arc::ptr_eq(budget, domain))
        });
        if inside { INSIDE } else { OUTSIDE }
    }
}

impl<M: Machine> Candidates for Census<'_, M> {
    fn len(&self) -> u32 {
        count_of(self.processes.len())
    }

    fn facts(&self, candidate: u32) -> Option<Facts> {
        let process = self.process(candidate)?;
        Some(Facts {
            nodes: (self.nodes)(process),
            group: self.group_of(process),
            ..process.facts(self.machine)
        })
    }

    fn approximate(&self, candidate: u32) -> Option<Reading> {
        let (machine, space) = (self.machine, self.space(candidate)?);
        let counters = space.rss().counters();
        let of = |kind: RssKind| counters.min_max(machine, kind as usize);
        let sum = |sum: Range, range: Range| sum + range;
        let range = RssKind::ALL
            .into_iter()
            .map(of)
            .fold(tables(machine, space), sum);
        let range = Range {
            min: range.min.max(0),
            max: range.max.max(0),
        };
        let rss = space.rss();
        let estimate = rss.resident(machine) + rss.approximate(machine, RssKind::Swap);
        // A sum beyond 63 bits becomes the largest value, which the clamp below reduces to the end
        // of the range.
        let estimate = i64::try_from(estimate + space.table_pages(machine)).unwrap_or(i64::MAX);
        // The counters are read a second time for the estimate, so pages may have been added since
        // the range was read. The clamp leaves those pages out.
        let estimate = estimate.clamp(range.min, range.max);
        Some(Reading { estimate, range })
    }

    fn precise(&self, candidate: u32) -> Option<i64> {
        Some(self.space(candidate)?.usage_precise(self.machine))
    }

    /// A candidate may exit while the pages of the candidates are summed. The selection notices
    /// this if the candidate becomes the victim, because it checks the victim once more at the end.
    fn precise_many(&self, slots: &mut [Slot]) {
        sum_spaces(self.machine, slots, |candidate| self.space(candidate));
    }

    fn compared(&self, comparisons: u32) {
        self.machine.spend(Work::Compare, comparisons);
    }

    fn batch_gain(&self) -> u32 {
        let first = (0..self.len()).find_map(|candidate| self.space(candidate));
        first.map_or(1, |space| space.rss().counters().counting().batch_gain())
    }
}

/// Returns the number of pages of a space's page tables. The count is exact, so the range has a
/// single value.
fn tables<M: Machine>(machine: &M, space: &AddressSpace<M>) -> Range {
    Range::exactly(space.tables(machine))
}

/// The memory of one process as a report shows it: approximate sums, all in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Resident pages of files.
    pub file: u64,
    /// Resident anonymous pages.
    pub anon: u64,
    /// Resident pages of shared memory.
    pub shmem: u64,
    /// Pages in swap.
    pub swap: u64,
    /// Pages of page tables.
    pub tables: u64,
}

impl Pages {
    pub(super) fn of<M: Machine>(machine: &M, space: &AddressSpace<M>) -> Self {
        let rss: &Rss<M> = space.rss();
        let of = |kind| rss.approximate(machine, kind);
        Self {
            file: of(RssKind::File),
            anon: of(RssKind::Anon),
            shmem: of(RssKind::Shmem),
            swap: of(RssKind::Swap),
            tables: space.table_pages(machine),
        }
    }

    /// Returns the resident pages of every kind.
    #[must_use]
    pub const fn resident(&self) -> u64 {
        self.file + self.anon + self.shmem
    }

    /// Returns all pages of the process, from which its points are computed.
    #[must_use]
    pub const fn all(&self) -> u64 {
        self.resident() + self.swap + self.tables
    }
}

impl<M: Machine> fmt::Debug for Census<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Census")
            .field("processes", &self.processes.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_in_swap_and_of_tables_are_not_resident() {
        let pages = Pages {
            file: 2,
            anon: 30,
            shmem: 500,
            swap: 7000,
            tables: 11_000,
        };
        assert_eq!(pages.resident(), 532);
        assert_eq!(pages.all(), 18_532);
        assert_eq!(Pages::default().resident(), 0);
    }
}
