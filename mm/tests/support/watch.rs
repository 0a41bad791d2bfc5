//! A record of the locks that the memory manager takes and of the events that it emits. A test can
//! also make a step of another CPU happen just before a certain lock is taken.

use std::sync::{Mutex, MutexGuard};

use plimsoll_mm::event::Event;
use plimsoll_mm::site::{LockClass, Site};

use super::heap;

/// An acquisition of a lock: the class of the lock, and the label of the code that takes it.
pub(crate) type Taken = (LockClass, Site);

/// A step of another CPU.
type Step = Box<dyn FnOnce() + Send>;

/// A record of locks and events, and the steps of other CPUs that have not happened yet.
#[derive(Default)]
pub(crate) struct Watch {
    locks: Mutex<Vec<Taken>>,
    events: Mutex<Vec<Event>>,
    /// For each step of another CPU: the acquisition before which the step happens, the number of
    /// such acquisitions to skip before that, and the step.
    steps: Mutex<Vec<(Taken, usize, Step)>>,
    /// The number of next attempts to take the CPU's own page lists that fail, as if another CPU
    /// held the lock.
    refusals: Mutex<u32>,
}

fn held<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().expect("one thread")
}

impl Watch {
    /// Runs `f`, and returns its result, the locks that were taken meanwhile and the events that
    /// were emitted.
    pub(crate) fn during<R>(&self, f: impl FnOnce() -> R) -> (R, Vec<Taken>, Vec<Event>) {
        held(&self.locks).clear();
        held(&self.events).clear();
        let result = f();
        let locks = std::mem::take(&mut *held(&self.locks));
        (result, locks, std::mem::take(&mut *held(&self.events)))
    }

    /// Makes `step` happen just before the lock `at` is taken, after `skipped` other acquisitions
    /// of this kind.
    pub(crate) fn before(&self, at: Taken, skipped: usize, step: impl FnOnce() + Send + 'static) {
        held(&self.steps).push((at, skipped, Box::new(step)));
    }

    /// Returns whether every step of another CPU has happened.
    pub(crate) fn is_done(&self) -> bool {
        held(&self.steps).is_empty()
    }

    /// Makes the next `attempts` attempts of a CPU to take the lock of its page lists fail, as if
    /// another CPU held the lock.
    pub(crate) fn refuse(&self, attempts: u32) {
        *held(&self.refusals) = attempts;
    }

    pub(crate) fn refuses(&self) -> bool {
        let mut left = held(&self.refusals);
        let refuses = *left > 0;
        *left = left.saturating_sub(1);
        refuses
    }

    pub(crate) fn will_lock(&self, at: Taken) {
        let due = {
            let mut steps = held(&self.steps);
            let step = steps.iter_mut().position(|step| {
                let is_here = step.0 == at;
                let is_due = is_here && step.1 == 0;
                step.1 -= usize::from(is_here && !is_due);
                is_due
            });
            step.map(|step| steps.remove(step).2)
        };
        if let Some(step) = due {
            step();
        }
        heap::with_memory(|| held(&self.locks).push(at));
    }

    pub(crate) fn heard(&self, event: Event) {
        heap::with_memory(|| held(&self.events).push(event));
    }
}

/// The number of acquisitions in `locks` of a lock of the class `class` by the code that `site`
/// names.
pub(crate) fn count(locks: &[Taken], class: LockClass, site: Site) -> usize {
    let is_one = |taken: &&Taken| **taken == (class, site);
    locks.iter().filter(is_one).count()
}
