//! Tests the free lists with blocks that leave and come back: blocks whose memory is removed from
//! the zone, and blocks that are off their lists while their memory is returned to the host or
//! hypervisor.

use super::buddy::{Buddy, Stays, Visited};
use super::buddy_tests::{Known, grouped};
use super::links::Metadata;
use super::mobility::{Grouping, Mobility};
use super::tag;
use crate::machine::Tags;
use crate::units::{Order, Pages};

const KEPT: Mobility = Mobility::HighAtomic;
const MOVABLE: Mobility = Mobility::Movable;

/// A zone of 2048 free pages. Page block 0 is kept for atomic requests.
fn with_kept_block() -> (Buddy, Known) {
    let (mut buddy, known) = grouped(2048, Metadata::Eager, Grouping::Huge);
    let (frames, order) = (known.frames(), Order::ZERO);
    let page = buddy.take(frames, order, MOVABLE).expect("all is free");
    known.tags.set(page, tag::allocated(order));
    buddy.keep(frames, page, order, Order::HUGE.pages());
    buddy.give(frames, page, order);
    assert_eq!(known.types.of(0), KEPT, "the first page is taken first");
    (buddy, known)
}

#[test]
fn a_block_that_is_restored_has_its_types_and_a_block_that_is_added_is_movable() {
    let (mut buddy, known) = with_kept_block();
    let frames = known.frames();
    let mut records = None;
    let removed = buddy.remove_block(frames, 0, Pages::ZERO, &mut records);
    assert_eq!(removed, Ok(()));
    assert!(records.is_some(), "the memory of its links leaves the zone");
    assert_eq!(
        (buddy.kept(), buddy.free_kept()),
        (Pages::ZERO, Pages::ZERO)
    );
    assert_eq!(buddy.free(), Pages(1024));
    assert_eq!(buddy.obstacle(frames, 0), Err(Stays::Absent));

    buddy.restore_block(frames, 0, &mut records);
    assert!(records.is_none(), "the block has its links again");
    assert_eq!(buddy.kept(), Order::HUGE.pages());
    assert_eq!(buddy.free_kept(), Order::HUGE.pages());
    assert_eq!(buddy.blocks_of(Order::HUGE, KEPT), 1);
    assert_eq!(buddy.blocks_of(Order::HUGE, MOVABLE), 1);
    assert_eq!(buddy.free(), Pages(2048));

    let removed = buddy.remove_block(frames, 0, Pages::ZERO, &mut records);
    assert_eq!(removed, Ok(()));
    buddy.add_block(frames, 0, &mut records);
    assert_eq!(buddy.kept(), Pages::ZERO);
    assert_eq!(buddy.blocks_of(Order::MAX, MOVABLE), 2);
}

#[test]
fn a_block_given_back_is_used_last_beside_a_kept_block() {
    let (mut buddy, known) = with_kept_block();
    let frames = known.frames();
    // The block of the largest order at page 1024 is taken, and its upper half, from page 1536 on,
    // is freed again.
    let taken = buddy.take_up_to(frames, 1, KEPT);
    let (kept, _) = taken.expect("a kept page is free");
    known.tags.set(kept, tag::allocated(Order::ZERO));
    buddy.take_at(frames, 1024, Order::MAX);
    known.tags.set(1024, tag::allocated(Order::HUGE));
    buddy.give(frames, 1536, Order::HUGE);
    buddy.give(frames, kept, Order::ZERO);

    let mut visit = || buddy.visit(frames, 512, Pages::ZERO, Pages(2048));
    assert_eq!(visit(), Visited::Passed { pages: 512 });
    let Visited::Taken(block) = visit() else {
        panic!("the block was free in two visits");
    };
    buddy.put_back(frames, block, true);
    let next = buddy.take(frames, Order::HUGE, MOVABLE);
    assert_eq!(next, Some(1536), "the memory of page 512 was given back");
}
