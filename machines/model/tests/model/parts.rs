//! Checks the contracts (laws) of the data structures that address spaces share. There are two
//! model checkers: loom tries all interleavings with few preemptions, shuttle tries random ones.

use plimsoll_mm::laws;
use plimsoll_model::{loom, shuttle};

/// The number of random interleavings that shuttle tries for each law. In a debug build, the
/// interleavings of one law take up to three seconds.
const SCHEDULES: u32 = 2000;

#[test]
fn loom_budgets() {
    loom::run_law(&laws::budget::charging_at_once(), 2);
    loom::run_law(&laws::budget::refused_on_the_way_up(), 2);
    loom::run_law(&laws::budget::following(), 2);
}

#[test]
fn loom_objects() {
    loom::run_law(&laws::parts::touching_at_once(), 2);
}

#[test]
fn loom_swap_slots() {
    loom::run_law(&laws::parts::slots_are_not_shared(), 2);
    loom::run_law(&laws::parts::slot_given_back_twice(), 2);
}

#[test]
fn shuttle_contents() {
    shuttle::run_law(&laws::contents::moving_while_writing(), 3, SCHEDULES / 4);
}

#[test]
fn loom_batches() {
    loom::run_law(&laws::parts::batches_for_the_dying(), 2);
}

#[test]
fn loom_lists_of_used_pages() {
    loom::run_law(&laws::parts::aging_at_once(), 2);
}

#[test]
fn shuttle_budgets() {
    shuttle::run_law(&laws::budget::charging_at_once(), 2, SCHEDULES);
    shuttle::run_law(&laws::budget::refused_on_the_way_up(), 2, SCHEDULES);
    shuttle::run_law(&laws::budget::following(), 2, SCHEDULES);
}

#[test]
fn shuttle_objects_swap_and_lists() {
    shuttle::run_law(&laws::parts::touching_at_once(), 2, SCHEDULES);
    shuttle::run_law(&laws::parts::slots_are_not_shared(), 2, SCHEDULES);
    shuttle::run_law(&laws::parts::slot_given_back_twice(), 2, SCHEDULES);
    shuttle::run_law(&laws::parts::batches_for_the_dying(), 2, SCHEDULES);
    shuttle::run_law(&laws::parts::aging_at_once(), 2, SCHEDULES);
}
