//! Runs, on real threads, the laws about reclaim. A law is a contract that holds on every machine.

use plimsoll_mm::laws::{kswapd, reclaim};

use crate::support::law::run_law;

const ROUNDS: u32 = 500;

#[test]
fn reclaimed_while_touched() {
    run_law(&reclaim::reclaimed_while_touched(), 2, ROUNDS);
}

#[test]
fn reclaimed_while_unmapped() {
    run_law(&reclaim::reclaimed_while_unmapped(), 2, ROUNDS);
}

#[test]
fn reclaimed_while_exiting() {
    run_law(&reclaim::reclaimed_while_exiting(), 2, ROUNDS);
}

#[test]
fn reclaimed_by_two() {
    run_law(&reclaim::reclaimed_by_two(), 2, ROUNDS);
}

#[test]
fn reclaimed_by_two_while_used() {
    run_law(&reclaim::reclaimed_by_two_while_used(), 4, ROUNDS);
}

#[test]
fn reclaimed_by_two_while_dying() {
    run_law(&reclaim::reclaimed_by_two_while_dying(), 4, ROUNDS);
}

#[test]
fn asked_while_falling_asleep() {
    run_law(&kswapd::asked_while_falling_asleep(), 2, ROUNDS);
}

#[test]
fn asked_while_dozing() {
    run_law(&kswapd::asked_while_dozing(), 2, ROUNDS);
}

#[test]
fn enlisted_while_exiting() {
    run_law(&reclaim::enlisted_while_exiting(), 2, ROUNDS);
}
