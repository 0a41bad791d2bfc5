//! Runs, on real threads, the laws about counters. A law is a contract that holds on every machine.

use plimsoll_host::Host;
use plimsoll_mm::laws::Law;
use plimsoll_mm::laws::counter::{self, CPUS, Counted, Setup};
use plimsoll_mm::laws::{area, under_way};

use crate::support::law::run_law;

const ROUNDS: u32 = 1000;

fn run_each(law: impl Fn(Setup<Host>) -> Law<Host, Counted<Host>>) {
    for setup in counter::setups() {
        run_law(&law(setup), CPUS, ROUNDS);
    }
}

#[test]
fn nothing_is_lost() {
    run_each(counter::nothing_is_lost);
}

#[test]
fn going_and_returning() {
    for law in counter::going_and_returning() {
        run_law(&law, CPUS, ROUNDS);
    }
}

#[test]
fn looking_while_adding() {
    for setup in counter::setups() {
        for law in counter::looking_while_adding(setup) {
            run_law(&law, CPUS, ROUNDS);
        }
    }
}

#[test]
fn setting_while_adding() {
    run_each(counter::setting_while_adding);
}

#[test]
fn summing_while_it_wraps() {
    run_each(counter::summing_while_it_wraps);
}

#[test]
fn making_and_ending() {
    run_each(counter::making_and_ending);
}

#[test]
fn first_groups_at_once() {
    run_law(&area::first_groups_at_once(), CPUS, ROUNDS);
    run_law(&area::a_group_dropped_meanwhile(), CPUS, ROUNDS);
}

#[test]
fn growing_at_once() {
    run_law(&counter::growing_at_once(), CPUS, ROUNDS);
}

#[test]
fn one_addition_under_way() {
    run_law(&under_way::one_under_way(), CPUS, ROUNDS);
}
