//! The rates of a machine's disturbances, and the times at which the next disturbances of each CPU
//! come due.
//!
//! The module `jitter` says when a disturbance takes effect.

use std::cell::{Cell, RefCell};

use plimsoll_mm::site::LockClass;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::engine::random::{Purpose, exponential, stream};
use crate::profile::{Disturbance, Profile, Rate};

/// The largest length of a disturbance, as a multiple of the mean length.
const LONGEST: u64 = 8;

/// The number that one hold of a spinlock of `class` adds to `Inner::pins`. The low 16 bits of
/// `Inner::pins` count the nested sections in which the CPU must not be preempted. The higher bits
/// count the sections in which the CPU also masks interrupts.
#[inline(always)]
pub(crate) const fn pin_of(class: LockClass) -> u32 {
    if class.masks_interrupts() {
        1 | MASKED
    } else {
        1
    }
}

/// A section in which the CPU must not be preempted adds 1 to `Inner::pins`. If interrupts are also
/// masked in the section, it adds this number as well.
pub(crate) const MASKED: u32 = 1 << 16;

pub(crate) struct Disturbances {
    rates: [Option<Rate>; Disturbance::ALL.len()],
    cpus: Box<[OneCpu]>,
}

/// For one CPU: the random stream of its disturbances, and the times at which they come due.
struct OneCpu {
    rng: RefCell<Xoshiro256PlusPlus>,
    /// The time at which the next disturbance of each kind comes due, in nanoseconds; `u64::MAX` if
    /// there are no disturbances of the kind.
    due: [Cell<u64>; Disturbance::ALL.len()],
    speed_percent: u64,
}

impl Disturbances {
    /// Creates the disturbances that `profile` describes, with random times and lengths that follow
    /// from `seed`. `None` if `profile` describes no disturbances.
    pub(crate) fn new(profile: &Profile, seed: u64) -> Option<Self> {
        let rates = profile.jitter.as_ref()?.rates;
        let one_cpu = |cpu: usize| {
            let of = OneCpu {
                rng: RefCell::new(stream(seed, cpu, Purpose::Disturbances)),
                due: Default::default(),
                speed_percent: profile
                    .speed_percent
                    .get(cpu)
                    .map_or(100, |percent| (*percent).into()),
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
    pub(crate) fn next(&self, cpu: usize) -> u64 {
        let due = self.cpus[cpu].due.iter().map(Cell::get);
        due.min().unwrap_or(u64::MAX)
    }

    /// Draws the length of a disturbance of `kind` on `cpu`, in nanoseconds.
    pub(crate) fn length(&self, cpu: usize, kind: Disturbance) -> u64 {
        let of = &self.cpus[cpu];
        let mean = self.rates[kind as usize].map_or(0, |rate| rate.length_ns);
        let drawn = exponential(&mut of.rng.borrow_mut(), mean).min(LONGEST * mean);
        if kind.is_kernel_work() {
            drawn * 100 / of.speed_percent
        } else {
            drawn
        }
    }

    /// Draws the time, later than `now`, at which the next disturbance of `kind` comes due on
    /// `cpu`.
    pub(crate) fn rearm(&self, cpu: usize, kind: Disturbance, now: u64) {
        self.cpus[cpu].rearm(self.rates[kind as usize], kind, now);
    }
}

impl Disturbances {
    /// Returns the kind of the disturbance of `cpu` that came due first, and the time at which it
    /// came due, in nanoseconds. `None` if no disturbance is due at time `now`. If `masked` is
    /// true, considers only steals, because interrupts and softirqs wait until they are no longer
    /// masked.
    pub(crate) fn first_due(
        &self,
        cpu: usize,
        now: u64,
        masked: bool,
    ) -> Option<(Disturbance, u64)> {
        let due = |kind: Disturbance| (kind, self.cpus[cpu].due[kind as usize].get());
        let kinds = Disturbance::ALL.into_iter();
        let kinds = kinds.filter(|kind| !(masked && kind.is_kernel_work()));
        let first = kinds.map(due).min_by_key(|(_, at)| *at);
        first.filter(|(_, at)| *at <= now)
    }
}

impl OneCpu {
    /// Draws the time, later than `now`, at which the next disturbance of `kind` comes due. It
    /// never comes due if `rate` is `None`.
    fn rearm(&self, rate: Option<Rate>, kind: Disturbance, now: u64) {
        let due = rate.map_or(u64::MAX, |rate| {
            now + 1 + exponential(&mut self.rng.borrow_mut(), rate.every_ns)
        });
        self.due[kind as usize].set(due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Card;

    #[test]
    fn a_disturbance_is_at_most_eight_times_as_long_as_the_mean() {
        let profile = Profile::load("laptop-2", Card::Mid).expect("built in");
        let disturbances = Disturbances::new(&profile, 1).expect("it has some");
        for kind in Disturbance::ALL {
            let rate = disturbances.rates[kind as usize].expect("a guest has all kinds");
            let lengths = (0..100_000).map(|_| disturbances.length(0, kind));
            // Without an upper bound, about 34 of 100,000 exponentially distributed lengths would
            // be longer than 8 times the mean. With the bound, the longest length drawn here is
            // exactly 8 times the mean.
            assert_eq!(lengths.max(), Some(8 * rate.length_ns), "{kind:?}");
        }
    }
}
