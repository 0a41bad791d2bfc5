//! Linux's shepherd (`vmstat_shepherd`). In each round it looks for CPUs that have stopped their
//! vmstat work but have differentials. It restarts the work of these CPUs, which then runs at once.
//!
//! This shepherd ignores the pages on a dormant CPU's lists, so those pages stay on the lists.

use super::{Leftovers, Shepherd};
use crate::machine::{Due, WhenIdle};
use crate::vmstat::schedule::Moment;

/// Immediately runs the vmstat work of every CPU that has stopped this work and has differentials.
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
