//! The laws of the memory manager on virtual CPUs, each under many seeds.

use crate::support;
use crate::support::law::run_law;

use std::ops::Range;

use plimsoll_mm::laws;
use plimsoll_mm::topology::Topology;
use plimsoll_sim::profile::Profile;
use support::small;

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
    run_law(&laws::churn::direct_churn(), &machine(), seeds());
}

#[test]
fn two_mobilities() {
    let stealing = laws::grouped::stealing_against_freeing();
    run_law(&stealing, &machine(), seeds());
    let claiming = laws::grouped::claiming_against_freeing();
    run_law(&claiming, &machine(), seeds());
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
