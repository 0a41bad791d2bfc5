//! Checks the contracts (laws) of dying address spaces on simulated CPUs, each law with many seeds.

use crate::support;
use crate::support::law::run_law;

use plimsoll_mm::laws::{Law, frontier, reaping, touching};
use plimsoll_mm::topology::Topology;
use plimsoll_sim::Sim;
use support::small;

fn run<S: 'static>(law: &Law<Sim, S>) {
    let machine = small::profile(Topology::flat(4), 1000);
    run_law(law, &machine, support::seeds::chosen(500));
}

#[test]
fn meeting_in_the_middle() {
    run(&frontier::meeting_in_the_middle());
}

#[test]
fn handing_back() {
    run(&frontier::handing_back());
}

#[test]
fn leaving_a_rest() {
    run(&frontier::leaving_a_rest());
}

#[test]
fn coming_back_to_a_rest() {
    run(&frontier::coming_back_to_a_rest());
}

#[test]
fn two_helpers() {
    run(&frontier::two_helpers());
}

#[test]
fn helpers_come_and_go() {
    run(&frontier::helpers_come_and_go());
}

#[test]
fn exit_against_reaper() {
    run(&reaping::exit_against_reaper());
}

#[test]
fn exit_against_helpers() {
    run(&reaping::exit_against_helpers());
}

#[test]
fn exit_past_helpers() {
    run(&reaping::exit_past_helpers());
}

#[test]
fn two_exits() {
    run(&reaping::two_exits());
}

#[test]
fn exit_against_refusal() {
    run(&reaping::exit_against_refusal());
}

#[test]
fn touched_while_reaped() {
    run(&touching::touched_while_reaped());
}

#[test]
fn touched_while_unmapped() {
    run(&touching::touched_while_unmapped());
}

#[test]
fn touched_while_replaced() {
    run(&touching::touched_while_replaced());
}

#[test]
fn many_touched_while_reaped() {
    run(&touching::many_touched_while_reaped());
}

#[test]
fn many_touched_while_unmapped() {
    run(&touching::many_touched_while_unmapped());
}
