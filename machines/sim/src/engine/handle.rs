//! The handle on a simulated machine: creates the machine, runs it, and sets its callbacks.
//!
//! Handles are reference-counted, and each coroutine holds one. When the last handle outside the
//! coroutines is dropped, no caller is left that could run the machine and so resume the
//! coroutines. This drop therefore unwinds every coroutine that has not finished.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use plimsoll_mm::event::Event;
use plimsoll_mm::machine::{Job, Machine};
use plimsoll_mm::site::Work;
use plimsoll_mm::units::{CpuId, Nanos};

use crate::cpu_rng::CpuRng;
use crate::engine::cpu::NOBODY;
use crate::engine::state::{Inner, Sim};
use crate::engine::tree::{NEVER, TIME_MAX_NS, key};
use crate::options::SimOptions;
use crate::profile::Profile;
use crate::stats::Stats;

impl Sim {
    /// Creates the machine that `profile` describes, with `options`.
    ///
    /// # Panics
    /// If the profile has more than 4096 CPUs or gives a speed to some of its CPUs only, or if
    /// [`SimOptions::late_ticks_percent`] is more than 50.
    #[must_use]
    pub fn new(profile: &Profile, options: SimOptions) -> Self {
        Self(Inner::new(profile, options))
    }

    /// Lets the running CPU compute for a program. `span` is the time that the computation would
    /// take on an idle machine, on a core to which the profile's prices apply. The computation
    /// takes longer on a slower core, or while other CPUs are busy ([`SimOptions::under_load`]).
    /// This is for computing that touches no memory of other CPUs; for waiting by the clock, use
    /// [`Work::Think`].
    pub fn compute(&self, span: Nanos) {
        /// The length of the parts of a computation, in nanoseconds. The speed is read anew for
        /// each part, because the speed of a CPU may change every 131 µs.
        const PART_NS: u64 = 50_000;
        if self.0.prices.are_alike() {
            return self.think(span.0);
        }
        let mut left = span.0;
        while left > 0 {
            let part = left.min(PART_NS);
            // This call of `spend` takes no virtual time. But the speed of a CPU is constant only
            // within a *window* of virtual time. If the CPU's window has ended, the call makes the
            // CPU enter the next one, so that `percent` below is the current speed.
            self.spend(Work::Think, 0);
            let takes = (part * 100).div_ceil(u64::from(self.0.prices.percent().max(1)));
            self.think(takes);
            left -= part;
        }
    }

    fn think(&self, mut ns: u64) {
        while ns > 0 {
            let part = u32::try_from(ns).unwrap_or(u32::MAX);
            self.spend(Work::Think, part);
            ns -= u64::from(part);
        }
    }

    /// Runs until every task that is not a daemon has ended, or until [`Sim::stop`].
    ///
    /// # Panics
    /// If a task panics; the message names the seed. Also if tasks wait and no event will wake
    /// them.
    pub fn run(&self) {
        if self.0.run.live.get() > 0 {
            self.drive(NEVER);
            let stuck = self.0.run.live.get();
            assert!(
                stuck == 0 || self.0.run.halt.get(),
                "deadlock: {stuck} tasks wait and nothing will wake them; seed {}",
                self.seed()
            );
        }
    }

    /// Runs the machine until all events before time `at` have happened, or until [`Sim::stop`].
    ///
    /// # Panics
    /// If a task panics; the message names the seed.
    pub fn run_until(&self, at: Nanos) {
        assert!(at.0 < TIME_MAX_NS, "virtual time ends after 26 days");
        self.drive(key(at.0, 0));
        if !self.0.run.halt.get() {
            self.0.run.reached.set(self.0.run.reached.get().max(at.0));
        }
    }

    /// Ends the current run. The calling task stops at the latest when it next lets CPUs with
    /// earlier clocks run. The next run continues the task from there.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// The number of tasks that have not ended, not counting daemons.
    #[must_use]
    pub fn live_tasks(&self) -> u32 {
        self.0.run.live.get()
    }

    /// The seed of every random stream of this run.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0.options.seed
    }

    /// The random stream of the CPU that the caller runs on.
    #[must_use]
    pub fn rng(&self) -> CpuRng<'_> {
        CpuRng(self)
    }

    /// The number of the task that runs on the caller's CPU; the task may be kernel work. `None` if
    /// the CPU is idle.
    #[must_use]
    pub fn this_task(&self) -> Option<u32> {
        let task = self.0.cpu().current.get();
        (task != NOBODY).then_some(task)
    }

    /// The statistics of the run so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// Calls `observer` for each event from now on. Events of single pages are excluded, because
    /// they outnumber all others together; see [`Sim::observe_pages`]. The observer must not change
    /// the machine.
    pub fn observe(&self, observer: impl FnMut(&Self, CpuId, Nanos, &Event) + 'static) {
        self.0.hooks.observers.borrow_mut().push(Box::new(observer));
        self.0.hooks.observed.set(true);
    }

    /// From now on, also passes events of single pages to every observer.
    pub fn observe_pages(&self) {
        self.0.hooks.pages_observed.set(true);
    }

    /// Sets `handler` as the function that runs jobs, in place of the previous one. The machine
    /// calls the handler for each job, as kernel work on the CPU to which the job was deferred.
    pub fn on_job(&self, handler: impl Fn(&Self, Job) + 'static) {
        *self.0.hooks.on_job.borrow_mut() = Some(Rc::new(handler));
    }

    /// Sets `handler` as the idle hook, in place of the previous one. The machine calls the hook,
    /// as kernel work, on each CPU that runs out of work.
    pub fn on_idle(&self, handler: impl Fn(&Self) + 'static) {
        *self.0.hooks.on_idle.borrow_mut() = Some(Rc::new(handler));
    }

    fn drive(&self, horizon: u64) {
        assert!(
            self.0.outside.get(),
            "a run is not started from inside a run"
        );
        self.0.run.halt.set(false);
        self.0.run.awaits_tasks.set(horizon == NEVER);
        self.0.outside.set(false);
        let outcome = catch_unwind(AssertUnwindSafe(|| self.0.run_loop(horizon)));
        let (cpu, at) = (self.0.cur.get(), self.0.clock.get());
        self.0.step_outside();
        if let Err(payload) = outcome {
            let seed = self.seed();
            match words_of(&*payload) {
                Some(words) => panic!("{words}; on CPU {cpu} at {at} ns, seed {seed}"),
                None => resume_unwind(payload),
            }
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
        // Each coroutine holds one handle. If this is the last handle outside a coroutine, no
        // caller can resume the coroutines any more.
        let inner = &self.0;
        if !inner.run.ending.get() && Rc::strong_count(inner) == inner.run.residents.get() + 1 {
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

/// The message of a panic, if its payload is a string.
fn words_of(payload: &(dyn Any + Send)) -> Option<&str> {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| Some(payload.downcast_ref::<String>()?))
}
