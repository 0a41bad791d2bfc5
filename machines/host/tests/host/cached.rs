//! Runs, on real threads, the laws about the reclaim of file pages. A law is a contract that holds
//! on every machine.

use plimsoll_mm::laws::cached;

use crate::support::law::run_law;

const ROUNDS: u32 = 500;

#[test]
fn dropped_while_touched() {
    run_law(&cached::dropped_while_touched(), 2, ROUNDS);
}

#[test]
fn dropped_while_read() {
    run_law(&cached::dropped_while_read(), 2, ROUNDS);
}

#[test]
fn dropped_while_unmapped() {
    run_law(&cached::dropped_while_unmapped(), 2, ROUNDS);
}

#[test]
fn dropped_while_copied() {
    run_law(&cached::dropped_while_copied(), 2, ROUNDS);
}

#[test]
fn dropped_by_two() {
    run_law(&cached::dropped_by_two(), 2, ROUNDS);
}

#[test]
fn dropped_by_two_while_used() {
    run_law(&cached::dropped_by_two_while_used(), 4, ROUNDS);
}

#[test]
fn dropped_by_two_while_exiting() {
    run_law(&cached::dropped_by_two_while_exiting(), 3, ROUNDS);
}

#[test]
fn a_touched_page_has_a_second_chance() {
    run_law(&cached::a_touched_page_has_a_second_chance(), 2, ROUNDS);
}

#[test]
fn dropped_while_mapped() {
    run_law(&cached::dropped_while_mapped(), 2, ROUNDS);
}
