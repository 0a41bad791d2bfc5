//! The sum of a group of counters as two parts: one from per-CPU memory, and one from outside it.

use super::area::Place;
use super::used::{Used, first_ones, ones};
use crate::machine::Machine;
use crate::site::Work;

/// The two parts of the sum of a group's counters. The sum is `elsewhere` plus the total of
/// `cells`.
pub(super) struct Parts<'a, M: Machine> {
    /// The sum of everything that the counters hold outside per-CPU memory.
    pub(super) elsewhere: i64,
    /// The group's words in per-CPU memory, not yet summed; `None` if the group has none.
    pub(super) cells: Option<Cells<'a, M>>,
}

/// The cells (words in per-CPU memory) of a group of counters.
pub(super) struct Cells<'a, M: Machine> {
    pub(super) place: &'a Place<M>,
    /// The record of the CPUs whose cells (parts of the group's counters) have ever held anything.
    /// It is `None` if the group keeps no such record; a sum then reads all cells.
    pub(super) used: Option<Used<'a, M>>,
    pub(super) cpus: u32,
    /// An upper bound on the number of CPUs whose cells never held anything.
    pub(super) unused_max: u32,
}

/// In the time that it takes to fetch one cache line, about this number of cells can be read, if
/// the cells follow each other in memory. Reading a cell takes 4 ns; fetching a line takes 100 to
/// 200 ns.
const CELLS_PER_LINE: u32 = 32;

impl<M: Machine> Parts<'_, M> {
    /// Returns the sum of all counters of the group. Visits each CPU only once, because a CPU's
    /// cells of all counters of the group are adjacent in memory.
    pub(super) fn total(&self, machine: &M) -> i64 {
        let cells = self.cells.as_ref();
        let cells = cells.map_or(0, |cells| cells.total(machine));
        self.elsewhere.wrapping_add(cells)
    }
}

impl<M: Machine> Cells<'_, M> {
    /// Returns whether so few cells are unused that reading all cells is cheaper than first looking
    /// up the used ones. A look-up fetches the cache line with the record of used cells. Unused
    /// cells are 0, so reading them does not change the sum.
    pub(super) fn are_nearly_all_used(&self) -> bool {
        self.unused_max <= CELLS_PER_LINE
    }

    /// Returns a word with one bit for each of the 64 CPUs whose indices start at `64 * nth`. The
    /// bit is 1 if the CPU's cells may hold something.
    #[inline]
    pub(super) fn cpus_of(&self, machine: &M, nth: usize) -> u64 {
        let cpus = self.cpus as usize;
        match &self.used {
            Some(used) => used.cpus_of(machine, nth, cpus),
            None => first_ones(cpus - nth * 64),
        }
    }

    fn total(&self, machine: &M) -> i64 {
        let words = 0..(self.cpus as usize).div_ceil(64);
        let cpus = words.flat_map(|nth| {
            let set = self.cpus_of(machine, nth);
            machine.spend(Work::ScanCpu, set.count_ones());
            ones(set).map(move |bit| nth * 64 + bit)
        });
        cpus.map(|cpu| self.place.total(machine, cpu))
            .fold(0, i64::wrapping_add)
    }
}
