//! All CPUs on one tick: what the mailing-list thread took for the present state.

use super::{Moment, Schedule};
use crate::machine::Due;
use crate::units::Nanos;

/// Every CPU fires at whole intervals of the clock, exactly.
#[derive(Clone, Copy, Debug)]
pub struct Aligned;

impl Schedule for Aligned {
    fn name(&self) -> &'static str {
        "aligned"
    }

    fn next(&self, moment: &Moment) -> Due {
        let interval = moment.interval.0.max(1);
        // Like a phase of zero for all: at least half an interval from now.
        let after = moment.now.0 + interval / 2;
        Due::At(Nanos((after / interval + 1) * interval))
    }
}
