//! The simulator against two real CPUs: `docs/validation.md`.
//!
//! Whether a measurement counts is decided by real measurements alone, before anything is
//! simulated. Several measurements in a row must miss before the prediction is called wrong.

#![expect(clippy::print_stderr, reason = "a skipped test says why")]

use std::time::Duration;

use plimsoll_host::measure::{Load, Pair, Prices};
use plimsoll_lab::validate::{self, LOADS, Miss, Real, misses, profile, simulate};

const DURATION: Duration = Duration::from_millis(200);

const SEED: u64 = 1;

/// A hypervisor that moves a virtual CPU during a measurement, and back, shows in no price and
/// makes that measurement wrong. A wrong prediction misses every measurement.
const MEASUREMENTS: usize = 5;

/// A measurement of `load`; says why if there is none.
fn measured(pair: Pair, load: Load) -> Option<Real> {
    let real = validate::measure(pair, load, DURATION);
    let sharp = real.and_then(|real| real.is_sharp().map(|()| real));
    if let Err(why) = &sharp {
        eprintln!("{}/{} skipped: {why}", load.think_ns, load.hold_ns);
    }
    sharp.ok()
}

/// The first measurement of `load` that the simulator predicts, if there is any measurement.
///
/// # Panics
/// If it predicts none of several.
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

/// The prices with hand-overs at so many times theirs.
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
        // A wrong price can only show where hand-overs matter.
        if handover_ns * (WRONG - 1.0) > 0.3 * real.waits.p99_ns {
            let found = misses_with(&real, &with_handover_times(WRONG, real.prices));
            assert_ne!(found, [], "{real}: a wrong price went unnoticed");
            found_out += 1;
        }
    }
    eprintln!("a wrong price of hand-overs was found out by {found_out} loads");
}
