//! Which CPUs share what.

use alloc::vec::Vec;
use core::fmt;

use crate::units::{CpuId, NodeId};

/// How many memory nodes there may be (Linux: `MAX_NUMNODES` of x86-64).
pub const NODES_MAX: u32 = 1024;

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
    /// A machine of these CPUs; the index is the CPU id.
    ///
    /// # Panics
    /// Where [`Topology::try_new`] returns an error: for places that the caller has made itself.
    #[must_use]
    pub fn new(places: Vec<CpuPlace>) -> Self {
        match Self::try_new(places) {
            Ok(topology) => topology,
            Err(error) => panic!("{error}"),
        }
    }

    /// The same for places that come from elsewhere.
    ///
    /// # Errors
    /// [`TopologyError`].
    pub fn try_new(places: Vec<CpuPlace>) -> Result<Self, TopologyError> {
        if places.is_empty() {
            return Err(TopologyError::NoCpu);
        }
        let on_no_node = |place: &CpuPlace| place.node.0 >= NODES_MAX;
        if let Some(cpu) = places.iter().position(on_no_node) {
            return Err(TopologyError::NoSuchNode(cpu));
        }
        Ok(Self { places })
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

/// Why a machine cannot be; the number is the CPU's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// There is no CPU.
    NoCpu,
    /// A CPU is on a node of a number not below [`NODES_MAX`].
    NoSuchNode(usize),
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpu => f.write_str("a machine has at least one CPU"),
            Self::NoSuchNode(cpu) => write!(
                f,
                "CPU {cpu} is on a node that cannot be: nodes are 0 to {}",
                NODES_MAX - 1
            ),
        }
    }
}

impl core::error::Error for TopologyError {}
