//! The core of the engine: the loop that resumes the earliest CPU, and the order points.
//!
//! The *key* of a CPU is one number that combines the time at which the CPU runs next and the index
//! of the CPU (`tree`). Invariant: a CPU that passes an order point has the smallest key of all
//! CPUs. So all steps that follow an order point happen in the order of `(time, CPU)`. While a CPU
//! runs, `limit` caches the smallest key of the other CPUs, so passing an order point takes one
//! comparison.
//!
//! Code that is called outside a run ([`Inner::outside`]) acts as if on CPU 0. It takes no virtual
//! time and never waits, with one exception: if the code needs a lock that a suspended task holds,
//! the machine runs until that task releases the lock.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_mm::units::CpuId;

use crate::engine::cpu::{Cpu, NO_CPU, NOBODY, cpu_id};
use crate::engine::disturbances::Disturbances;
use crate::engine::load::LoadState;
use crate::engine::price::Prices;
use crate::engine::record::Record;
use crate::engine::resume::Resume;
use crate::engine::state::{Hooks, Inner, RunControl};
use crate::engine::tree::{CPUS_MAX, NEVER, Tree, cpu_of, key, time_of};
use crate::memory::arena::Arena;
use crate::options::{LockModel, SimOptions};
use crate::profile::{Load, Profile};
use crate::tasks::coroutine::prefetch;
use crate::tasks::stretch::Stretches;
use crate::tasks::tick::PERCENT_MAX;

impl Inner {
    pub(crate) fn new(profile: &Profile, options: SimOptions) -> Rc<Self> {
        let cpus = profile.topology.cpus() as usize;
        assert!(
            cpus <= CPUS_MAX,
            "a simulated machine has at most {CPUS_MAX} CPUs"
        );
        assert!(
            options.late_ticks_percent <= PERCENT_MAX,
            "at most {PERCENT_MAX} % of ticks come before they are counted"
        );
        let none = Load::default();
        let load = if options.under_load {
            &profile.load
        } else {
            &none
        };
        let (costs, topology) = (&profile.costs, &profile.topology);
        let prices = Prices::new(costs, topology, &profile.speed_percent, load);
        let ceremonial = options.strict || options.lock_model == LockModel::ReleaseEvent;
        let disturbances = options
            .jitter
            .then(|| Disturbances::new(profile, options.seed));
        let inner = Rc::new_cyclic(|me| Self {
            cur: Cell::new(0),
            clock: Cell::new(0),
            deadline: Cell::new(0),
            pins: Cell::new(0),
            local: Cell::new(NO_CPU),
            limit: Cell::new(0),
            epoch: Cell::new(0),
            outside: Cell::new(true),
            moved: Cell::new(0),
            under_load: *load != none,
            load: LoadState::new(load, topology),
            cpus: (0..cpus).map(|cpu| Cpu::new(options.seed, cpu)).collect(),
            resumes: (0..cpus).map(|_| Resume::default()).collect(),
            tree: Tree::new(cpus),
            tasks: Arena::new(),
            plain: prices.are_alike() && !ceremonial,
            prices,
            disturbances: disturbances.flatten(),
            record: Record::new(),
            hz: profile.hz,
            topology: profile.topology.clone(),
            free: RefCell::default(),
            sequence: Cell::new(0),
            hooks: Hooks::default(),
            stretches: Stretches::default(),
            run: RunControl::default(),
            me: me.clone(),
            shaken: options.shake_ns > 0,
            ceremonial,
            options,
        });
        inner.arm_faults();
        inner
    }

    /// The running CPU.
    #[inline]
    pub(crate) fn cpu(&self) -> &Cpu {
        &self.cpus[self.cur.get()]
    }

    /// The number of the running CPU.
    #[inline]
    pub(crate) fn this_cpu(&self) -> CpuId {
        cpu_id(self.cur.get())
    }

    /// The current virtual time in nanoseconds: the clock of the running CPU or, outside a run, the
    /// time that the machine has reached.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        if self.outside.get() {
            self.run.reached.get()
        } else {
            self.clock.get()
        }
    }

    /// An order point: lets every CPU with an earlier key (time and CPU number) run first. Returns
    /// the caller's key.
    #[inline(always)]
    pub(crate) fn order(&self) -> u64 {
        let mine = if self.shaken {
            self.shake()
        } else {
            key(self.clock.get(), self.cur.get())
        };
        if mine > self.limit.get() {
            return self.order_slow(mine);
        }
        mine
    }

    #[inline(always)]
    fn order_slow(&self, mine: u64) -> u64 {
        if self.outside.get() {
            return mine;
        }
        self.leave(mine);
        mine
    }

    /// Suspends the current task, and gives the running CPU the key `when` (a time and the CPU's
    /// number). The CPU continues when this key is the smallest of the keys of all CPUs.
    #[inline(always)]
    pub(crate) fn leave(&self, when: u64) {
        let cpu = self.cur.get();
        self.tree.set(cpu, when);
        let task = self.tasks.get(self.cpus[cpu].current.get());
        self.resumes[cpu].note(task);
        task.suspend();
    }

    /// Makes CPU `cpu`, which is not running, continue at the key `when` (time and CPU number),
    /// unless its own key is earlier.
    pub(crate) fn post(&self, cpu: usize, when: u64) {
        if when < self.tree.leaf(cpu) {
            self.tree.set(cpu, when);
            self.limit.set(self.limit.get().min(when));
        }
    }

    /// Repeatedly resumes the earliest CPU, until no CPU has a key (time and CPU number) before
    /// `horizon`, or the run is stopped.
    pub(crate) fn run_loop(&self, horizon: u64) {
        while !self.run.halt.get() {
            if !self.step(horizon) {
                break;
            }
        }
    }

    /// Resumes the CPU with the earliest key. Returns `false` if no CPU has a key (time and CPU
    /// number) before `horizon`.
    #[inline(always)]
    fn step(&self, horizon: u64) -> bool {
        let first = self.tree.earliest();
        if first >= horizon {
            return false;
        }
        let cpu = cpu_of(first);
        self.cur.set(cpu);
        let next = self.tree.earliest_but(cpu);
        self.limit.set(next.min(horizon - 1));
        self.fetch_ahead(cpu_of(next));
        self.epoch.set(self.epoch.get() + 1);
        let state = &self.cpus[cpu];
        self.clock.set(time_of(first));
        self.deadline.set(state.deadline.get());
        self.pins.set(state.pins.get());
        if self.plain {
            self.local.set(cpu_id(cpu));
        } else {
            self.prepare_slow(cpu);
        }
        let task = state.current.get();
        if task == NOBODY {
            self.wake_up(state);
        } else {
            self.tasks.get(task).resume();
        }
        if self.under_load {
            self.settle();
        }
        state.clock.set(self.clock.get());
        state.deadline.set(self.deadline.get());
        state.pins.set(self.pins.get());
        true
    }

    /// Prefetches the host's memory that is read when `cpu` is resumed. On a machine with many
    /// CPUs, the host's caches have lost this memory since `cpu` ran last. `cpu` should be the CPU
    /// that probably runs next.
    #[inline(always)]
    fn fetch_ahead(&self, cpu: usize) {
        if let (Some(state), Some(resume)) = (self.cpus.get(cpu), self.resumes.get(cpu)) {
            prefetch(state);
            resume.fetch();
        }
    }

    /// Prepares the engine for running `cpu`. This is for machines on which steps take different
    /// times on different CPUs, or on which no CPU may take the fast path of a per-CPU lock. Loads
    /// the prices (times of steps) of `cpu`. Also sets `local`, the CPU that may take this fast
    /// path.
    #[inline(never)]
    fn prepare_slow(&self, cpu: usize) {
        self.prices.run_on(cpu);
        self.local
            .set(if self.ceremonial { NO_CPU } else { cpu_id(cpu) });
    }

    /// Runs the machine while `busy` returns true. The caller is outside a run.
    pub(crate) fn run_while(&self, busy: impl Fn() -> bool) {
        self.outside.set(false);
        while busy() {
            assert!(
                self.step(NEVER),
                "deadlock: every task waits, and none can wake another"
            );
        }
        self.step_outside();
    }

    /// Ends a run of the machine: from now on, the calling code is outside the run.
    pub(crate) fn step_outside(&self) {
        self.outside.set(true);
        self.local.set(NO_CPU);
        self.limit.set(0);
        self.deadline.set(0);
        self.run
            .reached
            .set(self.run.reached.get().max(self.last_time()));
        self.cur.set(0);
    }

    pub(crate) fn stop(&self) {
        self.run.halt.set(true);
        // If `limit` and `deadline` are 0, the running CPU stops when it next lets CPUs with
        // earlier clocks run, or at its next call of `spend`.
        self.limit.set(0);
        self.deadline.set(0);
    }

    /// Returns a number larger than all numbers that it returned before.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.set(self.sequence.get() + 1);
        self.sequence.get()
    }

    /// The time, in nanoseconds, that the run has reached. While any CPU has something left to do,
    /// the result is the earlier of two times: the earliest time at which a CPU has something to
    /// do, and the clock of the CPU that ran last. Otherwise the result is the latest clock of all
    /// CPUs.
    pub(crate) fn last_time(&self) -> u64 {
        match self.tree.earliest() {
            NEVER => self
                .cpus
                .iter()
                .map(|cpu| cpu.clock.get())
                .max()
                .unwrap_or(0),
            next => time_of(next).min(self.clock.get()),
        }
    }

    /// Returns whether the machine is ending, that is, whether it has begun to drop its unfinished
    /// tasks.
    pub(crate) fn is_ending(&self) -> bool {
        self.run.ending.get()
    }

    /// Ends all coroutines, so that the handles on their stacks are dropped. Coroutines in the pool
    /// have no work, so they return when they are resumed, which needs no unwinding. The coroutines
    /// of unfinished tasks are unwound.
    pub(crate) fn end(&self) {
        self.run.ending.set(true);
        self.outside.set(true);
        for id in self.free.take() {
            self.tasks.get(id).resume();
        }
        for task in (0..self.tasks.len()).map(|id| self.tasks.get(id)) {
            task.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::units::Nanos;

    use super::*;
    use crate::engine::state::Sim;
    use crate::profile::Card;

    #[test]
    fn a_machine_is_freed_with_its_pooled_and_its_unfinished_coroutines() {
        let profile = Profile::load("laptop-2", Card::Mid).expect("built in");
        let sim = Sim::new(&profile, SimOptions::default());
        for cpu in [0, 1] {
            sim.spawn(CpuId(cpu), |sim| sim.sleep(Nanos(1)));
            sim.spawn_daemon(CpuId(cpu), |sim| sim.sleep(Nanos(1_000_000)));
        }
        sim.run();
        let inner = Rc::downgrade(&sim.0);
        let pooled = sim.0.free.borrow().len();
        assert!((2..sim.0.tasks.len() as usize).contains(&pooled));
        drop(sim);
        assert_eq!(inner.strong_count(), 0, "a coroutine keeps the machine");
    }
}
