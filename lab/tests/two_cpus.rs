//! Compares the simulator with two real CPUs. See `docs/validation.md`.
//!
//! The test decides from real measurements alone whether a measurement counts, before it simulates
//! anything. The test fails only if the simulator's prediction misses several measurements in a
//! row.

#![expect(clippy::print_stderr, reason = "a skipped test says why")]

use std::time::Duration;

use plimsoll_host::measure::{Load, Pair, Prices};
use plimsoll_lab::validate::{self, LOADS, Miss, Real, misses, profile, simulate};

const DURATION: Duration = Duration::from_millis(200);

const SEED: u64 = 1;

/// A prediction counts as wrong only if it misses this many measurements in a row. A single miss
/// proves nothing, because a hypervisor can move a virtual CPU away and back during the
/// measurement. The lock prices, which are timed before and after the measurement, do not show such
/// a move.
const MEASUREMENTS: usize = 5;

/// Returns a measurement of `load`, or prints why there is none and returns `None`.
fn measured(pair: Pair, load: Load) -> Option<Real> {
    let real = validate::measure(pair, load, DURATION);
    let sharp = real.and_then(|real| real.is_sharp().map(|()| real));
    if let Err(why) = &sharp {
        eprintln!("{}/{} skipped: {why}", load.think_ns, load.hold_ns);
    }
    sharp.ok()
}

/// Measures `load` until the simulator's prediction agrees with a measurement, and returns this
/// measurement. Returns `None` if `load` cannot be measured.
///
/// # Panics
/// If the predictions agree with none of [`MEASUREMENTS`] measurements.
fn predicted(pair: Pair, load: Load) -> Option<Real> {
    let mut missed = Vec::new();
    while missed.len() < MEASUREMENTS {
        let real = measured(pair, load)?;
        let misses = misses_with(&real, &real.prices);
        if misses.is_empty() {
            return Some(real);
        }
        eprintln!("{real}: missed, so measured again: {misses:?}");
        missed.push((real, misses));
    }
    panic!(
        "{}/{}: missed each time: {missed:#?}",
        load.think_ns, load.hold_ns
    );
}

fn misses_with(real: &Real, prices: &[Prices]) -> Vec<Miss> {
    let machine = profile(prices).expect("laptop-2 is built in");
    misses(&real.seen(), &simulate(&machine, real, SEED))
}

/// Returns `prices`, but with the price of handing a lock over to a waiting CPU multiplied by
/// `factor`.
fn with_handover_times(factor: f64, prices: [Prices; 3]) -> [Prices; 3] {
    prices.map(|mut prices| {
        prices.handover.middle_ns *= factor;
        prices
    })
}

#[test]
fn waits_on_two_cpus_are_predicted_and_a_wrong_price_is_found_out() {
    const WRONG: f64 = 5.0;
    let pair = match Pair::find() {
        Ok(pair) => pair,
        Err(why) => {
            eprintln!("skipped: {why}");
            return;
        }
    };
    let mut found_out = 0;
    for real in LOADS.into_iter().filter_map(|load| predicted(pair, load)) {
        let handover_ns = real.prices[0].handover.middle_ns;
        // The test can notice that the price of hand-overs is wrong by the factor `WRONG`, but only
        // if hand-overs from CPU to CPU take much of the waiting time.
        if handover_ns * (WRONG - 1.0) > 0.3 * real.waits.p99_ns {
            let found = misses_with(&real, &with_handover_times(WRONG, real.prices));
            assert_ne!(found, [], "{real}: a wrong price went unnoticed");
            found_out += 1;
        }
    }
    eprintln!("a wrong price of hand-overs was found out by {found_out} loads");
}
