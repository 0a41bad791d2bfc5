//! Tests decisions of the program that owns the processes. Notifiers free memory before a process
//! is killed. Processes that cannot use the nodes that are short of memory are spared.

use crate::support;

use plimsoll_mm::topology::NodeSet;
use plimsoll_mm::units::{Nanos, NodeId, Order};
use std::rc::Rc;
use support::OomWorld;
use support::oom_world::Setting;
use support::pressure::{grow, process};

const PAGES: u32 = 1 << 13;
/// The number of blocks in the cache. The cache can free them, so that no process need be killed.
const BLOCKS: u32 = 47;

fn pressed() -> Rc<OomWorld> {
    let setting = Setting {
        pages: PAGES,
        exits_after: Some(Nanos::from_ms(1)),
        ..Setting::default()
    };
    setting.world()
}

#[test]
fn who_can_give_memory_is_asked_before_anybody_dies() {
    let world = pressed();
    world.run(|sim, world| {
        process(sim, world, 1, 10);
        process(sim, world, 2, 1000);
        let blocks_of_64 = Order::new(6).expect("small");
        world
            .cache
            .fill(sim, world.small.mm.pages(), blocks_of_64, BLOCKS);
        // The process needs more pages than are free, but not more than the cache holds.
        assert_eq!(grow(sim, world, 1, 10, 6000), 6000);
    });
    assert_eq!(world.killed(), []);
    let left = world.cache.len();
    assert!((1..BLOCKS as usize).contains(&left), "{left} blocks left");
    world.run(|sim, world| {
        // The process needs more pages than the cache still has, so the other process is killed.
        assert_eq!(grow(sim, world, 2, 1000, 3000), 3000);
    });
    assert_eq!(world.killed(), [1]);
    assert_eq!(world.cache.len(), 0, "first it has given everything");
    world.ends();
}

#[test]
fn who_cannot_use_the_nodes_that_are_short_is_not_killed_for_them() {
    let node = |node| NodeSet::NONE.with(NodeId(node)).expect("a small number");
    let world = pressed();
    world.allowed.set(Some(node(0)));
    world.nodes.borrow_mut().push((2, node(1)));
    world.run(|sim, world| {
        process(sim, world, 1, 10);
        process(sim, world, 2, 3500);
        process(sim, world, 3, 3000);
        assert_eq!(grow(sim, world, 1, 10, 2500), 2500);
    });
    assert_eq!(world.killed(), [3], "the largest could not help");
    let reports = world.reports.borrow().clone();
    assert!(
        reports[0]
            .text
            .starts_with("oom-kill:constraint=CONSTRAINT_CPUSET,")
    );
    world.ends();
}
