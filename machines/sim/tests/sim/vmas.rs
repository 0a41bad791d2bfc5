//! Checks the contracts (laws) for readers of the tree of mappings on simulated CPUs, each law with
//! many seeds.

use crate::support;
use crate::support::law::run_law;

use plimsoll_mm::laws;
use plimsoll_mm::topology::Topology;
use support::small;

#[test]
fn readers_against_moves() {
    let machine = small::profile(Topology::flat(2), 1000);
    run_law(
        &laws::readers_against_moves(),
        &machine,
        support::seeds::chosen(200),
    );
}

#[test]
fn readers_against_additions() {
    let machine = small::profile(Topology::flat(2), 1000);
    run_law(
        &laws::readers_against_additions(),
        &machine,
        support::seeds::chosen(200),
    );
}

#[test]
fn cursors_against_splits() {
    let machine = small::profile(Topology::flat(3), 1000);
    run_law(
        &laws::cursors_against_splits(),
        &machine,
        support::seeds::chosen(200),
    );
}
