//! The topology of a machine: which CPUs share a core, a cache, a node or a socket.

use alloc::vec::Vec;

use crate::units::{CpuId, NodeId};

/// The place of one CPU in the machine. Numbers are unique across the machine, not within the
/// parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CpuPlace {
    /// The physical core, which SMT siblings share.
    pub core: u32,
    /// Last-level cache.
    pub llc: u32,
    /// Memory node.
    pub node: NodeId,
    /// The number of its socket.
    pub socket: u32,
}

/// The distance between two CPUs, nearest first.
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
    /// A machine of these CPUs. The index in `places` is the CPU's number.
    ///
    /// # Panics
    /// If `places` is empty, because a machine without a CPU is a mistake of the caller.
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

    /// The number of possible CPUs (Linux: `nr_cpu_ids`).
    #[must_use]
    pub fn cpus(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// Every CPU's number, ascending.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = CpuId> + use<> {
        (0..self.cpus()).map(CpuId)
    }

    /// The place of `cpu`.
    #[must_use]
    pub fn place(&self, cpu: CpuId) -> CpuPlace {
        self.places[cpu.index()]
    }

    /// The highest number of a node that has a CPU, plus one.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.places
            .iter()
            .map(|place| place.node.0 + 1)
            .max()
            .unwrap_or(0)
    }

    /// The distance between `a` and `b`.
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
