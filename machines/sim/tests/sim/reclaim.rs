//! The laws of reclaim on virtual CPUs, each under many seeds.

use crate::support;
use crate::support::law::run_law;

use plimsoll_mm::laws::{Law, reclaim};
use plimsoll_mm::topology::Topology;
use plimsoll_sim::Sim;
use support::small;

fn run<S: 'static>(law: &Law<Sim, S>) {
    let machine = small::profile(Topology::flat(4), 1000);
    run_law(law, &machine, support::seeds::chosen(500));
}

#[test]
fn reclaimed_while_touched() {
    run(&reclaim::reclaimed_while_touched());
}

#[test]
fn reclaimed_while_unmapped() {
    run(&reclaim::reclaimed_while_unmapped());
}

#[test]
fn reclaimed_while_exiting() {
    run(&reclaim::reclaimed_while_exiting());
}

#[test]
fn reclaimed_by_two() {
    run(&reclaim::reclaimed_by_two());
}

#[test]
fn reclaimed_by_two_while_used() {
    run(&reclaim::reclaimed_by_two_while_used());
}

#[test]
fn reclaimed_by_two_while_dying() {
    run(&reclaim::reclaimed_by_two_while_dying());
}

#[test]
fn asked_while_falling_asleep() {
    run(&reclaim::asked_while_falling_asleep());
}

#[test]
fn asked_while_dozing() {
    run(&reclaim::asked_while_dozing());
}
