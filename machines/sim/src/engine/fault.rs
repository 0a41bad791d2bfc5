//! Injected faults: stalls, late timers, migrations, and CPUs that go offline.
//!
//! Each CPU draws its faults from a separate random stream. So enabling a fault changes what the
//! program encounters, but not the random numbers that the program draws.

use std::cell::Cell;
use std::cmp::Reverse;

use plimsoll_mm::units::CpuId;
use rand::Rng;

use crate::engine::cpu::{Cpu, NOBODY, Waits};
use crate::engine::random::{around, below};
use crate::engine::record::bump;
use crate::engine::state::{Inner, Sim};

impl Sim {
    /// Takes `cpu` offline, or brings it online.
    ///
    /// A CPU that goes offline drops its deferred jobs; a job that is already running finishes.
    /// Each task of the CPU moves to another CPU as soon as the task may be preempted and holds no
    /// sleeping lock.
    ///
    /// # Panics
    /// If the last online CPU goes offline while it has tasks.
    pub fn set_online(&self, cpu: CpuId, online: bool) {
        self.0.order();
        let index = cpu.index();
        let state = &self.0.cpus[index];
        if state.online.replace(online) == online || online {
            return;
        }
        for slot in &state.jobs {
            slot.waits.set(Waits::No);
        }
        let ready = state.ready.take();
        let (move_on, stay) = ready
            .into_iter()
            .partition(|&id| self.0.tasks.get(id).may_move());
        state.ready.replace(stay);
        let asleep = state.sleepers.take().into_sorted_vec();
        let now = self.0.now();
        let awake = std::collections::VecDeque::into_iter(move_on).map(|id| (now, id));
        // Each entry is a `Reverse`, so the sorted list begins with the latest time; `rev` makes it
        // begin with the earliest. The loop wakes the tasks from the earliest to the latest, and
        // gives each a new, higher sequence number. So tasks that wake at the same time keep their
        // order.
        let asleep = asleep
            .into_iter()
            .rev()
            .map(|Reverse((at, _, id))| (at, id));
        for (at, id) in awake.chain(asleep) {
            self.0.wake_at(id, at.max(now));
        }
        self.0.alert(index, now);
    }

    /// Returns whether `cpu` is online.
    #[must_use]
    pub fn is_online(&self, cpu: CpuId) -> bool {
        self.0.cpus[cpu.index()].online.get()
    }

    /// Returns whether `cpu` runs a task or kernel work, or has a task that is ready or asleep. For
    /// a CPU that went offline, the result is false as soon as all its tasks have moved.
    #[must_use]
    pub fn has_tasks(&self, cpu: CpuId) -> bool {
        self.0.order();
        let state = &self.0.cpus[cpu.index()];
        state.current.get() != NOBODY
            || !state.ready.borrow().is_empty()
            || !state.sleepers.borrow().is_empty()
    }
}

impl Inner {
    /// Draws the time of each CPU's first stall and first migration.
    pub(crate) fn arm_faults(&self) {
        for cpu in &self.cpus {
            self.rearm(cpu, &cpu.stall_at, self.options.faults.stall_every.0);
            self.rearm(cpu, &cpu.migrate_at, self.options.faults.migrate_every.0);
        }
    }

    /// If a stall is due on the running CPU, advances the CPU's clock by the length of a stall.
    pub(crate) fn stall(&self, cpu: &Cpu) {
        if cpu.stall_at.get() <= self.clock.get() {
            let faults = &self.options.faults;
            bump(&self.record.stalls);
            self.clock.set(self.clock.get() + faults.stall_for.0);
            self.rearm(cpu, &cpu.stall_at, faults.stall_every.0);
        }
    }

    /// Moves the running task to a random CPU if a migration is due. Returns whether the task
    /// moved.
    pub(crate) fn random_migration(&self, cpu: &Cpu) -> bool {
        if cpu.migrate_at.get() > self.clock.get() {
            return false;
        }
        self.rearm(cpu, &cpu.migrate_at, self.options.faults.migrate_every.0);
        let target = below(&mut cpu.fault_rng.borrow_mut(), self.cpus.len());
        if target == self.cur.get() || !self.cpus[target].online.get() {
            return false;
        }
        self.migrate(target);
        true
    }

    /// Returns a random timer delay in jiffies, from 0 to `timer_late_jiffies`.
    pub(crate) fn timer_delay(&self) -> u64 {
        match self.options.faults.timer_late_jiffies {
            0 => 0,
            most => self.cpu().fault_rng.borrow_mut().next_u64() % (most + 1),
        }
    }

    /// Advances the running CPU's clock by a random number of nanoseconds. Returns the CPU's key
    /// (time and CPU number) after that. Outside a run, changes nothing and returns 0.
    #[cold]
    pub(crate) fn shake(&self) -> u64 {
        let cpu = self.cpu();
        if self.outside.get() {
            return 0;
        }
        let drawn = cpu.fault_rng.borrow_mut().next_u64();
        let span = drawn % (u64::from(self.options.shake_ns) + 1);
        self.clock.set(self.clock.get() + span);
        crate::engine::tree::key(self.clock.get(), self.cur.get())
    }

    /// Draws the time of the next injected fault of one kind on `cpu`, and stores the time in `at`.
    /// Faults of this kind are `mean_ns` nanoseconds apart on average. If `mean_ns` is 0, `at` does
    /// not change.
    fn rearm(&self, cpu: &Cpu, at: &Cell<u64>, mean_ns: u64) {
        if mean_ns > 0 {
            at.set(self.clock.get() + around(&mut cpu.fault_rng.borrow_mut(), mean_ns));
        }
    }
}
