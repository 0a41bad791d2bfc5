//! The simulated per-CPU lock: its owner runs ahead, others wait their turn.
//!
//! The owner's access is not an order point; it only leaves a stamp. Somebody else who arrives at
//! a time at which the owner was already past the start of a later access has slipped: it sees
//! what the owner did in its future. Slips are counted; strict mode orders the owner too and has
//! none.

use std::cell::{Cell, RefCell};
use std::fmt;

use plimsoll_mm::machine::CpuLock;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::CpuId;

use crate::contend::{Queue, Section};
use crate::engine::Inner;
use crate::handle::Sim;
use crate::record::bump;
use crate::tree::key;

/// A lock that belongs to one CPU, in virtual time.
pub struct SimCpuLock<T> {
    queue: Queue,
    owner: usize,
    /// When the owner's last section started.
    owner_start: Cell<u64>,
    value: RefCell<T>,
}

impl<T> SimCpuLock<T> {
    pub(crate) fn new(class: LockClass, owner: CpuId, value: T) -> Self {
        assert!(
            !class.sleeps(),
            "a per-CPU lock is taken where nobody may sleep"
        );
        Self {
            queue: Queue::new(class, owner),
            owner: owner.index(),
            owner_start: Cell::new(0),
            value: RefCell::new(value),
        }
    }

    /// The owner's entry: no order point, no price unless another CPU had the lock last.
    #[inline(always)]
    fn enter_local(&self, sim: &Inner, site: Site) -> Option<Section> {
        if sim.options.strict {
            sim.order();
        }
        let cpu = &sim.cpus[self.owner];
        let now = cpu.clock.get();
        if self.queue.is_taken(key(now, self.owner)) {
            sim.record.lock(self.queue.class, site).gave_up();
            return None;
        }
        self.owner_start.set(now);
        Some(if self.queue.last() == self.owner {
            self.queue.claim(self.owner, site);
            self.queue.begin(sim, cpu, site, now)
        } else {
            self.queue.take(sim, site, self.queue.line_ns(sim))
        })
    }

    /// Anybody's entry, in turn.
    fn enter(&self, sim: &Inner, site: Site) -> Section {
        let mine = sim.order();
        let now = sim.cpu().clock.get();
        if sim.cur.get() == self.owner {
            self.owner_start.set(now);
        } else if self.owner_start.get() > now && !self.queue.held.get() {
            bump(&sim.record.slips);
            if self.queue.is_taken(mine) {
                return self.queue.take(sim, site, self.queue.line_ns(sim));
            }
        }
        self.queue.acquire_here(sim, site)
    }

    #[inline(always)]
    fn section<R>(&self, sim: &Sim, section: &Section, f: impl FnOnce(&mut T) -> R) -> R {
        let result = f(&mut self.value.borrow_mut());
        self.queue.release(&sim.0, section);
        result
    }
}

impl<T> CpuLock<Sim, T> for SimCpuLock<T> {
    #[inline(always)]
    fn try_local<R>(&self, sim: &Sim, site: Site, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let section = if sim.0.outside.get() {
            None
        } else if sim.0.cur.get() == self.owner {
            Some(self.enter_local(&sim.0, site)?)
        } else {
            Some(self.queue.try_acquire(&sim.0, site)?)
        };
        // One call, so that what is done inside is inlined.
        let result = f(&mut *self.value.try_borrow_mut().ok()?);
        if let Some(section) = section {
            self.queue.release(&sim.0, &section);
        }
        Some(result)
    }

    fn with<R>(&self, sim: &Sim, site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        if sim.0.outside.get() {
            return sim.look_from_outside(&self.queue, &self.value, f);
        }
        let section = self.enter(&sim.0, site);
        self.section(sim, &section, f)
    }
}

impl<T> fmt::Debug for SimCpuLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimCpuLock")
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
