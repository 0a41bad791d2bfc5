//! The topology of a machine: which CPUs share a core, a cache, a node or a socket.

use alloc::vec::Vec;
use core::fmt;

use crate::units::{CpuId, NodeId, count_of};

/// The most memory nodes a machine may have (Linux: `MAX_NUMNODES` of x86-64).
pub const NODES_MAX: u32 = 1024;

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
    /// Two CPUs of one core (SMT siblings).
    Core,
    /// Two CPUs of different cores with the same last-level cache.
    Llc,
    /// Two CPUs of one socket with different last-level caches.
    Socket,
    /// Two CPUs of different sockets.
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
    /// If [`Topology::try_new`] returns an error. Call that one with places that come from outside
    /// the program.
    #[must_use]
    pub fn new(places: Vec<CpuPlace>) -> Self {
        match Self::try_new(places) {
            Ok(topology) => topology,
            Err(error) => panic!("{error}"),
        }
    }

    /// A machine of these CPUs, like [`Topology::new`], but returns an error for bad places.
    ///
    /// # Errors
    /// [`TopologyError`] if `places` is empty, or if the node of a CPU is not below [`NODES_MAX`].
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

    /// The number of possible CPUs (Linux: `nr_cpu_ids`).
    #[must_use]
    pub fn cpus(&self) -> u32 {
        count_of(self.places.len())
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

/// A set of nodes, whose numbers must be below 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSet(u128);

impl NodeSet {
    /// No node.
    pub const NONE: Self = Self(0);
    /// All nodes with numbers below 128.
    pub const ALL: Self = Self(u128::MAX);

    /// This set with `node` added; `None` if `node` is 128 or above.
    #[must_use]
    pub const fn with(self, node: NodeId) -> Option<Self> {
        match 1_u128.checked_shl(node.0) {
            Some(bit) => Some(Self(self.0 | bit)),
            None => None,
        }
    }

    /// Returns whether some node is in both sets.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The reason why a machine cannot consist of the given CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// There is no CPU.
    NoCpu,
    /// This CPU, an index in the list of places, is on a node whose number is not below
    /// [`NODES_MAX`].
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
