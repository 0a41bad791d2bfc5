//! The schedule of the patch `vmstat_spread_delay` as posted: a CPU's interval grows with the CPU's
//! number, to almost twice the nominal length.
//!
//! The author meant the extra time as a fixed offset of the CPU's turn, but the patch adds it to
//! every interval. As a result, the turns of different CPUs drift past each other, and the work
//! runs about 30 % less often. If the CPU numbers have holes, two CPUs may get the same interval,
//! because only the remainder of the CPU's number modulo the number of online CPUs counts.

use super::{Moment, RoundJiffies, Schedule};
use crate::machine::Due;
use crate::units::Jiffies;

/// A schedule in which the time between two firings of a CPU is the nominal interval times
/// `1 + (cpu mod n) / n`, where `n` is the number of online CPUs.
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
