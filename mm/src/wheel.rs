//! When a timer on the timer wheel fires (Linux: `kernel/time/timer.c`).
//!
//! The wheel has levels of 64 buckets. A bucket of level `L` is `8^L` jiffies long. The further
//! away a timer is, the coarser the level that stores it. A timer fires when the wheel reaches the
//! bucket *after* the one that contains its jiffy: never early, never on the jiffy itself, and late
//! by 1 to `8^L` jiffies. This file is pure arithmetic on jiffies and stores nothing.

use crate::units::{Hz, Jiffies};

/// The shortest distance of a timer, in jiffies, that does not fit in level 0. It is one less than
/// the number of buckets, because one of the 64 buckets is the current one.
const REACH: u64 = 63;
/// log₂ of the ratio between the bucket lengths of a level and of the next finer level.
const LEVEL_BITS: u32 = 3;

/// The timer wheel of a kernel, described by its number of levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wheel {
    levels: u32,
}

impl Wheel {
    /// Returns the wheel of a kernel with this tick rate: 9 levels if HZ is above 100, otherwise 8
    /// (Linux: `LVL_DEPTH`).
    #[must_use]
    pub const fn new(hz: Hz) -> Self {
        let levels = if hz.get() > 100 { 9 } else { 8 };
        Self { levels }
    }

    /// The level that stores a timer that expires `ahead` jiffies after the wheel's clock.
    #[must_use]
    const fn level(self, ahead: Jiffies) -> u32 {
        let mut level = 0;
        while level + 1 < self.levels && ahead.0 >= REACH << (LEVEL_BITS * level) {
            level += 1;
        }
        level
    }

    /// The length of a bucket of `level`, in jiffies.
    #[must_use]
    const fn granularity(level: u32) -> Jiffies {
        Jiffies(1 << (LEVEL_BITS * level))
    }

    /// Returns the jiffy at which a timer for `expires` fires if it is armed when the wheel's clock
    /// is at `clock` (Linux: `calc_wheel_index`).
    ///
    /// The clock is the current jiffy, or the next one if the wheel has already run the timers of
    /// the current jiffy. A timer that has already expired fires as soon as the wheel runs. A timer
    /// beyond the reach of the wheel (12 days at HZ 1000, 15 days at HZ 100) is set to the end of
    /// that reach.
    #[must_use]
    pub const fn fires_at(self, clock: Jiffies, expires: Jiffies) -> Jiffies {
        let Some(ahead) = expires.0.checked_sub(clock.0) else {
            return clock;
        };
        let last = LEVEL_BITS * (self.levels - 1);
        let beyond = REACH << last;
        let nearest = if ahead >= beyond {
            beyond - (1 << last)
        } else {
            ahead
        };
        let length = Self::granularity(self.level(Jiffies(nearest))).0;
        let bucket = clock.0.saturating_add(nearest) / length;
        Jiffies(bucket.saturating_add(1).saturating_mul(length))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::cpus::Rank;
    use crate::machine::Due;
    use crate::units::{CpuId, Nanos};
    use crate::vmstat::schedule::{Moment, RoundJiffies, Schedule};

    fn wheel(hz: u32) -> Wheel {
        Wheel::new(Hz::new(hz).expect("in range"))
    }

    #[track_caller]
    fn fires(hz: u32, clock: u64, expires: u64, level: u32, at: u64) {
        let wheel = wheel(hz);
        assert_eq!(wheel.level(Jiffies(expires - clock)), level);
        let fires = wheel.fires_at(Jiffies(clock), Jiffies(expires));
        assert_eq!(fires, Jiffies(at), "{expires} at {clock}");
    }

    /// The jiffy for which CPU `cpu` sets its timer if its work starts at `now` and the interval is
    /// one second.
    fn asked(hz: u32, cpu: u32, now: u64) -> u64 {
        let hz = Hz::new(hz).expect("in range");
        let moment = Moment {
            now: hz.nanos(Jiffies(now)),
            hz,
            interval: Nanos::SECOND,
            cpu: CpuId(cpu),
            rank: Rank { rank: cpu, of: 128 },
            online: 128,
        };
        match RoundJiffies.next(&moment) {
            Due::Wheel(ahead) => now + ahead.0,
            other => panic!("{other:?}"),
        }
    }

    fn next(hz: u32, cpu: u32, now: u64) -> u64 {
        let expires = Jiffies(asked(hz, cpu, now));
        wheel(hz).fires_at(Jiffies(now), expires).0
    }

    #[test]
    fn the_levels_and_their_limits_are_linux_s() {
        fires(1000, 1000, 1001, 0, 1002); // The shortest wait takes one to two ticks.
        fires(1000, 1000, 1062, 0, 1063); // The last jiffy of level 0.
        fires(1000, 1000, 1063, 1, 1064); // The first jiffy of level 1.
        fires(1000, 1001, 1064, 1, 1072); // A timer for a bucket's first jiffy is a bucket late.
        fires(1000, 1000, 1503, 1, 1504);
        fires(1000, 1000, 1504, 2, 1536);
        fires(1000, 1024, 1536, 2, 1600); // Also a bucket late, on level 2.
        fires(1000, 100_000, 104_031, 2, 104_064);
        fires(1000, 100_000, 104_032, 3, 104_448);
        fires(250, 100_000, 130_000, 3, 130_048); // This timer is 120 s ahead.
        fires(1000, 100_000, 132_255, 3, 132_608);
        fires(1000, 100_000, 132_256, 4, 135_168);
    }

    #[test]
    fn a_timer_that_has_expired_fires_at_the_clock() {
        let at = |expires| wheel(250).fires_at(Jiffies(1000), Jiffies(expires)).0;
        assert_eq!([at(0), at(999), at(1000)], [1000, 1000, 1001]);
    }

    /// A timer that is set further ahead than the timer wheel reaches fires at the end of the
    /// wheel's reach.
    #[test]
    fn what_is_too_far_away_is_brought_nearer() {
        for (hz, levels) in [(100, 8), (250, 9), (1000, 9)] {
            let step = 1_u64 << (3 * (levels - 1));
            let beyond = 63 * step;
            let at = |ahead| wheel(hz).fires_at(Jiffies(7), Jiffies(7 + ahead)).0;
            // The clock is at 7. So a timer that is `beyond - 1` jiffies away expires in the bucket
            // that begins at jiffy `63 * step`, and fires when that bucket ends.
            assert_eq!(at(beyond - 1), 64 * step);
            assert_eq!(at(beyond - 8), 63 * step);
            assert_eq!(at(beyond), 63 * step);
            assert_eq!(at(1 << 62), at(beyond));
        }
        assert_eq!(
            wheel(250).fires_at(Jiffies(u64::MAX), Jiffies(u64::MAX)).0,
            u64::MAX
        );
    }

    #[test]
    fn the_vmstat_work_fires_where_linux_has_it() {
        assert_eq!(
            (asked(250, 0, 100_000), next(250, 0, 100_000)),
            (100_250, 100_256)
        );
        assert_eq!(
            (asked(250, 1, 100_000), next(250, 1, 100_000)),
            (100_247, 100_248)
        );
        assert_eq!(
            (asked(250, 3, 100_007), next(250, 3, 100_007)),
            (100_241, 100_248)
        );
        // A quarter of 250 jiffies is 62 in integers. The time is 62 jiffies past a second, which
        // is not less than a quarter, so the time is rounded up to the next second.
        assert_eq!(
            (asked(250, 0, 100_062), next(250, 0, 100_062)),
            (100_500, 100_504)
        );
        assert_eq!(
            (asked(1000, 0, 100_249), next(1000, 0, 100_249)),
            (101_000, 101_056)
        );
        assert_eq!(
            (asked(1000, 0, 100_250), next(1000, 0, 100_250)),
            (102_000, 102_016)
        );
        assert_eq!(
            (asked(1000, 5, 100_000), next(1000, 5, 100_000)),
            (100_985, 100_992)
        );
        assert_eq!(
            (asked(1000, 71, 200_010), next(1000, 71, 200_010)),
            (200_787, 200_832)
        );
    }

    /// Checks the worked example of docs/vmstat.md: which CPUs share the jiffy at which CPU 5 fires
    /// next.
    #[test]
    fn the_worked_example_has_these_cpus_on_one_jiffy() {
        let sharing = |hz: u32, now: u64, at: u64| -> Vec<u32> {
            (0..72).filter(|&cpu| next(hz, cpu, now) == at).collect()
        };
        assert_eq!(
            (asked(1000, 5, 12_345), next(1000, 5, 12_345)),
            (13_985, 14_016)
        );
        assert_eq!(sharing(1000, 12_345, 14_016), (0..=16).collect::<Vec<_>>());
        assert_eq!(sharing(1000, 12_345, 13_952), (17..=37).collect::<Vec<_>>());
        assert_eq!((asked(250, 5, 3086), next(250, 5, 3086)), (3485, 3488));
        assert_eq!(sharing(250, 3086, 3488), [5, 6]);
        assert_eq!(sharing(250, 3086, 3496), [2, 3, 4]);
        assert_eq!(sharing(250, 3086, 3480), [7, 8, 9]);
    }

    /// The largest number of CPUs whose timers fire on the same jiffy, after the timer of each CPU
    /// has fired a few times.
    fn crowd(hz: u32, cpus: u32, second: u64) -> usize {
        let mut at: Vec<u64> = (0..cpus).map(|_| second * u64::from(hz)).collect();
        for _ in 0..5 {
            for (cpu, now) in (0..).zip(&mut at) {
                *now = next(hz, cpu, *now);
            }
        }
        let sharing = |now| at.iter().filter(|&other| other == now).count();
        at.iter().map(sharing).max().expect("at least one CPU")
    }

    /// `round_jiffies` gives each CPU a jiffy of its own, but the wheel rounds these jiffies so
    /// that several CPUs fire together.
    #[test]
    fn the_wheel_crowds_what_round_jiffies_spreads() {
        // At HZ 1000, a second is not a multiple of 64 jiffies. So the CPUs whose timers fire
        // together are not the same CPUs in every second.
        let cases = [
            (1000, 72, 20..=22),
            (250, 72, 3..=3),
            (1000, 316, 22..=22),
            (250, 316, 11..=11),
        ];
        for (hz, cpus, most) in cases {
            for second in 100..164 {
                let crowd = crowd(hz, cpus, second);
                assert!(most.contains(&crowd), "{crowd} of {cpus} CPUs at HZ {hz}");
            }
        }
    }

    #[test]
    fn in_the_steady_state_a_cpu_fires_at_the_first_step_after_its_jiffy() {
        for (hz, step) in [(250, 8), (1000, 64)] {
            for cpu in 0..72 {
                let mut now = 100_000;
                for _ in 0..20 {
                    now = next(hz, cpu, now);
                    let earliest = now - step + 3 * u64::from(cpu);
                    let second = earliest.next_multiple_of(u64::from(hz));
                    assert!(now.is_multiple_of(step));
                    assert!(second - earliest < step, "CPU {cpu} at {now}, HZ {hz}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_timer_is_late_by_one_jiffy_to_a_whole_step(
            clock in 0_u64..1 << 40,
            ahead in prop_oneof![0_u64..5000, 0_u64..1 << 29],
            hz in prop::sample::select(&[100_u32, 250, 1000][..]),
        ) {
            let wheel = wheel(hz);
            prop_assume!(ahead < 63 << 21);
            let step = Wheel::granularity(wheel.level(Jiffies(ahead))).0;
            let at = wheel.fires_at(Jiffies(clock), Jiffies(clock + ahead)).0;
            prop_assert!(at.is_multiple_of(step));
            prop_assert!((1..=step).contains(&(at - (clock + ahead))));
        }
    }
}
