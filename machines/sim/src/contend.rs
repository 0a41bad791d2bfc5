//! Waiting for a lock: what [`SimLock`](crate::SimLock) and [`SimCpuLock`](crate::SimCpuLock)
//! share.
//!
//! A lock is a queueing server behind a distance. A request takes half a transfer to reach the
//! lock's cache line and counts from then on: until then whoever has the line can release the lock,
//! or take it again. The other half brings the line back.
//!
//! Requests arrive in order of time, so who finds the lock free or claimed
//! knows at once when its turn begins: it moves its clock there, runs its section ahead and stamps
//! when the lock is free again. If it meets an order point inside and others run meanwhile, the
//! lock stays `held`; whoever arrives then parks, and the release, an order point as well, hands
//! the lock to the first of them. Both ways give the same starts, because both are first come,
//! first served, with the same price of a hand-over.
//!
//! Invariant: waiters with a known start precede parked ones; parked ones exist only while `held`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Nanos};

use crate::cpu::Cpu;
use crate::engine::Inner;
use crate::options::LockModel;
use crate::random::cpu_id;
use crate::record::LOCK;
use crate::stats::LongestWait;
use crate::tree::{NEVER, key, time_of};

/// The start of a waiter that does not know it yet.
const UNKNOWN: u64 = u64::MAX;

/// The epoch of a section that others may have seen before it began.
const SEEN: u64 = u64::MAX;

/// A lock without its value.
pub(crate) struct Queue {
    pub(crate) class: LockClass,
    home: usize,
    /// The key at which the last section ended.
    free_key: Cell<u64>,
    /// The CPU of the last section.
    last: Cell<usize>,
    /// The CPU whose request got to the lock's line last: it has the line or will get it.
    line: Cell<usize>,
    /// Somebody is inside or has been promised to be next.
    pub(crate) held: Cell<bool>,
    /// Who holds it, or held it last.
    holder: Cell<(usize, Site)>,
    waiters: RefCell<VecDeque<Waiter>>,
    /// Whether `waiters` has entries, stale ones included.
    queued: Cell<bool>,
}

/// Somebody who found the lock taken.
struct Waiter {
    start: u64,
    cpu: usize,
    task: u32,
    site: Site,
}

/// One section under a lock.
pub(crate) struct Section {
    pub(crate) start: u64,
    epoch: u64,
    site: Site,
}

impl Queue {
    pub(crate) fn new(class: LockClass, home: CpuId) -> Self {
        Self {
            class,
            home: home.index(),
            free_key: Cell::new(0),
            last: Cell::new(home.index()),
            line: Cell::new(home.index()),
            held: Cell::new(false),
            holder: Cell::new((home.index(), Site::Control)),
            waiters: RefCell::default(),
            queued: Cell::new(false),
        }
    }

    /// Asks for the lock and waits for it in turn.
    #[inline(always)]
    pub(crate) fn acquire(&self, sim: &Inner, site: Site) -> Section {
        let asked = time_of(sim.order());
        let line_ns = self.line_ns(sim);
        let request_ns = line_ns / 2;
        sim.cpu().clock.set(asked + request_ns);
        let mine = sim.order();
        sim.record
            .fold(time_of(mine), sim.cur.get(), LOCK | self.class as u64);
        if self.is_taken(mine) {
            self.wait(sim, site, asked)
        } else {
            self.take(sim, site, line_ns - request_ns)
        }
    }

    /// The same for somebody who is where the line is told apart by other means.
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

    /// What bringing the line here takes; nothing if it is here.
    #[inline]
    pub(crate) fn line_ns(&self, sim: &Inner) -> u64 {
        let index = sim.cur.get();
        if self.line.get() == index {
            return 0;
        }
        sim.prices.transfer_home(self.line.get(), index, self.home)
    }

    /// Whether somebody who arrives with key `mine` finds the lock taken.
    #[inline]
    pub(crate) fn is_taken(&self, mine: u64) -> bool {
        self.held.get() || self.free_key.get() > mine
    }

    /// The CPU of the last section.
    #[inline]
    pub(crate) fn last(&self) -> usize {
        self.last.get()
    }

    /// Takes the free lock, whose line is still `line_ns` away.
    #[inline]
    pub(crate) fn take(&self, sim: &Inner, site: Site, line_ns: u64) -> Section {
        let cost = if self.last.get() == sim.cur.get() {
            u64::from(sim.prices.lock_own_ns)
        } else {
            self.count_line(sim, sim.cur.get());
            line_ns + u64::from(sim.prices.lock_remote_extra_ns)
        };
        if self.queued.get() {
            self.waiters.borrow_mut().clear();
            self.queued.set(false);
        }
        self.take_at(sim, site, sim.cpu().clock.get() + cost)
    }

    /// Takes the free lock from `start` on.
    #[inline(always)]
    pub(crate) fn take_at(&self, sim: &Inner, site: Site, start: u64) -> Section {
        let cpu = sim.cpu();
        cpu.clock.set(start);
        self.claim(sim.cur.get(), site);
        self.begin(sim, cpu, site, start)
    }

    /// The lock and its line are with CPU `index`.
    #[inline(always)]
    pub(crate) fn claim(&self, index: usize, site: Site) {
        self.line.set(index);
        self.held.set(true);
        self.holder.set((index, site));
    }

    /// The section of `cpu`, which runs and has the lock.
    #[inline(always)]
    pub(crate) fn begin(&self, sim: &Inner, cpu: &Cpu, site: Site, start: u64) -> Section {
        if self.class.sleeps() {
            let stays = &sim.tasks.get(cpu.current.get()).stays;
            stays.set(stays.get() + 1);
        } else {
            cpu.pins.set(cpu.pins.get() + 1);
        }
        Section {
            start,
            epoch: sim.epoch.get(),
            site,
        }
    }

    /// Queues for the taken lock, which was asked for at `asked`.
    #[inline(never)]
    fn wait(&self, sim: &Inner, site: Site, asked: u64) -> Section {
        let index = sim.cur.get();
        let cpu = &sim.cpus[index];
        let arrival = cpu.clock.get();
        self.line.set(index);
        let parked = self.held.get();
        if self.class.sleeps() {
            sim.assert_may_sleep();
        }
        let behind = self.retire(arrival);
        let blocker = self.holder.get();
        assert!(
            self.class.sleeps() || !parked || blocker.0 != index || behind,
            "CPU {index} waits for a {} that it holds itself",
            self.class.name()
        );
        let start = if parked {
            UNKNOWN
        } else {
            self.next_start(sim, index)
        };
        let task = cpu.current.get();
        self.waiters.borrow_mut().push_back(Waiter {
            start,
            cpu: index,
            task,
            site,
        });
        self.queued.set(true);
        self.held.set(true);
        if self.class.sleeps() {
            if !parked {
                sim.wake_at(task, start);
            }
            sim.yield_to_next(sim.tasks.get(task));
        } else if parked {
            sim.leave(NEVER);
        } else {
            cpu.clock.set(start);
        }
        let cpu = sim.cpu();
        let start = cpu.clock.get();
        let wait = LongestWait {
            wait: Nanos(start - asked),
            at: Nanos(asked),
            cpu: cpu_id(index),
            blocker: cpu_id(blocker.0),
            blocker_site: blocker.1,
        };
        // The first waiter of a queued spinlock is invisible; every waiter of a mutex is traced.
        let traced = behind || self.class.sleeps();
        sim.record.lock(self.class, site).waited(wait, traced);
        cpu.record_wait(self.class, start - asked);
        let section = self.begin(sim, cpu, site, start);
        // Others may have parked before this section began: its end has to look for them.
        let seen = parked || self.class.sleeps();
        Section {
            epoch: if seen { SEEN } else { section.epoch },
            ..section
        }
    }

    /// Counts that the lock's line goes to CPU `to`.
    fn count_line(&self, sim: &Inner, to: usize) {
        let distance = sim.prices.distance(self.last.get(), to);
        sim.record.line_moved(distance);
    }

    /// When the next section starts if it is one of CPU `to`.
    fn next_start(&self, sim: &Inner, to: usize) -> u64 {
        self.count_line(sim, to);
        time_of(self.free_key.get())
            + sim.prices.transfer_home(self.last.get(), to, self.home)
            + u64::from(sim.prices.lock_handover_extra_ns)
    }

    /// Forgets waiters that have started by `now`; whether others still wait.
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

    /// Ends a section. Its value must no longer be borrowed.
    #[inline(always)]
    pub(crate) fn release(&self, sim: &Inner, section: &Section) {
        let (cpu, index) = (sim.cpu(), sim.cur.get());
        let now = cpu.clock.get();
        sim.record
            .lock(self.class, section.site)
            .held(now - section.start);
        if section.epoch != sim.epoch.get() || sim.options.lock_model == LockModel::ReleaseEvent {
            self.hand_over(sim);
        } else {
            self.last.set(index);
            self.free_key.set(key(now, index));
            self.held.set(false);
        }
        if self.class.sleeps() {
            // A sleeper may wake up elsewhere.
            let stays = &sim.tasks.get(sim.cpu().current.get()).stays;
            stays.set(stays.get() - 1);
        } else {
            cpu.pins.set(cpu.pins.get() - 1);
        }
    }

    /// Ends a section that others may have seen: in order, to whoever has waited longest.
    #[inline(never)]
    fn hand_over(&self, sim: &Inner) {
        let mine = sim.order();
        let index = sim.cur.get();
        self.last.set(index);
        self.free_key.set(mine);
        let next = if self.retire(time_of(mine)) {
            self.promise(sim)
        } else {
            None
        };
        let Some((task, cpu, start)) = next else {
            return self.held.set(false);
        };
        if self.class.sleeps() {
            sim.wake_at(task, start);
        } else {
            sim.post(cpu, key(start, cpu));
        }
    }

    /// Tells the first waiter its start.
    fn promise(&self, sim: &Inner) -> Option<(u32, usize, u64)> {
        let mut waiters = self.waiters.borrow_mut();
        let first = waiters.front_mut()?;
        debug_assert!(
            first.start == UNKNOWN,
            "who knows its start has started or is the holder"
        );
        first.start = self.next_start(sim, first.cpu);
        Some((first.task, first.cpu, first.start))
    }
}
