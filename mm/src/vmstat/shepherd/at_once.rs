//! What Linux does: every dormant CPU with differentials is kicked in the same instant.
//!
//! Pages left on a dormant CPU's lists are not looked at: they stay there.

use super::{Leftovers, Shepherd};
use crate::machine::{Due, WhenIdle};
use crate::vmstat::schedule::Moment;

/// Kick all, now.
#[derive(Clone, Copy, Debug)]
pub struct AtOnce;

impl Shepherd for AtOnce {
    fn name(&self) -> &'static str {
        "shepherd-at-once"
    }

    fn wakes(&self, leftovers: Leftovers) -> bool {
        leftovers == Leftovers::Differentials
    }

    fn kick(&self, _moment: &Moment) -> (Due, WhenIdle) {
        (Due::Now, WhenIdle::Wake)
    }
}
