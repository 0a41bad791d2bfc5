//! Local work, and the events that may interrupt it.
//!
//! `spend` adds the time of the work to the CPU's clock, and compares the clock with one deadline.
//! Once the deadline has passed, a CPU that may be preempted handles its pending events: expired
//! timers, preemption by kernel work or at the end of a time slice, disturbances and faults. In a
//! section that must not be preempted, the CPU handles only disturbances. During a long call of
//! `spend`, the CPU is suspended until the end of its work, so that events from other CPUs can
//! arrive during the call.

use plimsoll_mm::site::Work;
use plimsoll_mm::units::Nanos;

use crate::engine::cpu::Cpu;
use crate::engine::record::bump;
use crate::engine::state::{Inner, Kind};
use crate::engine::tree::{TIME_MAX_NS, key};
use crate::profile::{is_hold_work, is_mover};
use crate::tasks::step::Step;

impl Inner {
    /// Advances the running CPU's clock by the time of `n` units of `work`, and handles the events
    /// that come due during this time.
    #[inline]
    pub(crate) fn spend(&self, work: Work, n: u32) {
        let cost = self.price_of(work, n);
        let then = self.clock.get() + cost;
        if then >= self.deadline.get() {
            return self.spend_slow(work, n, cost);
        }
        self.clock.set(then);
        self.count(work, n, cost);
    }

    /// Adds `n` units of `work`, which take `cost` nanoseconds, to the statistics. Also adds up the
    /// bytes that this work moves between the CPU and memory.
    #[inline(always)]
    fn count(&self, work: Work, n: u32, cost: u64) {
        let total = &self.record.work_ns[work as usize];
        total.set(total.get() + cost);
        if is_mover(work) {
            self.moved
                .set(self.moved.get() + self.prices.moved_bytes(work, n));
        }
    }

    /// The price of `n` units of `work` on the running CPU, in nanoseconds.
    #[inline]
    fn price_of(&self, work: Work, n: u32) -> u64 {
        if is_hold_work(work) {
            let moved = &self.cpu().moved;
            let before = moved.get();
            moved.set(before.map(|pages| pages.saturating_add(n)));
            self.prices.hold_work(work, before, n)
        } else {
            self.prices.work(work) * u64::from(n)
        }
    }

    /// Advances the running CPU's clock by the time of `n` units of `work`. Unlike
    /// [`Inner::spend`], does not handle the events that come due during this time. This is for
    /// work that cannot be preempted.
    pub(crate) fn charge(&self, work: Work, n: u32) {
        if self.outside.get() {
            return;
        }
        let cost = self.prices.work(work) * u64::from(n);
        self.clock.set(self.clock.get() + cost);
        let total = &self.record.work_ns[work as usize];
        total.set(total.get() + cost);
    }

    #[cold]
    fn spend_slow(&self, work: Work, n: u32, mut cost: u64) {
        if self.outside.get() {
            return;
        }
        if self.under_load && self.pins.get() == 0 && self.clock.get() >= self.window_end() {
            self.enter_window();
            // `price_of` counts the pages that the CPU moves while it holds a zone lock. This
            // second call counts no page twice, because a CPU that may be preempted holds no zone
            // lock.
            cost = self.price_of(work, n);
        }
        self.count(work, n, cost);
        assert!(
            self.clock.get() + cost < TIME_MAX_NS,
            "virtual time ends after 26 days"
        );
        if self.pins.get() > 0 {
            self.clock.set(self.clock.get() + cost);
            return self.disturb();
        }
        let mut rest = cost;
        // This loop ends, because each iteration either lets time pass or removes an event from a
        // queue.
        loop {
            let (passed, reason) = self.pass(rest);
            rest -= passed;
            let now = self.clock.get();
            if reason <= now {
                self.look_up();
            } else if rest == 0 {
                let ahead = now + self.options.run_ahead.0;
                return self.deadline.set(reason.min(ahead).min(self.window_end()));
            }
        }
    }

    /// The time, in nanoseconds, at which the running CPU's *window* ends. A window is an interval
    /// of virtual time in which a CPU keeps one speed. `u64::MAX` if load has no effects.
    fn window_end(&self) -> u64 {
        if self.under_load {
            self.load.until(self.cur.get())
        } else {
            u64::MAX
        }
    }

    /// Lets `rest` nanoseconds pass, or fewer if an event is due earlier. Returns the number of
    /// nanoseconds that passed, and the time of the next event ([`Inner::next_reason`]).
    fn pass(&self, rest: u64) -> (u64, u64) {
        let index = self.cur.get();
        let cpu = &self.cpus[index];
        let now = self.clock.get();
        let mut reason = self.next_reason(cpu);
        let until = (now + rest).min(reason.max(now));
        let when = key(until, index);
        if when > self.limit.get() {
            cpu.spending.set(true);
            self.leave(when);
            cpu.spending.set(false);
            // Other CPUs ran while this CPU waited, and may have queued an event for this CPU.
            reason = self.next_reason(cpu);
        } else {
            self.clock.set(until);
        }
        (self.clock.get() - now, reason)
    }

    /// The time, in nanoseconds, of the next event that the running CPU has to handle; 0 if an
    /// event already waits to be handled. Must not be called in a section in which the CPU cannot
    /// be preempted.
    fn next_reason(&self, cpu: &Cpu) -> u64 {
        let (mut reason, job_waits) = cpu.looks_up_at();
        let task = self.tasks.get(cpu.current.get());
        if task.kind.get() != Kind::Kernel {
            if job_waits || !cpu.online.get() && task.may_move() {
                return 0;
            }
            if !cpu.ready.borrow().is_empty() {
                reason = reason.min(cpu.slice_end.get());
            }
            if task.may_move() {
                reason = reason.min(cpu.migrate_at.get());
            }
        }
        reason.min(cpu.stall_at.get()).min(self.disturbed_at())
    }

    /// Handles all events that are due on the running CPU, which may be preempted.
    fn look_up(&self) {
        let cpu = self.cpu();
        self.disturb();
        self.fire_timers(cpu);
        self.stall(cpu);
        let id = cpu.current.get();
        let task = self.tasks.get(id);
        if task.kind.get() == Kind::Kernel {
            return;
        }
        if task.may_move() {
            if !cpu.online.get() {
                return self.migrate(self.another_cpu(self.cur.get()));
            }
            if self.random_migration(cpu) {
                return;
            }
        }
        let sliced = self.clock.get() >= cpu.slice_end.get() && !cpu.ready.borrow().is_empty();
        if cpu.next_job().is_some() {
            // Kernel work preempts the task. The task goes to the front of the queue, so that it
            // does not lose its turn to other tasks.
            cpu.ready.borrow_mut().push_front(id);
        } else if sliced {
            self.rescheduled();
            cpu.ready.borrow_mut().push_back(id);
        } else {
            return;
        }
        bump(&self.record.preemptions);
        self.stepped(|sim| Step::Preempted {
            cpu: sim.this_cpu(),
            at: Nanos(sim.clock.get()),
            task: id,
        });
        self.yield_to_next(task);
    }
}

impl Inner {
    /// Lets the running CPU enter the *window* that contains the time of its clock. A window is an
    /// interval of virtual time in which the CPU keeps one speed. The call first lets CPUs with
    /// earlier clocks run, so the CPU must not be in a section in which it cannot be preempted.
    #[inline(never)]
    pub(crate) fn enter_window(&self) {
        self.order();
        self.settle();
        let (cpu, now) = (self.cur.get(), self.clock.get());
        let pace = self.load.enter(cpu, now, self.prices.own_percent(cpu));
        self.prices.set_pace(cpu, pace);
    }

    /// Counts, for the running CPU's node, the bytes that this CPU has moved since the last call.
    #[inline]
    pub(crate) fn settle(&self) {
        let bytes = self.moved.take();
        if bytes > 0 {
            self.load.moved(self.cur.get(), bytes);
        }
    }
}
