//! The simulated per-CPU lock. The CPU that owns the lock takes it without first letting CPUs with
//! earlier clocks run. Every other CPU lets CPUs with earlier clocks run before it takes the lock.
//!
//! The lock only records the time of the owner's access. So after the owner has accessed the lock,
//! another CPU may access it at an earlier virtual time. This is a slip: the other CPU then sees
//! the effect of an access that is still in its future. The simulator counts slips. In strict mode
//! the owner waits for CPUs with earlier clocks too, so there are no slips.

use std::cell::{Cell, RefCell};
use std::fmt;

use plimsoll_mm::machine::CpuLock;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::CpuId;

use crate::engine::record::bump;
use crate::engine::state::{Inner, Sim};
use crate::engine::tree::key;
use crate::locks::lock_queue::{Queue, Section};

/// A lock that belongs to one CPU, in virtual time. A critical section needs only one pair of cache
/// lines: the order of the fields puts all fields and the first bytes of the value there.
#[repr(C)]
pub struct SimCpuLock<T> {
    /// The owner's clock when the owner's last critical section started, in nanoseconds.
    owner_start: Cell<u64>,
    /// The queue of the CPUs that wait for the lock. The model assumes that the lock is in memory
    /// near its owner.
    queue: Queue,
    value: RefCell<T>,
}

impl<T> SimCpuLock<T> {
    pub(crate) fn new(class: LockClass, owner: CpuId, value: T) -> Self {
        assert!(
            !class.sleeps(),
            "a per-CPU lock is taken where a task may not sleep"
        );
        assert!(
            !class.masks_interrupts(),
            "the fast paths of a per-CPU lock take no interrupt at the release"
        );
        Self {
            owner_start: Cell::new(0),
            queue: Queue::new(class, owner),
            value: RefCell::new(value),
        }
    }

    /// Acquires the lock for its owner; returns `None` if the lock is held. First lets CPUs with
    /// earlier clocks run, but only in strict mode, or if the task has left the owner's CPU. The
    /// acquisition takes virtual time only if another CPU held the lock last.
    #[inline(always)]
    fn enter_local(&self, sim: &Inner, site: Site) -> Option<Section> {
        let owner = self.queue.home;
        if sim.local.get() == owner && self.queue.is_free_at(sim, owner) {
            self.owner_start.set(sim.clock.get());
            return Some(self.queue.enter_again(sim, owner, site));
        }
        self.enter_local_slow(sim, site)
    }

    /// The slow path of [`SimCpuLock::enter_local`]. Code outside a run always takes this path.
    /// Code in a run takes it in three cases: another CPU holds the lock or held it last, the task
    /// has left the CPU that owns the lock, or the options of the run rule out the fast path.
    #[cold]
    fn enter_local_slow(&self, sim: &Inner, site: Site) -> Option<Section> {
        if sim.outside.get() {
            return Some(Section::OUTSIDE);
        }
        if sim.this_cpu() != self.queue.home {
            return self.queue.try_acquire(sim, site);
        }
        if sim.options.strict {
            sim.order();
        }
        let now = sim.clock.get();
        if self.queue.is_taken(key(now, sim.cur.get())) {
            sim.record.lock(self.queue.class, site).gave_up();
            return None;
        }
        self.owner_start.set(now);
        Some(if self.queue.is_free_at(sim, self.queue.home) {
            self.queue.take_for(sim, site, 0)
        } else {
            self.queue.take(sim, site, self.queue.line_ns(sim))
        })
    }

    /// Acquires the lock for the calling CPU, whether this CPU is the owner or not. The CPU first
    /// waits until no other CPU has an earlier clock, and then until the lock is free.
    fn enter(&self, sim: &Inner, site: Site) -> Section {
        let mine = sim.order();
        let now = sim.clock.get();
        if sim.this_cpu() == self.queue.home {
            self.owner_start.set(now);
        } else if self.owner_start.get() > now && !self.queue.is_held() {
            bump(&sim.record.slips);
            if self.queue.is_taken(mine) {
                return self.queue.take(sim, site, self.queue.line_ns(sim));
            }
        }
        self.queue.acquire_here(sim, site)
    }
}

impl<T> CpuLock<Sim, T> for SimCpuLock<T> {
    #[inline(always)]
    fn try_local<R>(&self, sim: &Sim, site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let section = self.enter_local(&sim.0, site)?;
        // `f` is called at only one place, so that it is inlined. Outside a run the value may
        // already be borrowed; this function then returns `None`.
        let result = f(&mut *self.value.try_borrow_mut().ok()?);
        self.queue.release_spinning(&sim.0, site, &section);
        Some(result)
    }

    fn with<R>(&self, sim: &Sim, site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        if sim.0.outside.get() {
            return sim.look_from_outside(&self.queue, &self.value, f);
        }
        let section = self.enter(&sim.0, site);
        let result = f(&mut self.value.borrow_mut());
        self.queue.release_spinning(&sim.0, site, &section);
        result
    }
}

impl<T> fmt::Debug for SimCpuLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimCpuLock")
            .field("owner", &self.queue.home)
            .finish_non_exhaustive()
    }
}
