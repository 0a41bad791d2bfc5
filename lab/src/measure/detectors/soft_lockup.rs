//! The detector of soft lockups: CPUs that do not reschedule for more than 20 seconds.
//!
//! On each CPU, a timer fires every 4 seconds, even while the CPU cannot reschedule. Each firing
//! asks the CPU's stopper thread, which has the highest priority, to note the time. If the time
//! that the thread noted last is too long ago, the firing reports a soft lockup.

use plimsoll_mm::units::Nanos;

/// The time between two firings of the timer: two fifths of the threshold of 10 seconds (Linux:
/// `watchdog_thresh`).
pub const PERIOD: Nanos = Nanos(4 * Nanos::SECOND.0);

/// The binary logarithm of the time unit, in nanoseconds: a unit is 1.074 seconds.
const UNIT_BITS: u32 = 30;

/// If the CPU's stopper thread last ran more than this many time units ago, the detector reports a
/// soft lockup. The limit is twice Linux's threshold of 10 seconds, but Linux compares it with time
/// units and not with seconds.
const LIMIT: u64 = 20;

/// The soft-lockup detector of one CPU.
#[derive(Clone, Copy, Debug)]
pub struct SoftLockup {
    /// The time unit in which the stopper thread last ran.
    touched: u64,
    /// The time unit in which the stopper thread last ran or the detector last made a report,
    /// whichever is later. The detector makes the next report when this time unit is too long ago.
    /// `None` from a call of [`SoftLockup::touch`] until the timer fires.
    since: Option<u64>,
}

/// A report of a soft lockup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The time of the report.
    pub at: Nanos,
    /// The number in the kernel's message "stuck for … s". Although the message says seconds, the
    /// number counts time units of the detector.
    pub stuck: u64,
}

impl SoftLockup {
    /// Makes the soft-lockup detector of a CPU whose stopper thread runs at `now`.
    #[must_use]
    pub const fn new(now: Nanos) -> Self {
        let unit = now.0 >> UNIT_BITS;
        Self {
            touched: unit,
            since: Some(unit),
        }
    }

    /// Notes that the stopper thread runs at `now`.
    pub const fn feed(&mut self, now: Nanos) {
        *self = Self::new(now);
    }

    /// Makes the next firing report nothing and start a new period (Linux:
    /// `touch_softlockup_watchdog`).
    pub const fn touch(&mut self) {
        self.since = None;
    }

    /// Notes that the timer fires at `now`. Returns the report, if the firing makes one.
    pub fn fire(&mut self, now: Nanos) -> Option<Report> {
        let unit = now.0 >> UNIT_BITS;
        let since = self.since.unwrap_or(unit);
        self.since = Some(since);
        if unit <= since + LIMIT {
            return None;
        }
        self.since = Some(unit);
        Some(Report {
            at: now,
            stuck: unit - self.touched,
        })
    }
}

/// Returns the reports of a CPU that does not reschedule from `from` to `until`. The CPU's timer
/// fires at `phase`, and then once in every [`PERIOD`].
#[must_use]
pub fn reports(from: Nanos, until: Nanos, phase: Nanos) -> Vec<Report> {
    let behind = from.0.saturating_sub(phase.0).div_ceil(PERIOD.0);
    let first = phase.0 + behind * PERIOD.0;
    // The stopper thread last ran at the last firing before the CPU stopped rescheduling.
    let fed = first.saturating_sub(PERIOD.0).min(from.0);
    let mut detector = SoftLockup::new(Nanos(fed));
    let firings = (first..until.0).step_by(4_000_000_000);
    firings
        .filter_map(|now| detector.fire(Nanos(now)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Nanos {
        Nanos(seconds * Nanos::SECOND.0)
    }

    #[test]
    fn five_firings_report_nothing_and_the_sixth_reports_22_or_23() {
        for fed_ms in 0..2000 {
            let fed = Nanos::from_ms(fed_ms);
            let mut detector = SoftLockup::new(fed);
            let firing = |nth: u64| Nanos(fed.0 + nth * PERIOD.0);
            assert!((1..=5).all(|nth| detector.fire(firing(nth)).is_none()));
            let report = detector.fire(firing(6)).expect("24 seconds");
            assert!([22, 23].contains(&report.stuck), "{report:?}");
            assert!((7..12).all(|nth| detector.fire(firing(nth)).is_none()));
            let second = detector.fire(firing(12)).expect("48 seconds");
            assert!([44, 45].contains(&second.stuck), "{second:?}");
        }
    }

    #[test]
    fn a_detector_that_is_fed_or_touched_starts_anew() {
        let mut detector = SoftLockup::new(s(0));
        detector.feed(s(20));
        assert_eq!(detector.fire(s(24)), None);
        assert_eq!(detector.fire(s(41)), None);
        detector.touch();
        assert_eq!(detector.fire(s(100)), None);
        let report = detector
            .fire(s(123))
            .expect("23 seconds after it began anew");
        assert_eq!(
            report.stuck,
            (123_000_000_000 >> 30) - (20_000_000_000 >> 30)
        );
    }

    #[test]
    fn a_stretch_is_reported_after_20_to_24_seconds() {
        // The timer fires at 2, 6, 10, … seconds. The CPU stops rescheduling at 11 seconds, so the
        // stopper thread runs for the last time after the firing at 10 seconds.
        let first = |until: u64| {
            reports(s(11), s(until), s(2))
                .first()
                .map(|report| report.at)
        };
        assert_eq!(first(34), None);
        assert_eq!(first(35), Some(s(34)));
        for from_ms in (10_001..14_000).step_by(100) {
            let from = Nanos::from_ms(from_ms);
            let report = reports(from, s(60), s(2))[0];
            let stuck = report.at.0 - from.0;
            assert!((s(20).0..s(24).0).contains(&stuck), "{stuck}");
        }
        assert_eq!(reports(s(11), s(11 + 60), s(2)).len(), 2);
    }
}
