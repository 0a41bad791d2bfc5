//! Checks the contracts (laws) of the memory manager on simulated CPUs, each law with many seeds.
//! Also checks how often a refill takes the zone lock.

use crate::support;
use crate::support::law::run_law;

use std::ops::Range;

use plimsoll_mm::design::{Design, HOLDS};
use plimsoll_mm::laws;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::Order;
use plimsoll_sim::profile::Profile;
use support::Small;
use support::small::{self, any};

fn machine() -> Profile {
    small::profile(Topology::flat(2), 1000)
}

fn seeds() -> Range<u64> {
    support::seeds::chosen(500)
}

#[test]
fn drain_against_local() {
    run_law(&laws::drain_against_local(), &machine(), seeds());
}

#[test]
fn churn_against_churn() {
    run_law(&laws::churn_against_churn(), &machine(), seeds());
}

#[test]
fn churn_by_batches() {
    let three = small::profile(Topology::flat(3), 1000);
    run_law(&laws::churn::bounded_churn(), &machine(), seeds());
    run_law(&laws::churn::bounded_pages_churn(), &three, seeds());
    run_law(&laws::churn::zone_lock_churn(), &three, seeds());
    run_law(&laws::churn::batched_drains_churn(), &three, seeds());
    run_law(&laws::churn::direct_churn(), &machine(), seeds());
    run_law(&laws::churn::bitmap_churn(), &three, seeds());
    run_law(&laws::churn::bitmap_splits(), &machine(), seeds());
}

#[test]
fn bulk_allocation_runs_out() {
    let law = laws::bulk::running_out_half_way();
    run_law(&law, &machine(), seeds());
}

#[test]
fn zones_that_change_their_size() {
    run_law(
        &laws::resizing::resizing_against_churn(),
        &machine(),
        seeds(),
    );
    run_law(
        &laws::resizing::resizing_with_bitmaps(),
        &machine(),
        seeds(),
    );
    run_law(
        &laws::resizing::shrinking_against_churn(),
        &machine(),
        seeds(),
    );
    run_law(&laws::resizing::two_resize(), &machine(), seeds());
    run_law(&laws::resizing::two_grow(), &machine(), seeds());
}

#[test]
fn memory_is_given_back() {
    run_law(
        &laws::resizing::reporting_against_churn(),
        &machine(),
        seeds(),
    );
    run_law(
        &laws::resizing::reporting_against_shrinking(),
        &machine(),
        seeds(),
    );
}

#[test]
fn a_drain_that_waits() {
    run_law(
        &laws::draining::waiting_drain_against_frees(),
        &machine(),
        seeds(),
    );
    run_law(
        &laws::draining::linux_drain_against_frees(),
        &machine(),
        seeds(),
    );
    run_law(
        &laws::draining::batched_drain_against_frees(),
        &machine(),
        seeds(),
    );
}

#[test]
fn a_spill_keeps_the_lists() {
    let keeps = laws::spilling::spill_that_keeps_the_lists();
    run_law(&keeps, &machine(), seeds());
}

#[test]
fn two_mobilities() {
    let stealing = laws::grouped::stealing_against_freeing();
    run_law(&stealing, &machine(), seeds());
    let claiming = laws::grouped::claiming_against_freeing();
    run_law(&claiming, &machine(), seeds());
}

#[test]
fn blocks_with_owners() {
    let three = small::profile(Topology::flat(3), 1000);
    let sending = laws::owning::sending_against_collecting();
    run_law(&sending, &machine(), seeds());
    let senders = laws::owning::two_senders_against_their_owner();
    run_law(&senders, &three, seeds());
    run_law(&laws::owning::inboxes_and_everything(), &three, seeds());
    run_law(&laws::owning::robbing_against_sending(), &three, seeds());
    run_law(&laws::owning::owner_locks_and_everything(), &three, seeds());
    let draining = laws::owning::draining_against_collecting();
    run_law(&draining, &machine(), seeds());
    let decaying = laws::owning::disowning_against_decaying();
    run_law(&decaying, &machine(), seeds());
    let one_page = laws::owning::disowning_against_one_page();
    run_law(&one_page, &machine(), seeds());
    let disowning = laws::owning::disowning_against_sending();
    run_law(&disowning, &three, seeds());
}

#[test]
fn double_free_is_refused() {
    run_law(&laws::double_free_is_refused(), &machine(), seeds());
}

#[test]
fn folding_against_counting() {
    run_law(&laws::folding_against_counting(), &machine(), seeds());
    let three = small::profile(Topology::flat(3), 1000);
    run_law(&laws::summing_while_it_wraps(), &three, seeds());
}

#[test]
fn the_shepherd_moves() {
    run_law(
        &laws::shepherd::shepherd_moves_on(),
        &small::profile(Topology::flat(3), 1000),
        seeds(),
    );
    run_law(
        &laws::shepherd::shepherd_moves_twice(),
        &small::profile(Topology::flat(3), 1000),
        seeds(),
    );
}

/// A refill may take several holds of the zone lock. It must acquire the lock only for holds that
/// move pages: once the refill has all the pages that it needs, it must not take the lock again.
#[test]
fn a_refill_takes_the_zone_lock_once_for_each_hold_that_moves_pages() {
    for holds in HOLDS {
        let design = Design {
            holds,
            ..Design::OURS
        };
        let small = Small::flat(1, 1 << 18, design);
        small.on(0, |sim, mm| {
            for _ in 0..2000 {
                let page = mm.pages().alloc(sim, any(Order::ZERO));
                page.expect("there is plenty");
            }
        });
        let moved = small.holds(Site::Refill);
        assert!(moved.len() > 5 && moved.iter().all(|&pages| pages > 0));
        let stats = small.sim.stats();
        let taken = stats.site(LockClass::Zone, Site::Refill).acquisitions;
        assert_eq!(taken, moved.len() as u64, "{holds:?}");
    }
}
