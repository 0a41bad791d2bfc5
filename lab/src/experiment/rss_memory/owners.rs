//! Measures groups of four counters, such as the counters of a process, on a machine of any size:
//! the memory that one group takes, and the time to create one.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_host::Host;
use plimsoll_mm::counter::{
    Area, Batch, Counters, Counting, Flat, InitError, Items, OneSidedTree, Plan, Shape, Shared,
    Tree,
};
use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::units::{CpuId, NodeId};

use super::Owner;

/// The number of counters of an owner, such as a process: one for each kind of its resident pages.
const WIDTH: usize = 4;

/// The number of CPUs that share a last-level cache.
const LLC: u32 = 16;

/// The number of owners that are created before any of them is destroyed.
const COLD: usize = 64;

/// The four counters of one owner. Each variant is a kind of counter that the experiment compares.
enum Made {
    Shared(Shared<Host>),
    Flat(Flat<Host>),
    Tree(Tree<Host>),
    OneSided(OneSidedTree<Host>),
}

/// A machine on which the experiment creates and destroys owners of four counters. The experiment
/// measures the memory that an owner takes, and the time to create and destroy it.
struct Nursery {
    host: Host,
    owner: Owner,
    area: Arc<Area<Host>>,
    shape: Arc<Shape>,
}

/// Returns the number of bytes that the four counters of one owner take on a machine of `cpus`
/// CPUs.
///
/// # Errors
/// If this computer does not have enough memory.
pub(super) fn bytes(owner: Owner, cpus: u32) -> Result<usize, InitError> {
    let nursery = Nursery::new(owner, cpus)?;
    let _on = nursery.host.enter(CpuId(0));
    let made = nursery.make(nursery.items()?)?;
    Ok(made.bytes())
}

/// Returns two times for an owner of counters, such as a process, on a machine of `cpus` CPUs, in
/// nanoseconds of this computer. The first is the time to create and destroy an owner that reuses
/// the memory of the previous owner. The second is the time to create an owner while no memory of
/// destroyed owners can be reused.
///
/// # Errors
/// If this computer does not have enough memory.
pub(super) fn times(owner: Owner, cpus: u32, rounds: u64) -> Result<(f64, f64), InitError> {
    let (mut warm_ns, mut cold_ns) = (f64::INFINITY, f64::INFINITY);
    // The fastest round counts, because other load on the computer can only make a round slower.
    for _ in 0..rounds {
        let nursery = Nursery::new(owner, cpus)?;
        let _on = nursery.host.enter(CpuId(0));
        let (items, ns) = nursery.fill()?;
        cold_ns = cold_ns.min(ns);
        warm_ns = warm_ns.min(nursery.turn_over(items)?);
    }
    Ok((warm_ns, cold_ns))
}

impl Nursery {
    fn new(owner: Owner, cpus: u32) -> Result<Self, InitError> {
        let host = Host::with_topology(two_sockets(cpus));
        let counting = match owner {
            Owner::New(counting) => counting,
            Owner::Grown => Counting::OneSided,
        };
        let plan = Plan::new(&host, counting, WIDTH, Batch::RSS)?;
        Ok(Self {
            owner,
            area: Arc::clone(plan.area()),
            shape: Arc::clone(plan.shape()),
            host,
        })
    }

    /// Allocates memory for the items (inner nodes) of a tree, if counters of this kind need it.
    fn items(&self) -> Result<Option<Items<Host>>, InitError> {
        let lines = match self.owner {
            Owner::New(Counting::Tree) => Tree::<Host>::items_lines(&self.shape, WIDTH),
            Owner::Grown => OneSidedTree::<Host>::items_lines(&self.shape),
            Owner::New(_) => return Ok(None),
        };
        Items::new(&self.host, lines).map(Some)
    }

    fn make(&self, items: Option<Items<Host>>) -> Result<Made, InitError> {
        let Self {
            host, area, shape, ..
        } = self;
        Ok(match (self.owner, items) {
            (Owner::New(Counting::Shared), _) => Made::Shared(Shared::init_many(host, WIDTH)?),
            (Owner::New(Counting::Flat), _) => Made::Flat(Flat::init_many(host, area)?),
            (Owner::New(Counting::Tree), Some(items)) => {
                Made::Tree(Tree::init_many(host, area, shape, items)?)
            }
            (Owner::Grown, Some(items)) => {
                Made::OneSided(OneSidedTree::init_many_grown(host, area, shape, items)?)
            }
            (Owner::New(Counting::OneSided), _) => {
                Made::OneSided(OneSidedTree::init_many(host, area, shape)?)
            }
            (Owner::New(Counting::Tree) | Owner::Grown, None) => {
                return Err(InitError::Items {
                    needed: self.shape.items(),
                    given: 0,
                });
            }
        })
    }

    /// Destroys the counters of an owner, such as a process. If the counters are trees, returns the
    /// memory of the inner nodes (items), so that the next owner can use this memory.
    fn end(&self, made: Made) -> Option<Items<Host>> {
        match made {
            Made::Shared(_) => None,
            Made::Flat(flat) => {
                flat.destroy_many(&self.host);
                None
            }
            Made::Tree(tree) => Some(tree.destroy_many(&self.host)),
            Made::OneSided(tree) => tree.destroy_many(&self.host),
        }
    }

    /// Creates [`COLD`] owners of counters, then destroys them all. Returns the memory of one
    /// owner's items (inner nodes of a tree), if owners have items, and the mean time to create an
    /// owner, in nanoseconds.
    fn fill(&self) -> Result<(Option<Items<Host>>, f64), InitError> {
        let mut made = Vec::with_capacity(COLD);
        let start = Instant::now();
        for _ in 0..COLD {
            made.push(self.make(self.items()?)?);
        }
        let cold_ns = start.elapsed().as_nanos() as f64 / COLD as f64;
        let items = made.into_iter().map(|owner| self.end(owner)).last();
        Ok((items.flatten(), cold_ns))
    }

    /// Creates and destroys owners for a fixed time, and repeats this measurement several times.
    /// Returns the mean time per owner in the fastest repetition, in nanoseconds.
    fn turn_over(&self, mut items: Option<Items<Host>>) -> Result<f64, InitError> {
        const BATCHES: u32 = 4;
        const WHILE: Duration = Duration::from_micros(300);
        const BETWEEN_LOOKS: u32 = 8;
        let mut quickest_ns = f64::INFINITY;
        for _ in 0..BATCHES {
            let start = Instant::now();
            let mut owners = 0;
            while start.elapsed() < WHILE {
                for _ in 0..BETWEEN_LOOKS {
                    let made = black_box(self.make(items.take())?);
                    items = self.end(made);
                }
                owners += BETWEEN_LOOKS;
            }
            let mean_ns = start.elapsed().as_nanos() as f64 / f64::from(owners);
            quickest_ns = quickest_ns.min(mean_ns);
        }
        Ok(quickest_ns)
    }
}

impl Made {
    fn bytes(&self) -> usize {
        match self {
            Self::Shared(counters) => counters.bytes(),
            Self::Flat(counters) => counters.bytes(),
            Self::Tree(counters) => counters.bytes(),
            Self::OneSided(counters) => counters.bytes(),
        }
    }
}

/// The topology of a machine with two sockets. Each socket has half of the CPUs, and each core has
/// one CPU.
fn two_sockets(cpus: u32) -> Topology {
    let per_socket = cpus.div_ceil(2);
    let place = |cpu: u32| {
        let (socket, nth) = (cpu / per_socket, cpu % per_socket);
        CpuPlace {
            core: cpu,
            llc: socket * per_socket.div_ceil(LLC) + nth / LLC,
            node: NodeId(socket),
            socket,
        }
    };
    Topology::new((0..cpus).map(place).collect())
}
