//! Ours: the same interval for all, each CPU at its own phase of it.
//!
//! The phase follows from the CPU's rank among the online CPUs that share its zones, so holes
//! and hotplug leave no collisions. Phases are finer than the timer wheel, so `Phased` needs an
//! exact timer; `PhasedWheel` shows what the wheel makes of them.

use super::{Moment, Schedule};
use crate::machine::Due;
use crate::units::{Jiffies, Nanos};

/// Equal intervals, distinct phases, kept by a high-resolution timer.
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

/// The same phases put through the timer wheel.
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

/// The first turn more than half an interval away: a phase that moved a little, or a firing
/// that was a little late, neither repeats nor skips one.
fn turn(moment: &Moment) -> Nanos {
    moment.turn_after(Nanos(moment.now.0 + moment.interval.0 / 2))
}
