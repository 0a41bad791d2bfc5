//! Variants of the shepherd, which decides which dormant CPUs to kick, and when.
//!
//! A CPU whose last refresh found nothing goes dormant. Once an interval the shepherd looks at all
//! dormant CPUs and defers the work of those that have something to do again.

mod at_once;
mod at_phase;

use core::fmt;

pub use self::at_once::AtOnce;
pub use self::at_phase::AtPhase;
use super::schedule::Moment;
use crate::machine::{Due, WhenIdle};

/// A rule for kicking dormant CPUs.
pub trait Shepherd: fmt::Debug + Sync {
    /// The shepherd's name on the command line.
    fn name(&self) -> &'static str;

    /// Returns whether a dormant CPU with these leftovers is kicked.
    fn wakes(&self, leftovers: Leftovers) -> bool;

    /// The time at which the dormant CPU of `moment` is to run its work, and whether that wakes it
    /// if it is idle.
    fn kick(&self, moment: &Moment) -> (Due, WhenIdle);
}

/// The work that waits on a dormant CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// No differentials, and at most `high_min` pages on its lists.
    Nothing,
    /// More pages on its lists than `high_min`, but no differentials.
    Pages,
    /// Differentials to fold (Linux: `need_update`).
    Differentials,
}
