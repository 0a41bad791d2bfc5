//! The holders and waiters of a [`SimRwLock`](crate::SimRwLock).
//!
//! The count of readers is a word in one cache line. So a reader, too, has to fetch the line both
//! to acquire the lock and to release it. A request needs half the time of the line transfer to
//! arrive at the line, and takes effect only when it arrives. The other half brings the line to the
//! CPU. Before each of these steps, CPUs with earlier clocks run. So the fields always describe the
//! present time.
//!
//! The task that releases the lock admits waiters in order of arrival: one writer alone, or all
//! readers up to the next writer. An admitted waiter counts as a holder at once, but its critical
//! section begins only when the hand-over has reached its CPU. A waiter that may be killed also
//! wakes at regular intervals to test whether it has been killed.
//!
//! Invariant: admitted waiters, whose start is known, precede the waiters that have not been
//! admitted.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Jiffies, Nanos};

use crate::engine::cpu::NOBODY;
use crate::engine::record::LOCK;
use crate::engine::state::Inner;
use crate::engine::tree::time_of;
use crate::stats::LongestWait;
use crate::tasks::wait::{Access, LockId};

/// The value of `Waiter::start` until the waiter is admitted.
const UNKNOWN: u64 = u64::MAX;

/// The bit by which the hash of the run's events distinguishes acquisitions by readers from those
/// by writers.
const SHARED: u64 = 0x80;

/// The way in which a task holds the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Reader,
    Writer,
}

impl Role {
    const fn access(self) -> Access {
        match self {
            Self::Reader => Access::Read,
            Self::Writer => Access::Write,
        }
    }
}

/// The test by which a waiter learns whether it has been killed. `None` if the waiter cannot be
/// killed.
pub(crate) type Killed<'a> = Option<&'a dyn Fn() -> bool>;

/// The state of a reader-writer lock, without the value that the lock protects.
pub(crate) struct RwQueue {
    /// The number of readers that hold the lock. An admitted reader counts even before its critical
    /// section begins.
    readers: Cell<u32>,
    /// The task that holds the lock as a writer, even if it was admitted and its critical section
    /// has not begun yet; otherwise [`NOBODY`].
    writer: Cell<u32>,
    /// The CPU whose request reached the lock's cache line last: it has the line or will get it.
    line: Cell<CpuId>,
    /// The CPU of the task that was admitted last, and the call site at which this task requested
    /// the lock.
    holder: Cell<(CpuId, Site)>,
    home: CpuId,
    pub(crate) class: LockClass,
    waiters: RefCell<VecDeque<Waiter>>,
}

/// A task that waits for the lock, because it was not admitted when it requested the lock.
struct Waiter {
    role: Role,
    start: u64,
    cpu: CpuId,
    task: u32,
    site: Site,
    /// True if the waiter wakes regularly to test whether it has been killed.
    looks: bool,
}

/// A request for the lock that has arrived at the lock's cache line.
struct Request {
    asked: u64,
    /// True if the requesting CPU already had the lock's cache line.
    own: bool,
    /// The time that the line still needs to reach the requesting CPU, in nanoseconds.
    rest_ns: u64,
}

/// The time for which one task holds the lock, from an acquisition to the release.
pub(crate) struct Stay {
    site: Site,
    start: u64,
}

impl RwQueue {
    pub(crate) fn new(class: LockClass, home: CpuId) -> Self {
        assert!(class.sleeps(), "a lock that readers share sleeps");
        Self {
            readers: Cell::new(0),
            writer: Cell::new(NOBODY),
            line: Cell::new(home),
            holder: Cell::new((home, Site::Control)),
            home,
            class,
            waiters: RefCell::default(),
        }
    }

    /// Waits until the lock admits the task in `role`, and acquires it. Returns `None` if the task
    /// is killed first.
    pub(crate) fn acquire(
        &self,
        sim: &Inner,
        site: Site,
        role: Role,
        killed: Killed<'_>,
    ) -> Option<Stay> {
        sim.assert_may_sleep();
        let request = self.request(sim);
        let task = sim.cpu().current.get();
        assert!(
            self.writer.get() != task,
            "CPU {} takes a {} again that it holds as a writer",
            sim.this_cpu(),
            self.class.name()
        );
        if self.admits(role) {
            return Some(self.enter(sim, site, role, &request));
        }
        let start = self.wait(sim, site, role, killed);
        if start.is_none() {
            sim.record.lock(self.class, site).gave_up();
        }
        start.map(|blocker| self.begin_late(sim, site, role, request.asked, blocker))
    }

    /// Acquires the lock if the caller need not wait for it.
    pub(crate) fn try_acquire(&self, sim: &Inner, site: Site, role: Role) -> Option<Stay> {
        let request = self.request(sim);
        if self.admits(role) {
            return Some(self.enter(sim, site, role, &request));
        }
        self.bring(sim, &request);
        sim.record.lock(self.class, site).gave_up();
        None
    }

    /// Releases the lock. The value of the lock must no longer be borrowed.
    pub(crate) fn release(&self, sim: &Inner, role: Role, stay: &Stay) {
        let hold_ns = sim.clock.get() - stay.start;
        sim.record.held(self.class, stay.site, hold_ns);
        let until = sim.clock.get();
        self.get_out(sim, role);
        // Observers are told only now for how long the lock was held. So they hear of this hold
        // just before they hear of the waits that end because the lock was released.
        sim.held_until(
            LockId::of(self),
            self.class,
            stay.site,
            role.access(),
            [stay.start, until],
        );
        let stays = &sim.tasks.get(sim.cpu().current.get()).stays;
        stays.set(stays.get() - 1);
    }

    /// Turns the writer into a reader, and admits the readers that wait directly behind it.
    pub(crate) fn downgrade(&self, sim: &Inner) {
        let request = self.request(sim);
        self.bring(sim, &request);
        self.writer.set(NOBODY);
        self.readers.set(1);
        self.admit(sim);
    }

    /// Returns whether a task waits to write. Like a relaxed load, this does not wait for CPUs with
    /// earlier clocks.
    pub(crate) fn writer_waits(&self) -> bool {
        let waiters = self.waiters.borrow();
        let mut waiting = waiters
            .iter()
            .rev()
            .take_while(|waiter| waiter.start == UNKNOWN);
        waiting.any(|waiter| waiter.role == Role::Writer)
    }

    /// Returns whether the current holders exclude another task in `role`.
    #[inline]
    pub(crate) fn is_taken_for(&self, role: Role) -> bool {
        self.writer.get() != NOBODY || role == Role::Writer && self.readers.get() > 0
    }

    /// Returns whether a task that arrives now in `role` is admitted at once.
    fn admits(&self, role: Role) -> bool {
        let waiters = self.waiters.borrow();
        let waited_for = waiters.back().is_some_and(|last| last.start == UNKNOWN);
        !waited_for && !self.is_taken_for(role)
    }

    /// Sends a request to the lock's line, and waits until it has arrived there. Meanwhile, CPUs
    /// with earlier keys (times and CPU numbers) run.
    fn request(&self, sim: &Inner) -> Request {
        let asked = time_of(sim.order());
        let (line, this) = (self.line.get(), sim.this_cpu());
        let own = line == this;
        let line_ns = if own {
            0
        } else {
            sim.count_line(line, this);
            sim.prices
                .transfer_home(line.index(), this.index(), self.home.index())
        };
        sim.clock.set(asked + line_ns / 2);
        sim.order();
        self.line.set(this);
        Request {
            asked,
            own,
            rest_ns: line_ns - line_ns / 2,
        }
    }

    /// Waits until the lock's cache line has reached the requesting CPU.
    fn bring(&self, sim: &Inner, request: &Request) {
        sim.clock.set(sim.clock.get() + request.rest_ns);
    }

    /// Acquires the lock, which is free for `role`.
    fn enter(&self, sim: &Inner, site: Site, role: Role, request: &Request) -> Stay {
        self.fold(sim, role);
        self.count_in(role, sim.cpu().current.get());
        self.holder.set((sim.this_cpu(), site));
        self.bring(sim, request);
        let cost = if request.own {
            sim.prices.lock_own()
        } else {
            u64::from(sim.prices.lock_remote_extra_ns)
        };
        sim.clock.set(sim.clock.get() + cost);
        Self::begin(sim, site)
    }

    fn fold(&self, sim: &Inner, role: Role) {
        let shared = if role == Role::Reader { SHARED } else { 0 };
        let kind = LOCK | shared | self.class as u64;
        sim.record.fold(sim.clock.get(), sim.cur.get(), kind);
    }

    fn count_in(&self, role: Role, task: u32) {
        debug_assert!(!self.is_taken_for(role));
        match role {
            Role::Reader => self.readers.set(self.readers.get() + 1),
            Role::Writer => self.writer.set(task),
        }
    }

    /// Begins the critical section of the running task, which has just been admitted.
    fn begin(sim: &Inner, site: Site) -> Stay {
        let stays = &sim.tasks.get(sim.cpu().current.get()).stays;
        stays.set(stays.get() + 1);
        Stay {
            site,
            start: sim.clock.get(),
        }
    }

    /// Begins the critical section of the running task after a wait for the lock, and records the
    /// wait, which began at time `asked`.
    fn begin_late(
        &self,
        sim: &Inner,
        site: Site,
        role: Role,
        asked: u64,
        blocker: (CpuId, Site),
    ) -> Stay {
        let stay = Self::begin(sim, site);
        let wait = LongestWait {
            wait: Nanos(stay.start - asked),
            at: Nanos(asked),
            cpu: sim.this_cpu(),
            blocker: blocker.0,
            blocker_site: blocker.1,
        };
        sim.waited(
            LockId::of(self),
            self.class,
            site,
            role.access(),
            wait,
            true,
        );
        stay
    }

    /// Queues the running task and waits until it is admitted. Then returns the blocker: the CPU
    /// and the call site of the last task that held the lock, or was admitted to it, before this
    /// task queued. Returns `None` if the task was killed instead.
    #[inline(never)]
    fn wait(
        &self,
        sim: &Inner,
        site: Site,
        role: Role,
        killed: Killed<'_>,
    ) -> Option<(CpuId, Site)> {
        let (task, blocker) = (sim.cpu().current.get(), self.holder.get());
        self.waiters.borrow_mut().push_back(Waiter {
            role,
            start: UNKNOWN,
            cpu: sim.this_cpu(),
            task,
            site,
            looks: killed.is_some(),
        });
        let is_killed = || {
            killed.is_some_and(|killed| {
                let is_killed = killed();
                // The call of `killed` may have taken virtual time, so other CPUs may now have
                // earlier clocks. `order` lets these CPUs run first.
                sim.order();
                is_killed
            })
        };
        // This loop ends when the tasks ahead have released the lock, or when this task is killed.
        while self.start_of(task) == UNKNOWN {
            if is_killed() && self.withdraw(sim, task) {
                return None;
            }
            // The task may have been admitted while it tested whether it was killed.
            if self.start_of(task) == UNKNOWN {
                self.doze(sim, task, killed.is_some());
            }
        }
        let start = self.start_of(task);
        if sim.clock.get() < start {
            // The task was admitted while it was awake, testing whether it had been killed. It has
            // to wait for the time at which its critical section begins.
            sim.sleep_until(start);
        }
        self.remove(task);
        if is_killed() {
            self.get_out(sim, role);
            return None;
        }
        self.fold(sim, role);
        Some(blocker)
    }

    /// Sleeps until the lock admits the task. If `looks` is true, sleeps for at most one tick, so
    /// that the task can then test whether it has been killed.
    fn doze(&self, sim: &Inner, task: u32, looks: bool) {
        if looks {
            let tick_ns = sim.hz.nanos(Jiffies(1)).0;
            sim.wake_at(task, sim.clock.get() + tick_ns);
        }
        sim.rescheduled();
        sim.yield_to_next(sim.tasks.get(task));
        sim.order();
    }

    /// Stops waiting, unless the task is admitted first. Returns whether the task stopped waiting.
    fn withdraw(&self, sim: &Inner, task: u32) -> bool {
        let request = self.request(sim);
        self.bring(sim, &request);
        if self.start_of(task) != UNKNOWN {
            return false;
        }
        self.remove(task);
        // If this task wanted to write, readers behind it may have waited only because of it. So
        // admit them now.
        self.admit(sim);
        true
    }

    fn start_of(&self, task: u32) -> u64 {
        let waiters = self.waiters.borrow();
        let mine = waiters.iter().find(|waiter| waiter.task == task);
        mine.expect("a CPU that waits is in the queue").start
    }

    fn remove(&self, task: u32) {
        self.waiters
            .borrow_mut()
            .retain(|waiter| waiter.task != task);
    }

    /// Releases the lock and admits the next waiters.
    fn get_out(&self, sim: &Inner, role: Role) {
        let request = self.request(sim);
        self.bring(sim, &request);
        match role {
            Role::Reader => self.readers.set(self.readers.get() - 1),
            Role::Writer => self.writer.set(NOBODY),
        }
        self.admit(sim);
    }

    /// Admits waiters from the front of the queue while they are compatible with the holders.
    fn admit(&self, sim: &Inner) {
        let (this, home) = (sim.this_cpu(), self.home.index());
        let mut waiters = self.waiters.borrow_mut();
        let admitted = waiters.partition_point(|waiter| waiter.start != UNKNOWN);
        for next in waiters.iter_mut().skip(admitted) {
            if self.is_taken_for(next.role) {
                return;
            }
            self.count_in(next.role, next.task);
            sim.count_line(this, next.cpu);
            next.start = sim.clock.get()
                + sim
                    .prices
                    .transfer_home(this.index(), next.cpu.index(), home)
                + u64::from(sim.prices.lock_handover_extra_ns);
            self.line.set(next.cpu);
            self.holder.set((next.cpu, next.site));
            // A waiter that is awake is testing whether it was killed. It need not be woken: after
            // the test it sees that it was admitted.
            if !next.looks || sim.forget_sleeper(next.task) {
                sim.wake_at(next.task, next.start);
            }
        }
    }
}
