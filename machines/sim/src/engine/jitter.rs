//! Disturbances of busy CPUs: interrupts, softirqs and steals.
//!
//! Disturbances of one kind come to a busy CPU at random times, as a Poisson process: the time from
//! the end of one disturbance to the next disturbance is exponentially distributed. The length of a
//! disturbance is exponentially distributed as well, but is never more than eight times the mean.
//! Each CPU draws these times and lengths from a random stream of its own. So disturbances do not
//! change the random numbers that programs and injected faults get.
//!
//! At any time, at most one disturbance of each kind is due on a CPU. The engine draws the time of
//! the next disturbance only when the previous one has ended.
//!
//! A disturbance takes effect at the first of these moments after it has come due:
//!
//! * while the CPU spends time on work, or at the end of this time;
//! * at the end of a wait for a spinlock. The disturbance happened while the CPU was spinning. So
//!   it delays the CPU only if it lasts beyond the end of the wait, and only by the rest of its
//!   length;
//! * at the release of a lock that masks interrupts.
//!
//! While a CPU holds a lock that masks interrupts, or waits for one, interrupts and softirqs wait
//! until the CPU has released the lock. Steals do not wait, because the hypervisor knows nothing of
//! the guest's locks. A disturbance that comes due on an idle CPU has no effect.
//!
//! Each of these moments depends only on the CPU's own clock. So both variants of
//! [`LockModel`](crate::LockModel) give the same disturbances.

use plimsoll_mm::site::LockClass;
use plimsoll_mm::units::Nanos;

use crate::engine::disturbances::{Disturbances, MASKED};
use crate::engine::record::{DISTURBANCE, bump};
use crate::engine::state::Inner;
use crate::tasks::step::Step;

impl Inner {
    /// The time at which the next disturbance of the running CPU comes due, in nanoseconds;
    /// `u64::MAX` if there is none.
    #[inline]
    pub(crate) fn disturbed_at(&self) -> u64 {
        let of = self.disturbances.as_ref();
        of.map_or(u64::MAX, |of| of.next(self.cur.get()))
    }

    /// Applies the disturbances that are due on the running CPU and not masked: the CPU's clock
    /// advances by the length of each.
    #[inline]
    pub(crate) fn disturb(&self) {
        if let Some(of) = &self.disturbances {
            let masked = self.pins.get() >= MASKED;
            self.disturb_from(of, masked, |length, _| self.clock.get() + length);
        }
    }

    /// Applies the disturbances that came due while the running CPU waited for a spinlock of
    /// `class`. The wait ends now, so a disturbance delays the CPU only if it ends after the wait.
    #[inline]
    pub(crate) fn disturb_waiter(&self, class: LockClass) {
        if let Some(of) = &self.disturbances {
            let masked = class.masks_interrupts() || self.pins.get() >= MASKED;
            self.disturb_from(of, masked, |length, due| self.clock.get().max(due + length));
        }
    }

    /// Forgets the disturbances that came due while the running CPU was idle.
    pub(crate) fn forget_disturbances(&self) {
        let (now, cpu) = (self.clock.get(), self.cur.get());
        if let Some(of) = &self.disturbances {
            while let Some((kind, _)) = of.first_due(cpu, now, false) {
                of.rearm(cpu, kind, now);
            }
        }
    }

    /// Applies all disturbances that are due on the running CPU. If `masked` is true, applies only
    /// steals, and interrupts and softirqs wait. For each disturbance, `end` computes the time at
    /// which it ends, from its length and the time at which it came due.
    #[cold]
    fn disturb_from(&self, of: &Disturbances, masked: bool, end: impl Fn(u64, u64) -> u64) {
        let cpu = self.cur.get();
        while let Some((kind, due)) = of.first_due(cpu, self.clock.get(), masked) {
            let before = self.clock.get();
            self.record.fold(before, cpu, DISTURBANCE | kind as u64);
            self.clock.set(end(of.length(cpu, kind), due));
            bump(&self.record.disturbances[kind as usize]);
            self.stepped(|sim| Step::Disturbed {
                cpu: sim.this_cpu(),
                kind,
                from: Nanos(before),
                until: Nanos(sim.clock.get()),
            });
            let total = &self.record.disturbed_ns[kind as usize];
            total.set(total.get() + self.clock.get() - before);
            of.rearm(cpu, kind, self.clock.get());
        }
    }
}
