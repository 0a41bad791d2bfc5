//! Who wakes dormant CPUs, and when: the variants, side by side.
//!
//! A CPU whose last refresh found nothing goes dormant. Once an interval the shepherd looks at
//! all of them and queues the work of those that have something to fold again.

mod at_once;
mod at_phase;

use core::fmt;

pub use self::at_once::AtOnce;
pub use self::at_phase::AtPhase;
use super::schedule::Moment;
use crate::machine::{Due, WhenIdle};

/// A rule for waking dormant CPUs.
pub trait Shepherd: fmt::Debug + Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Whether a dormant CPU with these leftovers is woken.
    fn wakes(&self, leftovers: Leftovers) -> bool;

    /// When the dormant CPU of `moment` is to run its work.
    fn kick(&self, moment: &Moment) -> (Due, WhenIdle);
}

/// What a dormant CPU left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// Nothing anybody would miss.
    Nothing,
    /// More pages on its lists than it may keep, but no differential.
    Pages,
    /// Differentials to fold (Linux: `need_update`).
    Differentials,
}
