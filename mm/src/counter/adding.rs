//! Additions to a [`OneSidedTree`]: to the group's first cache line, or to the cell of a CPU. A cell
//! that passes a multiple of its batch passes the multiple on to the item above it.
//!
//! The path of most additions, those to a cell, contains no call that returns to it. So the compiler
//! saves no registers on this path.
//!
//! Locks: none. An addition that creates the tree takes the lock of the area.

use core::sync::atomic::Ordering::Relaxed;

use super::carry::carry;
use super::one_sided::{BEHIND, Grown, Growth, HOME, OneSidedTree};
use crate::machine::{Line, LocalWord, Machine, Once};
use crate::site::Work;
use crate::units::{CpuId, count_of};

/// The number of low bits of the word [`HOME`] that hold the index of the CPU that added last, plus
/// one. The higher bits count the changes from one CPU to another.
const CPU_BITS: u32 = 32;
/// The number of CPUs whose words can be cleared in about the time it takes to move one cache line.
/// Clearing takes a few nanoseconds per CPU; a move takes 100 to 200 ns.
const CPUS_PER_MOVE: i64 = 16;

impl<M: Machine> OneSidedTree<M> {
    /// Adds on the CPU on which the caller runs.
    #[inline(always)]
    pub(super) fn add_on_this_cpu(&self, machine: &M, counter: usize, delta: i64, may: Growth) {
        match machine.this_cpu_at_once() {
            Some(cpu) => self.add_on(machine, cpu, counter, delta, may),
            None => self.add_slowly(machine, counter, delta, may),
        }
    }

    /// Adds on the CPU on which the caller runs, if the machine takes long to find out this CPU.
    #[cold]
    #[inline(never)]
    fn add_slowly(&self, machine: &M, counter: usize, delta: i64, may: Growth) {
        self.add_on(machine, machine.this_cpu(), counter, delta, may);
    }

    #[inline(always)]
    fn add_on(&self, machine: &M, cpu: CpuId, counter: usize, delta: i64, may: Growth) {
        match self.grown.get() {
            Some(grown) => self.add_to_tree(machine, grown, cpu, counter, delta),
            None => self.add_to_line(machine, cpu, counter, delta, may),
        }
    }

    /// Adds to the group's first cache line if this CPU also made the last addition. Otherwise, the
    /// cache line moves to this CPU, and this function calls [`Self::add_moved`].
    #[inline]
    fn add_to_line(&self, machine: &M, cpu: CpuId, counter: usize, delta: i64, may: Growth) {
        self.check_counter(counter);
        let home = self.first.load(machine, HOME, Relaxed);
        if home & ((1 << CPU_BITS) - 1) == home_of(cpu) {
            self.first.add(machine, counter, delta, Relaxed);
        } else {
            self.add_moved(machine, counter, delta, home, may);
        }
    }

    /// Records that the group's cache line moves to this CPU, then adds. If the line has moved
    /// often enough, first creates the tree, provided that `may` allows it. If `may` forbids it, a
    /// later addition that may allocate creates the tree.
    #[cold]
    #[inline(never)]
    fn add_moved(&self, machine: &M, counter: usize, delta: i64, home: i64, may: Growth) {
        let cpu = machine.this_cpu();
        let moves = (home >> CPU_BITS) + i64::from(home != 0);
        let next = moves << CPU_BITS | home_of(cpu);
        // If another CPU changes the word [`HOME`] first, the change by this CPU is not counted.
        let _ = self
            .first
            .compare_exchange(machine, HOME, home, next, Relaxed);
        let enough = (i64::from(self.shape.cpus()) / CPUS_PER_MOVE).max(2);
        if moves >= enough
            && matches!(may, Growth::Allowed)
            && self.grow(machine).is_ok()
            && let Some(grown) = self.grown.get()
        {
            // Creating the tree takes a while, and the task may have migrated in the meantime.
            let cpu = machine.this_cpu();
            return self.add_to_tree(machine, grown, cpu, counter, delta);
        }
        self.first.add(machine, counter, delta, Relaxed);
    }

    #[inline(always)]
    fn add_to_tree(&self, machine: &M, grown: &Grown<M>, cpu: CpuId, counter: usize, delta: i64) {
        // This call reports to the machine the work of an addition to the CPU's own cell. An
        // addition to a shared cache line needs no such call, because the machine itself counts
        // each access to a line.
        machine.spend(Work::Count, 1);
        if grown.used().has(machine, cpu.index()) {
            self.add_to_cell(machine, grown, cpu.index(), counter, delta);
        } else {
            self.add_first(machine, grown, cpu.index(), counter, delta);
        }
    }

    /// Makes the first addition of the CPU `cpu` to the tree.
    #[cold]
    #[inline(never)]
    fn add_first(&self, machine: &M, grown: &Grown<M>, cpu: usize, counter: usize, delta: i64) {
        // Mark the CPU before its cell holds anything, so that readers that skip unused cells do
        // not skip this one.
        self.use_cpu(machine, grown, cpu);
        self.add_to_cell(machine, grown, cpu, counter, delta);
    }

    #[inline(always)]
    fn add_to_cell(&self, machine: &M, grown: &Grown<M>, cpu: usize, counter: usize, delta: i64) {
        let word = grown.cells.word(cpu, counter);
        match word.add_here(machine, CpuId(count_of(cpu)), delta) {
            Some(new) => self.pass_on(machine, grown, cpu, counter, delta, new),
            None => self.add_again(machine, grown, cpu, counter, delta),
        }
    }

    /// Continues [`Self::add_to_cell`] if this task may have migrated from `cpu`.
    #[cold]
    #[inline(never)]
    pub(super) fn add_again(
        &self,
        machine: &M,
        grown: &Grown<M>,
        cpu: usize,
        counter: usize,
        delta: i64,
    ) {
        let (word, id) = (grown.cells.word(cpu, counter), CpuId(count_of(cpu)));
        let new = word
            .admits(machine, id)
            .then(|| word.add_here(machine, id, delta));
        match new.flatten() {
            Some(new) => self.pass_on(machine, grown, cpu, counter, delta, new),
            // All sums include the first line.
            None => {
                self.first.add(machine, counter, delta, Relaxed);
            }
        }
    }

    /// Completes an addition of `delta` to the cell of `cpu`, whose value is now `new`: if the
    /// value has passed a multiple of the batch, passes the multiple on.
    #[inline(always)]
    fn pass_on(
        &self,
        machine: &M,
        grown: &Grown<M>,
        cpu: usize,
        counter: usize,
        delta: i64,
        new: i64,
    ) {
        let batch = i64::from(self.shape.batch().get());
        let carried = carry(new.wrapping_sub(delta), new, batch);
        if carried != 0 {
            self.carry_up(machine, grown, cpu, counter, carried);
        }
    }

    /// Adds `carried`, which the cell of `cpu` passed on, to the item (inner node) above the cell.
    /// If an item passes on a multiple of its batch, adds it to the next level, up to the root.
    #[cold]
    #[inline(never)]
    pub(super) fn carry_up(
        &self,
        machine: &M,
        grown: &Grown<M>,
        cpu: usize,
        counter: usize,
        mut carried: i64,
    ) {
        let path = self.shape.path(cpu);
        for (level, &item) in self.shape.levels().iter().zip(path) {
            if carried & (level.batch - 1) == 0 {
                continue;
            }
            let item = grown.item(item as usize);
            let new = item.add(machine, counter, carried, Relaxed);
            carried = carry(new.wrapping_sub(carried), new, level.batch);
            if carried == 0 {
                return;
            }
        }
        let root = path[path.len() - 1] as usize;
        grown.item(root).add(machine, counter, carried, Relaxed);
    }

    /// Raises `T`, the largest amount that the tree may not have carried to its roots yet. The cell
    /// of `cpu` and the items above it raise `T` by the amounts that they can keep, but each of
    /// them only once.
    #[cold]
    pub(super) fn use_cpu(&self, machine: &M, grown: &Grown<M>, cpu: usize) {
        let cells = self.shape.cpus() as usize;
        let mut more = 0;
        for (level, &item) in self.shape.levels().iter().zip(self.shape.path(cpu)) {
            if grown.used().mark(machine, cells + item as usize) {
                more += level.kept_max().cast_signed();
            }
        }
        if grown.used().mark(machine, cpu) && self.shape.cpus() > 1 {
            more += i64::from(self.shape.batch().get() - 1);
        }
        self.first.add(machine, BEHIND, more, Relaxed);
    }
}

/// Returns the code of `cpu` in [`HOME`], where the code 0 means that no CPU has added yet.
#[inline]
fn home_of(cpu: CpuId) -> i64 {
    i64::from(cpu.0) + 1
}
