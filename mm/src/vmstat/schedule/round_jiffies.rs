//! Linux's schedule: a CPU sets its timer to a whole second, minus a skew of three jiffies times
//! the CPU's number. The timer wheel then rounds this time.
//!
//! If timers were exact, the skew would keep CPUs apart. But a timer that is one second away
//! expires only at the first multiple of the wheel's granularity after its jiffy. At that distance
//! the granularity is 64 jiffies at HZ 1000, or 8 jiffies at HZ 100 to 300. This rounding brings
//! CPUs together again.

use super::{Moment, Schedule};
use crate::machine::Due;
use crate::units::Jiffies;

/// Linux's schedule, which follows `round_jiffies_relative`.
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

/// Returns the delay in jiffies from now to the rounded expiry of a timer. To compute the expiry,
/// adds `delay` and the CPU's skew to the current jiffy, rounds this sum to a multiple of `grid`,
/// and subtracts the skew again. It rounds down if the sum is less than a quarter of `grid` past a
/// multiple, otherwise up. If the expiry is then not in the future, returns `delay` unchanged.
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
            // One jiffy before a quarter of a second past the second, the timer is rounded down, to
            // the end of this second. At the quarter, it is rounded up, to the end of the next
            // second.
            assert_eq!(ahead(quarter - 1), second - (quarter - 1));
            assert_eq!(ahead(quarter), 2 * second - quarter);
        }
    }
}
