//! Checks the contracts (laws) of emptying dying address spaces with two model checkers: loom tries
//! all interleavings with few preemptions, shuttle tries random ones.

use plimsoll_mm::laws::{frontier, reaping, touching};
use plimsoll_model::own_process::in_own_process;
use plimsoll_model::{loom, shuttle};

/// The number of random interleavings that shuttle tries for each law. In a debug build, the
/// interleavings of one law take up to three seconds.
const SCHEDULES: u32 = 2000;

#[test]
fn loom_meeting_in_the_middle() {
    in_own_process(|| {
        loom::run_law(&frontier::meeting_in_the_middle(), 2);
    });
}

#[test]
fn loom_handing_back() {
    in_own_process(|| {
        loom::run_law(&frontier::handing_back(), 2);
    });
}

#[test]
fn loom_leaving_a_rest() {
    in_own_process(|| {
        loom::run_law(&frontier::leaving_a_rest(), 2);
    });
}

#[test]
fn loom_coming_back_to_a_rest() {
    in_own_process(|| {
        loom::run_law(&frontier::coming_back_to_a_rest(), 2);
    });
}

#[test]
fn loom_two_helpers() {
    in_own_process(|| {
        loom::run_law_within(&frontier::two_helpers(), 3, 2);
    });
}

#[test]
fn loom_exit_against_reaper() {
    in_own_process(|| {
        loom::run_law_within(&reaping::exit_against_reaper(), 2, 1);
    });
}

#[test]
fn loom_touched_while_reaped() {
    in_own_process(|| {
        loom::run_law_within(&touching::touched_while_reaped(), 2, 2);
    });
}

#[test]
fn loom_touched_while_unmapped() {
    in_own_process(|| {
        loom::run_law_within(&touching::touched_while_unmapped(), 2, 2);
    });
}

/// Loom runs this law without preemptions, because the law has many steps. Even so, a read of the
/// mappings while they change sees every intermediate state, because loom tries every value that a
/// load may see. The laws for readers of the tree of mappings cover such reads too.
#[test]
fn loom_touched_while_replaced() {
    in_own_process(|| {
        loom::run_law_within(&touching::touched_while_replaced(), 2, 0);
    });
}

#[test]
fn shuttle_coming_back_to_a_rest() {
    shuttle::run_law(&frontier::coming_back_to_a_rest(), 2, SCHEDULES);
}

#[test]
fn shuttle_leaving_a_rest() {
    shuttle::run_law(&frontier::leaving_a_rest(), 2, SCHEDULES);
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
fn shuttle_touched_while_reaped() {
    shuttle::run_law(&touching::touched_while_reaped(), 2, SCHEDULES);
    shuttle::run_law(&touching::many_touched_while_reaped(), 3, SCHEDULES);
}

#[test]
fn shuttle_touched_while_unmapped() {
    shuttle::run_law(&touching::touched_while_unmapped(), 2, SCHEDULES);
    shuttle::run_law(&touching::many_touched_while_unmapped(), 3, SCHEDULES);
}

#[test]
fn shuttle_huge_and_file_touched_while_they_go() {
    shuttle::run_law(&touching::huge_touched_while_reaped(), 2, SCHEDULES);
    shuttle::run_law(&touching::huge_touched_while_unmapped(), 2, SCHEDULES);
    shuttle::run_law(&touching::file_touched_while_reaped(), 2, SCHEDULES);
}

#[test]
fn shuttle_touched_while_others_map() {
    shuttle::run_law(&touching::touched_while_others_map(), 2, SCHEDULES);
}

#[test]
fn shuttle_touched_while_replaced() {
    shuttle::run_law(&touching::touched_while_replaced(), 2, SCHEDULES);
}
