//! Measures one load on two real CPUs twice. Times the prices (how long single lock operations
//! take) before, between and after these two measurements. If the load cannot be measured, returns
//! the reason.
//!
//! This module decides whether a measurement counts before anything is simulated, so only the real
//! measurements decide this.

use std::fmt;
use std::time::Duration;

use plimsoll_host::measure::{self, CannotMeasure, Load, Pair, Prices, Waits};

use super::{LoadName, Miss, P99_TOLERANCE, Seen, misses};

/// The prices of lock operations are timed before the first measurement and again later. A price
/// that was timed later can be larger or smaller than the first by at most this factor. If it
/// differs more, the virtual CPUs have moved to other cores.
const DRIFT_MAX: f64 = 1.5;

/// The number of rounds in each timing of the prices of lock operations. Prices are timed three
/// times: before, between and after the two measurements.
const PRICE_ROUNDS: u32 = 2;

/// The maximum number of attempts to measure a load. A hypervisor that moves a virtual CPU spoils
/// one attempt, but most likely not the next one.
const ATTEMPTS: u32 = 4;

/// One load, measured twice, with the prices of lock operations before, between and after the
/// measurements.
#[derive(Clone, Copy, Debug)]
pub struct Real {
    /// The load that the two CPUs ran.
    pub load: Load,
    /// The prices of a lock just before the first measurement, between the two measurements, and
    /// just after the second.
    pub prices: [Prices; 3],
    /// The measurement with the shorter 99th percentile. Any disturbance makes CPUs wait longer, so
    /// this measurement was probably disturbed less.
    pub waits: Waits,
}

impl Real {
    /// Summarizes [`Real::waits`]: returns the share of acquisitions that had to wait, and the mean
    /// and the quantiles of the waits.
    #[must_use]
    pub fn seen(&self) -> Seen {
        Seen::from(&self.waits)
    }

    /// Checks whether the price of the hand-over of a lock is known precisely enough to judge a
    /// prediction for this load.
    ///
    /// A hand-over takes two or three transfers of a cache line, depending on the lines that the
    /// waiter's CPU has read ahead. So the price of a hand-over is uncertain by at least the time
    /// of one transfer, even if all timings of one measurement agree. If the middle half of the
    /// timings spans more than this time, the span is the uncertainty.
    ///
    /// # Errors
    /// [`Skip::Blurred`] if this uncertainty exceeds the error that a prediction is allowed to
    /// have.
    pub fn is_sharp(&self) -> Result<(), Skip> {
        let blurs = self.prices.iter().map(|prices| {
            let spread_ns = prices.handover.high_ns - prices.handover.low_ns;
            spread_ns.max(prices.remote.middle_ns)
        });
        let blur_ns = blurs.fold(0.0, f64::max);
        if blur_ns > P99_TOLERANCE * self.waits.p99_ns {
            return Err(Skip::Blurred(blur_ns));
        }
        Ok(())
    }
}

/// The reason why no measurement of a load is good enough to judge a prediction.
#[derive(Debug)]
pub enum Skip {
    /// The computer does not permit the measurement.
    Cannot(CannotMeasure),
    /// Between the timing before the first measurement and a later timing, the price of a lock
    /// operation changed by this factor.
    Drift(f64),
    /// Between two timings of the prices of lock operations, the virtual CPUs moved from two
    /// threads of one core to separate cores, or the other way round.
    Moved,
    /// The two measurements of the load differ by more than a prediction's accepted error.
    Noise(Miss),
    /// The hand-over of a lock has no single price: its time varies by this many nanoseconds, which
    /// is more than a prediction's accepted error.
    Blurred(f64),
}

/// Measures `load` on `pair` twice, for `duration` each. If a disturbance spoils the measurements,
/// repeats both, up to a fixed number of attempts.
///
/// # Errors
/// The reason why the last attempt failed, if no attempt succeeded.
pub fn measure(pair: Pair, load: Load, duration: Duration) -> Result<Real, Skip> {
    let mut outcome = attempt(pair, load, duration);
    for _ in 1..ATTEMPTS {
        if outcome.is_ok() {
            break;
        }
        outcome = attempt(pair, load, duration);
    }
    outcome
}

fn attempt(pair: Pair, load: Load, duration: Duration) -> Result<Real, Skip> {
    let before = measure::prices_of(pair, PRICE_ROUNDS)?;
    let once = measure::lock_waits(pair, load, duration)?;
    // If a virtual CPU moves during the first measurement, it may have moved back by the end of the
    // second. In this case, the prices timed between the two measurements show that the virtual CPU
    // was on another core.
    let between = measure::prices_of(pair, PRICE_ROUNDS)?;
    let again = measure::lock_waits(pair, load, duration)?;
    let after = measure::prices_of(pair, PRICE_ROUNDS)?;
    for later in [&between, &after] {
        let drift = before.drift(later);
        if drift > DRIFT_MAX {
            return Err(Skip::Drift(drift));
        }
        if before.look_like_one_core() != later.look_like_one_core() {
            return Err(Skip::Moved);
        }
    }
    if let Some(&noise) = misses(&Seen::from(&once), &Seen::from(&again)).first() {
        return Err(Skip::Noise(noise));
    }
    Ok(Real {
        load,
        prices: [before, between, after],
        waits: if once.p99_ns <= again.p99_ns {
            once
        } else {
            again
        },
    })
}

impl From<CannotMeasure> for Skip {
    fn from(why: CannotMeasure) -> Self {
        Self::Cannot(why)
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cannot(why) => why.fmt(f),
            Self::Drift(drift) => write!(f, "prices before and later differ by {drift:.1} times"),
            Self::Moved => f.write_str("a virtual CPU moved to another core meanwhile"),
            Self::Noise(Miss::P99 {
                real_ns,
                simulated_ns,
            }) => write!(f, "p99 was {real_ns:.0} ns, then {simulated_ns:.0}"),
            Self::Blurred(ns) => write!(f, "hand-overs vary by {ns:.0} ns"),
            Self::Noise(Miss::ContendedShare { real, simulated }) => {
                let percent = [real, simulated].map(|share| share * 100.0);
                write!(
                    f,
                    "contended: {:.1} %, then {:.1} %",
                    percent[0], percent[1]
                )
            }
        }
    }
}

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        LoadName(self.load).fmt(f)
    }
}
