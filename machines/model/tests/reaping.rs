//! Emptying dying address spaces under loom and shuttle.

use plimsoll_mm::laws::{frontier, reaping};
use plimsoll_model::{loom, shuttle};

/// Schedules per law: seconds in a debug build.
const SCHEDULES: u32 = 2000;

#[test]
fn loom_meeting_in_the_middle() {
    loom::run_law(&frontier::meeting_in_the_middle(), 2);
}

#[test]
fn loom_handing_back() {
    loom::run_law(&frontier::handing_back(), 2);
}

#[test]
fn loom_two_helpers() {
    loom::run_law(&frontier::two_helpers(), 3);
}

#[test]
fn shuttle_helpers_come_and_go() {
    shuttle::run_law(&frontier::helpers_come_and_go(), 4, SCHEDULES);
}

#[test]
fn shuttle_exit_against_reaper() {
    shuttle::run_law(&reaping::exit_against_reaper(), 2, SCHEDULES);
}

#[test]
fn shuttle_exit_against_helpers() {
    shuttle::run_law(&reaping::exit_against_helpers(), 4, SCHEDULES);
}

#[test]
fn shuttle_exit_past_helpers() {
    shuttle::run_law(&reaping::exit_past_helpers(), 3, SCHEDULES);
}

#[test]
fn shuttle_two_exits() {
    shuttle::run_law(&reaping::two_exits(), 3, SCHEDULES);
}

#[test]
fn shuttle_exit_against_refusal() {
    shuttle::run_law(&reaping::exit_against_refusal(), 3, SCHEDULES);
}

#[test]
fn shuttle_faults_against_reaper() {
    shuttle::run_law(&reaping::faults_against_reaper(), 3, SCHEDULES);
}

#[test]
fn shuttle_faults_against_unmap() {
    shuttle::run_law(&reaping::faults_against_unmap(), 2, SCHEDULES);
}

#[test]
fn shuttle_faults_against_replacing() {
    shuttle::run_law(&reaping::faults_against_replacing(), 2, SCHEDULES);
}
