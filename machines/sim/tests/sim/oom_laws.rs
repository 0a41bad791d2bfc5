//! Checks the contracts (laws) of OOM kills, exits and the reaper on simulated CPUs, each law with
//! many seeds.

use crate::support;
use crate::support::law::run_law;

use plimsoll_mm::laws::oom;
use plimsoll_mm::topology::Topology;
use support::{seeds, small};

#[test]
fn two_kills_at_once() {
    let machine = small::profile(Topology::flat(2), 1000);
    run_law(&oom::two_kills_at_once(), &machine, seeds::chosen(200));
}

#[test]
fn two_shortages_at_once() {
    let machine = small::profile(Topology::flat(2), 1000);
    run_law(&oom::two_shortages_at_once(), &machine, seeds::chosen(200));
}

#[test]
fn kill_against_exit() {
    let machine = small::profile(Topology::flat(2), 1000);
    run_law(&oom::kill_against_exit(), &machine, seeds::chosen(200));
}

#[test]
fn exit_against_look() {
    let machine = small::profile(Topology::flat(2), 1000);
    run_law(&oom::exit_against_look(), &machine, seeds::chosen(200));
}

#[test]
fn reaper_against_exit() {
    let machine = small::profile(Topology::flat(3), 1000);
    run_law(&oom::reaper_against_exit(), &machine, seeds::chosen(200));
}
