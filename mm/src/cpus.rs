//! The set of online CPUs, and the rank of each of them among the online CPUs of its node.
//!
//! Work is distributed by rank rather than by id, because ids may have holes.
//!
//! Locks: the set changes only under the sizing lock (Linux: `pcp_batch_high_lock`). Readers take
//! no lock, so they can see an old rank.

use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use crate::machine::{Machine, Word};
use crate::units::{CpuId, NodeId, count_in};

const OFFLINE: i64 = -1;

/// The online CPUs of a machine. All possible CPUs are online at first.
pub struct Cpus<M: Machine> {
    /// Each CPU's rank within its node, or `OFFLINE`.
    ranks: Box<[M::Word]>,
    online: M::Word,
    nodes: Box<[M::Word]>,
}

/// A CPU's rank among the online CPUs of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The number of online CPUs of the same node whose ids are lower than the id of the ranked
    /// CPU.
    pub rank: u32,
    /// The number of online CPUs on the CPU's own node, at least 1.
    pub of: u32,
}

impl<M: Machine> fmt::Debug for Cpus<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cpus")
            .field("possible", &self.ranks.len())
            .finish_non_exhaustive()
    }
}

// All accesses are relaxed: if a CPU reads a stale rank, the only effect is that its periodic work
// runs once at the wrong time.
impl<M: Machine> Cpus<M> {
    pub(crate) fn new(machine: &M) -> Self {
        let topology = machine.topology();
        let cpus = Self {
            ranks: topology.ids().map(|_| machine.word(0)).collect(),
            online: machine.word(0),
            nodes: (0..topology.nodes()).map(|_| machine.word(0)).collect(),
        };
        cpus.recount(machine);
        cpus
    }

    /// Returns whether `cpu` is online.
    pub fn is_online(&self, machine: &M, cpu: CpuId) -> bool {
        self.ranks[cpu.index()].load(machine, Relaxed) != OFFLINE
    }

    /// The number of online CPUs in the machine.
    pub fn online(&self, machine: &M) -> u32 {
        count_in(self.online.load(machine, Relaxed))
    }

    /// The number of online CPUs on `node`.
    pub(crate) fn online_on(&self, machine: &M, node: NodeId) -> u32 {
        let word = self.nodes.get(node.index());
        word.map_or(0, |word| count_in(word.load(machine, Relaxed)))
    }

    /// The rank of `cpu` among the online CPUs of its node, or `None` if `cpu` is offline.
    pub fn rank(&self, machine: &M, cpu: CpuId) -> Option<Rank> {
        let rank = u32::try_from(self.ranks[cpu.index()].load(machine, Relaxed)).ok()?;
        let of = self.online_on(machine, machine.topology().place(cpu).node);
        Some(Rank {
            rank,
            of: of.max(rank + 1),
        })
    }

    /// The online CPUs, in ascending order of their ids.
    pub fn iter<'a>(&'a self, machine: &'a M) -> impl Iterator<Item = CpuId> + 'a {
        machine
            .topology()
            .ids()
            .filter(|&cpu| self.is_online(machine, cpu))
    }

    /// Marks `cpu` as online or offline and recomputes all ranks. The caller holds the sizing lock
    /// (Linux: `pcp_batch_high_lock`).
    pub(crate) fn set(&self, machine: &M, cpu: CpuId, state: Hotplug) {
        let mark = match state {
            Hotplug::Online => 0,
            Hotplug::Offline => OFFLINE,
        };
        self.ranks[cpu.index()].store(machine, mark, Relaxed);
        self.recount(machine);
    }

    fn recount(&self, machine: &M) {
        let topology = machine.topology();
        let mut online = 0;
        for (node, word) in (0..).map(NodeId).zip(&self.nodes) {
            let mut rank = 0;
            for cpu in self
                .iter(machine)
                .filter(|&cpu| topology.place(cpu).node == node)
            {
                self.ranks[cpu.index()].store(machine, rank, Relaxed);
                rank += 1;
            }
            word.store(machine, rank, Relaxed);
            online += rank;
        }
        self.online.store(machine, online, Relaxed);
    }
}

/// The new state of a CPU that is going online or offline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hotplug {
    /// The CPU may run tasks.
    Online,
    /// The CPU does not run tasks.
    Offline,
}
