//! Checks the contracts (laws) of reclaim for pages of files with two model checkers: loom tries
//! all interleavings with few preemptions, shuttle tries random ones.

use plimsoll_mm::laws::cached;
use plimsoll_model::own_process::in_own_process;
use plimsoll_model::{loom, shuttle};

/// The number of random interleavings that shuttle tries for each law.
const SCHEDULES: u32 = 2000;

#[test]
fn loom_dropped_while_touched() {
    in_own_process(|| {
        loom::run_law_within(&cached::dropped_while_touched(), 2, 1);
    });
}

#[test]
fn loom_dropped_while_read() {
    in_own_process(|| {
        loom::run_law_within(&cached::dropped_while_read(), 2, 1);
    });
}

#[test]
fn loom_dropped_while_unmapped() {
    in_own_process(|| {
        loom::run_law_within(&cached::dropped_while_unmapped(), 2, 1);
    });
}

#[test]
fn shuttle_dropped_while_touched() {
    shuttle::run_law(&cached::dropped_while_touched(), 2, SCHEDULES);
}

#[test]
fn shuttle_dropped_while_read() {
    shuttle::run_law(&cached::dropped_while_read(), 2, SCHEDULES);
}

#[test]
fn shuttle_dropped_while_unmapped() {
    shuttle::run_law(&cached::dropped_while_unmapped(), 2, SCHEDULES);
}

#[test]
fn shuttle_dropped_while_copied() {
    shuttle::run_law(&cached::dropped_while_copied(), 2, SCHEDULES);
}

#[test]
fn shuttle_dropped_by_two() {
    shuttle::run_law(&cached::dropped_by_two(), 2, SCHEDULES);
}

#[test]
fn shuttle_dropped_by_two_while_used() {
    shuttle::run_law(&cached::dropped_by_two_while_used(), 4, SCHEDULES);
}

#[test]
fn shuttle_dropped_by_two_while_exiting() {
    shuttle::run_law(&cached::dropped_by_two_while_exiting(), 3, SCHEDULES);
}

#[test]
fn shuttle_a_touched_page_has_a_second_chance() {
    shuttle::run_law(&cached::a_touched_page_has_a_second_chance(), 2, SCHEDULES);
}

#[test]
fn loom_dropped_while_mapped() {
    in_own_process(|| {
        loom::run_law_within(&cached::dropped_while_mapped(), 2, 1);
    });
}

#[test]
fn shuttle_dropped_while_mapped() {
    shuttle::run_law(&cached::dropped_while_mapped(), 2, SCHEDULES);
}
