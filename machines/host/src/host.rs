//! The handle on a machine: creates the machine, and lets threads play its CPUs.
//!
//! A clone is another handle to the same machine.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use plimsoll_mm::event::Event;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Nanos};

use crate::affinity::{self, CpuMask};
use crate::cpu::{self, Entered, HostId, PinError};
use crate::fork;
use crate::fronts::{self, Fronts, Homes};
use crate::job_queue::JobQueue;
use crate::locks;
use crate::numa::{self, Placement};
use crate::topology;

/// A machine whose CPUs are played by threads. It has the topology of this computer, or any other
/// topology.
#[derive(Clone)]
pub struct Host {
    pub(crate) shared: Arc<Shared>,
    /// How the threads use fronts. This is a copy for each handle, because each allocation and free
    /// of a page reads it.
    fronts: Fronts,
}

type Observer = dyn Fn(CpuId, Nanos, Event) + Send + Sync;

pub(crate) struct Shared {
    pub(crate) id: HostId,
    pub(crate) topology: Topology,
    pub(crate) created: Instant,
    /// The number of forks that had been counted when the machine was created.
    forks: u64,
    /// Whether the locks and counts of each CPU's page lists were moved to the CPU's NUMA node.
    placement: Mutex<Placement>,
    /// The real CPUs on which the thread that created the machine could run.
    allowed: CpuMask,
    pub(crate) observer: Option<Box<Observer>>,
    /// The deferred jobs: one [`JobQueue`] per CPU.
    pub(crate) job_queues: Box<[JobQueue]>,
    owner_locks: OwnerLocks,
    pub(crate) homes: Homes,
    /// A front (a CPU's stack of free pages) may belong to one thread. If other threads try to use
    /// the front this many times in a row, it passes to one of them.
    pub(crate) patience: u32,
    /// True while the machine has worker threads, which run the jobs of the queues.
    pub(crate) served: AtomicBool,
}

impl Host {
    /// Creates a machine with the topology that Linux reports for this computer. If Linux reports
    /// none, the machine has one CPU for each CPU that this process may use, and all of them are
    /// equal.
    ///
    /// To find out why Linux reports no topology, call [`topology::read`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_topology(topology::read_or_flat())
    }

    /// Creates a machine with this topology, whatever CPUs this computer has.
    #[must_use]
    pub fn with_topology(topology: Topology) -> Self {
        Self::build(topology, OwnerLocks::Exchanged, Fronts::best(), None)
    }

    /// Creates a machine with this topology. The threads of the machine take the locks of page
    /// lists in the way that `locks` names. If the kernel does not support [`OwnerLocks::Biased`],
    /// the machine uses [`OwnerLocks::Exchanged`]; [`Host::owner_locks`] says which it uses.
    #[must_use]
    pub fn with_owner_locks(topology: Topology, locks: OwnerLocks) -> Self {
        Self::build(topology, locks, Fronts::best(), None)
    }

    /// Creates a machine with this topology. The threads of the machine use *fronts*, the stacks of
    /// free pages in front of the page lists, in the way that `fronts` names, and take the locks of
    /// page lists in the way that `locks` names. If this process cannot use such fronts, the
    /// machine uses the next kind that it can use; [`Host::fronts`] says which kind it uses.
    #[must_use]
    pub fn with_fronts(topology: Topology, fronts: Fronts, locks: OwnerLocks) -> Self {
        Self::build(topology, locks, fronts.or_next(), None)
    }

    /// Creates a machine with this topology. The machine passes each event, with its CPU and time,
    /// to `observer`.
    ///
    /// The observer runs on the thread that causes the event, mostly while this thread holds a
    /// lock: that of its CPU's page lists (`Pcp`), of a zone, or of a page table. So the observer
    /// must be short and must not call the manager. If it drained page lists, for example, it would
    /// wait forever for the lists that its own thread has locked. The observer should pass any
    /// further work to another thread, for instance through a channel.
    ///
    /// The machine has no fronts (stacks of free pages that CPUs use without a lock; see
    /// [`Fronts::Off`]), so that the events of a page come in the order in which the page was
    /// allocated and freed.
    #[must_use]
    pub fn with_observer(
        topology: Topology,
        observer: impl Fn(CpuId, Nanos, Event) + Send + Sync + 'static,
    ) -> Self {
        let observer = Some(Box::new(observer) as Box<Observer>);
        Self::build(topology, OwnerLocks::Exchanged, Fronts::Off, observer)
    }

    fn build(
        topology: Topology,
        wanted: OwnerLocks,
        fronts: Fronts,
        observer: Option<Box<Observer>>,
    ) -> Self {
        static MACHINES: AtomicU64 = AtomicU64::new(HostId::FIRST.0);
        // Relaxed is enough: the number only has to be unique.
        let id = HostId(MACHINES.fetch_add(1, Relaxed));
        let job_queues = topology.ids().map(|_cpu| JobQueue::default()).collect();
        let allowed = CpuMask::of_this_thread();
        let owner_locks = if locks::barriers_are_available() {
            wanted
        } else {
            OwnerLocks::Exchanged
        };
        let homes = match fronts {
            Fronts::Restartable => Homes::new(topology.cpus()),
            Fronts::Owned | Fronts::Off => Homes::default(),
        };
        let (created, served) = (Instant::now(), AtomicBool::new(false));
        let shared = Shared {
            id,
            topology,
            created,
            forks: fork::watched_forks(),
            placement: Mutex::default(),
            allowed,
            observer,
            job_queues,
            owner_locks,
            homes,
            patience: fronts::PATIENCE,
            served,
        };
        Self {
            shared: Arc::new(shared),
            fronts,
        }
    }

    /// Makes the calling thread play `cpu` (act as this CPU of the machine) until the returned
    /// value is dropped.
    ///
    /// # Panics
    /// If the machine has no such CPU.
    pub fn enter(&self, cpu: CpuId) -> Entered {
        self.assert_has(cpu);
        self.sit_down();
        Entered::new(self.shared.id, cpu)
    }

    /// Makes the calling thread play `cpu` (act as this CPU of the machine), and pins it to one
    /// real CPU, until the returned value is dropped. That real CPU is `cpu` itself if the thread
    /// may run there, and otherwise one of the CPUs on which the thread may run.
    ///
    /// # Errors
    /// If the thread cannot be pinned; it then plays no CPU.
    ///
    /// # Panics
    /// If the machine has no such CPU.
    pub fn enter_pinned(&self, cpu: CpuId) -> Result<Entered, PinError> {
        self.assert_has(cpu);
        self.sit_down();
        Entered::pinned(self.shared.id, cpu, &self.shared.allowed)
    }

    /// The way in which this machine's threads take the locks of page lists.
    #[must_use]
    pub fn owner_locks(&self) -> OwnerLocks {
        self.shared.owner_locks
    }

    /// The way in which this machine's threads use *fronts*, the stacks of free pages in front of
    /// the page lists.
    #[inline(always)]
    #[must_use]
    pub fn fronts(&self) -> Fronts {
        self.fronts
    }

    fn sit_down(&self) {
        self.fronts.prepare_thread();
        if self.shared.owner_locks != OwnerLocks::Exchanged {
            locks::sit_down();
        }
    }

    /// The real CPU on which the calling thread runs. `None` if the thread cannot read the CPU's
    /// number from memory (Linux: `struct rseq`), or if the machine has no CPU of that number.
    #[inline(always)]
    pub(crate) fn real_cpu_at_once(&self) -> Option<CpuId> {
        if self.fronts != Fronts::Restartable {
            return None;
        }
        let cpu = fronts::real_cpu()?;
        (cpu < self.shared.topology.cpus() && !self.is_in_child()).then_some(CpuId(cpu))
    }

    fn assert_has(&self, cpu: CpuId) {
        self.abort_in_child();
        let cpus = self.shared.topology.cpus();
        assert!(cpu.0 < cpus, "CPU {cpu} is not one of the machine's {cpus}");
    }

    /// Returns the CPU that the kernel reports, for a thread that plays no CPU of this machine.
    #[cold]
    #[inline(never)]
    pub(crate) fn this_cpu_slow(&self) -> CpuId {
        self.abort_in_child();
        CpuId(affinity::current() % self.shared.topology.cpus())
    }

    /// Aborts the process, with a message, if it is a forked child of the process that created the
    /// machine.
    pub(crate) fn abort_in_child(&self) {
        if self.is_in_child() {
            fork::abort_child();
        }
    }

    /// Whether this process is a forked child of the process that created the machine.
    pub(crate) fn is_in_child(&self) -> bool {
        self.shared.forks != cpu::forks()
    }

    /// Returns whether the locks and counts of each CPU's page lists are on the node of that CPU,
    /// in all managers of this machine.
    ///
    /// Other memory is not moved. The entries of page lists are on the node of the thread that
    /// first writes to them. The per-CPU parts of zone and node counters are on the node of the
    /// thread that created the manager.
    #[must_use]
    pub fn placement(&self) -> Placement {
        *self.placement_now()
    }

    fn placement_now(&self) -> std::sync::MutexGuard<'_, Placement> {
        let placement = self.shared.placement.lock();
        placement.unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the pages of an array to the nodes of the CPUs that use them. The array begins at
    /// address `first` and has an element of `each` bytes for each of `cpus` CPUs.
    pub(crate) fn move_to_nodes(&self, first: usize, each: usize, cpus: usize) {
        let topology = &self.shared.topology;
        let one_node = !numa::nodes_with_memory().is_ok_and(|nodes| nodes.len() > 1);
        let outcome = if one_node || topology.nodes() == 1 {
            Placement::OneNode
        } else {
            let node = |cpu: CpuId| topology.place(cpu).node;
            let nodes: Vec<_> = topology.ids().take(cpus).map(node).collect();
            let homes = numa::homes(first, each, &nodes);
            match numa::move_home(&homes) {
                Ok(pages) if pages > 0 || homes.is_empty() => Placement::Placed { pages },
                Ok(_) | Err(_) => Placement::Refused,
            }
        };
        let mut placement = self.placement_now();
        *placement = match (*placement, outcome) {
            (Placement::Placed { pages }, Placement::Placed { pages: more }) => Placement::Placed {
                pages: pages + more,
            },
            (Placement::Refused, _) => Placement::Refused,
            (_, outcome) => outcome,
        };
    }

    /// Passes `event` to the observer, if there is one.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell(&self, event: Event) {
        if let Some(observer) = &self.shared.observer {
            observer(self.this_cpu(), self.now(), event);
        }
    }
}

/// How the threads of a [`Host`] take an [`OwnerLock`](locks::OwnerLock).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerLocks {
    /// A thread that plays a CPU, and takes a lock `after` times in a row, becomes the lock's
    /// owner. The owner takes the lock by plain stores. If another thread takes the lock, this
    /// other thread makes the kernel issue a barrier on all CPUs that run this process
    /// (`membarrier`), which takes microseconds. The periodic vmstat work of a CPU issues such a
    /// barrier for each zone, so this choice is for machines with few CPUs. Needs Linux 4.14.
    Biased {
        /// The number of times in a row that a thread must take the lock to become its owner. Each
        /// lock has its own copy of this number. If another thread ends an ownership, the lock
        /// multiplies its copy by 16. A copy that is 0 stays 0, so that tests can end ownerships
        /// often.
        after: u32,
    },
    /// Every thread takes a lock by one atomic exchange. This is the default: no CPU is interrupted
    /// when a thread drains the page lists of a CPU that another thread plays, or does that CPU's
    /// periodic work.
    Exchanged,
}

impl OwnerLocks {
    /// A thread becomes the owner of a lock that it has taken 64 times in a row. So a thread that
    /// plays a CPU only for a few operations, for instance to drain the CPU's page lists, does not
    /// become the owner of that CPU's locks.
    pub const BIASED: Self = Self::Biased { after: 64 };
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, cpus) = (self.shared.id.0, self.shared.topology.cpus());
        f.debug_struct("Host")
            .field("id", &id)
            .field("cpus", &cpus)
            .finish_non_exhaustive()
    }
}
