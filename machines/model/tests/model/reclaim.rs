//! Checks the contracts (laws) of reclaim with two model checkers: loom tries all interleavings
//! with few preemptions, shuttle tries random ones.

use plimsoll_mm::laws::{kswapd, reclaim};
use plimsoll_model::own_process::in_own_process;
use plimsoll_model::{loom, shuttle};

/// The number of random interleavings that shuttle tries for each law.
const SCHEDULES: u32 = 2000;

#[test]
fn loom_asked_while_falling_asleep() {
    in_own_process(|| {
        loom::run_law(&kswapd::asked_while_falling_asleep(), 2);
    });
}

#[test]
fn loom_reclaimed_while_touched() {
    in_own_process(|| {
        loom::run_law_within(&reclaim::reclaimed_while_touched(), 2, 1);
    });
}

#[test]
fn loom_reclaimed_while_unmapped() {
    in_own_process(|| {
        loom::run_law_within(&reclaim::reclaimed_while_unmapped(), 2, 1);
    });
}

#[test]
fn loom_reclaimed_while_exiting() {
    in_own_process(|| {
        loom::run_law_within(&reclaim::reclaimed_while_exiting(), 2, 1);
    });
}

#[test]
fn shuttle_reclaimed_while_touched() {
    shuttle::run_law(&reclaim::reclaimed_while_touched(), 2, SCHEDULES);
}

#[test]
fn shuttle_reclaimed_while_unmapped() {
    shuttle::run_law(&reclaim::reclaimed_while_unmapped(), 2, SCHEDULES);
}

#[test]
fn shuttle_reclaimed_while_exiting() {
    shuttle::run_law(&reclaim::reclaimed_while_exiting(), 2, SCHEDULES);
}

#[test]
fn shuttle_reclaimed_by_two() {
    shuttle::run_law(&reclaim::reclaimed_by_two(), 2, SCHEDULES);
}

#[test]
fn shuttle_reclaimed_by_two_while_used() {
    shuttle::run_law(&reclaim::reclaimed_by_two_while_used(), 4, SCHEDULES);
}

#[test]
fn shuttle_reclaimed_by_two_while_dying() {
    shuttle::run_law(&reclaim::reclaimed_by_two_while_dying(), 4, SCHEDULES);
}

#[test]
fn shuttle_asked_while_falling_asleep() {
    shuttle::run_law(&kswapd::asked_while_falling_asleep(), 2, SCHEDULES);
}

#[test]
fn loom_asked_while_dozing() {
    in_own_process(|| {
        loom::run_law(&kswapd::asked_while_dozing(), 2);
    });
}

#[test]
fn shuttle_asked_while_dozing() {
    shuttle::run_law(&kswapd::asked_while_dozing(), 2, SCHEDULES);
}

#[test]
fn loom_enlisted_while_exiting() {
    in_own_process(|| {
        loom::run_law_within(&reclaim::enlisted_while_exiting(), 2, 1);
    });
}

#[test]
fn shuttle_enlisted_while_exiting() {
    shuttle::run_law(&reclaim::enlisted_while_exiting(), 2, SCHEDULES);
}
