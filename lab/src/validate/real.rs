//! The real side: one load between two sets of prices, or a reason why there is none.
//!
//! Whether a measurement counts is decided by real measurements alone, before anything is
//! simulated.

use std::fmt;
use std::time::Duration;

use plimsoll_host::measure::{self, CannotMeasure, Load, Pair, Prices, Waits};

use super::{LoadName, Miss, P99_TOLERANCE, Seen, misses};

/// Prices before and later that differ by more are those of other cores.
const DRIFT_MAX: f64 = 1.5;

/// Rounds of price timings before and after each load.
const PRICE_ROUNDS: u32 = 2;

/// A hypervisor that moves a virtual CPU spoils one measurement, not the next.
const ATTEMPTS: u32 = 4;

/// One load, measured twice, and the prices before, between and after.
#[derive(Clone, Copy, Debug)]
pub struct Real {
    /// What was asked of the CPUs.
    pub load: Load,
    /// What a lock cost just before the first measurement, between the two, and just after.
    pub prices: [Prices; 3],
    /// The quieter of two measurements: what disturbs two CPUs makes them wait longer.
    pub waits: Waits,
}

impl Real {
    /// What was seen.
    #[must_use]
    pub fn seen(&self) -> Seen {
        Seen::from(&self.waits)
    }

    /// Whether the price of a hand-over is sharp enough to hold a prediction against this load.
    ///
    /// It is two moves of a line or three, depending on what the waiter's CPU has read ahead, so
    /// it may be off by what the middle half spans, and by one move even where all timings of
    /// one measurement agree.
    ///
    /// # Errors
    /// [`Skip::Blurred`].
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
    /// A hand-over has no single price: it varies by this many nanoseconds, more than a
    /// prediction may be off.
    Blurred(f64),
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
    let once = measure::lock_waits(pair, load, duration)?;
    // CPUs that are moved while the load runs can be back at its end. Prices between the two
    // measurements show those that were away from the one to the other.
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
