//! Plimsoll's schedule: all CPUs have the same interval, and each has its own phase within it.
//!
//! The phase follows from the CPU's rank among the online CPUs of its node. So no two CPUs of a
//! node have the same phase, even if CPU numbers are missing or CPUs are offline. Phases lie closer
//! together than the granularity of the timer wheel. So `Phased` needs an exact timer;
//! `PhasedWheel` shows how the wheel rounds the phases.

use super::{Moment, Schedule};
use crate::machine::Due;
use crate::units::{Jiffies, Nanos};

/// Gives all CPUs equal intervals, and each CPU of a node its own moment (phase) in the interval.
/// Uses a high-resolution timer.
#[derive(Clone, Copy, Debug)]
pub struct Phased;

impl Schedule for Phased {
    fn name(&self) -> &'static str {
        "phased"
    }

    fn next(&self, moment: &Moment) -> Due {
        Due::At(turn(moment))
    }
}

/// The schedule of [`Phased`], but with an ordinary timer, so that the timer wheel rounds the
/// phases.
#[derive(Clone, Copy, Debug)]
pub struct PhasedWheel;

impl Schedule for PhasedWheel {
    fn name(&self) -> &'static str {
        "phased-wheel"
    }

    fn next(&self, moment: &Moment) -> Due {
        let tick = moment.hz.jiffies(turn(moment));
        Due::Wheel(Jiffies(tick.0.saturating_sub(moment.jiffy().0).max(1)))
    }
}

/// Returns the first time, more than half an interval away, at which it is the CPU's turn to do its
/// periodic work. So if the CPU's phase has moved a little, or its work fired a little late, no
/// turn is repeated or skipped.
fn turn(moment: &Moment) -> Nanos {
    moment.turn_after(Nanos(moment.now.0 + moment.interval.0 / 2))
}
