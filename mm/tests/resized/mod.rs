//! The law of the failing heap (whichever allocation from the heap fails, nothing panics and
//! nothing leaks) for zones that grow and shrink.

use plimsoll_mm::design::Design;
use plimsoll_mm::page::{Grouping, ResizeError};
use plimsoll_mm::units::{Order, Pages, Pfn};

use super::support::world::World;
use super::{GROUPED, churn, whichever_fails};

/// Removes half of the memory and adds it again, one block at a time.
fn resize(world: &World) {
    const BLOCK: Pages = Order::MAX.pages();
    let (machine, manager) = (&world.machine, &world.kept.manager);
    for first in [1, 3, 1, 3].map(|block| Pfn(block * BLOCK.0)) {
        churn(machine, manager.pages());
        if manager.memory_offline(machine, first, BLOCK).is_ok() {
            continue;
        }
        // The block could not be removed. If an earlier iteration has removed it, adding it again
        // can fail only for lack of memory. Otherwise the block is still present, so it cannot be
        // added.
        if let Err(why) = manager.memory_online(machine, first, BLOCK) {
            let expected = [ResizeError::NoMemory, ResizeError::Present(first)];
            assert!(expected.contains(&why), "{why}");
        }
    }
    churn(machine, manager.pages());
    machine.on(0);
}

#[test]
fn a_zone_that_cannot_grow_for_want_of_heap_stays_as_it_is() {
    for (design, grouping) in [(Design::LINUX, GROUPED), (Design::OURS, Grouping::Off)] {
        let needed = whichever_fails(4, design, grouping, resize);
        assert!(needed > 4, "records of pages come from the heap");
    }
}
