//! Waiting for a lock: the part that [`SimLock`](crate::SimLock) and
//! [`SimCpuLock`](crate::SimCpuLock) share.
//!
//! A lock is modelled as a server with a queue, at a distance from the CPUs. A *section* is the
//! work of one CPU while it holds the lock. A request needs half the time of a line transfer to
//! arrive at the lock's cache line. Only when it arrives does it take its place in the queue. Until
//! then, the CPU that has the line can release the lock or acquire it again. The other half of the
//! transfer brings the line to the requesting CPU.
//!
//! Requests arrive in order of time. So a CPU that finds the lock free, or held until a known time,
//! knows at once when its turn begins. The CPU advances its clock to that time, runs its section
//! ahead of the other CPUs, and records when the lock is free again. If the section reaches an
//! order point (a step before which CPUs with earlier clocks run), the lock stays held. A CPU that
//! arrives then *parks*: its task is suspended until it gets the lock. The release is an order
//! point as well; it hands the lock to the first parked waiter.
//!
//! Both ways of waiting, advancing the clock and parking, serve waiters in the order of arrival, at
//! the same price of a hand-over. So a section starts at the same time in both cases.
//!
//! Invariant: waiters whose start is known precede parked waiters, and CPUs park only while the
//! lock is held.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Nanos};

use crate::engine::cpu::{NO_CPU, cpu_id};
use crate::engine::disturbances::pin_of;
use crate::engine::record::LOCK;
use crate::engine::state::Inner;
use crate::engine::tree::{NEVER, key, time_of};
use crate::options::LockModel;
use crate::stats::LongestWait;
use crate::tasks::wait::{Access, LockId};

/// The value of `Waiter::start` while the waiter is parked (suspended). Its start is not known yet.
const UNKNOWN: u64 = u64::MAX;

/// The value of `Section::epoch` if other CPUs may have seen the lock held, so that the release has
/// to look for parked (suspended) CPUs. No epoch of the engine (its count of resumptions) is so
/// large.
const SEEN: u64 = u64::MAX;

/// The state of a lock, without the value that the lock protects. Few locks have waiters, so the
/// waiters are boxed, and the other fields fit into one cache line.
pub(crate) struct Queue {
    /// The key (time and CPU) at which the last critical section under the lock ended.
    free_key: Cell<u64>,
    /// The CPU that held the lock last. [`NO_CPU`] if a CPU holds the lock, or if the lock is
    /// promised to a waiting CPU.
    free_at: Cell<CpuId>,
    /// The CPU whose request reached the lock's cache line last: it has the line or will get it.
    line: Cell<CpuId>,
    /// The CPU that holds the lock or held it last, and the call site at which this CPU requested
    /// the lock.
    holder: Cell<(CpuId, Site)>,
    pub(crate) home: CpuId,
    pub(crate) class: LockClass,
    /// True if `waiters` has entries, even if the critical sections of all these waiters have
    /// already begun.
    queued: Cell<bool>,
    waiters: Box<RefCell<VecDeque<Waiter>>>,
}

const _: () = assert!(
    size_of::<Queue>() <= 40,
    "a lock leaves room for its value in a pair of cache lines"
);

/// A CPU that found the lock held.
struct Waiter {
    start: u64,
    cpu: CpuId,
    task: u32,
    site: Site,
}

/// One critical section under a lock.
pub(crate) struct Section {
    pub(crate) start: u64,
    epoch: u64,
}

impl Section {
    /// Stands for the section of code outside a run, which reads the locked value without acquiring
    /// the lock.
    pub(crate) const OUTSIDE: Self = Self {
        start: 0,
        epoch: u64::MAX - 1,
    };
}

impl Queue {
    pub(crate) fn new(class: LockClass, home: CpuId) -> Self {
        Self {
            free_key: Cell::new(0),
            free_at: Cell::new(home),
            line: Cell::new(home),
            holder: Cell::new((home, Site::Control)),
            home,
            class,
            queued: Cell::new(false),
            waiters: Box::default(),
        }
    }

    /// Requests the lock and waits until the caller has it.
    #[inline(always)]
    pub(crate) fn acquire(&self, sim: &Inner, site: Site) -> Section {
        let asked = time_of(sim.order());
        let line_ns = self.line_ns(sim);
        let request_ns = line_ns / 2;
        sim.clock.set(asked + request_ns);
        let mine = sim.order();
        sim.record
            .fold(time_of(mine), sim.cur.get(), LOCK | self.class as u64);
        if self.is_taken(mine) {
            self.wait(sim, site, asked)
        } else {
            self.take(sim, site, line_ns - request_ns)
        }
    }

    /// Like [`Queue::acquire`], but the request takes its place in the queue at once, because it
    /// need not travel to the lock's cache line.
    pub(crate) fn acquire_here(&self, sim: &Inner, site: Site) -> Section {
        let mine = sim.order();
        sim.record
            .fold(time_of(mine), sim.cur.get(), LOCK | self.class as u64);
        if self.is_taken(mine) {
            self.wait(sim, site, time_of(mine))
        } else {
            self.take(sim, site, self.line_ns(sim))
        }
    }

    /// The time, in nanoseconds, that it takes to bring the lock's line to the running CPU; 0 if
    /// the running CPU has the line.
    #[inline]
    pub(crate) fn line_ns(&self, sim: &Inner) -> u64 {
        let (line, this) = (self.line.get(), sim.this_cpu());
        if line == this {
            return 0;
        }
        sim.prices
            .transfer_home(line.index(), this.index(), self.home.index())
    }

    /// Returns whether a CPU holds the lock, or the lock is promised to a waiting CPU.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.free_at.get() == NO_CPU
    }

    /// Returns whether a CPU that arrives with key `mine` (time and CPU number) finds the lock
    /// held.
    #[inline]
    pub(crate) fn is_taken(&self, mine: u64) -> bool {
        self.is_held() || self.free_key.get() > mine
    }

    /// Returns whether `cpu`, which is running, held the lock last. The lock is then free, because
    /// the CPU's clock is not before the end of its own last critical section.
    #[inline(always)]
    pub(crate) fn is_free_at(&self, sim: &Inner, cpu: CpuId) -> bool {
        let free = self.free_at.get() == cpu;
        debug_assert!(!free || time_of(self.free_key.get()) <= sim.clock.get());
        free
    }

    /// Acquires the free lock, whose line still needs `line_ns` nanoseconds to arrive.
    #[inline]
    pub(crate) fn take(&self, sim: &Inner, site: Site, line_ns: u64) -> Section {
        let cost = if self.free_at.get() == sim.this_cpu() {
            sim.prices.lock_own()
        } else {
            sim.count_line(self.free_at.get(), sim.this_cpu());
            line_ns + u64::from(sim.prices.lock_remote_extra_ns)
        };
        if self.queued.get() {
            self.waiters.borrow_mut().clear();
            self.queued.set(false);
        }
        self.take_for(sim, site, cost)
    }

    /// Acquires the free lock in `cost` nanoseconds.
    #[inline]
    pub(crate) fn take_for(&self, sim: &Inner, site: Site, cost: u64) -> Section {
        sim.clock.set(sim.clock.get() + cost);
        self.claim(sim.this_cpu(), site);
        self.begin(sim)
    }

    /// Records that `cpu` holds the lock and has its line.
    #[inline(always)]
    fn claim(&self, cpu: CpuId, site: Site) {
        self.line.set(cpu);
        self.free_at.set(NO_CPU);
        self.holder.set((cpu, site));
    }

    /// Begins a critical section on the running CPU, which holds the lock.
    #[inline(always)]
    fn begin(&self, sim: &Inner) -> Section {
        if self.class.sleeps() {
            let stays = &sim.tasks.get(sim.cpu().current.get()).stays;
            stays.set(stays.get() + 1);
        } else {
            sim.pins.set(sim.pins.get() + pin_of(self.class));
            if self.class == LockClass::Zone {
                sim.cpu().moved.set(Some(0));
            }
        }
        let all_seen = sim.options.lock_model == LockModel::ReleaseEvent;
        Section {
            start: sim.clock.get(),
            epoch: if all_seen { SEEN } else { sim.epoch.get() },
        }
    }

    /// Begins a critical section on `cpu` without first letting CPUs with earlier clocks run. The
    /// lock is a spinlock whose class does not mask interrupts. `cpu` is running, and held the lock
    /// last.
    #[inline(always)]
    pub(crate) fn enter_again(&self, sim: &Inner, cpu: CpuId, site: Site) -> Section {
        self.claim(cpu, site);
        sim.pins.set(sim.pins.get() + 1);
        Section {
            start: sim.clock.get(),
            epoch: sim.epoch.get(),
        }
    }

    /// Waits for the lock until the running CPU's critical section begins, and returns this
    /// section. The lock is held, and the running CPU requested it at time `asked`, in nanoseconds.
    #[inline(never)]
    fn wait(&self, sim: &Inner, site: Site, asked: u64) -> Section {
        let this = sim.this_cpu();
        let arrival = sim.clock.get();
        self.line.set(this);
        let parked = self.is_held();
        if self.class.sleeps() {
            sim.assert_may_sleep();
        }
        let behind = self.retire(arrival);
        let blocker = self.holder.get();
        assert!(
            self.class.sleeps() || !parked || blocker.0 != this || behind,
            "CPU {this} waits for a {} that it holds itself",
            self.class.name()
        );
        let start = if parked {
            UNKNOWN
        } else {
            self.next_start(sim, self.free_at.get(), this)
        };
        let task = sim.cpu().current.get();
        self.waiters.borrow_mut().push_back(Waiter {
            start,
            cpu: this,
            task,
            site,
        });
        self.queued.set(true);
        self.free_at.set(NO_CPU);
        if self.class.sleeps() {
            if !parked {
                sim.wake_at(task, start);
            }
            sim.rescheduled();
            sim.yield_to_next(sim.tasks.get(task));
        } else if parked {
            sim.leave(NEVER);
        } else {
            sim.clock.set(start);
        }
        if !self.class.sleeps() {
            sim.disturb_waiter(self.class);
        }
        let start = sim.clock.get();
        let wait = LongestWait {
            wait: Nanos(start - asked),
            at: Nanos(asked),
            cpu: this,
            blocker: blocker.0,
            blocker_site: blocker.1,
        };
        // Linux traces every waiter of a mutex. Of the waiters of a queued spinlock, it traces
        // those that wait behind another waiter.
        let traced = behind || self.class.sleeps();
        sim.waited(
            LockId::of(self),
            self.class,
            site,
            self.access(),
            wait,
            traced,
        );
        let section = self.begin(sim);
        // Other CPUs may have parked before this critical section began. So the release at the end
        // of the section must look for parked CPUs; `SEEN` makes it do so.
        let seen = parked || self.class.sleeps();
        Section {
            epoch: if seen { SEEN } else { section.epoch },
            ..section
        }
    }

    /// The way in which tasks request this lock.
    #[inline]
    fn access(&self) -> Access {
        if self.class.sleeps() {
            Access::Sleep
        } else {
            Access::Spin
        }
    }

    /// The time, in nanoseconds, at which the next critical section starts, if the last one was on
    /// CPU `from` and the next is on CPU `to`.
    fn next_start(&self, sim: &Inner, from: CpuId, to: CpuId) -> u64 {
        sim.count_line(from, to);
        let home = self.home.index();
        time_of(self.free_key.get())
            + sim.prices.transfer_home(from.index(), to.index(), home)
            + u64::from(sim.prices.lock_handover_extra_ns)
    }

    /// Removes the waiters whose critical sections have started by `now`. Returns whether any
    /// waiters are left.
    fn retire(&self, now: u64) -> bool {
        let mut waiters = self.waiters.borrow_mut();
        while let Some(first) = waiters.front() {
            if first.start > now {
                return true;
            }
            self.holder.set((first.cpu, first.site));
            waiters.pop_front();
        }
        self.queued.set(false);
        false
    }

    /// Ends a critical section. The value of the lock must no longer be borrowed.
    #[inline(always)]
    pub(crate) fn release(&self, sim: &Inner, site: Site, section: &Section) {
        if section.epoch == sim.epoch.get() {
            self.end(sim, site, section);
        } else {
            let hold_ns = sim.clock.get() - section.start;
            sim.record.held(self.class, site, hold_ns);
            let from = section.start;
            sim.held(LockId::of(self), self.class, site, self.access(), from);
            self.hand_over(sim);
        }
        if self.class.sleeps() {
            // The number of nested sections is kept in the task and not on the CPU, because a task
            // that holds a sleeping lock may sleep.
            let stays = &sim.tasks.get(sim.cpu().current.get()).stays;
            stays.set(stays.get() - 1);
        } else {
            sim.pins.set(sim.pins.get() - pin_of(self.class));
            if self.class == LockClass::Zone {
                sim.cpu().moved.set(None);
            }
            if self.class.masks_interrupts() {
                sim.disturb();
            }
        }
    }

    /// Ends a critical section of a [`SimCpuLock`](crate::SimCpuLock). Has the same effect as
    /// [`Queue::release`], but is faster, because a per-CPU lock never masks interrupts.
    #[inline(always)]
    pub(crate) fn release_spinning(&self, sim: &Inner, site: Site, section: &Section) {
        if section.epoch == sim.epoch.get() {
            self.end(sim, site, section);
            sim.pins.set(sim.pins.get() - 1);
        } else if section.epoch != Section::OUTSIDE.epoch {
            self.release(sim, site, section);
        }
    }

    /// Ends a critical section during which no other CPU has run.
    #[inline(always)]
    fn end(&self, sim: &Inner, site: Site, section: &Section) {
        let (this, now) = (sim.cur.get(), sim.clock.get());
        sim.record.held(self.class, site, now - section.start);
        if now > section.start {
            let from = section.start;
            sim.held(LockId::of(self), self.class, site, self.access(), from);
        }
        self.free_key.set(key(now, this));
        self.free_at.set(cpu_id(this));
    }

    /// Ends a critical section during which other CPUs may have run and found the lock held. First
    /// lets CPUs with earlier clocks run, and then hands the lock to the CPU that has waited
    /// longest.
    #[inline(never)]
    fn hand_over(&self, sim: &Inner) {
        let mine = sim.order();
        let this = sim.this_cpu();
        self.free_key.set(mine);
        let next = if self.retire(time_of(mine)) {
            self.promise(sim, this)
        } else {
            None
        };
        let Some((task, cpu, start)) = next else {
            return self.free_at.set(this);
        };
        if self.class.sleeps() {
            sim.wake_at(task, start);
        } else {
            sim.post(cpu, key(start, cpu));
        }
    }

    /// Promises the lock to the first waiter. Returns the task, the CPU and the start of that
    /// waiter, with the start in nanoseconds; `None` if there is no waiter.
    fn promise(&self, sim: &Inner, from: CpuId) -> Option<(u32, usize, u64)> {
        let mut waiters = self.waiters.borrow_mut();
        let first = waiters.front_mut()?;
        debug_assert!(
            first.start == UNKNOWN,
            "a CPU whose start is known has started or is the holder"
        );
        first.start = self.next_start(sim, from, first.cpu);
        Some((first.task, first.cpu.index(), first.start))
    }
}
