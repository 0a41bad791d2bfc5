//! Checks the contracts (laws) of the reader-writer lock with two model checkers: loom tries all
//! interleavings with few preemptions, shuttle tries random ones.

use plimsoll_mm::laws::rw_lock;
use plimsoll_model::{loom, shuttle};

/// The number of random interleavings that shuttle tries for each law.
const SCHEDULES: u32 = 2000;

#[test]
fn loom_writers_are_alone() {
    loom::run_law(&rw_lock::writers_are_alone(), 3);
}

#[test]
fn loom_readers_against_a_writer() {
    loom::run_law(&rw_lock::readers_against_a_writer(), 3);
}

#[test]
fn loom_the_killed_give_up() {
    loom::run_law(&rw_lock::the_killed_give_up(), 3);
}

#[test]
fn loom_the_killed_look_again() {
    loom::run_law(&rw_lock::the_killed_look_again(), 3);
}

#[test]
fn loom_no_writer_between() {
    loom::run_law(&rw_lock::no_writer_between(), 3);
}

#[test]
fn shuttle_writers_are_alone() {
    shuttle::run_law(&rw_lock::writers_are_alone(), 3, SCHEDULES);
}

#[test]
fn shuttle_readers_against_a_writer() {
    shuttle::run_law(&rw_lock::readers_against_a_writer(), 3, SCHEDULES);
}

#[test]
fn shuttle_the_killed_give_up() {
    shuttle::run_law(&rw_lock::the_killed_give_up(), 3, SCHEDULES);
}

#[test]
fn shuttle_the_killed_look_again() {
    shuttle::run_law(&rw_lock::the_killed_look_again(), 3, SCHEDULES);
}

#[test]
fn shuttle_no_writer_between() {
    shuttle::run_law(&rw_lock::no_writer_between(), 3, SCHEDULES);
}
