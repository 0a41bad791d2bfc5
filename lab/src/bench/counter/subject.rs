//! What is measured: every variant of the manager's counters, and the floor below them.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_host::Host;
use plimsoll_host::cpu::Entered;
use plimsoll_mm::counter::{
    Area, Batch, Counters, Flat, InitError, Items, OneSidedTree, Shape, Shared, Tree,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;
use plimsoll_sim::profile::Card;

use crate::error::Error;
use crate::machines;

/// A counter that several threads may add to.
pub trait Subject: Send + Sync {
    /// As the tables call it.
    fn name(&self) -> String;

    /// Makes the calling thread that of `cpu` while what this returns lives, if it matters.
    fn enter(&self, _cpu: u32) -> Option<Entered> {
        None
    }

    /// Adds once. What is timed is a loop around this, inlined.
    fn add(&self, delta: i64);

    /// A cheap look, if there is one.
    fn approximate_sum(&self) -> Option<i64> {
        None
    }

    /// The sum of all that was added.
    fn precise_sum(&self) -> i64;

    /// Adds each of `deltas`.
    fn add_all(&self, deltas: &[i64]) {
        for &delta in deltas {
            self.add(delta);
        }
    }

    /// So many cheap looks.
    fn approximate_sums(&self, times: u32) {
        for _ in 0..times {
            std::hint::black_box(self.approximate_sum());
        }
    }

    /// So many exact ones.
    fn precise_sums(&self, times: u32) {
        for _ in 0..times {
            std::hint::black_box(self.precise_sum());
        }
    }
}

/// Fresh counters: the floor first, then the manager's.
pub(super) fn ours() -> Result<Vec<Box<dyn Subject>>, Error> {
    let laptop = Host::with_topology(Topology::flat(64));
    let epyc = Host::with_topology(machines::load("epyc-9654-2s", Card::Mid)?.topology);
    let mut all: Vec<Box<dyn Subject>> = vec![Box::new(Floor::new(2))];
    for host in [&laptop, &epyc] {
        all.extend(on(host).map_err(|why| Error::Invalid(why.to_string()))?);
    }
    Ok(all)
}

/// The manager's counters on `host`.
fn on(host: &Host) -> Result<Vec<Box<dyn Subject>>, InitError> {
    use plimsoll_mm::machine::Machine;

    let topology = host.topology();
    let area = Arc::new(Area::new(host, WIDTH)?);
    let cpus = topology.cpus();
    let why = |_| InitError::OutOfMemory;
    let published = Arc::new(Shape::published(cpus, Batch::RSS).map_err(why)?);
    let fan_in = OneSidedTree::<Host>::FAN_IN;
    let shape = Arc::new(Shape::of_topology(topology, Batch::RSS, fan_in).map_err(why)?);
    let items = |lines| Items::new(host, lines);
    let tree_items = items(Tree::<Host>::items_lines(&published, WIDTH))?;
    let our_items = items(OneSidedTree::<Host>::items_lines(&shape))?;
    let shared = Shared::init_many(host, WIDTH)?;
    let flat = Flat::init_many(host, &area)?;
    let tree = Tree::init_many(host, &area, &published, tree_items)?;
    let line = OneSidedTree::init_many(host, &area, &shape)?;
    let grown = OneSidedTree::init_many_grown(host, &area, &shape, our_items)?;
    Ok(vec![
        Of::boxed("shared", host, shared),
        Of::boxed("flat", host, flat),
        Of::boxed("tree", host, tree),
        Of::boxed("one-sided, new", host, line),
        Of::boxed("one-sided, grown", host, grown),
    ])
}

/// Counters of each group, as many as a process has; one of them is used.
const WIDTH: usize = 4;
/// That one.
const COUNTER: usize = 1;

/// A group of the manager's counters.
struct Of<C> {
    name: &'static str,
    host: Host,
    counters: C,
}

impl<C: Counters<Host> + Send + Sync + 'static> Of<C> {
    fn boxed(name: &'static str, host: &Host, counters: C) -> Box<dyn Subject> {
        Box::new(Self {
            name,
            host: host.clone(),
            counters,
        })
    }
}

impl<C: Counters<Host> + Send + Sync> Subject for Of<C> {
    fn name(&self) -> String {
        use plimsoll_mm::machine::Machine;

        format!("{}, {} CPUs", self.name, self.host.topology().cpus())
    }

    fn enter(&self, cpu: u32) -> Option<Entered> {
        Some(self.host.enter(CpuId(cpu)))
    }

    #[inline]
    fn add(&self, delta: i64) {
        self.counters.add(&self.host, COUNTER, delta);
    }

    #[inline]
    fn approximate_sum(&self) -> Option<i64> {
        Some(self.counters.approximate_sum(&self.host, COUNTER))
    }

    #[inline]
    fn precise_sum(&self) -> i64 {
        self.counters.precise_sum(&self.host, COUNTER)
    }
}

thread_local! {
    static SLOT: Cell<usize> = const { Cell::new(0) };
}

/// The least that an atomic addition to a word of one's own costs: a slot per thread, alone in its
/// lines, whose number the thread knows.
struct Floor(Box<[Slot]>);

#[repr(align(128))]
struct Slot(AtomicI64);

impl Floor {
    fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| Slot(AtomicI64::new(0))).collect())
    }
}

impl Subject for Floor {
    fn name(&self) -> String {
        "floor: own atomic".to_owned()
    }

    fn enter(&self, cpu: u32) -> Option<Entered> {
        SLOT.set(cpu as usize);
        None
    }

    // Relaxed: a sum orders nothing else.
    #[inline]
    fn add(&self, delta: i64) {
        self.0[SLOT.get()].0.fetch_add(delta, Relaxed);
    }

    fn precise_sum(&self) -> i64 {
        self.0.iter().map(|slot| slot.0.load(Relaxed)).sum()
    }
}
