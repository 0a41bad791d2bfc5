//! Checks the contracts (laws) of reclaim for pages of files on simulated CPUs, each law with many
//! seeds.

use crate::support;
use crate::support::law::run_law;

use plimsoll_mm::laws::{Law, cached};
use plimsoll_mm::topology::Topology;
use plimsoll_sim::Sim;
use support::small;

fn run<S: 'static>(law: &Law<Sim, S>) {
    let machine = small::profile(Topology::flat(4), 1000);
    run_law(law, &machine, support::seeds::chosen(500));
}

/// Runs a law (a contract that tests check) under three seeds only: all its steps run on a single
/// CPU, so there are no interleavings.
fn run_few<S: 'static>(law: &Law<Sim, S>) {
    let machine = small::profile(Topology::flat(4), 1000);
    run_law(law, &machine, 0..3);
}

#[test]
fn dropped_while_touched() {
    run(&cached::dropped_while_touched());
}

#[test]
fn dropped_while_read() {
    run(&cached::dropped_while_read());
}

#[test]
fn dropped_while_unmapped() {
    run(&cached::dropped_while_unmapped());
}

#[test]
fn dropped_while_copied() {
    run(&cached::dropped_while_copied());
}

#[test]
fn dropped_by_two() {
    run(&cached::dropped_by_two());
}

#[test]
fn dropped_by_two_while_used() {
    run(&cached::dropped_by_two_while_used());
}

#[test]
fn dropped_by_two_while_exiting() {
    run(&cached::dropped_by_two_while_exiting());
}

#[test]
fn a_touched_page_has_a_second_chance() {
    run(&cached::a_touched_page_has_a_second_chance());
}

#[test]
fn dropped_while_mapped() {
    run(&cached::dropped_while_mapped());
}

#[test]
fn used_pages_become_active() {
    run(&cached::used_pages_become_active());
}

#[test]
fn a_touch_is_remembered() {
    run_few(&cached::a_touch_is_remembered());
}

#[test]
fn inactive_pages_begin_untouched() {
    run_few(&cached::inactive_pages_begin_untouched());
}
