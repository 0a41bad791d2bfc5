//! The laws of counters under loom, exhaustively, and under shuttle, at random.

use plimsoll_mm::laws::counter::{self, CPUS};
use plimsoll_model::{loom, shuttle};

/// Schedules per law and kind of counter: seconds in a debug build.
const SCHEDULES: u32 = 1000;

#[test]
fn loom_nothing_is_lost() {
    for setup in counter::setups() {
        loom::run_law(&counter::nothing_is_lost(setup), CPUS);
    }
}

#[test]
fn loom_looking_while_adding() {
    for setup in counter::setups() {
        loom::run_law(&counter::looking_while_adding(setup), CPUS);
    }
}

#[test]
fn loom_setting_while_adding() {
    for setup in counter::setups() {
        loom::run_law(&counter::setting_while_adding(setup), CPUS);
    }
}

#[test]
fn loom_making_and_ending() {
    for setup in counter::setups() {
        loom::run_law(&counter::making_and_ending(setup), CPUS);
    }
}

#[test]
fn loom_growing_at_once() {
    loom::run_law(&counter::growing_at_once(), CPUS);
}

#[test]
fn shuttle_nothing_is_lost() {
    for setup in counter::setups() {
        shuttle::run_law(&counter::nothing_is_lost(setup), CPUS, SCHEDULES);
    }
}

#[test]
fn shuttle_looking_while_adding() {
    for setup in counter::setups() {
        shuttle::run_law(&counter::looking_while_adding(setup), CPUS, SCHEDULES);
    }
}

#[test]
fn shuttle_setting_while_adding() {
    for setup in counter::setups() {
        shuttle::run_law(&counter::setting_while_adding(setup), CPUS, SCHEDULES);
    }
}

#[test]
fn shuttle_making_and_ending() {
    for setup in counter::setups() {
        shuttle::run_law(&counter::making_and_ending(setup), CPUS, SCHEDULES);
    }
}

#[test]
fn shuttle_growing_at_once() {
    shuttle::run_law(&counter::growing_at_once(), CPUS, SCHEDULES);
}
