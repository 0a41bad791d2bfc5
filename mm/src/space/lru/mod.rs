//! The lists by which used pages are aged (Linux: `lruvec`).
//!
//! ```text
//! add ──> this CPU's batch ──(31)──> the node's lists ──> remove, up to 31 in a hold
//! ```
//!
//! If reclaim is on, `aged` and `lists` record which pages are on which list. Otherwise, each node
//! has only two things: the number of pages on its lists, and the lock of its lists, for which
//! exiting processes contend. In that case, only the sum over the lists and the batches has to be
//! right, so a page may be subtracted from the lists while a batch still counts it. Until that
//! batch is moved, the number of pages on the lists is too low, and can be negative.
//!
//! Invariant: when no call is under way, the lists and the batches together count the pages that
//! were added and not removed.
//!
//! Locks: the lock of a node, and no other lock while it is held. Without reclaim, a batch is a
//! word that a CPU empties in one atomic step. So no page is counted twice or lost, even if another
//! CPU moves the batch.

mod aged;
mod balance;
mod kind;
mod lists;
mod shares;

use alloc::boxed::Box;
use core::fmt;

pub(crate) use self::aged::Aged;
pub(crate) use self::balance::Shadow;
pub use self::kind::{Kind, List};
pub(crate) use self::lists::{Fate, ISOLATED_MAX, Run, Taken};
pub(crate) use self::shares::Share;
use super::error::NoMemory;
use crate::machine::{LocalWord, Lock, Machine};
use crate::page::PageAllocator;
use crate::site::{LockClass, Site, Work};
use crate::units::{CpuId, NodeId, Pfn, count_of};

/// The number of pages that are added to or removed from a node's LRU lists in one hold of the lock
/// of these lists (Linux: folio batch).
const BATCH: u32 = 31;

/// The LRU lists of every NUMA node. If no pages are reclaimed, only the lengths of the lists are
/// kept.
pub struct Lru<M: Machine> {
    /// For each node, the number of pages on its LRU lists.
    nodes: Box<[M::Lock<i64>]>,
    /// For each CPU, the number of used pages that it has not yet moved to the LRU lists.
    batches: Box<[Batch<M>]>,
    /// The LRU lists themselves, if reclaim is on. In that case `nodes` and `batches` are unused.
    aged: Option<Aged<M>>,
}

/// For each node, the number of pages that one CPU has newly put to use. A batch shares no cache
/// line with other CPUs' batches (Linux: `cpu_fbatches`). Here, the pages of each node are moved to
/// the LRU lists separately. Linux has one batch for all nodes, and moves that batch when it holds
/// 31 pages in total.
#[repr(align(128))]
struct Batch<M: Machine>(Box<[M::LocalWord]>);

impl<M: Machine> Lru<M> {
    /// Makes empty LRU lists for every NUMA node that has CPUs of the machine. Memory of any other
    /// node is counted on the lists of the last node.
    #[must_use]
    pub fn new(machine: &M) -> Self {
        let topology = machine.topology();
        let nodes = || (0..topology.nodes()).map(NodeId);
        let lists = |node| {
            let near = |cpu: &CpuId| topology.place(*cpu).node == node;
            let home = topology.ids().find(near).unwrap_or(CpuId(0));
            machine.lock(LockClass::Lru, home, 0)
        };
        let batch = |cpu| Batch(nodes().map(|_| machine.local_word(cpu, 0)).collect());
        Self {
            nodes: nodes().map(lists).collect(),
            batches: topology.ids().map(batch).collect(),
            aged: None,
        }
    }

    /// Makes empty LRU lists that record which pages are on them, for the memory of `pages`.
    pub(super) fn aging(machine: &M, pages: &PageAllocator<M>) -> Result<Self, NoMemory> {
        let aged = Some(Aged::new(machine, pages)?);
        Ok(Self {
            aged,
            ..Self::new(machine)
        })
    }

    /// Returns the LRU lists themselves, if reclaim is on.
    pub(crate) fn aged(&self) -> Option<&Aged<M>> {
        self.aged.as_ref()
    }

    /// If reclaim is on, records `owner`, which says where a page is mapped. The caller holds the
    /// lock of the page table that maps the page, and adds the page to the LRU lists only after
    /// this call.
    #[inline]
    pub(super) fn set_owner(&self, machine: &M, pages: &PageAllocator<M>, pfn: Pfn, owner: u64) {
        if let Some(aged) = &self.aged {
            aged.set_owner(machine, pages, pfn, owner);
        }
    }

    /// Returns the number of pages on an LRU list of `node`. The number may be outdated. If reclaim
    /// is off, no record of these lists exists, and the number is 0.
    pub fn len(&self, node: NodeId, list: List) -> u64 {
        self.aged.as_ref().map_or(0, |aged| aged.len(node, list))
    }

    /// Counts a page as used from now on (Linux: `folio_add_lru`). The page is added to this CPU's
    /// batch. When the batch has 31 pages of a node, those pages are moved to the LRU lists. A
    /// frame in no zone is ignored.
    #[inline]
    pub fn add(&self, machine: &M, pages: &PageAllocator<M>, pfn: Pfn) {
        if let Some(aged) = &self.aged {
            return aged.add(machine, pages, pfn);
        }
        let Some(node) = pages.node_of(pfn) else {
            return;
        };
        let node = self.place(node);
        let batch = &self.batches[machine.this_cpu().index()];
        if batch.0[node].add(machine, 1) >= i64::from(BATCH) {
            self.move_batch(machine, batch, node);
        }
    }

    /// Counts pages as no longer used (Linux: the lists' part of `folios_put_refs`). Takes the lock
    /// of a node once for each run of up to 31 pages of that node. Frames in no zone are ignored.
    pub fn remove(&self, machine: &M, pages: &PageAllocator<M>, pfns: &[Pfn]) {
        if let Some(aged) = &self.aged {
            return aged.remove(machine, pages, pfns);
        }
        let mut rest = pfns;
        while let Some(&first) = rest.first() {
            let node = pages.node_of(first);
            let same = |pfn: &&Pfn| pages.node_of(**pfn) == node;
            // A run has at least the first page, so the loop ends.
            let run = rest.iter().take(BATCH as usize).take_while(same).count();
            if let Some(node) = node {
                self.remove_run(machine, node, count_of(run));
            }
            rest = &rest[run..];
        }
    }

    fn remove_run(&self, machine: &M, node: NodeId, run: u32) {
        self.nodes[self.place(node)].with(machine, Site::LruRemove, |listed| {
            machine.spend(Work::LruRemove, run);
            *listed -= i64::from(run);
        });
    }

    /// Moves this CPU's batch to the LRU lists (Linux: `lru_add_drain`).
    pub fn drain(&self, machine: &M, pages: &PageAllocator<M>) {
        if let Some(aged) = &self.aged {
            return aged.drain(machine, pages);
        }
        let batch = &self.batches[machine.this_cpu().index()];
        (0..self.nodes.len()).for_each(|node| self.move_batch(machine, batch, node));
    }

    /// Returns the number of used pages on LRU lists and in the batches of CPUs. The number is
    /// exact when no call is under way.
    pub fn total(&self, machine: &M) -> i64 {
        if let Some(aged) = &self.aged {
            return aged.total(machine);
        }
        let listed = |node: &M::Lock<i64>| node.with(machine, Site::Control, |listed| *listed);
        let listed: i64 = self.nodes.iter().map(listed).sum();
        let words = self.batches.iter().flat_map(|batch| &batch.0);
        listed + words.map(|word| word.read(machine)).sum::<i64>()
    }

    /// Returns the index of the LRU lists for pages of `node`.
    #[inline]
    fn place(&self, node: NodeId) -> usize {
        node.index().min(self.nodes.len() - 1)
    }

    /// Moves the pages of one node, if there are any, from a CPU's batch to the LRU lists.
    fn move_batch(&self, machine: &M, batch: &Batch<M>, node: usize) {
        // The batch is emptied in one atomic step. So a task that has migrated since it looked up
        // its CPU takes only what is still in that CPU's batch.
        let fresh = batch.0[node].take(machine);
        if fresh != 0 {
            self.nodes[node].with(machine, Site::LruAdd, |listed| *listed += fresh);
        }
    }
}

impl<M: Machine> fmt::Debug for Lru<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lru")
            .field("nodes", &self.nodes.len())
            .finish_non_exhaustive()
    }
}
