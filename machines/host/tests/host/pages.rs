//! Runs, on real threads, the laws about the page allocator and the vmstat work. A law is a
//! contract that holds on every machine.

use plimsoll_mm::laws;

use crate::support::law::run_law;

const ROUNDS: u32 = 2000;

#[test]
fn drain_against_local() {
    run_law(&laws::drain_against_local(), 2, ROUNDS);
}

#[test]
fn churn_against_churn() {
    run_law(&laws::churn_against_churn(), 4, ROUNDS);
}

#[test]
fn churn_by_batches() {
    run_law(&laws::churn::bounded_churn(), 2, ROUNDS);
    run_law(&laws::churn::bounded_pages_churn(), 3, ROUNDS);
    run_law(&laws::churn::zone_lock_churn(), 3, ROUNDS);
    run_law(&laws::churn::batched_drains_churn(), 3, ROUNDS);
    run_law(&laws::churn::direct_churn(), 2, ROUNDS);
    run_law(&laws::churn::bitmap_churn(), 3, ROUNDS);
    run_law(&laws::churn::bitmap_splits(), 2, ROUNDS);
}

#[test]
fn runs_between_fronts_and_the_zone() {
    run_law(&laws::fronts::giving_against_taking(), 2, ROUNDS);
    run_law(&laws::fronts::runs_against_drains(), 3, ROUNDS);
    run_law(&laws::fronts::runs_freed_twice(), 2, ROUNDS);
}

#[test]
fn bulk_allocation_runs_out() {
    run_law(&laws::bulk::running_out_half_way(), 2, ROUNDS);
}

#[test]
fn a_drain_that_waits() {
    run_law(&laws::draining::waiting_drain_against_frees(), 2, ROUNDS);
    run_law(&laws::draining::linux_drain_against_frees(), 2, ROUNDS);
    run_law(&laws::draining::batched_drain_against_frees(), 2, ROUNDS);
}

#[test]
fn a_spill_keeps_the_lists() {
    let keeps = laws::spilling::spill_that_keeps_the_lists();
    run_law(&keeps, 2, ROUNDS);
}

#[test]
fn two_mobilities() {
    run_law(&laws::grouped::stealing_against_freeing(), 2, ROUNDS);
    run_law(&laws::grouped::claiming_against_freeing(), 2, ROUNDS / 4);
}

#[test]
fn zones_that_change_their_size() {
    const FEWER: u32 = ROUNDS / 4;
    run_law(&laws::resizing::resizing_against_churn(), 2, FEWER);
    run_law(&laws::resizing::resizing_with_bitmaps(), 2, FEWER);
    run_law(&laws::resizing::shrinking_against_churn(), 2, FEWER);
    run_law(&laws::resizing::two_resize(), 2, FEWER);
    run_law(&laws::resizing::two_grow(), 2, FEWER);
}

#[test]
fn memory_is_given_back() {
    const FEWER: u32 = ROUNDS / 4;
    run_law(&laws::resizing::reporting_against_churn(), 2, FEWER);
    run_law(&laws::resizing::reporting_against_shrinking(), 2, FEWER);
}

#[test]
fn blocks_with_owners() {
    run_law(&laws::owning::sending_against_collecting(), 2, ROUNDS);
    run_law(&laws::owning::two_senders_against_their_owner(), 3, ROUNDS);
    run_law(&laws::owning::inboxes_and_everything(), 3, ROUNDS);
    run_law(&laws::owning::robbing_against_sending(), 3, ROUNDS);
    run_law(&laws::owning::owner_locks_and_everything(), 3, ROUNDS);
    run_law(&laws::owning::draining_against_collecting(), 2, ROUNDS);
    run_law(&laws::owning::disowning_against_decaying(), 2, ROUNDS);
    run_law(&laws::owning::disowning_against_one_page(), 2, ROUNDS);
    run_law(&laws::owning::disowning_against_sending(), 3, ROUNDS);
}

#[test]
fn double_free_is_refused() {
    run_law(&laws::double_free_is_refused(), 2, ROUNDS);
}

#[test]
fn folding_against_counting() {
    run_law(&laws::folding_against_counting(), 2, ROUNDS);
    run_law(&laws::summing_while_it_wraps(), 3, ROUNDS);
}

#[test]
fn the_shepherd_moves() {
    run_law(&laws::shepherd::shepherd_moves_on(), 3, ROUNDS);
    run_law(&laws::shepherd::shepherd_moves_twice(), 3, ROUNDS);
}
