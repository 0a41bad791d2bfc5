//! The detector of RCU stalls: grace periods that do not end within 21 seconds.
//!
//! A grace period ends when each CPU has passed a quiescent state. In a kernel without full
//! preemption, a reschedule point is a quiescent state. At each tick, a CPU checks whether the
//! grace period is too old, and whether the CPU itself delays the grace period.

use plimsoll_mm::units::{Hz, Jiffies, Nanos};

/// The age, in seconds, at which a grace period is reported (Linux: `rcu_cpu_stall_timeout`).
pub const TIMEOUT_S: u64 = 21;

/// If the CPU that delays the grace period has not reported the stall this many jiffies after it
/// should have, another CPU reports the stall.
const OTHERS_LATER: u64 = 2;

/// The detector for one grace period of a machine.
#[derive(Clone, Copy, Debug)]
pub struct RcuStall {
    hz: u64,
    begun: u64,
    stall_at: u64,
}

/// The CPU that reports a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The CPU that delays the grace period reports the stall.
    Itself,
    /// Another CPU reports the stall, because the CPU that delays the grace period takes no ticks.
    Another,
}

/// A report of a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The age of the grace period, in jiffies.
    pub age: Jiffies,
    /// The CPU that reports.
    pub by: By,
}

impl RcuStall {
    /// Makes the detector of RCU stalls for a grace period that begins at `now`.
    #[must_use]
    pub fn begin(now: Jiffies, hz: Hz) -> Self {
        let hz = u64::from(hz.get());
        Self {
            hz,
            begun: now.0,
            stall_at: now.0 + TIMEOUT_S * hz,
        }
    }

    /// Notes that a CPU ticks at `now`, while some CPU delays the grace period. `by` says whether
    /// the CPU that ticks is the CPU that delays the grace period. Returns the report that the CPU
    /// makes, if it makes one.
    pub fn tick(&mut self, now: Jiffies, by: By) -> Option<Report> {
        let later = match by {
            By::Itself => 0,
            By::Another => OTHERS_LATER,
        };
        if now.0 < self.stall_at + later {
            return None;
        }
        self.stall_at = now.0 + 3 * TIMEOUT_S * self.hz + 3;
        Some(Report {
            age: Jiffies(now.0 - self.begun),
            by,
        })
    }
}

/// Returns the stall reports for a grace period that one CPU delays. The grace period begins at
/// `from`, and the CPU passes no quiescent state until `until`. `ticks` says whether this CPU takes
/// ticks during that time.
#[must_use]
pub fn reports(from: Nanos, until: Nanos, hz: Hz, ticks: bool) -> Vec<Report> {
    let (first, last) = (hz.jiffies(from), hz.jiffies(until));
    let mut detector = RcuStall::begin(first, hz);
    // All CPUs tick at the same moments. If the CPU that delays the grace period takes ticks, that
    // CPU reports the stall first.
    let by = if ticks { By::Itself } else { By::Another };
    let ticks = (first.0..last.0).map(Jiffies);
    ticks.filter_map(|now| detector.tick(now, by)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HZ: u32 = 1000;

    fn hz() -> Hz {
        Hz::new(HZ).expect("in range")
    }

    fn ages(seconds: u64, ticks: bool) -> Vec<u64> {
        let until = Nanos(seconds * Nanos::SECOND.0);
        let reports = reports(Nanos(0), until, hz(), ticks);
        reports.iter().map(|report| report.age.0).collect()
    }

    #[test]
    fn a_cpu_that_takes_ticks_reports_itself_after_21_84_and_147_seconds() {
        assert!(ages(21, true).is_empty());
        assert_eq!(ages(148, true), [21_000, 84_003, 147_006]);
        let report = reports(Nanos(0), Nanos(22_000_000_000), hz(), true)[0];
        assert_eq!(report.by, By::Itself);
    }

    #[test]
    fn other_cpus_report_two_jiffies_later() {
        assert_eq!(ages(85, false), [21_002, 84_007]);
        let mut detector = RcuStall::begin(Jiffies(5), hz());
        assert_eq!(detector.tick(Jiffies(21_006), By::Another), None);
        assert!(detector.tick(Jiffies(21_006), By::Itself).is_some());
        // One CPU has reported the stall, so no other CPU reports it.
        assert_eq!(detector.tick(Jiffies(21_007), By::Another), None);
    }
}
