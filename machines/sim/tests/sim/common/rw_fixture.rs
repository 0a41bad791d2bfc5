//! A reader-writer lock, and tasks that request it at given times.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_mm::machine::{Machine, RwLock};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::CpuId;
use plimsoll_sim::{LockStats, Sim, SimOptions, SimRwLock};

pub(crate) const TRANSFER: u64 = 30;
pub(crate) const OWN: u64 = 20;
pub(crate) const REMOTE: u64 = 40;
pub(crate) const HANDOVER: u64 = 25;
/// The time to wake a waiter, in nanoseconds: an interrupt and a context switch.
pub(crate) const WAKE_UP: u64 = 1500;
pub(crate) const TICK: u64 = 1_000_000;

/// Eight CPUs, a lock in memory near CPU 0, and a record of each time that a task held the lock.
#[derive(Clone)]
pub(crate) struct Fixture {
    pub(crate) sim: Sim,
    pub(crate) lock: Rc<SimRwLock<u32>>,
    pub(crate) stays: Rc<RefCell<Vec<Stay>>>,
}

/// One time that a task held the lock. `who` says what the task did (`r` for reading, `w` for
/// writing) and on which CPU. The other fields are the times, in nanoseconds, at which the task
/// requested the lock, acquired it, began to release it, and continued after the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stay {
    pub(crate) who: (char, u32),
    pub(crate) asked: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) after: u64,
}

/// A lock calls such a function to find out whether a waiter was killed. This function is for
/// waiters that are never killed.
pub(crate) const fn never() -> bool {
    false
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with_options(SimOptions::default())
    }

    pub(crate) fn with_options(options: SimOptions) -> Self {
        let sim = Sim::new(&super::flat(8), options);
        let lock = sim.rw_lock(LockClass::Mmap, CpuId(0), 0);
        Self {
            sim,
            lock: Rc::new(lock),
            stays: Rc::default(),
        }
    }

    /// Starts a task on `cpu` that begins to run `body` at the time `at_us`, in microseconds.
    pub(crate) fn at(&self, cpu: u32, at_us: u32, body: impl FnOnce(&Sim, &Self) + 'static) {
        let fixture = self.clone();
        self.sim.spawn(CpuId(cpu), move |sim| {
            let now = u32::try_from(sim.now().0).expect("a task starts early");
            sim.spend(Work::Think, at_us * 1000 - now);
            body(sim, &fixture);
        });
    }

    /// Calls `enter`, which acquires the lock and then calls its callback. The callback holds the
    /// lock for `hold_us` microseconds. Records this hold, and the wait before it, with the letter
    /// `what`.
    pub(crate) fn note<R>(
        &self,
        sim: &Sim,
        what: char,
        hold_us: u32,
        enter: impl FnOnce(&dyn Fn()) -> R,
    ) -> R {
        let asked = sim.now().0;
        let span = Cell::new(None);
        let result = enter(&|| {
            let start = sim.now().0;
            sim.spend(Work::Think, hold_us * 1000);
            span.set(Some((start, sim.now().0)));
        });
        if let Some((start, end)) = span.get() {
            self.stays.borrow_mut().push(Stay {
                who: (what, sim.this_cpu().0),
                asked,
                start,
                end,
                after: sim.now().0,
            });
        }
        result
    }

    pub(crate) fn read(&self, sim: &Sim, hold_us: u32) {
        self.note(sim, 'r', hold_us, |stay| {
            self.lock.read(sim, Site::Fault, |_| stay());
        });
    }

    pub(crate) fn write(&self, sim: &Sim, hold_us: u32) {
        self.note(sim, 'w', hold_us, |stay| {
            self.lock.write(sim, Site::Mmap, |writes| {
                *writes += 1;
                stay();
            });
        });
    }

    pub(crate) fn write_unless(
        &self,
        sim: &Sim,
        hold_us: u32,
        killed: impl Fn() -> bool,
    ) -> Option<()> {
        self.note(sim, 'w', hold_us, |stay| {
            self.lock
                .write_killable(sim, Site::Mmap, killed, |_| stay())
        })
    }

    pub(crate) fn reads(&self, cpu: u32, at_us: u32, hold_us: u32) {
        self.at(cpu, at_us, move |sim, fixture| fixture.read(sim, hold_us));
    }

    pub(crate) fn writes(&self, cpu: u32, at_us: u32, hold_us: u32) {
        self.at(cpu, at_us, move |sim, fixture| fixture.write(sim, hold_us));
    }

    /// Runs the machine until all tasks have ended. Returns a record of each time that a task held
    /// the lock, in the order in which the tasks acquired it.
    pub(crate) fn run(&self) -> Vec<Stay> {
        self.sim.run();
        let mut stays = self.stays.take();
        stays.sort_by_key(|stay| (stay.start, stay.who.1));
        stays
    }

    pub(crate) fn order(&self) -> Vec<(char, u32)> {
        self.run().iter().map(|stay| stay.who).collect()
    }

    pub(crate) fn stats(&self) -> LockStats {
        self.sim.stats().class(LockClass::Mmap)
    }
}
