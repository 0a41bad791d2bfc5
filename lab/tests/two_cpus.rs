//! The simulator against two real CPUs: `docs/validation.md`.
//!
//! Whether a load counts is decided by real measurements alone, before anything is simulated.

#![expect(clippy::print_stderr, reason = "a skipped test says why")]

use std::time::Duration;

use plimsoll_host::measure::{Pair, Prices};
use plimsoll_lab::validate::{self, LOADS, Miss, Real, misses, profile, simulate};

const DURATION: Duration = Duration::from_millis(200);

const SEED: u64 = 1;

/// Every load that this computer can measure; says why it cannot measure the others.
fn measured() -> Vec<Real> {
    let pair = match Pair::find() {
        Ok(pair) => pair,
        Err(why) => {
            eprintln!("skipped: {why}");
            return Vec::new();
        }
    };
    let measure = |load| {
        let real = validate::measure(pair, load, DURATION);
        let sharp = real.and_then(|real| real.is_sharp().map(|()| real));
        if let Err(why) = &sharp {
            eprintln!("{}/{} skipped: {why}", load.think_ns, load.hold_ns);
        }
        sharp.ok()
    };
    LOADS.into_iter().filter_map(measure).collect()
}

fn misses_with(real: &Real, prices: &[Prices]) -> Vec<Miss> {
    let machine = profile(prices).expect("laptop-2 is built in");
    misses(&real.seen(), &simulate(&machine, real, SEED))
}

/// The prices with hand-overs at so many times theirs.
fn with_handover_times(factor: f64, prices: [Prices; 2]) -> [Prices; 2] {
    prices.map(|mut prices| {
        prices.handover.middle_ns *= factor;
        prices
    })
}

#[test]
fn waits_on_two_cpus_are_predicted_and_a_wrong_price_is_found_out() {
    const WRONG: f64 = 5.0;
    let mut found_out = 0;
    for real in measured() {
        let found = misses_with(&real, &real.prices);
        assert_eq!(found, [], "{real}: {real:#?}");

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
