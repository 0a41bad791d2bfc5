//! Decisions of the owner of the processes: which notifiers free memory before a process is killed,
//! and which processes are spared because they cannot use the nodes that are short of memory.

use crate::support;

use plimsoll_mm::oom::{Patience, Rules};
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::topology::NodeSet;
use plimsoll_mm::units::{Nanos, NodeId};
use plimsoll_sim::SimOptions;
use std::rc::Rc;
use support::OomWorld;
use support::oom_world::Pressure;
use support::pressure::{grow, killed, process};

const PAGES: u32 = 1 << 13;

fn pressed() -> Rc<OomWorld> {
    OomWorld::pressed(
        SimOptions::default(),
        Reaping::MeetInTheMiddle,
        Some(Nanos::from_ms(1)),
        Patience::LINUX,
        Pressure {
            pages: PAGES,
            rules: Rules::default(),
        },
    )
}

#[test]
fn who_can_give_memory_is_asked_before_anybody_dies() {
    let world = pressed();
    world.run(|sim, world| {
        process(sim, world, 1, 10);
        process(sim, world, 2, 1000);
        world.balloon.inflate(sim, world.small.mm.pages(), 3000);
        // The process needs more pages than are free, but not more than the balloon holds.
        assert_eq!(grow(sim, world, 1, 10, 6000), 6000);
    });
    assert_eq!(killed(&world), []);
    let left = world.balloon.len();
    assert!((1..3000).contains(&left), "{left} pages in the balloon");
    world.run(|sim, world| {
        // The pages that remain in the balloon are not enough.
        assert_eq!(grow(sim, world, 2, 1000, 3000), 3000);
    });
    assert_eq!(killed(&world), [1]);
    assert_eq!(world.balloon.len(), 0, "first it has given everything");
    world.ends();
}

#[test]
fn who_cannot_use_the_nodes_that_are_short_is_not_killed_for_them() {
    let node = |node| NodeSet::NONE.with(NodeId(node)).expect("a small number");
    let world = pressed();
    let owner = world.oom.owner();
    owner.allowed.set(Some(node(0)));
    owner.nodes.borrow_mut().push((2, node(1)));
    world.run(|sim, world| {
        process(sim, world, 1, 10);
        process(sim, world, 2, 3500);
        process(sim, world, 3, 3000);
        assert_eq!(grow(sim, world, 1, 10, 2500), 2500);
    });
    assert_eq!(killed(&world), [3], "the largest could not help");
    let reports = world.oom.owner().reports.borrow().clone();
    assert!(
        reports[0]
            .text
            .starts_with("oom-kill:constraint=CONSTRAINT_CPUSET,")
    );
    world.ends();
}
