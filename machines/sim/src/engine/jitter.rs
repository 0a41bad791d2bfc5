//! Disturbances of busy CPUs: interrupts, softirqs and steals.
//!
//! Disturbances of one kind come to a busy CPU at random times, as a Poisson process: the time from
//! the end of one to the next is exponentially distributed. The length of a disturbance is
//! exponentially distributed as well, but is never more than eight times the mean. Each CPU draws
//! these times and lengths from a random stream of its own. So disturbances do not change the
//! random numbers that programs and injected faults get.
//!
//! At most one disturbance of each kind waits on a CPU; the next one of the kind comes due after
//! that one has ended.
//!
//! A disturbance takes effect at the first of these moments after it has come due:
//!
//! * during or at the end of a spend;
//! * at the end of a wait for a spinlock. The CPU spun meanwhile, so only the part of the
//!   disturbance that lasts longer than the wait delays the CPU;
//! * at the release of a lock that masks interrupts.
//!
//! While a CPU holds a lock that masks interrupts, or waits for one, interrupts and softirqs wait
//! for the release. Steals do not wait: the hypervisor knows nothing of the guest's locks. What
//! comes due on an idle CPU has no effect.
//!
//! Each of these moments depends only on the CPU's own clock. So both variants of
//! [`LockModel`](crate::LockModel) give the same disturbances.

use plimsoll_mm::site::LockClass;

use crate::engine::disturbances::{Disturbances, MASKED};
use crate::engine::record::{DISTURBANCE, bump};
use crate::engine::state::Inner;

impl Inner {
    /// The time at which the next disturbance of the running CPU comes due, in nanoseconds;
    /// `u64::MAX` if there is none.
    #[inline]
    pub(crate) fn disturbed_at(&self) -> u64 {
        let of = self.disturbances.as_ref();
        of.map_or(u64::MAX, |of| of.next(self.cur.get()))
    }

    /// Lets the disturbances that are due on the running CPU happen now, except those that are
    /// masked.
    #[inline]
    pub(crate) fn disturb(&self) {
        if let Some(of) = &self.disturbances {
            let masked = self.pins.get() >= MASKED;
            self.disturb_from(of, masked, |length, _| self.clock.get() + length);
        }
    }

    /// Lets the disturbances happen that came due while the running CPU waited for a spinlock of
    /// `class`. The wait ends now.
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

    /// Lets all disturbances that are due happen, except masked ones. `end` returns the time at
    /// which a disturbance ends, from its length and the time at which it came due.
    #[cold]
    fn disturb_from(&self, of: &Disturbances, masked: bool, end: impl Fn(u64, u64) -> u64) {
        let cpu = self.cur.get();
        while let Some((kind, due)) = of.first_due(cpu, self.clock.get(), masked) {
            let before = self.clock.get();
            self.record.fold(before, cpu, DISTURBANCE | kind as u64);
            self.clock.set(end(of.length(cpu, kind), due));
            bump(&self.record.disturbances[kind as usize]);
            let total = &self.record.disturbed_ns[kind as usize];
            total.set(total.get() + self.clock.get() - before);
            of.rearm(cpu, kind, self.clock.get());
        }
    }
}
