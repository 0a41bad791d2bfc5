//! Compares the simulator's prediction of the waits for a lock with a measurement on real CPUs, and
//! decides whether the prediction is good enough.

use std::fmt;

use super::Seen;

/// The largest accepted error of a predicted 99th percentile, as a share of the measured
/// percentile.
pub const P99_TOLERANCE: f64 = 0.10;

/// The largest accepted difference between the predicted and the measured share of acquisitions
/// that are contended. Both shares are from 0 to 1.
pub const SHARE_TOLERANCE: f64 = 0.05;

/// A prediction whose error is larger than the accepted error, with the measured and the predicted
/// value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Miss {
    /// The error is in the 99th percentile of the waits.
    P99 {
        /// The measured percentile, in nanoseconds.
        real_ns: f64,
        /// The predicted percentile, in nanoseconds.
        simulated_ns: f64,
    },
    /// The error is in the share of acquisitions that found the lock held.
    ContendedShare {
        /// The measured share, from 0 to 1.
        real: f64,
        /// The predicted share of acquisitions that found the lock held, from 0 to 1.
        simulated: f64,
    },
}

/// Compares the predicted waits `simulated` with the measured waits `real`. Returns the errors that
/// are larger than accepted. The list is empty if the prediction is good enough.
#[must_use]
pub fn misses(real: &Seen, simulated: &Seen) -> Vec<Miss> {
    let mut misses = Vec::new();
    if p99_is_off(real, simulated) {
        misses.push(Miss::P99 {
            real_ns: real.p99_ns(),
            simulated_ns: simulated.p99_ns(),
        });
    }
    if share_is_off(real, simulated) {
        misses.push(Miss::ContendedShare {
            real: real.contended_share,
            simulated: simulated.contended_share,
        });
    }
    misses
}

fn p99_is_off(real: &Seen, other: &Seen) -> bool {
    (other.p99_ns() - real.p99_ns()).abs() > P99_TOLERANCE * real.p99_ns()
}

fn share_is_off(real: &Seen, other: &Seen) -> bool {
    (other.contended_share - real.contended_share).abs() > SHARE_TOLERANCE
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::P99 {
                real_ns,
                simulated_ns,
            } => write!(f, "p99: real {real_ns:.0} ns, simulated {simulated_ns:.0}"),
            Self::ContendedShare { real, simulated } => write!(
                f,
                "contended: real {:.1} %, simulated {:.1} %",
                real * 100.0,
                simulated * 100.0
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(contended_share: f64, p99_ns: f64) -> Seen {
        Seen {
            contended_share,
            mean_ns: 100.0,
            quantiles_ns: [20.0, 400.0, p99_ns, 700.0],
        }
    }

    #[test]
    fn what_is_within_its_tolerance_is_no_miss() {
        let real = seen(0.22, 600.0);
        for other in [seen(0.17, 545.0), seen(0.269, 659.0), real] {
            assert_eq!(misses(&real, &other), []);
        }
    }

    #[test]
    fn what_is_beyond_its_tolerance_is_a_miss_on_either_side() {
        let real = seen(0.22, 600.0);
        for p99_ns in [539.0, 661.0, 0.0, f64::MAX] {
            let found = misses(&real, &seen(0.22, p99_ns));
            assert!(matches!(found[..], [Miss::P99 { .. }]), "{p99_ns}");
        }
        for share in [0.16, 0.28, 0.0, 1.0] {
            let found = misses(&real, &seen(share, 600.0));
            assert!(
                matches!(found[..], [Miss::ContendedShare { .. }]),
                "{share}"
            );
        }
        assert_eq!(misses(&real, &seen(0.5, 900.0)).len(), 2);
    }
}
