//! Checks the contracts (laws) of the memory manager with two model checkers: loom tries all
//! interleavings with few preemptions, shuttle tries random ones.

use plimsoll_mm::laws;
use plimsoll_model::own_process::in_own_process;
use plimsoll_model::{loom, shuttle};

/// The number of random interleavings that shuttle tries for each law. In a debug build, the
/// interleavings of one law take up to three seconds.
const SCHEDULES: u32 = 2000;

#[test]
fn loom_drain_against_local() {
    in_own_process(|| {
        loom::run_law(&laws::drain_against_local(), 2);
    });
}

#[test]
fn shuttle_two_mobilities() {
    let stealing = laws::grouped::stealing_against_freeing();
    shuttle::run_law(&stealing, 2, SCHEDULES);
    let claiming = laws::grouped::claiming_against_freeing();
    shuttle::run_law(&claiming, 2, SCHEDULES / 10);
}

#[test]
fn loom_bulk_allocation_runs_out() {
    in_own_process(|| {
        let law = laws::bulk::running_out_half_way();
        loom::run_law_within(&law, 2, 1);
    });
}

#[test]
fn loom_zones_that_change_their_size() {
    in_own_process(|| {
        loom::run_law_within(&laws::resizing::two_grow(), 2, 2);
        loom::run_law_within(&laws::resizing::two_resize(), 2, 1);
        loom::run_law_within(&laws::resizing::reporting_against_shrinking(), 2, 2);
    });
}

#[test]
fn shuttle_bulk_allocation_runs_out() {
    shuttle::run_law(&laws::bulk::running_out_half_way(), 2, SCHEDULES);
}

#[test]
fn shuttle_zones_that_change_their_size() {
    const FEWER: u32 = SCHEDULES / 4;
    shuttle::run_law(&laws::resizing::resizing_against_churn(), 2, FEWER);
    shuttle::run_law(&laws::resizing::resizing_with_bitmaps(), 2, FEWER);
    shuttle::run_law(&laws::resizing::shrinking_against_churn(), 2, FEWER);
    shuttle::run_law(&laws::resizing::two_resize(), 2, FEWER);
    shuttle::run_law(&laws::resizing::two_grow(), 2, FEWER);
    shuttle::run_law(&laws::resizing::reporting_against_churn(), 2, FEWER);
    shuttle::run_law(&laws::resizing::reporting_against_shrinking(), 2, FEWER);
}

#[test]
fn loom_double_free_is_refused() {
    in_own_process(|| {
        loom::run_law(&laws::double_free_is_refused(), 2);
    });
}

#[test]
fn loom_folding_against_counting() {
    in_own_process(|| {
        loom::run_law(&laws::folding_against_counting(), 2);
    });
}

#[test]
fn loom_summing_while_it_wraps() {
    in_own_process(|| {
        loom::run_law(&laws::summing_while_it_wraps(), 3);
    });
}

#[test]
fn shuttle_drain_against_local() {
    shuttle::run_law(&laws::drain_against_local(), 2, SCHEDULES);
}

#[test]
fn shuttle_churn_against_churn() {
    shuttle::run_law(&laws::churn_against_churn(), 4, SCHEDULES);
}

#[test]
fn shuttle_double_free_is_refused() {
    shuttle::run_law(&laws::double_free_is_refused(), 2, SCHEDULES);
}

#[test]
fn shuttle_folding_against_counting() {
    shuttle::run_law(&laws::folding_against_counting(), 2, SCHEDULES);
    shuttle::run_law(&laws::summing_while_it_wraps(), 3, SCHEDULES);
}

#[test]
fn loom_shepherd_moves_on() {
    in_own_process(|| {
        loom::run_law(&laws::shepherd::shepherd_moves_on(), 3);
    });
}

#[test]
fn loom_shepherd_moves_twice() {
    in_own_process(|| {
        loom::run_law(&laws::shepherd::shepherd_moves_twice(), 3);
    });
}

#[test]
fn loom_shepherd_waits() {
    in_own_process(|| {
        loom::run_law(&laws::shepherd::shepherd_waits_for_a_cpu(), 1);
        loom::run_law(&laws::shepherd::shepherd_waits_for_a_cpu(), 2);
        loom::run_law(&laws::shepherd::shepherd_waits_for_its_start(), 2);
    });
}

#[test]
fn loom_shepherd_is_relieved() {
    in_own_process(|| {
        loom::run_law(&laws::shepherd::shepherd_is_relieved(), 2);
    });
}

#[test]
fn shuttle_shepherd_moves() {
    shuttle::run_law(&laws::shepherd::shepherd_moves_on(), 3, SCHEDULES);
    shuttle::run_law(&laws::shepherd::shepherd_moves_twice(), 3, SCHEDULES);
    shuttle::run_law(&laws::shepherd::shepherd_waits_for_a_cpu(), 1, SCHEDULES);
    shuttle::run_law(&laws::shepherd::shepherd_waits_for_a_cpu(), 2, SCHEDULES);
    shuttle::run_law(&laws::shepherd::shepherd_is_relieved(), 2, SCHEDULES);
    shuttle::run_law(
        &laws::shepherd::shepherd_waits_for_its_start(),
        2,
        SCHEDULES,
    );
}

#[test]
fn shuttle_waiting_drain_against_frees() {
    let ours = laws::draining::waiting_drain_against_frees();
    shuttle::run_law(&ours, 2, SCHEDULES);
    let linux = laws::draining::linux_drain_against_frees();
    shuttle::run_law(&linux, 2, SCHEDULES);
    let batched = laws::draining::batched_drain_against_frees();
    shuttle::run_law(&batched, 2, SCHEDULES);
}

#[test]
fn loom_sending_against_collecting() {
    in_own_process(|| {
        loom::run_law_within(&laws::owning::sending_against_collecting(), 2, 3);
    });
}

#[test]
fn loom_two_senders_against_their_owner() {
    in_own_process(|| {
        loom::run_law_within(&laws::owning::two_senders_against_their_owner(), 3, 2);
    });
}

#[test]
fn loom_disowning_against_one_page() {
    in_own_process(|| {
        loom::run_law(&laws::owning::disowning_against_one_page(), 2);
    });
}

#[test]
fn loom_disowning_against_decaying() {
    in_own_process(|| {
        loom::run_law(&laws::owning::disowning_against_decaying(), 2);
    });
}

#[test]
fn loom_draining_against_collecting() {
    in_own_process(|| {
        loom::run_law(&laws::owning::draining_against_collecting(), 2);
    });
}

#[test]
fn shuttle_blocks_with_owners() {
    let sending = laws::owning::sending_against_collecting();
    shuttle::run_law(&sending, 2, SCHEDULES);
    let senders = laws::owning::two_senders_against_their_owner();
    shuttle::run_law(&senders, 3, SCHEDULES);
    shuttle::run_law(&laws::owning::inboxes_and_everything(), 3, SCHEDULES);
    shuttle::run_law(&laws::owning::robbing_against_sending(), 3, SCHEDULES);
    let locks = laws::owning::owner_locks_and_everything();
    shuttle::run_law(&locks, 3, SCHEDULES);
    let draining = laws::owning::draining_against_collecting();
    shuttle::run_law(&draining, 2, SCHEDULES);
    let decaying = laws::owning::disowning_against_decaying();
    shuttle::run_law(&decaying, 2, SCHEDULES);
    let one_page = laws::owning::disowning_against_one_page();
    shuttle::run_law(&one_page, 2, SCHEDULES);
    let disowning = laws::owning::disowning_against_sending();
    shuttle::run_law(&disowning, 3, SCHEDULES);
}

#[test]
fn loom_direct_churn() {
    in_own_process(|| {
        loom::run_law_within(&laws::churn::direct_churn(), 2, 3);
    });
}

#[test]
fn shuttle_churn_by_batches() {
    shuttle::run_law(&laws::churn::bounded_churn(), 2, SCHEDULES);
    shuttle::run_law(&laws::churn::bounded_pages_churn(), 3, SCHEDULES);
    shuttle::run_law(&laws::churn::zone_lock_churn(), 3, SCHEDULES);
    shuttle::run_law(&laws::churn::batched_drains_churn(), 3, SCHEDULES);
    shuttle::run_law(&laws::churn::direct_churn(), 2, SCHEDULES);
    shuttle::run_law(&laws::churn::bitmap_churn(), 3, SCHEDULES);
    shuttle::run_law(&laws::churn::bitmap_splits(), 2, SCHEDULES / 4);
}

#[test]
fn loom_spill_that_keeps_the_lists() {
    in_own_process(|| {
        let keeps = laws::spilling::spill_that_keeps_the_lists();
        loom::run_law_within(&keeps, 2, 3);
    });
}

#[test]
fn shuttle_spill_that_keeps_the_lists() {
    let keeps = laws::spilling::spill_that_keeps_the_lists();
    shuttle::run_law(&keeps, 2, SCHEDULES);
}

#[test]
#[should_panic(expected = "another CPU saw a spill half done")]
fn shuttle_notices_a_spill_that_releases_the_lists() {
    let releases = laws::spilling::spill_that_releases_the_lists();
    shuttle::run_law(&releases, 2, SCHEDULES);
}
