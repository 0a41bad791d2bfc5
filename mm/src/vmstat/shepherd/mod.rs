//! The shepherd variants, which decide which dormant CPUs to kick, and when.
//!
//! A CPU whose last refresh found nothing to do goes dormant: it has no refresh scheduled. Once per
//! interval the shepherd checks all dormant CPUs. It *kicks* each of them that has something to do
//! by now, that is, it schedules the CPU's refresh again.

mod at_once;
mod at_phase;

use core::fmt;

pub use self::at_once::AtOnce;
pub use self::at_phase::AtPhase;
use super::schedule::Moment;
use crate::machine::{Due, WhenIdle};

/// A rule that says which dormant CPUs (those that have stopped their periodic work) do this work
/// again, and when.
pub trait Shepherd: fmt::Debug + Sync {
    /// The shepherd's name on the command line.
    fn name(&self) -> &'static str;

    /// Returns whether the shepherd restarts the periodic work of a CPU that has stopped it and has
    /// these leftovers.
    fn wakes(&self, leftovers: Leftovers) -> bool;

    /// Returns when a CPU that has stopped its periodic work must run it again. Also returns
    /// whether to wake the CPU for this work if the CPU is idle.
    fn kick(&self, moment: &Moment) -> (Due, WhenIdle);
}

/// What is left to do on a CPU that has stopped its periodic work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// The CPU has no differentials, and at most `high_min` pages on its lists.
    Nothing,
    /// The CPU has no differentials, but more than `high_min` pages on its lists.
    Pages,
    /// The CPU has differentials that are not in the shared counters yet (Linux: `need_update`).
    Differentials,
}
