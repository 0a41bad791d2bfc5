//! The parts of a group of counters: those in per-CPU memory, and those elsewhere.

use super::area::Place;
use super::used::{Used, first_ones, ones};
use crate::machine::Machine;
use crate::site::Work;

/// A group in two parts. The sum of all its counters is the sum of both parts.
pub(super) struct Parts<'a, M: Machine> {
    /// The sum of all counters over everything that is not in per-CPU memory.
    pub(super) elsewhere: i64,
    /// The part in per-CPU memory, if the group has any.
    pub(super) cells: Option<Cells<'a, M>>,
}

/// The cells of a group.
pub(super) struct Cells<'a, M: Machine> {
    pub(super) place: &'a Place<M>,
    /// The cells that ever held something; all cells, if the group keeps no such record.
    pub(super) used: Option<Used<'a, M>>,
    pub(super) cpus: u32,
    /// At most how many cells never held anything.
    pub(super) unused_max: u32,
}

/// The number of a group's cells that are streamed in about the time of fetching one line: four
/// nanoseconds each, against one to two hundred.
const CELLS_PER_LINE: u32 = 32;

impl<M: Machine> Parts<'_, M> {
    /// Returns the sum of all counters. Looks at each CPU once, because the counters of a group are
    /// neighbours.
    pub(super) fn total(&self, machine: &M) -> i64 {
        let cells = self.cells.as_ref();
        let cells = cells.map_or(0, |cells| cells.total(machine));
        self.elsewhere.wrapping_add(cells)
    }
}

impl<M: Machine> Cells<'_, M> {
    /// Returns whether streaming all cells is cheaper than asking which of them were used. That
    /// record is on a line of its own, and unused cells are 0, so adding them does no harm.
    pub(super) fn are_nearly_all_used(&self) -> bool {
        self.unused_max <= CELLS_PER_LINE
    }

    /// Returns the set of CPUs, among the 64 from `64 * nth` on, whose cells may hold something:
    /// one bit per CPU.
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
