//! Precise sums of many groups together, CPU by CPU.
//!
//! The cells of one group are on as many cache lines as there are CPUs, far apart. The cells of its
//! neighbours in the same [`Area`](super::Area) lie beside them. So a reader of all groups reads
//! each chunk once, from its beginning to its end, which is the fastest way to read memory.

use super::any::AnyCounters;
use super::area::PLACES;
use super::cells::{Cells, Parts};
use super::used::ones;
use crate::machine::Machine;
use crate::site::Work;

/// Adds up all counters of many groups. Calls `add` for each of `items`, once or more, with parts
/// of the sum of the group that `group` returns for the item. An item without a group gets no call.
///
/// Each total is as by [`Counters::precise_total`](super::Counters::precise_total): it includes
/// every addition that has returned, and each addition under way as a whole or not at all.
///
/// This is fast if items are in the order of [`AnyCounters::position`], and right in any order. A
/// group that keeps nothing in per-CPU memory costs a read of its line. Flat counters gain nothing:
/// each is summed under its own lock, because the sum would miss a part that is folded while other
/// parts are read.
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

/// Groups of one chunk, which are summed together.
struct Run<'g, M: Machine> {
    members: [Option<Member<'g, M>>; PLACES],
    len: usize,
}

struct Member<'g, M: Machine> {
    /// The index of the item whose cells these are.
    item: usize,
    cells: Cells<'g, M>,
}

/// A row is read in the order of memory if at least this many of its groups are wanted, a quarter
/// of them. With fewer, the reader waits for every line.
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

    /// Sums the groups that were pushed, and forgets them.
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

    /// Returns the members to read on every CPU, one bit each, because nearly every CPU has added
    /// to them. Returns none if they are too few to make each row worth streaming.
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

    /// Returns, for each of the 64 CPUs from `64 * nth` on, the members whose cells may hold
    /// something there. Does not look up which CPUs used the members of `everywhere`.
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

/// Spends the work of reading these rows.
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
