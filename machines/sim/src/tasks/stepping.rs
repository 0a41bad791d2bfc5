//! Passes the steps of a machine to its observers.
//!
//! Without an observer, a step costs the test of one flag. A step takes no virtual time, so an
//! observed run has the same hash of events as one that is not observed.

use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::Nanos;

use crate::engine::cpu::{NOBODY, cpu_id};
use crate::engine::state::{Body, Inner, Kind, Sim};
use crate::tasks::step::{Hold, Runs, Step};
use crate::tasks::wait::{Access, LockId};

impl Sim {
    /// Calls `observer` for each step from now on. CPUs have separate clocks, so the steps of
    /// different CPUs come only roughly in order of time. The observer must not change the machine.
    pub fn observe_steps(&self, observer: impl FnMut(&Step) + 'static) {
        let hooks = &self.0.hooks;
        hooks.step_observers.borrow_mut().push(Box::new(observer));
        hooks.stepped.set(true);
    }
}

impl Inner {
    /// Passes the step that `step` returns to the observers, if there are any.
    #[inline(always)]
    pub(crate) fn stepped(&self, step: impl FnOnce(&Self) -> Step) {
        if self.hooks.stepped.get() {
            self.tell_step(&step(self));
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_step(&self, step: &Step) {
        for observer in &mut *self.hooks.step_observers.borrow_mut() {
            observer(step);
        }
    }

    /// Tells the observers that the running CPU releases a lock, which it has held since time
    /// `from`.
    #[inline(always)]
    pub(crate) fn held(
        &self,
        lock: LockId,
        class: LockClass,
        site: Site,
        access: Access,
        from: u64,
    ) {
        self.held_until(lock, class, site, access, [from, self.clock.get()]);
    }

    /// Tells the observers that the running CPU has held a lock. `times` are the times at which the
    /// CPU acquired and released the lock.
    #[inline(always)]
    pub(crate) fn held_until(
        &self,
        lock: LockId,
        class: LockClass,
        site: Site,
        access: Access,
        times: [u64; 2],
    ) {
        self.stepped(|sim| {
            Step::Held(Hold {
                lock,
                class,
                site,
                access,
                cpu: sim.this_cpu(),
                task: sim.cpu().current.get(),
                from: Nanos(times[0]),
                until: Nanos(times[1]),
            })
        });
    }

    /// Tells the observers that the running CPU runs `task` from time `at` on. If `task` is
    /// [`NOBODY`], the CPU is idle from then on.
    #[inline]
    pub(crate) fn switched(&self, task: u32, at: u64) {
        self.stepped(|sim| Step::Switch {
            cpu: cpu_id(sim.cur.get()),
            at: Nanos(at),
            runs: sim.runs(task),
        });
    }

    fn runs(&self, task: u32) -> Runs {
        if task == NOBODY {
            return Runs::Nothing;
        }
        let of = self.tasks.get(task);
        match of.kind.get() {
            Kind::Program => Runs::Task(task),
            Kind::Daemon => Runs::Daemon(task),
            Kind::Kernel => {
                let body = of.body.take();
                let runs = match &body {
                    Some(Body::Job(job)) => Runs::Job(*job),
                    _ => Runs::Quiet,
                };
                of.body.set(body);
                runs
            }
        }
    }
}
