//! What a group keeps in per-CPU memory, and what it keeps elsewhere.

use super::area::Place;
use super::used::{Used, first_ones, ones};
use crate::machine::Machine;
use crate::site::Work;

/// A group in two parts: the sum of all its counters is what both hold.
pub(super) struct Parts<'a, M: Machine> {
    /// What is not in per-CPU memory, all counters together.
    pub(super) elsewhere: i64,
    /// What is.
    pub(super) cells: Option<Cells<'a, M>>,
}

/// The cells of a group.
pub(super) struct Cells<'a, M: Machine> {
    pub(super) place: &'a Place<M>,
    /// Those that ever held something; all, if nobody keeps a record.
    pub(super) used: Option<Used<'a, M>>,
    pub(super) cpus: u32,
    /// How many of them never held anything, at most.
    pub(super) unused_max: u32,
}

/// So many cells of a group are streamed in the time in which one line is fetched, about: four
/// nanoseconds each, against one to two hundred.
const CELLS_PER_LINE: u32 = 32;

impl<M: Machine> Parts<'_, M> {
    /// The sum of all counters, each CPU looked at once: counters of a group are neighbours.
    pub(super) fn total(&self, machine: &M) -> i64 {
        let cells = self.cells.as_ref();
        let cells = cells.map_or(0, |cells| cells.total(machine));
        self.elsewhere.wrapping_add(cells)
    }
}

impl<M: Machine> Cells<'_, M> {
    /// Whether streaming all cells is cheaper than asking which were used: that is on a line of its own.
    /// The others are 0.
    pub(super) fn are_nearly_all_used(&self) -> bool {
        self.unused_max <= CELLS_PER_LINE
    }

    /// Which of the 64 CPUs from `64 * nth` on may hold something, a bit each.
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
