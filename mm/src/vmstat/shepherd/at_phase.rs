//! Ours: each dormant CPU is kicked at its own phase, and pages count as a reason.
//!
//! A kick wakes an idle CPU in either variant: what it holds would stay out of reach otherwise.

use super::{Leftovers, Shepherd};
use crate::machine::{Due, WhenIdle};
use crate::vmstat::schedule::Moment;

/// Kick each at its own turn.
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
