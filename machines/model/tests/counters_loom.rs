//! Checks the laws of counters with loom, which tries all interleavings with few preemptions.
//!
//! This is a separate program, because shuttle's panic hook would report every thread that loom
//! ends.

use std::panic::catch_unwind;

use plimsoll_mm::laws::counter::{self, CPUS};
use plimsoll_mm::laws::{area, under_way};
use plimsoll_model::loom::run_law;
use plimsoll_model::own_process::in_own_process;

#[test]
fn nothing_is_lost() {
    in_own_process(|| {
        for setup in counter::setups() {
            run_law(&counter::nothing_is_lost(setup), CPUS);
        }
    });
}

#[test]
fn going_and_returning() {
    in_own_process(|| {
        for law in counter::going_and_returning() {
            run_law(&law, CPUS);
        }
    });
}

/// Runs the laws about reading a counter during additions, on one kind of counter. Each kind in
/// [`counter::setups`] has a separate test, because these laws take longest.
fn looking_while_adding(setup: usize) {
    for law in counter::looking_while_adding(counter::setups()[setup]) {
        run_law(&law, CPUS);
    }
}

#[test]
fn looking_at_a_shared_counter_while_adding() {
    in_own_process(|| {
        looking_while_adding(0);
    });
}

#[test]
fn looking_at_a_flat_counter_while_adding() {
    in_own_process(|| {
        looking_while_adding(1);
    });
}

#[test]
fn looking_at_a_tree_while_adding() {
    in_own_process(|| {
        looking_while_adding(2);
    });
}

#[test]
fn looking_at_a_one_sided_line_while_adding() {
    in_own_process(|| {
        looking_while_adding(3);
    });
}

#[test]
fn looking_at_a_one_sided_tree_while_adding() {
    in_own_process(|| {
        looking_while_adding(4);
    });
}

#[test]
fn setting_while_adding() {
    in_own_process(|| {
        // The first two kinds of counters (shared and flat) store to words to which other CPUs add.
        // After such a store, loom lets a load return the result of an addition from before the
        // store, which C11 forbids. So only shuttle checks these two kinds.
        for setup in counter::setups().into_iter().skip(2) {
            run_law(&counter::setting_while_adding(setup), CPUS);
        }
    });
}

#[test]
fn making_and_ending() {
    in_own_process(|| {
        for setup in counter::setups() {
            run_law(&counter::making_and_ending(setup), CPUS);
        }
    });
}

#[test]
fn growing_at_once() {
    in_own_process(|| {
        run_law(&counter::growing_at_once(), CPUS);
    });
}

#[test]
fn first_groups_at_once() {
    in_own_process(|| {
        run_law(&area::first_groups_at_once(), 2);
    });
}

#[test]
fn one_addition_under_way() {
    in_own_process(|| {
        run_law(&under_way::one_under_way(), CPUS);
        let forgotten = catch_unwind(|| run_law(&under_way::one_under_way_forgotten(), CPUS));
        assert!(forgotten.is_err(), "additions under way count");
    });
}
