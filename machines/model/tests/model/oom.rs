//! Checks the contracts (laws) of OOM kills, exits and the reaper with two model checkers: loom
//! tries all interleavings with few preemptions, shuttle tries random ones.

use plimsoll_mm::laws::oom;
use plimsoll_model::own_process::in_own_process;
use plimsoll_model::{loom, shuttle};

/// The number of random interleavings that shuttle tries for each law.
const SCHEDULES: u32 = 2000;

#[test]
fn loom_two_kills_at_once() {
    in_own_process(|| {
        loom::run_law(&oom::two_kills_at_once(), 2);
    });
}

#[test]
fn loom_kill_against_exit() {
    in_own_process(|| {
        loom::run_law(&oom::kill_against_exit(), 2);
    });
}

#[test]
fn loom_exit_against_look() {
    in_own_process(|| {
        loom::run_law_within(&oom::exit_against_look(), 2, 1);
    });
}

#[test]
fn loom_two_shortages_at_once() {
    in_own_process(|| {
        loom::run_law(&oom::two_shortages_at_once(), 2);
    });
}

#[test]
fn shuttle_two_shortages_at_once() {
    shuttle::run_law(&oom::two_shortages_at_once(), 2, SCHEDULES);
}

#[test]
fn shuttle_two_kills_at_once() {
    shuttle::run_law(&oom::two_kills_at_once(), 2, SCHEDULES);
}

#[test]
fn shuttle_kill_against_exit() {
    shuttle::run_law(&oom::kill_against_exit(), 2, SCHEDULES);
}

#[test]
fn shuttle_reaper_against_exit() {
    shuttle::run_law(&oom::reaper_against_exit(), 3, SCHEDULES);
}
