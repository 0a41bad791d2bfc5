//! The detector of hung tasks: tasks that sleep uninterruptibly for 120 seconds or more.
//!
//! A kernel thread looks at all tasks every 120 seconds. A look reports each sleeping task that has
//! not run since the previous look. So the detector reports a task after 120 to 240 seconds of
//! sleep.

use plimsoll_mm::units::Nanos;

/// The time between two looks of the detector at all tasks. This is also the shortest sleep that a
/// look reports (Linux: `hung_task_timeout_secs`).
pub const TIMEOUT: Nanos = Nanos(120 * Nanos::SECOND.0);

/// The largest number of reports of hung tasks that Linux makes (Linux: `hung_task_warnings`).
pub const REPORTS_MAX: usize = 10;

/// The detector's state for one task.
#[derive(Clone, Copy, Debug, Default)]
pub struct HungTask {
    /// How many times the task had run when the detector last looked at it.
    runs: u64,
    /// The time at which the detector first saw that the task had run exactly `runs` times.
    since: Nanos,
}

impl HungTask {
    /// Looks at a task that sleeps uninterruptibly and has run `runs` times. Returns whether the
    /// detector reports the task.
    pub fn look(&mut self, now: Nanos, runs: u64) -> bool {
        if runs != self.runs {
            *self = Self { runs, since: now };
            return false;
        }
        self.since.0 + TIMEOUT.0 <= now.0
    }
}

/// Returns the time at which the detector first reports a task that sleeps from `from` to `until`.
/// The detector looks at tasks at all multiples of [`TIMEOUT`].
#[must_use]
pub fn report(from: Nanos, until: Nanos) -> Option<Nanos> {
    let mut task = HungTask::default();
    let first = from.0.div_ceil(TIMEOUT.0).max(1) * TIMEOUT.0;
    let mut looks = (first..until.0).step_by(120_000_000_000).map(Nanos);
    looks.find(|now| task.look(*now, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Nanos {
        Nanos(seconds * Nanos::SECOND.0)
    }

    #[test]
    fn a_task_is_reported_at_the_second_look_after_120_to_240_seconds() {
        assert_eq!(report(s(1), s(240)), None);
        assert_eq!(report(s(1), s(241)), Some(s(240)));
        assert_eq!(report(s(119), s(1000)), Some(s(240)));
        assert_eq!(report(s(0), s(1000)), Some(s(240)), "looks begin at 120");
        assert_eq!(report(s(121), s(1000)), Some(s(360)));
        for from in 1..500 {
            let asleep = report(s(from), s(2000)).expect("long enough").0 - s(from).0;
            assert!((TIMEOUT.0..=2 * TIMEOUT.0).contains(&asleep), "{asleep}");
        }
    }

    #[test]
    fn a_task_that_has_run_between_two_looks_is_not_reported() {
        let mut task = HungTask::default();
        assert!(!task.look(s(120), 7));
        assert!(!task.look(s(240), 8));
        assert!(task.look(s(360), 8));
        assert!(task.look(s(480), 8), "each look reports it again");
    }
}
