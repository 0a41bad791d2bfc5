//! Tests the reader-writer lock with random tasks and faults, and checks its laws on simulated
//! CPUs.

use crate::common;
use crate::support;
use crate::support::law::run_law;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_mm::laws::{Law, rw_lock};
use plimsoll_mm::machine::{Lock, Machine, RwLock};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::{Faults, Sim, SimLock, SimOptions, SimRwLock, Stats};
use rand::Rng;
use support::{seeds, small};

fn run<S: 'static>(law: &Law<Sim, S>) {
    let machine = small::profile(Topology::flat(3), 1000);
    run_law(law, &machine, seeds::chosen(300));
}

#[test]
fn writers_are_alone() {
    run(&rw_lock::writers_are_alone());
}

#[test]
fn readers_against_a_writer() {
    run(&rw_lock::readers_against_a_writer());
}

#[test]
fn the_killed_give_up() {
    run(&rw_lock::the_killed_give_up());
}

#[test]
fn the_killed_look_again() {
    run(&rw_lock::the_killed_look_again());
}

#[test]
fn no_writer_between() {
    run(&rw_lock::no_writer_between());
}

const CPUS: u32 = 12;
/// The number of tasks: two for each CPU.
const TASKS: u32 = 2 * CPUS;
const ROUNDS: u32 = 60;

/// What all tasks share: the lock under test, other locks that a holder may take as well, and
/// counts that are compared with the simulator's statistics at the end.
struct Herd {
    lock: SimRwLock<u64>,
    /// A spinlock that a task sometimes takes while it holds `lock`. Instead the task may take
    /// `sleeping`, a lock whose waiters sleep.
    spinning: SimLock<()>,
    sleeping: SimLock<()>,
    readers: Cell<u32>,
    writers: Cell<u32>,
    /// The highest number of concurrent readers so far.
    crowd: Cell<u32>,
    changes: Cell<u64>,
    given_up: Cell<u64>,
    let_in: Cell<u64>,
    /// For each task, whether the task was killed and has not noticed that yet.
    killed: RefCell<[bool; TASKS as usize]>,
}

impl Herd {
    fn new(sim: &Sim) -> Self {
        Self {
            lock: sim.rw_lock(LockClass::Mmap, CpuId(0), 0),
            spinning: sim.lock(LockClass::Zone, CpuId(0), ()),
            sleeping: sim.lock(LockClass::DrainAll, CpuId(0), ()),
            readers: Cell::new(0),
            writers: Cell::new(0),
            crowd: Cell::new(0),
            changes: Cell::new(0),
            given_up: Cell::new(0),
            let_in: Cell::new(0),
            killed: RefCell::new([false; TASKS as usize]),
        }
    }

    /// Holds the lock for a while: works, and perhaps takes another lock or sleeps.
    fn linger(&self, sim: &Sim) {
        sim.spend(Work::Think, sim.rng().next_u32() % 20_000);
        match sim.rng().next_u32() % 8 {
            0 => self.spinning.with(sim, Site::Spill, |()| {
                sim.spend(Work::Think, 500);
            }),
            1 => self.sleeping.with(sim, Site::Drain, |()| {
                sim.spend(Work::Think, 5_000);
            }),
            2 => sim.sleep(Nanos(30_000)),
            _ => {}
        }
    }

    fn read(&self, sim: &Sim) {
        self.readers.set(self.readers.get() + 1);
        self.crowd.set(self.crowd.get().max(self.readers.get()));
        self.linger(sim);
        assert_eq!(self.writers.get(), 0, "readers are without writers");
        self.readers.set(self.readers.get() - 1);
        self.let_in.set(self.let_in.get() + 1);
    }

    fn write(&self, sim: &Sim, count: &mut u64) {
        self.writers.set(self.writers.get() + 1);
        self.linger(sim);
        assert_eq!((self.readers.get(), self.writers.get()), (0, 1), "alone");
        self.writers.set(0);
        *count += 1;
        self.changes.set(self.changes.get() + 1);
        self.let_in.set(self.let_in.get() + 1);
    }

    fn note(&self, task: u32, let_in: Option<()>) {
        if let_in.is_none() {
            self.given_up.set(self.given_up.get() + 1);
            self.killed.borrow_mut()[task as usize] = false;
        }
    }

    /// Does one random operation on behalf of `task`.
    fn turn(&self, sim: &Sim, task: u32) {
        let (lock, fault) = (&self.lock, Site::Fault);
        let killed = || self.killed.borrow()[task as usize];
        match sim.rng().next_u32() % 16 {
            0..4 => lock.read(sim, fault, |_| self.read(sim)),
            4..8 => self.note(
                task,
                lock.read_killable(sim, fault, killed, |_| self.read(sim)),
            ),
            8 => lock.write(sim, Site::Mmap, |count| self.write(sim, count)),
            9..12 => {
                let write = |count: &mut u64| self.write(sim, count);
                self.note(task, lock.write_killable(sim, Site::Mmap, killed, write));
            }
            12 => {
                let first = |count: &mut u64| {
                    self.write(sim, count);
                    (!count.is_multiple_of(4)).then_some(*count)
                };
                let then = |count: &u64, before| {
                    assert_eq!(*count, before, "no writer in between");
                    self.read(sim);
                    // `read` counts an admission to the lock each time, but the lock stays held
                    // from `first` to `then`. So subtract this admission again.
                    self.let_in.set(self.let_in.get() - 1);
                };
                let stay = lock.write_then_read(sim, Site::Munmap, killed, first, then);
                self.note(task, stay.map(|_| ()));
            }
            13 => {
                let stay = lock.try_read(sim, fault, |_| self.read(sim));
                self.given_up
                    .set(self.given_up.get() + u64::from(stay.is_none()));
            }
            _ => {
                let whom = sim.rng().next_u32() % TASKS;
                self.killed.borrow_mut()[whom as usize] = true;
            }
        }
    }
}

/// Runs all tasks to the end. Compares the simulator's statistics of the lock with the numbers that
/// the tasks themselves have counted.
fn herd(options: SimOptions) -> Stats {
    let sim = Sim::new(&common::tall(CPUS), options);
    let herd = Rc::new(Herd::new(&sim));
    for task in 0..TASKS {
        let herd = Rc::clone(&herd);
        sim.spawn(CpuId(task % CPUS), move |sim| {
            for _ in 0..ROUNDS {
                sim.spend(Work::Think, sim.rng().next_u32() % 40_000);
                herd.turn(sim, task);
            }
        });
    }
    sim.spawn(CpuId(0), |sim| {
        for round in 0..10 {
            sim.sleep(Nanos(700_000));
            sim.set_online(CpuId(1 + round / 2), round % 2 == 1);
        }
    });
    sim.run();
    let count = herd.lock.read(&sim, Site::Control, |count| *count);
    assert_eq!(count, herd.changes.get());
    assert!(!herd.lock.writer_waits(&sim));
    assert!(herd.crowd.get() > 1, "readers have met");
    let stats = sim.stats();
    let mmap = stats.class(LockClass::Mmap);
    assert_eq!(mmap.acquisitions, herd.let_in.get());
    assert_eq!(mmap.failed_tries, herd.given_up.get());
    assert!(mmap.contentions > 100 && herd.given_up.get() > 10);
    let waited: u64 = stats.cpu_waits[LockClass::Mmap as usize]
        .iter()
        .map(|cpu| cpu.total.0)
        .sum();
    assert_eq!(mmap.wait_total.0, waited);
    stats
}

/// Returns options with stalls, migrations, late timers and random delays.
fn rough(seed: u64) -> SimOptions {
    SimOptions {
        seed,
        strict: seed.is_multiple_of(2),
        slice: Nanos(50_000),
        shake_ns: 200,
        faults: Faults {
            stall_every: Nanos(300_000),
            stall_for: Nanos(2_500_000),
            migrate_every: Nanos(200_000),
            timer_late_jiffies: 2,
        },
        ..SimOptions::default()
    }
}

#[test]
fn a_herd_gets_through_smoothly_and_roughly() {
    seeds::each("a_herd_gets_through", 60, |seed| {
        let smooth = SimOptions {
            seed,
            ..SimOptions::default()
        };
        herd(smooth);
        assert!(herd(rough(seed)).stalls > 0);
    });
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_does_not() {
    for seed in 0..4 {
        let (first, again) = (herd(rough(seed)), herd(rough(seed)));
        assert_eq!(first, again);
        let other = herd(SimOptions {
            seed: seed + 100,
            ..rough(seed)
        });
        assert_ne!(first.hash, other.hash);
    }
}
