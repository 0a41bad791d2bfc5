//! Checks the contracts (laws) for readers of the tree of mappings with two model checkers: loom
//! tries all interleavings with few preemptions, shuttle tries random ones.

use plimsoll_mm::laws;
use plimsoll_model::own_process::in_own_process;
use plimsoll_model::{loom, shuttle};

#[test]
fn loom_readers_against_moves() {
    in_own_process(|| {
        loom::run_law(&laws::readers_against_moves(), 2);
    });
}

#[test]
fn loom_readers_against_additions() {
    in_own_process(|| {
        loom::run_law(&laws::readers_against_additions(), 2);
    });
}

#[test]
fn shuttle_readers_against_additions() {
    shuttle::run_law(&laws::readers_against_additions(), 2, 2000);
}

#[test]
fn shuttle_readers_against_moves() {
    shuttle::run_law(&laws::readers_against_moves(), 2, 2000);
}

#[test]
fn shuttle_cursors_against_splits() {
    shuttle::run_law(&laws::cursors_against_splits(), 3, 300);
}
