//! Checks the laws of counters with shuttle, which tries random interleavings.

use std::panic::catch_unwind;

use plimsoll_mm::laws::counter::{self, CPUS};
use plimsoll_mm::laws::{area, under_way};
use plimsoll_model::shuttle::run_law;

/// The number of random interleavings that shuttle tries for each law and kind of counter. All
/// interleavings together take several seconds in a debug build.
const SCHEDULES: u32 = 1000;

#[test]
fn nothing_is_lost() {
    for setup in counter::setups() {
        run_law(&counter::nothing_is_lost(setup), CPUS, SCHEDULES);
    }
}

#[test]
fn going_and_returning() {
    for law in counter::going_and_returning() {
        run_law(&law, CPUS, SCHEDULES);
    }
}

#[test]
fn looking_while_adding() {
    for setup in counter::setups() {
        for law in counter::looking_while_adding(setup) {
            run_law(&law, CPUS, SCHEDULES);
        }
    }
}

#[test]
fn setting_while_adding() {
    for setup in counter::setups() {
        run_law(&counter::setting_while_adding(setup), CPUS, SCHEDULES);
    }
}

#[test]
fn summing_while_it_wraps() {
    for setup in counter::setups() {
        run_law(&counter::summing_while_it_wraps(setup), CPUS, SCHEDULES);
    }
}

#[test]
fn making_and_ending() {
    for setup in counter::setups() {
        run_law(&counter::making_and_ending(setup), CPUS, SCHEDULES);
    }
}

#[test]
fn growing_at_once() {
    run_law(&counter::growing_at_once(), CPUS, SCHEDULES);
}

#[test]
fn first_groups_at_once() {
    run_law(&area::first_groups_at_once(), CPUS, SCHEDULES);
    run_law(&area::a_group_dropped_meanwhile(), CPUS, SCHEDULES);
}

#[test]
fn one_addition_under_way() {
    run_law(&under_way::one_under_way(), CPUS, SCHEDULES);
    let forgotten = || run_law(&under_way::one_under_way_forgotten(), CPUS, SCHEDULES);
    assert!(
        catch_unwind(forgotten).is_err(),
        "additions under way count"
    );
}
