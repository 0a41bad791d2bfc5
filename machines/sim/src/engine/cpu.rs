//! One virtual CPU: its clock, the task that runs on it, and its pending work.
//!
//! At any moment a CPU runs one task (`current`), spins on a lock that this task has requested, or
//! is idle. The state of a CPU changes only while the engine runs this CPU, with one exception:
//! other CPUs may change its jobs and sleepers, make its field `deadline` earlier, and take it
//! offline or bring it online.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use plimsoll_mm::machine::{Job, WhenIdle};
use plimsoll_mm::site::LockClass;
use plimsoll_mm::units::CpuId;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::engine::random::{Purpose, stream};

/// The value of [`Cpu::current`] on an idle CPU.
pub(crate) const NOBODY: u32 = u32::MAX;
/// The value that stands for "no CPU".
pub(crate) const NO_CPU: CpuId = CpuId(u32::MAX);

/// One virtual CPU. Frequently used fields come first, in one pair of cache lines.
#[repr(C, align(128))]
pub(crate) struct Cpu {
    /// The CPU's clock, in nanoseconds. While the engine runs this CPU, the fields `clock`,
    /// `deadline` and `pins` are stale; the current values are then in
    /// [`Inner`](crate::engine::state::Inner).
    pub(crate) clock: Cell<u64>,
    pub(crate) deadline: Cell<u64>,
    pub(crate) pins: Cell<u32>,
    pub(crate) current: Cell<u32>,
    /// The number of pages that the CPU has moved since it took the zone lock that it holds. `None`
    /// if it holds no zone lock.
    pub(crate) moved: Cell<Option<u32>>,
    /// True while a long call of `spend` suspends the CPU. An event can wake the CPU before the
    /// time of the call has passed.
    pub(crate) spending: Cell<bool>,
    pub(crate) online: Cell<bool>,
    /// True if the CPU has done nothing since the callback for idle CPUs ran on it.
    pub(crate) quiet: Cell<bool>,
    pub(crate) rng: RefCell<Xoshiro256PlusPlus>,
    pub(crate) slice_end: Cell<u64>,
    pub(crate) jobs: [JobSlot; Job::ALL.len()],
    /// Tasks that are ready to run, in the order in which they became ready.
    pub(crate) ready: RefCell<VecDeque<u32>>,
    /// Tasks that become ready at a certain time, as `(time, sequence, task)`. The time is in
    /// nanoseconds. The sequence number orders tasks with equal times.
    pub(crate) sleepers: RefCell<BinaryHeap<Reverse<(u64, u64, u32)>>>,
    pub(crate) fault_rng: RefCell<Xoshiro256PlusPlus>,
    pub(crate) stall_at: Cell<u64>,
    pub(crate) migrate_at: Cell<u64>,
    pub(crate) wait_total_ns: [Cell<u64>; LockClass::ALL.len()],
    pub(crate) wait_max_ns: [Cell<u64>; LockClass::ALL.len()],
}

/// The state of one kind of job on one CPU.
pub(crate) struct JobSlot {
    pub(crate) waits: Cell<Waits>,
    pub(crate) idle: Cell<WhenIdle>,
    pub(crate) running: Cell<bool>,
}

/// The condition that a deferred job waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The job is not deferred.
    No,
    /// The job waits until this time, in nanoseconds.
    Until(u64),
    /// The job is due and waits for its turn. Of the CPU's jobs in this state, the one with the
    /// lowest number runs first.
    Turn(u64),
}

/// The id of the `index`-th CPU.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "at most 4096 CPUs")]
pub(crate) const fn cpu_id(index: usize) -> CpuId {
    CpuId(index as u32)
}

impl Cpu {
    pub(crate) fn new(seed: u64, index: usize) -> Self {
        Self {
            clock: Cell::new(0),
            deadline: Cell::new(0),
            current: Cell::new(NOBODY),
            pins: Cell::new(0),
            moved: Cell::new(None),
            spending: Cell::new(false),
            online: Cell::new(true),
            quiet: Cell::new(true),
            slice_end: Cell::new(0),
            jobs: Job::ALL.map(|_| JobSlot {
                waits: Cell::new(Waits::No),
                idle: Cell::new(WhenIdle::Wake),
                running: Cell::new(false),
            }),
            ready: RefCell::default(),
            sleepers: RefCell::default(),
            rng: RefCell::new(stream(seed, index, Purpose::Program)),
            fault_rng: RefCell::new(stream(seed, index, Purpose::Faults)),
            stall_at: Cell::new(u64::MAX),
            migrate_at: Cell::new(u64::MAX),
            wait_total_ns: Default::default(),
            wait_max_ns: Default::default(),
        }
    }

    /// The time, in nanoseconds, of the first event that wakes this CPU if it is idle; `u64::MAX`
    /// if there is none. Jobs that do not wake an idle CPU are left out.
    pub(crate) fn wakes_at(&self) -> u64 {
        let timers = self
            .jobs
            .iter()
            .filter(|slot| slot.idle.get() == WhenIdle::Wake);
        self.next_event(timers)
    }

    /// Returns two values at once, because a busy CPU often needs both. The first is the time, in
    /// nanoseconds, of the first event that interrupts this CPU while it is busy; `u64::MAX` if
    /// there is none. The second is true if a job waits for its turn, so that [`Cpu::next_job`]
    /// finds it.
    pub(crate) fn looks_up_at(&self) -> (u64, bool) {
        let (mut first, mut job_waits) = (u64::MAX, false);
        for slot in &self.jobs {
            match slot.waits.get() {
                Waits::Until(at) => first = first.min(at),
                Waits::Turn(_) => job_waits |= !slot.running.get(),
                Waits::No => {}
            }
        }
        let sleeper = self.sleepers.borrow().peek().map(|&Reverse((at, _, _))| at);
        (sleeper.map_or(first, |at| at.min(first)), job_waits)
    }

    fn next_event<'slot>(&'slot self, timers: impl Iterator<Item = &'slot JobSlot>) -> u64 {
        let timers = timers.filter_map(|slot| match slot.waits.get() {
            Waits::Until(at) => Some(at),
            Waits::No | Waits::Turn(_) => None,
        });
        let sleeper = self.sleepers.borrow().peek().map(|&Reverse((at, _, _))| at);
        timers.chain(sleeper).min().unwrap_or(u64::MAX)
    }

    /// The job that the CPU runs next: of the jobs that wait for their turn and are not already
    /// running, the one with the lowest turn. `None` if there is no such job.
    pub(crate) fn next_job(&self) -> Option<Job> {
        let turn = |job: Job| {
            let slot = &self.jobs[job as usize];
            match slot.waits.get() {
                Waits::Turn(turn) if !slot.running.get() => Some((turn, job)),
                _ => None,
            }
        };
        Job::ALL
            .into_iter()
            .filter_map(turn)
            .min()
            .map(|(_, job)| job)
    }

    /// Returns whether neither a task nor kernel work runs on the CPU.
    pub(crate) fn is_idle(&self) -> bool {
        self.current.get() == NOBODY
    }

    /// Adds a wait for a lock of `class` to this CPU's total and maximum.
    pub(crate) fn record_wait(&self, class: LockClass, wait_ns: u64) {
        let (total, max) = (
            &self.wait_total_ns[class as usize],
            &self.wait_max_ns[class as usize],
        );
        total.set(total.get() + wait_ns);
        max.set(max.get().max(wait_ns));
    }
}
