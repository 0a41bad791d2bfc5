//! The simulated machine against two real CPUs.
//!
//! Prices are measured on loads of their own ([`plimsoll_host::measure::prices`]): a line sent to
//! and fro, a saturated lock, a free lock taken in turns. With these prices and nothing else, the
//! simulator predicts how long two CPUs wait for a lock under [`LOADS`], which are then measured.
//!
//! A wait is the time from asking for the lock to the first look at what it guards; an
//! acquisition is contended if it did not find the lock free. `docs/validation.md` has results.

mod compare;
mod real;
mod report;
mod simulated;

use std::fmt;

use plimsoll_host::measure::{Load, Waits};

pub use compare::{Miss, P99_TOLERANCE, SHARE_TOLERANCE, misses};
pub use real::{Real, Skip, measure};
pub use report::{report, two_cpus};
pub use simulated::{profile, simulate};

/// What two CPUs do with one lock; none is used for calibration.
pub const LOADS: [Load; 5] = [
    load(2000, 500),
    load(500, 500),
    load(5000, 200),
    load(10_000, 2330),
    load(20_000, 5000),
];

const fn load(think_ns: u32, hold_ns: u32) -> Load {
    Load { think_ns, hold_ns }
}

/// How long acquisitions took, real or simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Acquisitions that did not find the lock free; 0 to 1.
    pub contended_share: f64,
    /// The mean wait.
    pub mean_ns: f64,
    /// The waits that 50, 90, 99 and 99.9 % of all do not exceed.
    pub quantiles_ns: [f64; 4],
}

/// The quantiles of [`Seen::quantiles_ns`].
pub const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

impl Seen {
    /// 99 of 100 waits are no longer.
    #[must_use]
    pub const fn p99_ns(&self) -> f64 {
        self.quantiles_ns[2]
    }
}

impl From<&Waits> for Seen {
    fn from(waits: &Waits) -> Self {
        Self {
            contended_share: waits.contended_share,
            mean_ns: waits.mean_ns,
            quantiles_ns: [waits.p50_ns, waits.p90_ns, waits.p99_ns, waits.p999_ns],
        }
    }
}

/// A load as the tables call it.
struct LoadName(Load);

impl fmt::Display for LoadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.0.think_ns, self.0.hold_ns))
    }
}
