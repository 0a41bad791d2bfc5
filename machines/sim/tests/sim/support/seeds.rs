//! The seeds that a test runs, and how to run one of them again.
//!
//! `PLIMSOLL_SEED=n` runs only seed `n`. `PLIMSOLL_SEEDS=n` runs seeds `0..n` instead of the
//! default.

use std::env;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs `body` for each seed. If `body` panics, prints the command that replays the seed.
pub(crate) fn each(test: &str, default: u64, body: impl Fn(u64)) {
    for seed in chosen(default) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(seed))) {
            eprintln!(
                "seed {seed} fails; replay it with\n  \
                 PLIMSOLL_SEED={seed} cargo test -p plimsoll-sim --test sim {test}"
            );
            resume_unwind(payload);
        }
    }
}

/// Returns the seeds that the environment variables select, or the first `default` seeds.
pub(crate) fn chosen(default: u64) -> Range<u64> {
    let number = |name| {
        let text = env::var(name).ok()?;
        let number = text.parse::<u64>();
        Some(number.unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
    };
    match number("PLIMSOLL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PLIMSOLL_SEEDS").unwrap_or(default),
    }
}
