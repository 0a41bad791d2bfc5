//! A tree of counters as one CPU uses it.

use core::fmt;

use super::Counters;
use super::area::{BLOCK, Block};
use super::carry::carry;
use super::one_sided::{Grown, OneSidedTree};
use crate::machine::{LocalWord, Machine, Once};
use crate::site::Work;
use crate::units::CpuId;

/// A [`OneSidedTree`] for additions on one CPU. It has looked up the CPU's cells, so an addition
/// takes less time. If the group was still one shared cache line when this value was made, an
/// addition takes as long as one to the group.
///
/// An addition on another CPU is also correct, but slower.
///
/// ```
/// use plimsoll_mm::counter::OneSidedTree;
/// use plimsoll_mm::machine::Machine;
///
/// /// Counts as many requests as `served` on the CPU that the calling thread plays.
/// fn count_requests<M: Machine>(machine: &M, requests: &OneSidedTree<M>, served: i64) {
///     let here = requests.local(machine, machine.this_cpu());
///     for _ in 0..served {
///         here.add(machine, 0, 1);
///     }
/// }
/// ```
pub struct LocalTree<'t, M: Machine> {
    group: &'t OneSidedTree<M>,
    cpu: CpuId,
    /// `None` if the group had no tree when this value was made.
    near: Option<Near<'t, M>>,
}

/// The part of a tree of counters that an addition by one CPU needs.
struct Near<'t, M: Machine> {
    tree: &'t Grown<M>,
    /// Words of the CPU, in blocks. The first block has the word of the group's first counter.
    blocks: &'t [Block<M>],
    /// The index of this word in the first block.
    first: usize,
    batch: i64,
}

impl<M: Machine> OneSidedTree<M> {
    /// Returns the group for additions on `cpu`. If the tree exists, this counts as the CPU's first
    /// addition: the range in which a sum lies becomes as wide as if the CPU had added.
    ///
    /// # Panics
    /// If the machine has no such CPU.
    pub fn local(&self, machine: &M, cpu: CpuId) -> LocalTree<'_, M> {
        assert!(cpu.0 < self.shape.cpus(), "no such CPU");
        let near = self.grown.get().map(|tree| {
            // Mark the CPU before its cell holds anything, because readers skip unmarked cells.
            if !tree.used().has(machine, cpu.index()) {
                self.use_cpu(machine, tree, cpu.index());
            }
            let (blocks, first) = tree.cells.blocks_of(cpu.index());
            let batch = i64::from(self.shape.batch().get());
            Near {
                tree,
                blocks,
                first,
                batch,
            }
        });
        LocalTree {
            group: self,
            cpu,
            near,
        }
    }
}

impl<'t, M: Machine> LocalTree<'t, M> {
    /// The group of counters.
    #[must_use]
    pub fn group(&self) -> &'t OneSidedTree<M> {
        self.group
    }

    /// Adds `delta` to a counter, as [`Counters::add`] does. Never allocates.
    ///
    /// # Panics
    /// If the group has no such counter.
    #[inline(always)]
    pub fn add(&self, machine: &M, counter: usize, delta: i64) {
        let Some(near) = &self.near else {
            return self.group.add(machine, counter, delta);
        };
        machine.spend(Work::Count, 1);
        // The words after the group's words belong to another group.
        self.group.check_counter(counter);
        let word = near.first + counter;
        let word = &near.blocks[word / BLOCK].0[word % BLOCK];
        let (group, tree, cpu) = (self.group, near.tree, self.cpu.index());
        match word.add_here(machine, self.cpu, delta) {
            Some(new) => {
                let carried = carry(new.wrapping_sub(delta), new, near.batch);
                if carried != 0 {
                    group.carry_up(machine, tree, cpu, counter, carried);
                }
            }
            None => group.add_again(machine, tree, cpu, counter, delta),
        }
    }
}

impl<M: Machine> Clone for LocalTree<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for LocalTree<'_, M> {}

impl<M: Machine> Clone for Near<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Near<'_, M> {}

impl<M: Machine> fmt::Debug for LocalTree<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTree")
            .field("group", self.group)
            .field("cpu", &self.cpu)
            .field("is_near", &self.near.is_some())
            .finish()
    }
}
