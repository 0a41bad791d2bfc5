//! Ticks that a CPU handles before CPU 0 has counted the jiffy.
//!
//! All CPUs tick at the same moment, and one of them, here CPU 0, counts the jiffy. A CPU is
//! *early* if it reaches its timer wheel before CPU 0 has counted the jiffy. An early CPU still
//! reads the previous jiffy, finds no timer due, and fires its timers a tick later.
//!
//! The number of early CPUs differs from tick to tick: in most ticks no CPU is early, but in some
//! ticks all CPUs except CPU 0 are early. So in the model only some ticks are *disordered*. In a
//! disordered tick every number of early CPUs is equally likely, so half of the CPUs are early on
//! average. The share of disordered ticks is therefore twice the requested share of late timers.
//!
//! Each draw is a function of seed, tick and CPU, so it does not change the random numbers of the
//! program or of a fault.

use plimsoll_mm::units::Jiffies;

use crate::engine::random;
use crate::engine::state::Inner;

/// The CPU that counts the jiffies (Linux: `tick_do_timer_cpu`).
const TIMEKEEPER: usize = 0;

/// The largest value of [`SimOptions::late_ticks_percent`](crate::SimOptions::late_ticks_percent).
/// With this value, every tick is disordered: on average, half of the CPUs handle the tick before
/// CPU 0 has counted it.
pub(crate) const PERCENT_MAX: u32 = 50;

impl Inner {
    /// Returns whether `cpu` handles its timer wheel at `tick` before CPU 0, which counts the
    /// jiffies, has counted the tick.
    pub(crate) fn comes_before_its_count(&self, cpu: usize, tick: Jiffies) -> bool {
        let (seed, percent) = (self.options.seed, self.options.late_ticks_percent);
        percent > 0 && cpu != TIMEKEEPER && is_early(seed, percent, tick, cpu)
    }
}

fn is_early(seed: u64, percent: u32, tick: Jiffies, cpu: usize) -> bool {
    let draw = |lane: u64| random::of_tick(seed, tick.0, lane);
    let is_disordered = draw(0) % 100 < 2 * u64::from(percent);
    is_disordered && draw(2 + cpu as u64) < draw(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKS: u64 = 2000;
    const CPUS: usize = 64;

    /// Returns, for each of the ticks `0..TICKS`, how many of the 64 CPUs reach their timer wheel
    /// before CPU 0 has counted the tick.
    fn early(seed: u64, percent: u32) -> Vec<usize> {
        let at = |tick| {
            let cpus = 1..CPUS;
            cpus.filter(|&cpu| is_early(seed, percent, Jiffies(tick), cpu))
                .count()
        };
        (0..TICKS).map(at).collect()
    }

    #[test]
    fn the_share_of_late_firings_is_what_was_asked_for() {
        for percent in [5, 20, PERCENT_MAX] {
            let late: usize = early(1, percent).iter().sum();
            let share = 100.0 * late as f64 / (TICKS * (CPUS as u64 - 1)) as f64;
            let off = (share - f64::from(percent)).abs();
            assert!(off < 2.0, "{share} % instead of {percent}");
        }
    }

    /// In a recording of 64 CPUs, 34 complete groups of timers were each due on one jiffy. Of these
    /// groups, 20 fired on time, 3 fired a jiffy late, and in 11 only some timers were late. The
    /// timers of an early CPU fire late. So in the model, most ticks must have no early CPU, and in
    /// some ticks nearly all CPUs must be early.
    #[test]
    fn most_ticks_have_no_early_cpu_and_some_have_nearly_all() {
        let early = early(1, 20);
        let on_time = early.iter().filter(|&&early| early == 0).count();
        let whole = early.iter().filter(|&&early| early >= CPUS - 4).count();
        assert!((1150..1300).contains(&on_time), "{on_time}");
        assert!((20..100).contains(&whole), "{whole}");
    }

    #[test]
    fn draws_differ_by_seed_and_by_tick() {
        assert_ne!(early(1, 20), early(2, 20));
        let early = early(3, 50);
        assert!(early.windows(2).any(|pair| pair[0] != pair[1]));
    }
}
