//! A schedule that fires the vmstat work of all CPUs on the same tick. The authors of the patch
//! `vmstat_spread_delay` assumed that Linux does this.

use super::{Moment, Schedule};
use crate::machine::Due;
use crate::units::Nanos;

/// Fires every CPU's vmstat work at exact multiples of the interval, so all CPUs fire at once.
#[derive(Clone, Copy, Debug)]
pub struct Aligned;

impl Schedule for Aligned {
    fn name(&self) -> &'static str {
        "aligned"
    }

    fn next(&self, moment: &Moment) -> Due {
        let interval = moment.interval.0.max(1);
        // This is `Phased` with a phase of zero for all CPUs: the first multiple of the interval
        // that is more than half an interval away.
        let after = moment.now.0 + interval / 2;
        Due::At(Nanos((after / interval + 1) * interval))
    }
}
