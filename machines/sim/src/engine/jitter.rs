//! Disturbances of busy CPUs: interrupts, softirqs and steals.
//!
//! Disturbances of one kind come to a busy CPU at random times, as a Poisson process: the time from
//! the end of one to the next is exponentially distributed. So is the length, but no length is more
//! than eight times the mean. Each CPU draws both from a random stream of its own. So disturbances
//! do not change the numbers of the program or of a fault.
//!
//! At most one disturbance of each kind waits on a CPU; the next one comes due after it has ended.
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

use std::cell::{Cell, RefCell};

use plimsoll_mm::site::LockClass;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::engine::random::{Purpose, exponential, stream};
use crate::engine::record::{DISTURBANCE, bump};
use crate::engine::state::Inner;
use crate::profile::{Disturbance, Profile, Rate};

/// The longest length of a disturbance, in multiples of the mean.
const LONGEST: u64 = 8;

/// The part of [`Inner::pins`] that one hold of a spinlock of `class` adds. The low 16 bits count
/// nested sections, and the bits above count those of them in which interrupts are masked.
#[inline(always)]
pub(crate) fn pin_of(class: LockClass) -> u32 {
    1 | u32::from(class.masks_interrupts()) * MASKED
}

/// The unit of the count of sections in which interrupts are masked.
const MASKED: u32 = 1 << 16;

/// The disturbances of a machine.
pub(crate) struct Disturbances {
    rates: [Option<Rate>; Disturbance::ALL.len()],
    cpus: Box<[OneCpu]>,
}

/// The disturbances of one CPU.
struct OneCpu {
    rng: RefCell<Xoshiro256PlusPlus>,
    /// The time at which the next disturbance of each kind comes due, in nanoseconds; `u64::MAX` if
    /// there is none.
    due: [Cell<u64>; Disturbance::ALL.len()],
    speed_percent: u64,
}

impl Disturbances {
    /// The disturbances that `profile` describes, with `seed`; `None` if it describes none.
    pub(crate) fn new(profile: &Profile, seed: u64) -> Option<Self> {
        let rates = profile.jitter.as_ref()?.rates;
        let one_cpu = |cpu: usize| {
            let of = OneCpu {
                rng: RefCell::new(stream(seed, cpu, Purpose::Disturbances)),
                due: Default::default(),
                speed_percent: profile
                    .speed_percent
                    .get(cpu)
                    .map_or(100, |it| (*it).into()),
            };
            for kind in Disturbance::ALL {
                of.rearm(rates[kind as usize], kind, 0);
            }
            of
        };
        let cpus = (0..profile.topology.cpus() as usize).map(one_cpu).collect();
        Some(Self { rates, cpus })
    }

    /// The time at which the next disturbance of `cpu` comes due, in nanoseconds.
    fn next(&self, cpu: usize) -> u64 {
        let due = self.cpus[cpu].due.iter().map(Cell::get);
        due.min().unwrap_or(u64::MAX)
    }

    /// Draws the length of a disturbance of `kind` on `cpu`, in nanoseconds.
    fn length(&self, cpu: usize, kind: Disturbance) -> u64 {
        let of = &self.cpus[cpu];
        let mean = self.rates[kind as usize].map_or(0, |rate| rate.length_ns);
        let drawn = exponential(&mut of.rng.borrow_mut(), mean).min(LONGEST * mean);
        if kind.is_kernel_work() {
            drawn * 100 / of.speed_percent
        } else {
            drawn
        }
    }

    fn rearm(&self, cpu: usize, kind: Disturbance, now: u64) {
        self.cpus[cpu].rearm(self.rates[kind as usize], kind, now);
    }
}

impl OneCpu {
    /// Draws the time of the next disturbance of `kind`, which comes after `now`.
    fn rearm(&self, rate: Option<Rate>, kind: Disturbance, now: u64) {
        let due = rate.map_or(u64::MAX, |rate| {
            now + 1 + exponential(&mut self.rng.borrow_mut(), rate.every_ns)
        });
        self.due[kind as usize].set(due);
    }

    /// The disturbance that came due first, if one is due at `now`. If `masked`, only a steal.
    fn first_due(&self, now: u64, masked: bool) -> Option<Disturbance> {
        let kinds = Disturbance::ALL.into_iter();
        let takes_effect = |kind: &Disturbance| {
            self.due[*kind as usize].get() <= now && !(masked && kind.is_kernel_work())
        };
        kinds
            .filter(takes_effect)
            .min_by_key(|kind| self.due[*kind as usize].get())
    }
}

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
            while let Some(kind) = of.cpus[cpu].first_due(now, false) {
                of.rearm(cpu, kind, now);
            }
        }
    }

    /// Lets all disturbances that are due happen, except masked ones. `end` returns the time at
    /// which a disturbance ends, from its length and the time at which it came due.
    #[cold]
    fn disturb_from(&self, of: &Disturbances, masked: bool, end: impl Fn(u64, u64) -> u64) {
        let cpu = self.cur.get();
        while let Some(kind) = of.cpus[cpu].first_due(self.clock.get(), masked) {
            let due = of.cpus[cpu].due[kind as usize].get();
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
