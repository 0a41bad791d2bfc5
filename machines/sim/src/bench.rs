//! Benchmarks of the simulation engine on the host, for `plimsoll bench sim`.
//!
//! Each function simulates a flat machine, on which any two CPUs are equally far from each other.
//! The cost of a step is the CPU time of the host thread, divided by the number of simulated steps.
//! So the cost includes the time in which the step draws random numbers. Each function measures
//! once, without a warm-up; the caller warms up and repeats the measurement.

use std::cell::Cell;
use std::fs;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use plimsoll_mm::machine::{CpuLock, Lock, Machine, Word};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Hz, Nanos, PAGE_SIZE};
use rand::Rng;

use crate::engine::state::Sim;
use crate::options::SimOptions;
use crate::profile::{Card, Costs, Load, Profile, Slopes};
use crate::tasks::stacks;

/// The measured cost of one kind of step.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The number of virtual CPUs of the machine.
    pub cpus: u32,
    /// The number of steps measured.
    pub steps: u64,
    /// The CPU time of the host thread for all steps, in nanoseconds.
    pub host_ns: u64,
    /// The share of acquisitions of zone locks that found the lock held, from 0 to 1.
    pub contended: f64,
}

impl Cost {
    /// The number of nanoseconds of host time per step.
    #[must_use]
    pub fn ns_per_step(&self) -> f64 {
        real(self.host_ns) / real(self.steps)
    }

    /// The number of steps per second of host time.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        1e9 / self.ns_per_step()
    }
}

/// A benchmark. It takes the number of CPUs of the simulated machine and the total number of steps.
pub type Bench = fn(u32, u64) -> Cost;

/// Every benchmark with its name. An entry whose name ends in `, loaded` is the same benchmark as
/// the entry before it, on another machine. This machine has interrupts and effects of load, as in
/// an experiment.
pub const ALL: [(&str, Bench); 9] = [
    ("order point", |cpus, steps| {
        order_points(World::Plain, cpus, steps)
    }),
    ("order point, loaded", |cpus, steps| {
        order_points(World::Loaded, cpus, steps)
    }),
    ("own lock", own_lock),
    ("shared lock", shared_lock),
    ("hot word", hot_word),
    ("per-CPU lock", |cpus, steps| {
        per_cpu_lock(World::Plain, cpus, steps)
    }),
    ("per-CPU lock, loaded", |cpus, steps| {
        per_cpu_lock(World::Loaded, cpus, steps)
    }),
    ("local spend", |cpus, steps| {
        local_spend(World::Plain, cpus, steps)
    }),
    ("local spend, loaded", |cpus, steps| {
        local_spend(World::Loaded, cpus, steps)
    }),
];

/// Whether the simulated machine has disturbances (such as interrupts) and effects of load (slower
/// clocks and shared memory bandwidth).
#[derive(Clone, Copy, PartialEq, Eq)]
enum World {
    /// The machine has no disturbances and no effects of load.
    Plain,
    /// The machine has the disturbances and the effects of load of the built-in machine
    /// [`LOADED_LIKE`].
    Loaded,
}

/// Benchmarks of a loaded machine use the disturbances and the effects of load of this built-in
/// machine.
pub const LOADED_LIKE: &str = "epyc-9654-2s";

/// Measures steps that do local work of random length and then pass an order point, at which CPUs
/// with earlier clocks run first.
#[must_use]
fn order_points(world: World, cpus: u32, steps: u64) -> Cost {
    measure(world, cpus, steps, |sim, ()| {
        think(sim, 1000);
        sim.0.order();
    })
}

/// Measures steps that do local work of a fixed length. The steps contain no order point, that is,
/// no point at which CPUs with earlier clocks run first.
#[must_use]
fn local_spend(world: World, cpus: u32, steps: u64) -> Cost {
    measure(world, cpus, steps, |sim, ()| {
        sim.spend(Work::PcpAlloc, black_box(1));
    })
}

/// Measures the acquisition and release of a lock after random local work. Each CPU has its own
/// lock.
#[must_use]
fn own_lock(cpus: u32, steps: u64) -> Cost {
    let lock = |sim: &Sim, cpu| sim.lock(LockClass::Zone, cpu, 0_u64);
    measure_with(World::Plain, cpus, steps, lock, |sim, lock| {
        think(sim, 1000);
        lock.with(sim, Site::Refill, |count| *count += 1);
    })
}

/// Measures steps in which each CPU takes its own per-CPU lock and does some local work under the
/// lock. Each allocation or free of a page is such a step.
#[must_use]
fn per_cpu_lock(world: World, cpus: u32, steps: u64) -> Cost {
    let lock = |sim: &Sim, cpu| sim.cpu_lock(LockClass::Pcp, cpu, 0_u64);
    measure_with(world, cpus, steps, lock, |sim, lock| {
        let done = lock.try_local(sim, Site::PcpAlloc, |count| {
            sim.spend(Work::PcpAlloc, 1);
            *count += 1;
        });
        debug_assert!(done.is_some(), "no other task takes it");
        // `Work::Fault` is unsuitable here: at 10 ns a page, all CPUs together would exceed the
        // memory bandwidth of a loaded machine, and the steps would become longer.
        sim.spend(Work::MinorFault, 1);
    })
}

/// Measures the acquisition and release of one lock that all CPUs share, and that is held about two
/// thirds of the time.
#[must_use]
fn shared_lock(cpus: u32, steps: u64) -> Cost {
    let shared = Shared::default();
    let lock = move |sim: &Sim, _| shared.get(|| sim.lock(LockClass::Zone, CpuId(0), 0_u64));
    measure_with(World::Plain, cpus, steps, lock, move |sim, lock| {
        think(sim, 400 * cpus);
        lock.with(sim, Site::Refill, |count| {
            *count += 1;
            sim.spend(Work::Think, 50);
        });
    })
}

/// Measures additions to one word that all CPUs share, each after random local work.
#[must_use]
fn hot_word(cpus: u32, steps: u64) -> Cost {
    let shared = Shared::default();
    let word = move |sim: &Sim, _| shared.get(|| sim.word(0));
    measure_with(World::Plain, cpus, steps, word, move |sim, word| {
        think(sim, 100 * cpus);
        word.add(sim, 1, Ordering::Relaxed);
    })
}

/// The number of bytes of host memory per virtual CPU, on a machine on which every CPU runs a task.
/// `None` if the host does not report resident memory.
#[must_use]
pub fn resident_bytes(cpus: u32) -> Option<u64> {
    // With the spare stacks unmapped, every stack of the machine takes new memory, which `resident`
    // counts.
    stacks::unmap_spare();
    let before = resident()?;
    let sim = Sim::new(&machine(cpus), SimOptions::default());
    let word = Rc::new(sim.word(0));
    for cpu in 0..cpus {
        let word = Rc::clone(&word);
        sim.spawn(CpuId(cpu), move |sim| {
            (0..10).for_each(|_| {
                think(sim, 1000);
                word.add(sim, 1, Ordering::Relaxed);
            });
            sim.sleep(Nanos::SECOND);
        });
    }
    sim.run_until(Nanos::from_ms(10));
    let after = resident()?;
    Some(after.saturating_sub(before) / u64::from(cpus))
}

/// A value that all CPUs share. The first CPU that needs it creates it.
struct Shared<T>(std::cell::OnceCell<Rc<T>>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(std::cell::OnceCell::new())
    }
}

impl<T> Shared<T> {
    fn get(&self, make: impl FnOnce() -> T) -> Rc<T> {
        Rc::clone(self.0.get_or_init(|| Rc::new(make())))
    }
}

#[inline]
fn think(sim: &Sim, most_ns: u32) {
    let drawn = u64::from(sim.rng().next_u32()) * u64::from(most_ns);
    sim.spend(
        Work::Think,
        u32::try_from(drawn >> 32).expect("a product's upper half"),
    );
}

fn measure(world: World, cpus: u32, steps: u64, step: impl Fn(&Sim, &()) + Copy + 'static) -> Cost {
    measure_with(world, cpus, steps, |_, _| (), step)
}

/// Runs `step` on every CPU, `steps / cpus` times on each. Before that, calls `state` once for each
/// CPU, and passes the result to every `step` on this CPU.
fn measure_with<T: 'static>(
    world: World,
    cpus: u32,
    steps: u64,
    state: impl Fn(&Sim, CpuId) -> T,
    step: impl Fn(&Sim, &T) + Copy + 'static,
) -> Cost {
    let sim = match world {
        World::Plain => Sim::new(&machine(cpus), SimOptions::default()),
        World::Loaded => loaded(cpus),
    };
    let (each, done) = (steps / u64::from(cpus), Rc::new(Cell::new(0)));
    for cpu in (0..cpus).map(CpuId) {
        let (state, done) = (state(&sim, cpu), Rc::clone(&done));
        sim.spawn(cpu, move |sim| {
            (0..each).for_each(|_| step(sim, &state));
            done.set(done.get() + each);
        });
    }
    let begin = thread_ns();
    sim.run();
    let host_ns = thread_ns() - begin;
    let zone = sim.stats().class(LockClass::Zone);
    let contended = real(zone.contentions) / real(zone.acquisitions.max(1));
    Cost {
        cpus,
        steps: done.get(),
        host_ns,
        contended,
    }
}

/// A machine with `cpus` CPUs on which disturbances happen and the effects of load apply.
fn loaded(cpus: u32) -> Sim {
    let like = Profile::load(LOADED_LIKE, Card::Mid).expect("is built in");
    let profile = Profile {
        jitter: like.jitter,
        load: like.load,
        ..machine(cpus)
    };
    let options = SimOptions {
        jitter: true,
        under_load: true,
        ..SimOptions::default()
    };
    Sim::new(&profile, options)
}

fn machine(cpus: u32) -> Profile {
    Profile {
        name: "bench".into(),
        card: Card::Mid,
        topology: Topology::flat(cpus),
        hz: Hz::new(1000).expect("in range"),
        node_bytes: vec![1 << 30],
        costs: Costs {
            work_ns: [10; Work::ALL.len()],
            slopes: Slopes::default(),
            transfer_ns: [1, 10, 46, 100, 190],
            lock_own_ns: 15,
            lock_remote_extra_ns: 40,
            lock_handover_extra_ns: 40,
            word_own_ns: 5,
        },
        speed_percent: Vec::new(),
        jitter: None,
        load: Load::default(),
    }
}

/// The CPU time of this thread in nanoseconds; wall-clock time if the host does not report it.
#[must_use]
pub fn thread_ns() -> u64 {
    thread_local!(static BEGIN: Instant = Instant::now());
    let told = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let told = told.and_then(|line| line.split_whitespace().next()?.parse().ok());
    told.unwrap_or_else(|| BEGIN.with(|begin| Nanos::from(begin.elapsed()).0))
}

fn resident() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * PAGE_SIZE)
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn real(count: u64) -> f64 {
    count as f64
}
