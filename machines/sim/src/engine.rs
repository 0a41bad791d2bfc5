//! The machine's heart: the loop that resumes whoever is earliest, and the order points.
//!
//! Invariant: whoever passes an order point has the smallest key of all CPUs, so everything that
//! an order point precedes happens in the order of `(time, CPU)`. `limit` caches the smallest key
//! of the others while a CPU runs; to pass is one compare.
//!
//! Outside a run ([`Inner::outside`]) the machine is a bystander on CPU 0: nothing costs time and
//! nothing waits, except for a lock whose holder has stopped in the middle.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::{Rc, Weak};

use plimsoll_mm::event::Event;
use plimsoll_mm::machine::Job;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Hz, Nanos};

use crate::arena::Arena;
use crate::cpu::{Cpu, NOBODY};
use crate::options::SimOptions;
use crate::price::Prices;
use crate::profile::Profile;
use crate::random::CpuRng;
use crate::record::Record;
use crate::stats::Stats;
use crate::task::Task;
use crate::tree::{CPUS_MAX, NEVER, TIME_MAX_NS, Tree, cpu_of, key, time_of};

/// What is called for each event.
pub(crate) type Observer = Box<dyn FnMut(&Sim, CpuId, Nanos, &Event)>;

/// What runs a job.
type JobHandler = Rc<dyn Fn(&Sim, Job)>;
/// What runs on a CPU that has run out of work.
type IdleHandler = Rc<dyn Fn(&Sim)>;

/// A simulated machine; a cheap handle, all of which are the same machine.
pub struct Sim(pub(crate) Rc<Inner>);

/// What all handles share. Hot fields come first.
#[repr(C)]
pub(crate) struct Inner {
    /// The CPU that runs.
    pub(crate) cur: Cell<usize>,
    /// The smallest key of all other CPUs.
    pub(crate) limit: Cell<u64>,
    /// Counts resumptions: unchanged means that nobody else ran.
    pub(crate) epoch: Cell<u64>,
    pub(crate) outside: Cell<bool>,
    /// Whether steps are late by random amounts.
    shaken: bool,
    pub(crate) options: SimOptions,
    pub(crate) cpus: Box<[Cpu]>,
    pub(crate) tree: Tree,
    pub(crate) tasks: Arena<Task>,
    pub(crate) prices: Prices,
    pub(crate) record: Record,
    pub(crate) hz: Hz,
    pub(crate) topology: Topology,
    /// Tasks whose coroutine waits for something to run.
    pub(crate) free: RefCell<Vec<u32>>,
    /// Tasks that have not ended, without daemons.
    pub(crate) live: Cell<u32>,
    /// Numbers things that wait, in the order they were queued.
    pub(crate) sequence: Cell<u64>,
    pub(crate) on_job: RefCell<Option<JobHandler>>,
    pub(crate) on_idle: RefCell<Option<IdleHandler>>,
    pub(crate) observers: RefCell<Vec<Observer>>,
    pub(crate) observed: Cell<bool>,
    halt: Cell<bool>,
    /// Whether the run ends with the last task.
    pub(crate) awaits_tasks: Cell<bool>,
    /// The time up to which the machine has run.
    reached: Cell<u64>,
    ending: Cell<bool>,
    /// Handles on the stacks of coroutines.
    pub(crate) residents: Cell<usize>,
    pub(crate) me: Weak<Self>,
}

impl Sim {
    /// The machine of `profile` with `options`.
    ///
    /// # Panics
    /// With more than 4096 CPUs.
    #[must_use]
    pub fn new(profile: &Profile, options: SimOptions) -> Self {
        let cpus = profile.topology.cpus() as usize;
        assert!(
            cpus <= CPUS_MAX,
            "a simulated machine has at most {CPUS_MAX} CPUs"
        );
        let sim = Self(Rc::new_cyclic(|me| Inner {
            cur: Cell::new(0),
            limit: Cell::new(0),
            epoch: Cell::new(0),
            outside: Cell::new(true),
            cpus: (0..cpus).map(|cpu| Cpu::new(options.seed, cpu)).collect(),
            tree: Tree::new(cpus),
            tasks: Arena::new(),
            prices: Prices::new(&profile.costs, &profile.topology),
            record: Record::new(),
            hz: profile.hz,
            topology: profile.topology.clone(),
            free: RefCell::default(),
            live: Cell::new(0),
            sequence: Cell::new(0),
            on_job: RefCell::default(),
            on_idle: RefCell::default(),
            observers: RefCell::default(),
            observed: Cell::new(false),
            halt: Cell::new(false),
            awaits_tasks: Cell::new(false),
            reached: Cell::new(0),
            ending: Cell::new(false),
            residents: Cell::new(0),
            me: me.clone(),
            shaken: options.jitter_ns > 0,
            options,
        }));
        sim.0.arm_faults();
        sim
    }

    /// Runs until every task that is not a daemon has ended, or [`Sim::stop`].
    ///
    /// # Panics
    /// When a task panics, naming the seed; when tasks wait and nothing will wake them.
    pub fn run(&self) {
        if self.0.live.get() > 0 {
            self.drive(NEVER);
            let stuck = self.0.live.get();
            assert!(
                stuck == 0 || self.0.halt.get(),
                "deadlock: {stuck} tasks wait and nothing will wake them; seed {}",
                self.seed()
            );
        }
    }

    /// Runs all that happens before `at`, or until [`Sim::stop`].
    ///
    /// # Panics
    /// When a task panics, naming the seed.
    pub fn run_until(&self, at: Nanos) {
        assert!(at.0 < TIME_MAX_NS, "virtual time ends after 26 days");
        self.drive(key(at.0, 0));
        if !self.0.halt.get() {
            self.0.reached.set(self.0.reached.get().max(at.0));
        }
    }

    /// Ends the current run once the caller waits, sleeps or ends.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// How many tasks have not ended, without daemons.
    #[must_use]
    pub fn live_tasks(&self) -> u32 {
        self.0.live.get()
    }

    /// Where every random stream of this run started.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0.options.seed
    }

    /// The random stream of the CPU the caller runs on.
    #[must_use]
    pub fn rng(&self) -> CpuRng<'_> {
        CpuRng(self)
    }

    /// What has been counted so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// Calls `observer` for each event from now on. It must not change the machine.
    pub fn observe(&self, observer: impl FnMut(&Self, CpuId, Nanos, &Event) + 'static) {
        self.0.observers.borrow_mut().push(Box::new(observer));
        self.0.observed.set(true);
    }

    /// Calls `handler` for each job, on its CPU, as kernel work; replaces the previous one.
    pub fn on_job(&self, handler: impl Fn(&Self, Job) + 'static) {
        *self.0.on_job.borrow_mut() = Some(Rc::new(handler));
    }

    /// Calls `handler` on each CPU that runs out of work, as kernel work; replaces the previous.
    pub fn on_idle(&self, handler: impl Fn(&Self) + 'static) {
        *self.0.on_idle.borrow_mut() = Some(Rc::new(handler));
    }

    fn drive(&self, horizon: u64) {
        assert!(
            self.0.outside.get(),
            "a run is not started from inside a run"
        );
        self.0.halt.set(false);
        self.0.awaits_tasks.set(horizon == NEVER);
        self.0.outside.set(false);
        let outcome = catch_unwind(AssertUnwindSafe(|| self.0.run_loop(horizon)));
        let (cpu, at) = (self.0.cur.get(), self.0.cpu().clock.get());
        self.0.outside.set(true);
        self.0.limit.set(0);
        self.0
            .reached
            .set(self.0.reached.get().max(self.0.last_time()));
        self.0.cur.set(0);
        if let Err(payload) = outcome {
            let seed = self.seed();
            match words_of(&*payload) {
                Some(words) => panic!("{words}; on CPU {cpu} at {at} ns, seed {seed}"),
                None => resume_unwind(payload),
            }
        }
    }
}

impl Inner {
    /// The CPU that runs.
    #[inline]
    pub(crate) fn cpu(&self) -> &Cpu {
        &self.cpus[self.cur.get()]
    }

    /// What the clock shows to whoever asks.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        if self.outside.get() {
            self.reached.get()
        } else {
            self.cpu().clock.get()
        }
    }

    /// Lets everybody go first who is earlier. Returns the caller's key.
    #[inline(always)]
    pub(crate) fn order(&self) -> u64 {
        let cpu = self.cur.get();
        let mine = if self.shaken {
            self.jitter()
        } else {
            key(self.cpus[cpu].clock.get(), cpu)
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

    /// Suspends the current task; its CPU goes on at `when`.
    #[inline(always)]
    pub(crate) fn leave(&self, when: u64) {
        let cpu = self.cur.get();
        self.tree.set(cpu, when);
        self.tasks.get(self.cpus[cpu].current.get()).suspend();
    }

    /// Brings the key of another CPU forward to `when`.
    pub(crate) fn post(&self, cpu: usize, when: u64) {
        if when < self.tree.leaf(cpu) {
            self.tree.set(cpu, when);
            self.limit.set(self.limit.get().min(when));
        }
    }

    /// Resumes whoever is earliest until none is before `horizon`.
    fn run_loop(&self, horizon: u64) {
        while !self.halt.get() {
            if !self.step(horizon) {
                break;
            }
        }
    }

    /// Resumes the earliest CPU; `false` if none is before `horizon`.
    #[inline(always)]
    fn step(&self, horizon: u64) -> bool {
        let first = self.tree.earliest();
        if first >= horizon {
            return false;
        }
        let cpu = cpu_of(first);
        self.cur.set(cpu);
        self.limit.set(self.tree.earliest_but(cpu).min(horizon - 1));
        self.epoch.set(self.epoch.get() + 1);
        let state = &self.cpus[cpu];
        state.clock.set(time_of(first));
        let task = state.current.get();
        if task == NOBODY {
            self.wake_up(state);
        } else {
            self.tasks.get(task).resume();
        }
        true
    }

    /// From outside a run: runs until `done`, which others will make true.
    pub(crate) fn run_while(&self, busy: impl Fn() -> bool) {
        self.outside.set(false);
        while busy() {
            assert!(
                self.step(NEVER),
                "deadlock: what is waited for will not come"
            );
        }
        self.outside.set(true);
        self.limit.set(0);
        self.reached.set(self.reached.get().max(self.last_time()));
        self.cur.set(0);
    }

    pub(crate) fn stop(&self) {
        self.halt.set(true);
        // Whoever runs leaves at its next order point or spend.
        self.limit.set(0);
        if !self.outside.get() {
            self.cpu().deadline.set(0);
        }
    }

    /// A number larger than all before.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.set(self.sequence.get() + 1);
        self.sequence.get()
    }

    /// The earliest clock of what is left to do, or the latest of all when nothing is.
    fn last_time(&self) -> u64 {
        match self.tree.earliest() {
            NEVER => self
                .cpus
                .iter()
                .map(|cpu| cpu.clock.get())
                .max()
                .unwrap_or(0),
            next => time_of(next).min(self.cpu().clock.get()),
        }
    }

    /// Whether unfinished tasks are being dropped.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.get()
    }

    /// Ends what was left unfinished, so that the handles on its stacks are dropped.
    fn end(&self) {
        self.ending.set(true);
        self.outside.set(true);
        for task in (0..self.tasks.len()).map(|id| self.tasks.get(id)) {
            task.end();
        }
    }
}

impl Clone for Sim {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // Each coroutine holds one handle. When only theirs are left besides this one, nobody can
        // resume them any more.
        let inner = &self.0;
        if !inner.ending.get() && Rc::strong_count(inner) == inner.residents.get() + 1 {
            inner.end();
        }
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim")
            .field("cpus", &self.0.cpus.len())
            .field("seed", &self.seed())
            .field("now", &self.0.now())
            .finish_non_exhaustive()
    }
}

/// The message of a panic, if it is words.
fn words_of(payload: &(dyn Any + Send)) -> Option<&str> {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| Some(payload.downcast_ref::<String>()?))
}
