//! A machine's topology: which CPUs share a core, a cache, a node or a socket.

use alloc::vec::Vec;
use core::fmt;

use crate::units::{CpuId, NodeId, count_of};

/// The maximum number of memory nodes in a machine (Linux: `MAX_NUMNODES` on x86-64).
pub const NODES_MAX: u32 = 1024;

/// The place of one CPU in the machine. All numbers are unique within the machine: cores of
/// different sockets, for example, have different numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CpuPlace {
    /// The number of the physical core, which SMT siblings share.
    pub core: u32,
    /// The number of the last-level cache.
    pub llc: u32,
    /// The number of the memory node.
    pub node: NodeId,
    /// The number of the socket.
    pub socket: u32,
}

/// The distance between two CPUs. The variants are in ascending order of distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// The two CPUs are the same.
    Same,
    /// Two CPUs of the same core (SMT siblings).
    Core,
    /// Two CPUs of different cores with the same last-level cache.
    Llc,
    /// Two CPUs of the same socket with different last-level caches.
    Socket,
    /// Two CPUs of different sockets.
    Remote,
}

/// All possible CPUs of a machine, indexed by their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    places: Vec<CpuPlace>,
}

impl Topology {
    /// Creates the topology of a machine with these CPUs. The index in `places` is the CPU's
    /// number.
    ///
    /// # Panics
    /// If [`Topology::try_new`] returns an error. Use that function for places that come from
    /// outside the program.
    #[must_use]
    pub fn new(places: Vec<CpuPlace>) -> Self {
        match Self::try_new(places) {
            Ok(topology) => topology,
            Err(error) => panic!("{error}"),
        }
    }

    /// Creates a topology like [`Topology::new`], but returns an error for invalid places.
    ///
    /// # Errors
    /// [`TopologyError`] if `places` is empty, or if a CPU's node number is not less than
    /// [`NODES_MAX`].
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

    /// Creates a topology of `cpus` CPUs on one node, with one last-level cache and no SMT.
    ///
    /// # Panics
    /// If `cpus` is 0.
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

    /// The numbers of all CPUs, in ascending order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = CpuId> + use<> {
        (0..self.cpus()).map(CpuId)
    }

    /// The core, cache, node and socket of `cpu`.
    ///
    /// # Panics
    /// If the machine has no such CPU.
    #[must_use]
    pub fn place(&self, cpu: CpuId) -> CpuPlace {
        self.places[cpu.index()]
    }

    /// The highest number of any node that has CPUs, plus one.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.places
            .iter()
            .map(|place| place.node.0 + 1)
            .max()
            .unwrap_or(0)
    }

    /// The distance between the CPUs `a` and `b`.
    ///
    /// # Panics
    /// If the machine does not have both CPUs.
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

/// A set of nodes with numbers less than 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSet(u128);

impl NodeSet {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// All nodes with numbers less than 128.
    pub const ALL: Self = Self(u128::MAX);

    /// Returns this set with `node` added, or `None` if `node` is 128 or more.
    #[must_use]
    pub const fn with(self, node: NodeId) -> Option<Self> {
        match 1_u128.checked_shl(node.0) {
            Some(bit) => Some(Self(self.0 | bit)),
            None => None,
        }
    }

    /// Returns whether the two sets have a node in common.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The reason why the given CPUs cannot form a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// The list of CPUs is empty.
    NoCpu,
    /// The CPU with this index in the list of places is on a node whose number is not less than
    /// [`NODES_MAX`].
    NoSuchNode(usize),
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpu => f.write_str("a machine has at least one CPU"),
            Self::NoSuchNode(cpu) => write!(
                f,
                "CPU {cpu} has an invalid node number: nodes are 0 to {}",
                NODES_MAX - 1
            ),
        }
    }
}

impl core::error::Error for TopologyError {}
