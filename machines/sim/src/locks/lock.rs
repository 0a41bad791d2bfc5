//! The simulated lock: a value behind a [`Queue`].
//!
//! The module `lock_queue` explains how CPUs wait. The value is in a `RefCell`: if a bug in the
//! simulator admitted two holders, the second would panic.
//!
//! Locks of some classes cost no virtual time. Such a lock has no queue: its critical sections take
//! no time, so no CPU ever waits for it.

use std::cell::RefCell;
use std::fmt;

use plimsoll_mm::machine::Lock;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::CpuId;

use crate::engine::record::LOCK;
use crate::engine::state::{Inner, Sim};
use crate::engine::tree::time_of;
use crate::locks::lock_queue::{Queue, Section};

/// A lock in virtual time: a mutex if the class of the lock sleeps, and otherwise a queued
/// spinlock.
pub struct SimLock<T> {
    queue: Queue,
    value: RefCell<T>,
}

impl<T> SimLock<T> {
    pub(crate) fn new(class: LockClass, home: CpuId, value: T) -> Self {
        Self {
            queue: Queue::new(class, home),
            value: RefCell::new(value),
        }
    }

    #[inline(always)]
    fn section<R>(
        &self,
        sim: &Sim,
        site: Site,
        section: &Section,
        f: impl FnOnce(&mut T) -> R,
    ) -> R {
        let result = f(&mut self.value.borrow_mut());
        self.queue.release(&sim.0, site, section);
        result
    }
}

impl<T> Lock<Sim, T> for SimLock<T> {
    #[inline]
    fn with<R>(&self, sim: &Sim, site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        if sim.0.outside.get() {
            return sim.look_from_outside(&self.queue, &self.value, f);
        }
        if self.queue.class.is_free_of_charge() {
            return f(&mut self.value.borrow_mut());
        }
        let section = self.queue.acquire(&sim.0, site);
        self.section(sim, site, &section, f)
    }

    #[inline]
    fn try_with<R>(&self, sim: &Sim, site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        if sim.0.outside.get() || self.queue.class.is_free_of_charge() {
            return Some(f(&mut *self.value.try_borrow_mut().ok()?));
        }
        let section = self.queue.try_acquire(&sim.0, site)?;
        Some(self.section(sim, site, &section, f))
    }
}

impl Queue {
    /// Waits until no other CPU has an earlier clock. Then acquires the lock if it is free;
    /// otherwise returns `None`.
    #[inline]
    pub(crate) fn try_acquire(&self, sim: &Inner, site: Site) -> Option<Section> {
        let mine = sim.order();
        if self.is_taken(mine) {
            sim.record.lock(self.class, site).gave_up();
            return None;
        }
        sim.record
            .fold(time_of(mine), sim.cur.get(), LOCK | self.class as u64);
        Some(self.take(sim, site, self.line_ns(sim)))
    }
}

impl Sim {
    /// Reads a lock's value from outside a run. If a suspended task holds the lock, runs the
    /// machine until that task releases it.
    #[cold]
    pub(crate) fn look_from_outside<T, R>(
        &self,
        queue: &Queue,
        value: &RefCell<T>,
        f: impl FnOnce(&mut T) -> R,
    ) -> R {
        if !self.0.is_ending() {
            self.0.run_while(|| queue.is_held());
        }
        f(&mut value.borrow_mut())
    }
}

impl<T> fmt::Debug for SimLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimLock")
            .field("class", &self.queue.class)
            .finish_non_exhaustive()
    }
}
