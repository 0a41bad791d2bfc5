//! Compares the simulated machine with two real CPUs.
//!
//! Prices are measured on separate loads ([`plimsoll_host::measure::prices`]): a cache line that
//! two CPUs pass back and forth, a saturated lock, and a free lock that the two CPUs acquire in
//! turns. From these prices alone, the simulator predicts how long two CPUs wait for a lock under
//! [`LOADS`]. These predictions are compared with measurements of the loads in [`LOADS`] on the
//! real CPUs.
//!
//! A wait lasts from the request for the lock to the first access to the value that the lock
//! guards. An acquisition is contended if the CPU did not find the lock free. `docs/validation.md`
//! has results.

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

/// The loads. In `load(2000, 500)`, each of two CPUs repeats two steps: it computes for 2000 ns on
/// average, and then holds a lock for 500 ns. Both CPUs use the same lock. The prices are measured
/// on other loads than these, so that no prediction depends on the measurement with which it is
/// compared.
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

/// The waits under one load, measured or simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The share of acquisitions that did not find the lock free, from 0 to 1.
    pub contended_share: f64,
    /// The mean wait, in nanoseconds.
    pub mean_ns: f64,
    /// The times that 50, 90, 99 and 99.9 % of all waits do not exceed, in nanoseconds.
    pub quantiles_ns: [f64; 4],
}

/// The quantiles in [`Seen::quantiles_ns`], as shares of all waits.
pub const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

impl Seen {
    /// Returns the 99th percentile of the waits, in nanoseconds.
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

/// A load, displayed in tables by its name.
struct LoadName(Load);

impl fmt::Display for LoadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.0.think_ns, self.0.hold_ns))
    }
}
