//! Our schedule: all CPUs have the same interval, and each has its own phase in it.
//!
//! The phase follows from the CPU's rank among the online CPUs of its node, so no two of them
//! collide, whatever CPU numbers are missing or offline. Phases are finer than the timer wheel, so
//! `Phased` needs an exact timer; `PhasedWheel` shows how the wheel rounds them.

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

/// The phases of [`Phased`], rounded by the timer wheel.
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

/// The first turn more than half an interval away. So a CPU whose phase moved a little, or whose
/// work fired a little late, neither repeats nor skips a turn.
fn turn(moment: &Moment) -> Nanos {
    moment.turn_after(Nanos(moment.now.0 + moment.interval.0 / 2))
}
