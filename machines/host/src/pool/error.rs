//! The reasons why a pool cannot be built or entered.

use std::{fmt, io};

use plimsoll_mm::counter::NamedError;
use plimsoll_mm::page::{LayoutError, NODES_MAX};
use plimsoll_mm::tunables::TunableError;
use plimsoll_mm::units::{CpuId, Pages};

use crate::arena::ArenaError;
use crate::cpu::PinError;
use crate::topology::CPUS_MAX;
use crate::workers::StartError;

/// The reason why a pool was not built. The failed attempt leaves nothing behind.
#[derive(Debug)]
pub enum BuildError {
    /// The pool would have no CPU.
    NoCpu,
    /// The pool would have more CPUs than [`CPUS_MAX`](crate::pool::CPUS_MAX).
    TooManyCpus {
        /// The requested number of CPUs.
        cpus: u32,
    },
    /// The builder got a machine that exists already, and also CPUs or an observer. Only a new
    /// machine can be given CPUs or an observer.
    HostAndMore,
    /// The pages cannot be divided into this many nodes.
    Nodes {
        /// The requested number of nodes.
        nodes: u32,
        /// The requested number of pages.
        pages: Pages,
    },
    /// The manager cannot manage this layout.
    Layout(LayoutError),
    /// A knob (a setting like a sysctl of Linux) cannot have this value.
    Tunable(TunableError),
    /// The memory could not be mapped.
    Arena(ArenaError),
    /// The kernel does not have enough memory for all pages.
    Populate(io::Error),
    /// The named counters could not be created.
    Counters(NamedError),
    /// The worker threads did not start.
    Upkeep(StartError),
}

macro_rules! from {
    ($($why:ty => $case:ident),*) => {$(
        impl From<$why> for BuildError {
            fn from(why: $why) -> Self {
                Self::$case(why)
            }
        }
    )*};
}

from!(LayoutError => Layout, TunableError => Tunable, ArenaError => Arena, NamedError => Counters,
    StartError => Upkeep);

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpu => f.write_str("a machine needs a CPU: pass at least 1 to `cpus`"),
            Self::TooManyCpus { cpus } => write!(
                f,
                "a pool cannot have {cpus} CPUs: pass at most {CPUS_MAX} to `cpus`"
            ),
            Self::HostAndMore => f.write_str(
                "the machine was given by `host`: pass its topology and its observer when you \
                 create that machine, not to the builder",
            ),
            Self::Nodes { nodes, pages } => write!(
                f,
                "{pages} pages cannot be divided into {nodes} nodes: use 1 to {NODES_MAX} nodes, \
                 and more than 1024 pages for each node but the last"
            ),
            Self::Layout(why) => write!(f, "the memory cannot be managed: {why}"),
            Self::Tunable(why) => why.fmt(f),
            Self::Arena(why) => write!(f, "there is no memory for the pool: {why}"),
            Self::Populate(why) => write!(
                f,
                "the kernel has no memory for all pages now: {why}; ask for fewer pages, or leave \
                 `populate` out"
            ),
            Self::Counters(why) => why.fmt(f),
            Self::Upkeep(why) => write!(
                f,
                "the pool cannot be maintained: {why}; `Upkeep::ByEmbedder` starts no threads"
            ),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoCpu | Self::TooManyCpus { .. } | Self::HostAndMore | Self::Nodes { .. } => None,
            Self::Layout(why) => Some(why),
            Self::Tunable(why) => Some(why),
            Self::Arena(why) => Some(why),
            Self::Populate(why) => Some(why),
            Self::Counters(why) => Some(why),
            Self::Upkeep(why) => Some(why),
        }
    }
}

/// The reason why a thread did not enter a CPU of a pool.
#[derive(Debug)]
pub enum EnterError {
    /// The pool has no CPU of this number.
    NoSuchCpu {
        /// The requested CPU.
        cpu: CpuId,
        /// The number of CPUs of the pool.
        cpus: u32,
    },
    /// The thread cannot be pinned.
    Pin(PinError),
}

impl fmt::Display for EnterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchCpu { cpu, cpus } => write!(
                f,
                "there is no CPU {cpu}: the pool's machine has CPUs 0 to {}",
                cpus - 1
            ),
            Self::Pin(why) => write!(f, "the thread cannot be pinned: {why}"),
        }
    }
}

impl std::error::Error for EnterError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoSuchCpu { .. } => None,
            Self::Pin(why) => Some(why),
        }
    }
}
