//! Which CPUs share what.

use alloc::vec::Vec;

use crate::units::{CpuId, NodeId};

/// Where one CPU sits. Numbers are unique across the machine, not within the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CpuPlace {
    /// Physical core; SMT siblings share it.
    pub core: u32,
    /// Last-level cache.
    pub llc: u32,
    /// Memory node.
    pub node: NodeId,
    /// Socket.
    pub socket: u32,
}

/// How far apart two CPUs are, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// The same CPU.
    Same,
    /// SMT siblings.
    Core,
    /// Same last-level cache.
    Llc,
    /// Same socket, other last-level cache.
    Socket,
    /// Another socket.
    Remote,
}

/// Every possible CPU of a machine, by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    places: Vec<CpuPlace>,
}

impl Topology {
    /// A machine of these CPUs, at least one; the index is the CPU id.
    ///
    /// # Panics
    /// Without a CPU: a machine that runs nothing is a mistake of the caller.
    #[must_use]
    pub fn new(places: Vec<CpuPlace>) -> Self {
        assert!(!places.is_empty(), "a machine has at least one CPU");
        Self { places }
    }

    /// `cpus` CPUs on one node with one last-level cache and no SMT.
    #[must_use]
    pub fn flat(cpus: u32) -> Self {
        let place = |core| CpuPlace {
            core,
            llc: 0,
            node: NodeId(0),
            socket: 0,
        };
        Self::new((0..cpus).map(place).collect())
    }

    /// How many CPUs can exist (Linux: `nr_cpu_ids`).
    #[must_use]
    pub fn cpus(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// Every CPU id.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = CpuId> + use<> {
        (0..self.cpus()).map(CpuId)
    }

    /// Where `cpu` sits.
    #[must_use]
    pub fn place(&self, cpu: CpuId) -> CpuPlace {
        self.places[cpu.index()]
    }

    /// How many memory nodes the CPUs are on: the highest node number plus one.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.places
            .iter()
            .map(|place| place.node.0 + 1)
            .max()
            .unwrap_or(0)
    }

    /// How far apart `a` and `b` are.
    #[must_use]
    pub fn distance(&self, a: CpuId, b: CpuId) -> Distance {
        let (at, bt) = (self.place(a), self.place(b));
        if a == b {
            Distance::Same
        } else if at.core == bt.core {
            Distance::Core
        } else if at.llc == bt.llc {
            Distance::Llc
        } else if at.socket == bt.socket {
            Distance::Socket
        } else {
            Distance::Remote
        }
    }
}
