//! Linux's schedule: whole seconds, shifted by three jiffies per CPU, then rounded by the timer
//! wheel.
//!
//! The skew alone would keep CPUs apart. But the wheel fires a timer one second away at the first
//! multiple of 64 jiffies (HZ 1000) or 8 jiffies (HZ 100 to 300) after its jiffy, which puts CPUs
//! back together.

use super::{Moment, Schedule};
use crate::machine::Due;
use crate::units::Jiffies;

/// Linux's `round_jiffies_relative`.
#[derive(Clone, Copy, Debug)]
pub struct RoundJiffies;

impl Schedule for RoundJiffies {
    fn name(&self) -> &'static str {
        "round-jiffies"
    }

    fn next(&self, moment: &Moment) -> Due {
        Due::Wheel(rounded(
            moment,
            moment.interval_jiffies(),
            u64::from(moment.hz.get()),
        ))
    }
}

/// The delay in jiffies to the time `delay` jiffies from now, rounded to a multiple of `grid` less
/// the CPU's skew. It is rounded down if it is less than a quarter of `grid` past a multiple,
/// otherwise up. Returns `delay` itself if the rounded time is not ahead.
pub(super) fn rounded(moment: &Moment, delay: u64, grid: u64) -> Jiffies {
    const SKEW_JIFFIES: u64 = 3;
    let now = moment.jiffy().0;
    let skew = SKEW_JIFFIES * u64::from(moment.cpu.0);
    let wanted = now + delay + skew;
    let past = wanted % grid;
    let rounded = if past < grid / 4 {
        wanted - past
    } else {
        wanted - past + grid
    };
    let tick = rounded.saturating_sub(skew);
    Jiffies(if tick > now { tick - now } else { delay })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::Rank;
    use crate::units::{CpuId, Hz, Nanos};

    #[test]
    fn up_to_a_quarter_past_a_second_is_rounded_down() {
        for (hz, quarter) in [(1000, 250), (250, 62), (100, 25)] {
            let hz = Hz::new(hz).expect("in range");
            let second = u64::from(hz.get());
            let ahead = |jiffy| {
                let moment = Moment {
                    now: hz.nanos(Jiffies(jiffy)),
                    hz,
                    interval: Nanos::SECOND,
                    cpu: CpuId(0),
                    rank: Rank { rank: 0, of: 1 },
                    online: 1,
                };
                rounded(&moment, second, second).0
            };
            // The last jiffy that is less than a quarter past a second, and the first that is not.
            assert_eq!(ahead(quarter - 1), second - (quarter - 1));
            assert_eq!(ahead(quarter), 2 * second - quarter);
        }
    }
}
