//! The real side: one load between two sets of prices, or a reason why there is none.
//!
//! Whether a measurement counts is decided by real measurements alone, before anything is
//! simulated.

use std::fmt;
use std::time::Duration;

use plimsoll_host::measure::{self, CannotMeasure, Load, Pair, Prices, Waits};

use super::{LoadName, Miss, Seen, misses};

/// Prices before and after that differ by more are those of other cores.
const DRIFT_MAX: f64 = 1.5;

/// Rounds of price timings before and after each load.
const PRICE_ROUNDS: u32 = 2;

/// A hypervisor that moves a virtual CPU spoils one measurement, not the next.
const ATTEMPTS: u32 = 4;

/// One load, measured twice, and the prices around it.
#[derive(Clone, Copy, Debug)]
pub struct Real {
    /// What was asked of the CPUs.
    pub load: Load,
    /// What a lock cost just before and just after.
    pub prices: [Prices; 2],
    /// The load, measured.
    pub waits: Waits,
    /// The load, measured again.
    pub again: Waits,
}

impl Real {
    /// What the first of the two measurements saw.
    #[must_use]
    pub fn seen(&self) -> Seen {
        Seen::from(&self.waits)
    }
}

/// Why a load has no measurement that a prediction could be held against.
#[derive(Debug)]
pub enum Skip {
    /// The computer does not allow it.
    Cannot(CannotMeasure),
    /// Prices before and after differ by this factor.
    Drift(f64),
    /// The CPUs became two threads of one core, or stopped being that.
    Moved,
    /// The same load measured twice differs by more than a prediction may.
    Noise(Miss),
}

/// Measures `load` on `pair` twice, `duration` each; a few times if the first is spoiled.
///
/// # Errors
/// When no attempt gave a measurement to compare with: the reason of the last.
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
    let waits = measure::lock_waits(pair, load, duration)?;
    let again = measure::lock_waits(pair, load, duration)?;
    let after = measure::prices_of(pair, PRICE_ROUNDS)?;
    let drift = before.drift(&after);
    if drift > DRIFT_MAX {
        return Err(Skip::Drift(drift));
    }
    if before.look_like_one_core() != after.look_like_one_core() {
        return Err(Skip::Moved);
    }
    if let Some(&noise) = misses(&Seen::from(&waits), &Seen::from(&again)).first() {
        return Err(Skip::Noise(noise));
    }
    Ok(Real {
        load,
        prices: [before, after],
        waits,
        again,
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
            Self::Drift(drift) => write!(f, "prices before and after differ by {drift:.1} times"),
            Self::Moved => f.write_str("a virtual CPU moved to another core meanwhile"),
            Self::Noise(Miss::P99 {
                real_ns,
                simulated_ns,
            }) => write!(f, "p99 was {real_ns:.0} ns, then {simulated_ns:.0}"),
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
