//! The simulated reader-writer lock: a value behind a [`RwQueue`].
//!
//! The value is in a `RefCell`: if a bug in the simulator admitted a writer together with other
//! tasks, the second borrow would panic.

use std::cell::RefCell;
use std::fmt;

use plimsoll_mm::machine::RwLock;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::CpuId;

use crate::engine::state::Sim;
use crate::locks::rw_lock_queue::{Killed, Role, RwQueue};

/// A lock that readers share and a writer holds alone, in virtual time.
///
/// A waiting task gives up its CPU. A task that holds the lock stays on its CPU, but may be
/// preempted, sleep, and wait for other locks.
pub struct SimRwLock<T> {
    queue: RwQueue,
    value: RefCell<T>,
}

impl<T> SimRwLock<T> {
    /// Creates a lock of `class`. In the model, the lock is in memory near CPU `home`.
    ///
    /// # Panics
    /// If `class` is not a class of sleeping locks.
    pub(crate) fn new(class: LockClass, home: CpuId, value: T) -> Self {
        Self {
            queue: RwQueue::new(class, home),
            value: RefCell::new(value),
        }
    }

    /// Runs the machine until no suspended task holds the lock in a mode that excludes `role`
    /// (reader or writer). The caller is outside a run.
    #[cold]
    fn step_in_from_outside(&self, sim: &Sim, role: Role) {
        if !sim.0.is_ending() {
            sim.0.run_while(|| self.queue.is_taken_for(role));
        }
    }

    fn read_in_turn<R>(
        &self,
        sim: &Sim,
        site: Site,
        killed: Killed<'_>,
        f: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        if sim.0.outside.get() {
            self.step_in_from_outside(sim, Role::Reader);
            return Some(f(&self.value.borrow()));
        }
        let stay = self.queue.acquire(&sim.0, site, Role::Reader, killed)?;
        let result = f(&self.value.borrow());
        self.queue.release(&sim.0, Role::Reader, &stay);
        Some(result)
    }

    fn write_in_turn<R>(
        &self,
        sim: &Sim,
        site: Site,
        killed: Killed<'_>,
        f: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        if sim.0.outside.get() {
            self.step_in_from_outside(sim, Role::Writer);
            return Some(f(&mut self.value.borrow_mut()));
        }
        let stay = self.queue.acquire(&sim.0, site, Role::Writer, killed)?;
        let result = f(&mut self.value.borrow_mut());
        self.queue.release(&sim.0, Role::Writer, &stay);
        Some(result)
    }
}

impl<T> RwLock<Sim, T> for SimRwLock<T> {
    fn read<R>(&self, sim: &Sim, site: Site, f: impl FnOnce(&T) -> R) -> R {
        self.read_in_turn(sim, site, None, f)
            .expect("only a killed waiter gives up")
    }

    fn try_read<R>(&self, sim: &Sim, site: Site, f: impl FnOnce(&T) -> R) -> Option<R> {
        if sim.0.outside.get() {
            return Some(f(&*self.value.try_borrow().ok()?));
        }
        let stay = self.queue.try_acquire(&sim.0, site, Role::Reader)?;
        let result = f(&self.value.borrow());
        self.queue.release(&sim.0, Role::Reader, &stay);
        Some(result)
    }

    fn read_killable<R>(
        &self,
        sim: &Sim,
        site: Site,
        killed: impl Fn() -> bool,
        f: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        self.read_in_turn(sim, site, Some(&killed), f)
    }

    fn write<R>(&self, sim: &Sim, site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        self.write_in_turn(sim, site, None, f)
            .expect("only a killed waiter gives up")
    }

    fn write_killable<R>(
        &self,
        sim: &Sim,
        site: Site,
        killed: impl Fn() -> bool,
        f: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        self.write_in_turn(sim, site, Some(&killed), f)
    }

    /// Runs `first` as a writer and, if it returns a value, `then` as a reader. For the statistics
    /// the lock is acquired once, and held once from the start of `first` to the end of `then`.
    fn write_then_read<A, R>(
        &self,
        sim: &Sim,
        site: Site,
        killed: impl Fn() -> bool,
        first: impl FnOnce(&mut T) -> Option<A>,
        then: impl FnOnce(&T, A) -> R,
    ) -> Option<Option<R>> {
        if sim.0.outside.get() {
            self.step_in_from_outside(sim, Role::Writer);
            let kept = first(&mut self.value.borrow_mut());
            return Some(kept.map(|kept| then(&self.value.borrow(), kept)));
        }
        let stay = self
            .queue
            .acquire(&sim.0, site, Role::Writer, Some(&killed))?;
        let kept = first(&mut self.value.borrow_mut());
        let Some(kept) = kept else {
            self.queue.release(&sim.0, Role::Writer, &stay);
            return Some(None);
        };
        self.queue.downgrade(&sim.0);
        let result = then(&self.value.borrow(), kept);
        self.queue.release(&sim.0, Role::Reader, &stay);
        Some(Some(result))
    }

    fn writer_waits(&self, _sim: &Sim) -> bool {
        self.queue.writer_waits()
    }
}

impl<T> fmt::Debug for SimRwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimRwLock")
            .field("class", &self.queue.class)
            .finish_non_exhaustive()
    }
}
