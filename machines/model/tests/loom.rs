//! Checks laws with loom, and that loom catches errors that only weak memory reveals.

mod laws;

use std::panic::catch_unwind;

use plimsoll_mm::laws::Law;
use plimsoll_model::loom::{LoomMachine as M, ModelLock, ModelWord, run_law};

/// The number of threads that add to the counter. Each thread counts in a part of its own; one more
/// thread adds these parts to the total.
const COUNTERS: usize = 1;
/// The number of times that each thread adds 1 to the counter.
const STEPS: i64 = 3;

fn run<S: Send + Sync + 'static>(law: &Law<M, S>) {
    run_law(law, 3);
}

/// Returns the message of the panic with which `law` failed; `None` if the law held.
fn broken_by<S: Send + Sync + 'static>(law: &Law<M, S>) -> Option<String> {
    let payload = catch_unwind(|| run(law)).err()?;
    Some(
        payload
            .downcast_ref::<String>()
            .cloned()
            .unwrap_or_default(),
    )
}

#[test]
fn a_relaxed_flag_is_caught() {
    let why = broken_by(&laws::a_relaxed_flag_publishes());
    assert!(why.is_some_and(|why| why.contains("left == right")));
}
