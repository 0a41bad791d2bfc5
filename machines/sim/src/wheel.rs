//! When a timer of the wheel fires (Linux: `kernel/time/timer.c`).
//!
//! A timer far away is kept in a coarse level and fires when that level's hand moves: late by up
//! to the level's granularity, never early. Pure arithmetic on jiffies; nothing is stored.

use plimsoll_mm::units::Jiffies;

/// Jiffies that level 0 reaches ahead.
const REACH: u64 = 63;
/// log₂ of the ratio of one level's granularity to the next finer one's.
const LEVEL_BITS: u32 = 3;
/// Levels of the wheel (Linux: `LVL_DEPTH` for `HZ` above 100).
const LEVELS: u32 = 9;

/// The level that keeps a timer `ahead` jiffies away.
const fn level(ahead: u64) -> u32 {
    let mut level = 0;
    while level + 1 < LEVELS && ahead > REACH << (LEVEL_BITS * level) {
        level += 1;
    }
    level
}

/// The jiffy at which a timer armed at `now` for `ahead` jiffies fires.
pub(crate) const fn fires_at(now: Jiffies, ahead: Jiffies) -> Jiffies {
    let granularity = 1 << (LEVEL_BITS * level(ahead.0));
    Jiffies((now.0 + ahead.0).next_multiple_of(granularity))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `round_jiffies_relative(hz)` at jiffy `now` on `cpu`.
    fn round_jiffies_relative(now: u64, hz: u64, cpu: u64) -> u64 {
        let skewed = now + hz + 3 * cpu;
        let rest = skewed % hz;
        let rounded = if rest < hz / 4 {
            skewed - rest
        } else {
            skewed - rest + hz
        };
        let due = rounded.wrapping_sub(3 * cpu);
        if due > now && due < now + 10 * hz {
            due - now
        } else {
            hz
        }
    }

    /// The most CPUs on one jiffy once all have fired a few times.
    fn crowd(hz: u64, cpus: u64, second: u64) -> usize {
        let mut at: Vec<u64> = (0..cpus).map(|_| second * hz).collect();
        for _ in 0..5 {
            for (cpu, now) in (0..).zip(&mut at) {
                let ahead = round_jiffies_relative(*now, hz, cpu);
                *now = fires_at(Jiffies(*now), Jiffies(ahead)).0;
            }
        }
        let sharing = |now| at.iter().filter(|&other| other == now).count();
        at.iter().map(sharing).max().expect("at least one CPU")
    }

    #[test]
    fn the_wheel_crowds_what_round_jiffies_spreads() {
        // 1000 is no multiple of 64: how the groups are cut depends on the second.
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
    fn a_timer_is_never_early_and_late_by_less_than_its_granularity() {
        for now in [0, 1, 7, 1000, 123_456] {
            for ahead in [0, 1, 63, 64, 504, 505, 4032, 4033, 32_256, 32_257] {
                let late = fires_at(Jiffies(now), Jiffies(ahead)).0 - (now + ahead);
                assert!(
                    late < 1 << (3 * level(ahead)),
                    "{ahead} ahead of {now}: {late} late"
                );
            }
        }
    }

    #[test]
    fn levels_reach_as_far_as_in_linux() {
        let reach = [
            (63, 0),
            (64, 1),
            (504, 1),
            (505, 2),
            (4032, 2),
            (4033, 3),
            (32_257, 4),
        ];
        for (ahead, expected) in reach {
            assert_eq!(level(ahead), expected, "{ahead} jiffies");
        }
    }
}
