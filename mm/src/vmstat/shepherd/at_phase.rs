//! Plimsoll's shepherd. It restarts the periodic work of a dormant CPU (one that has stopped this
//! work) if the CPU has differentials, or more than `high_min` pages on its lists. The work then
//! runs at the CPU's next phase (its own moment in each interval), and not at once.
//!
//! As with Linux's shepherd, restarting the work wakes an idle CPU. Otherwise the idle CPU would
//! keep its differentials and pages.

use super::{Leftovers, Shepherd};
use crate::machine::{Due, WhenIdle};
use crate::vmstat::schedule::Moment;

/// Restarts the periodic work of each CPU that has stopped it, at the CPU's own next moment (phase)
/// in the interval.
#[derive(Clone, Copy, Debug)]
pub struct AtPhase;

impl Shepherd for AtPhase {
    fn name(&self) -> &'static str {
        "shepherd-phased"
    }

    fn wakes(&self, leftovers: Leftovers) -> bool {
        leftovers != Leftovers::Nothing
    }

    fn kick(&self, moment: &Moment) -> (Due, WhenIdle) {
        (Due::At(moment.turn_after(moment.now)), WhenIdle::Wake)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::Rank;
    use crate::units::{CpuId, Hz, Nanos};

    #[test]
    fn a_kick_comes_at_the_next_turn_of_its_cpu_and_skips_none() {
        let interval = Nanos::SECOND;
        let mut phases = alloc::collections::BTreeSet::new();
        for now in (0..40).map(|step| 7 * interval.0 + step * 61_803_398) {
            let moment = Moment {
                now: Nanos(now),
                hz: Hz::new(1000).expect("in range"),
                interval,
                cpu: CpuId(3),
                rank: Rank { rank: 3, of: 8 },
                online: 8,
            };
            let (Due::At(at), WhenIdle::Wake) = AtPhase.kick(&moment) else {
                panic!("at a point of the clock, whether the CPU is idle or not");
            };
            assert!(now < at.0 && at.0 <= now + interval.0, "within an interval");
            phases.insert(at.0 % interval.0);
        }
        assert_eq!(phases.len(), 1, "always at the same phase: {phases:?}");
    }
}
