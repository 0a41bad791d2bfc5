//! The schedule of the patch `vmstat_spread_delay` as posted: a CPU's interval grows with the CPU's
//! number, to almost twice the nominal length.
//!
//! The patch meant the extra time as an offset of the CPU's turn, but the extra time lengthens
//! every interval. So CPUs drift past each other, the work runs about 30 % less often, and CPUs
//! collide if their numbers have holes.

use super::{Moment, RoundJiffies, Schedule};
use crate::machine::Due;
use crate::units::Jiffies;

/// Fires after the interval times `1 + (cpu mod n) / n`, for `n` online CPUs.
#[derive(Clone, Copy, Debug)]
pub struct Stretched;

impl Schedule for Stretched {
    fn name(&self) -> &'static str {
        "stretched"
    }

    fn next(&self, moment: &Moment) -> Due {
        let n = u64::from(moment.online);
        if n <= 1 {
            return RoundJiffies.next(moment);
        }
        let interval = moment.interval_jiffies();
        Due::Wheel(Jiffies(
            interval + interval * (u64::from(moment.cpu.0) % n) / n,
        ))
    }
}
