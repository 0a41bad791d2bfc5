//! Takes the precise sums of many groups of counters at once, CPU by CPU.
//!
//! A group has its cells in one cache line per CPU, and these cache lines are far apart in memory.
//! The neighbouring memory holds the cells of other groups in the same [`Area`](super::Area). This
//! module therefore sums many groups together. It reads each chunk of the area once, from start to
//! end, which is the fastest way to read memory.

use super::any::AnyCounters;
use super::cells::{Cells, Parts};
use super::runs::PLACES;
use super::used::ones;
use crate::machine::Machine;
use crate::site::Work;

/// Sums all counters of many groups. `group` returns the group of an item. For each of `items` that
/// has a group, calls `add` once or more, each time with a part of the group's sum.
///
/// Each group's total is the same as from
/// [`Counters::precise_total`](super::Counters::precise_total): it includes every addition that has
/// returned. Each addition in progress is included completely or not at all.
///
/// The items can be in any order, but the function is fast only if they are in the order of
/// [`AnyCounters::position`]. Summing a group without per-CPU memory takes one read of the group's
/// cache line. Flat counters gain no speed: each is summed under its own lock. Without the lock,
/// the sum would miss a part that another CPU folds while this CPU reads other parts.
pub fn precise_totals<'g, M: Machine, T>(
    machine: &M,
    items: &mut [T],
    group: impl Fn(&T) -> Option<&'g AnyCounters<M>>,
    mut add: impl FnMut(&mut T, i64),
) {
    let mut run = Run::new();
    for at in 0..items.len() {
        let Some(counters) = group(&items[at]) else {
            continue;
        };
        let Parts { elsewhere, cells } = counters.parts(machine);
        add(&mut items[at], elsewhere);
        let Some(cells) = cells else {
            continue;
        };
        if !run.has_room_for(&cells) {
            run.sum(machine, |at, pages| add(&mut items[at], pages));
        }
        run.push(at, cells);
    }
    run.sum(machine, |at, pages| add(&mut items[at], pages));
}

/// Groups of counters that are summed together, because their cells (per-CPU parts) are in the same
/// chunk of memory.
struct Run<'g, M: Machine> {
    members: [Option<Member<'g, M>>; PLACES],
    len: usize,
}

struct Member<'g, M: Machine> {
    /// The index, in the caller's list, of the group that has these cells.
    item: usize,
    cells: Cells<'g, M>,
}

/// If at least this many groups of a chunk are summed, one CPU's cells of these groups can be read
/// at the speed of a sequential read. The number is a quarter of the groups of a chunk, so these
/// cells follow each other closely in memory. With fewer groups, the reader waits for each cache
/// line.
const DENSE: u32 = 16;

const _: () = assert!(4 * DENSE as usize == PLACES, "a quarter of a row");

impl<'g, M: Machine> Run<'g, M> {
    fn new() -> Self {
        Self {
            members: [const { None }; PLACES],
            len: 0,
        }
    }

    fn has_room_for(&self, cells: &Cells<'g, M>) -> bool {
        self.first()
            .is_none_or(|first| self.len < PLACES && first.place.is_beside(cells.place))
    }

    fn push(&mut self, item: usize, cells: Cells<'g, M>) {
        self.members[self.len] = Some(Member { item, cells });
        self.len += 1;
    }

    fn first(&self) -> Option<&Cells<'g, M>> {
        self.members[..self.len]
            .first()?
            .as_ref()
            .map(|member| &member.cells)
    }

    fn members(&self) -> impl Iterator<Item = &Member<'g, M>> {
        self.members[..self.len].iter().flatten()
    }

    /// Computes the total of each group in the run. For each group, calls `add` with the index of
    /// the group's item in the caller's list, and with the total. Then empties the run.
    fn sum(&mut self, machine: &M, mut add: impl FnMut(usize, i64)) {
        let Some(first) = self.first() else {
            return;
        };
        let mut firsts = [0; PLACES];
        for (first, member) in firsts.iter_mut().zip(self.members()) {
            *first = member.cells.place.first();
        }
        let mut totals = [0_i64; PLACES];
        let everywhere = self.everywhere();
        for nth in 0..(first.cpus as usize).div_ceil(64) {
            let rows = self.rows(machine, nth, everywhere);
            spend(machine, &rows);
            for (cpu, members) in (nth * 64..).zip(rows) {
                if members == 0 {
                    continue;
                }
                let row = first.place.row(cpu);
                for member in ones(members) {
                    let more = row.total(machine, firsts[member], first.place.width());
                    totals[member] = totals[member].wrapping_add(more);
                }
            }
        }
        for (member, total) in self.members().zip(totals) {
            add(member.item, total);
        }
        self.len = 0;
    }

    /// Returns a word with one bit for each group of counters in this run of groups. The bit is 1
    /// if nearly every CPU has added to the group. The caller reads the cells of these groups on
    /// every CPU. Returns 0 if there are so few such groups that a CPU's part of the chunk is not
    /// worth reading from start to end.
    fn everywhere(&self) -> u64 {
        let members = self.members().zip(0..PLACES);
        let nearly = members.filter(|(member, _)| member.cells.are_nearly_all_used());
        let nearly = nearly.fold(0_u64, |nearly, (_, at)| nearly | 1 << at);
        if nearly.count_ones() >= DENSE {
            nearly
        } else {
            0
        }
    }

    /// Returns a word for each of the 64 CPUs whose indices start at `64 * nth`. The word has one
    /// bit for each group of counters in this run whose cells on that CPU may hold something. Each
    /// group in `everywhere` gets its bit on every CPU, without a look-up of the CPUs that have
    /// added to it.
    fn rows(&self, machine: &M, nth: usize, mut everywhere: u64) -> [u64; 64] {
        let mut rows = [0; 64];
        for (member, bit) in self.members().zip((0..PLACES).map(|at| 1 << at)) {
            if everywhere & bit != 0 {
                continue;
            }
            match member.cells.cpus_of(machine, nth) {
                u64::MAX => everywhere |= bit,
                cpus => ones(cpus).for_each(|cpu| rows[cpu] |= bit),
            }
        }
        let cpus = self.first().map_or(0, |first| first.cpus as usize);
        let real = cpus.saturating_sub(nth * 64).min(rows.len());
        for row in &mut rows[..real] {
            *row |= everywhere;
        }
        rows
    }
}

/// Reports to the `Machine` (which may be simulated) the work of reading the cells in `rows`.
/// `rows` has one word for each CPU, with one bit for each group of the run whose cells are read.
fn spend<M: Machine>(machine: &M, rows: &[u64; 64]) {
    let (mut streamed, mut scanned) = (0, 0);
    for groups in rows.iter().map(|row| row.count_ones()) {
        if groups >= DENSE {
            streamed += groups;
        } else {
            scanned += groups;
        }
    }
    machine.spend(Work::StreamCpu, streamed);
    machine.spend(Work::ScanCpu, scanned);
}
