//! The schedule variants, which decide when a CPU's vmstat work fires next.
//!
//! A schedule is a pure function of a [`Moment`]. The manager calls it each time the work has run.
//! The machine's timer may then add a delay: work that is due at `Due::Wheel` runs late by up to
//! the timer wheel's granularity, and work that is due at `Due::At` is not late.

mod aligned;
mod phased;
mod round_jiffies;
mod slowed;
mod stretched;

use core::fmt;

pub use self::aligned::Aligned;
pub use self::phased::{Phased, PhasedWheel};
pub use self::round_jiffies::RoundJiffies;
pub use self::slowed::Slowed;
pub use self::stretched::Stretched;
use crate::cpus::Rank;
use crate::machine::Due;
use crate::units::{CpuId, Hz, Jiffies, Nanos};

/// A rule for when periodic per-CPU work fires.
pub trait Schedule: fmt::Debug + Sync {
    /// The schedule's name on the command line.
    fn name(&self) -> &'static str;

    /// Returns when the periodic work of `moment.cpu` must run again. This work is running now.
    fn next(&self, moment: &Moment) -> Due;
}

/// All inputs of a schedule: the CPU, the current time and the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The current time on the CPU's clock.
    pub now: Nanos,
    /// The tick rate, in ticks per second.
    pub hz: Hz,
    /// The nominal time from one firing to the next.
    pub interval: Nanos,
    /// The CPU that runs the work.
    pub cpu: CpuId,
    /// The CPU's rank among the online CPUs of its node.
    pub rank: Rank,
    /// The number of online CPUs in the machine.
    pub online: u32,
}

impl Moment {
    /// The most recent tick.
    #[must_use]
    pub const fn jiffy(&self) -> Jiffies {
        self.hz.jiffies(self.now)
    }

    /// The interval in ticks, at least 1.
    #[must_use]
    pub fn interval_jiffies(&self) -> u64 {
        self.hz.span(self.interval).0.max(1)
    }

    /// Returns the offset within each interval at which the CPU's work fires: the CPU's turn. The
    /// interval is divided into as many equal parts as the node has online CPUs. The parts are
    /// numbered from 0. The turn of the CPU with the rank `r` is the beginning of part `r`.
    ///
    /// # Panics
    /// If the rank is so far beyond the number of online CPUs that the offset exceeds 64 bits.
    #[must_use]
    pub fn phase(&self) -> Nanos {
        let Rank { rank, of } = self.rank;
        let part = u128::from(self.interval.0) * u128::from(rank) / u128::from(of.max(1));
        Nanos(u64::try_from(part).expect("the rank is one of the node's"))
    }

    /// Returns the first turn of the CPU after the time `after`: the first time at which the CPU's
    /// work fires according to the CPU's phase.
    #[must_use]
    pub fn turn_after(&self, after: Nanos) -> Nanos {
        let interval = self.interval.0.max(1);
        let phase = self.phase().0;
        let turns = (after.0 + interval - phase) / interval;
        Nanos(turns * interval + phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    fn moment(cpu: u32, of: u32, hz: u32, now: Nanos) -> Moment {
        Moment {
            now,
            hz: Hz::new(hz).expect("in range"),
            interval: Nanos::SECOND,
            cpu: CpuId(cpu),
            rank: Rank { rank: cpu, of },
            online: of,
        }
    }

    /// The tick at which each of the CPUs `0..cpus` would fire if the timer wheel were exact.
    fn exact_ticks(schedule: &dyn Schedule, cpus: u32, hz: u32) -> Vec<u64> {
        (0..cpus)
            .map(|cpu| {
                let now = Nanos(12_345_678_901);
                let moment = moment(cpu, cpus, hz, now);
                match schedule.next(&moment) {
                    Due::Now => moment.jiffy().0,
                    Due::Wheel(delay) => moment.jiffy().0 + delay.0,
                    Due::At(at) => moment.hz.jiffies(at).0,
                }
            })
            .collect()
    }

    fn most_on_one_tick(ticks: &[u64]) -> u32 {
        let mut counts = BTreeMap::new();
        ticks
            .iter()
            .for_each(|tick| *counts.entry(tick).or_insert(0) += 1);
        counts.into_values().max().unwrap_or(0)
    }

    #[test]
    fn round_jiffies_puts_cpus_three_jiffies_apart_before_the_wheel() {
        for hz in [250, 300, 1000] {
            let ticks = exact_ticks(&RoundJiffies, 72, hz);
            assert_eq!(most_on_one_tick(&ticks), 1, "HZ {hz}");
            for (cpu, tick) in (0u64..).zip(&ticks) {
                assert_eq!((tick + 3 * cpu) % u64::from(hz), 0, "CPU {cpu} at HZ {hz}");
            }
        }
    }

    #[test]
    fn aligned_puts_all_cpus_on_one_tick() {
        assert_eq!(most_on_one_tick(&exact_ticks(&Aligned, 316, 1000)), 316);
    }

    /// The aligned schedule fires at the next multiple of the interval, but skips one that is at
    /// most half an interval away.
    #[test]
    fn aligned_fires_at_the_next_whole_interval_that_is_not_too_near() {
        let next = |ms: u64| match Aligned.next(&moment(3, 4, 1000, Nanos(ms * 1_000_000))) {
            Due::At(at) => at.0 / 1_000_000,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            [next(0), next(499), next(500), next(7400)],
            [1000, 1000, 2000, 8000]
        );
    }

    #[test]
    fn stretched_intervals_grow_with_the_cpu_number() {
        let delay = |cpu| match Stretched.next(&moment(cpu, 4, 1000, Nanos(0))) {
            Due::Wheel(delay) => delay.0,
            other => panic!("{other:?}"),
        };
        assert_eq!([delay(0), delay(1), delay(3)], [1000, 1250, 1750]);
    }

    #[test]
    fn a_lone_cpu_is_not_stretched() {
        let alone = moment(0, 1, 1000, Nanos(1));
        assert_eq!(Stretched.next(&alone), RoundJiffies.next(&alone));
    }

    #[test]
    fn phases_are_distinct_and_in_turn() {
        let turns: Vec<Nanos> = (0..316)
            .map(|cpu| moment(cpu, 316, 250, Nanos(0)).turn_after(Nanos(1 << 33)))
            .collect();
        for pair in turns.windows(2) {
            let apart = pair[1].0.abs_diff(pair[0].0) % Nanos::SECOND.0;
            let part = Nanos::SECOND.0 / 316;
            let apart = apart.min(Nanos::SECOND.0 - apart);
            assert!(apart.abs_diff(part) <= 1, "{pair:?}");
        }
    }

    #[test]
    fn a_phased_turn_comes_half_to_one_and_a_half_intervals_from_now() {
        for cpu in 0..72 {
            for now in (0..3_000_000_000).step_by(170_000_017).map(Nanos) {
                let moment = moment(cpu, 72, 1000, now);
                let Due::At(at) = Phased.next(&moment) else {
                    panic!("not exact")
                };
                let ahead = at.since(now).0;
                assert!((500_000_000..=1_500_000_000).contains(&ahead), "{moment:?}");
                assert_eq!(at.0 % Nanos::SECOND.0, moment.phase().0);
            }
        }
    }
}
