//! Tests the free lists with grouping by mobility against a model that checks every page.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use proptest::prelude::*;

use super::buddy::{Buddy, RmqueueMode, Wanted};
use super::buddy_tests::{Known, grouped};
use super::carve::Piece;
use super::links::Metadata;
use super::mobility::{Grouping, Mobility};
use super::tag;
use crate::machine::Tags;
use crate::units::{Order, Pages};

/// A count of free blocks, by order and type.
type Counts = BTreeMap<(Order, Mobility), u32>;

/// Free lists together with a model of the same zone: its free pages and the blocks that the test
/// holds.
struct World {
    buddy: Buddy,
    known: Known,
    block: Order,
    free: BTreeSet<u32>,
    held: Vec<(u32, Order)>,
    pages: u32,
}

impl World {
    fn new(pages: u32, grouping: Grouping) -> Self {
        let (buddy, known) = grouped(pages, Metadata::Eager, grouping);
        Self {
            buddy,
            known,
            block: grouping.block().expect("grouped"),
            free: (0..pages).collect(),
            held: Vec::new(),
            pages,
        }
    }

    fn types(&self) -> Vec<Mobility> {
        let blocks = (0..self.pages).step_by(self.block.pages().0 as usize);
        blocks.map(|page| self.known.types.of(page)).collect()
    }

    /// The expected free blocks: merged as far as possible, each with the type of the page block
    /// around its first page.
    fn expected(&self) -> Counts {
        let mut left = self.free.clone();
        let mut counts = Counts::new();
        for order in Order::all().rev() {
            let size = order.pages().0;
            for head in (0..self.pages).step_by(size as usize) {
                if (head..head + size).all(|page| left.contains(&page)) {
                    (head..head + size).for_each(|page| {
                        left.remove(&page);
                    });
                    *counts
                        .entry((order, self.known.types.of(head)))
                        .or_default() += 1;
                }
            }
        }
        counts
    }

    fn counts(&self) -> Counts {
        let all = Order::all().flat_map(|order| Mobility::ALL.map(|mobility| (order, mobility)));
        all.map(|key| (key, self.buddy.blocks_of(key.0, key.1)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    fn take(&mut self, order: u8, mobility: Mobility, mode: &mut RmqueueMode) -> Option<u32> {
        self.take_as(order, mobility, false, mode)
    }

    fn take_as(
        &mut self,
        order: u8,
        mobility: Mobility,
        unmixed: bool,
        mode: &mut RmqueueMode,
    ) -> Option<u32> {
        let order = Order::new(order).expect("up to 10");
        let wanted = Wanted {
            order,
            mobility,
            unmixed,
        };
        let page = self.buddy.take_wanted(self.known.frames(), wanted, mode)?;
        self.known.tags.set(page, tag::handed_out(order, mobility));
        for at in page..page + order.pages().0 {
            assert!(self.free.remove(&at), "page {at} was free");
        }
        self.held.push((page, order));
        Some(page)
    }

    fn give(&mut self, page: u32) {
        let at = self.held.iter().position(|held| held.0 == page);
        let (page, order) = self.held.swap_remove(at.expect("it is held"));
        self.buddy.give(self.known.frames(), page, order);
        self.free.extend(page..page + order.pages().0);
    }

    /// Allocates all pages of the zone as single pages of `mobility`.
    fn fill(&mut self, mobility: Mobility) {
        while self
            .take(0, mobility, &mut RmqueueMode::default())
            .is_some()
        {}
    }
}

#[derive(Clone, Debug)]
enum Op {
    Take(u8, Mobility, bool),
    Give(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let order = prop_oneof![4 => 0u8..=3, 2 => 4u8..=8, 1 => 9u8..=10];
    let mobility = prop::sample::select(Mobility::OF_REQUESTS.to_vec());
    let take = (order, mobility, any::<bool>())
        .prop_map(|(order, mobility, unmixed)| Op::Take(order, mobility, unmixed));
    let give = any::<prop::sample::Index>().prop_map(|nth| Op::Give(nth.index(1 << 20)));
    prop::collection::vec(prop_oneof![3 => take, 2 => give], 1..120)
}

/// Checks the result of an allocation against the rules of grouping by mobility: which list must be
/// used, and when a page block may change its type. `before` and `types` are the free blocks and
/// the page blocks' types before the allocation.
fn check_take(
    before: &Counts,
    types: &[Mobility],
    world: &World,
    op: (u8, Mobility, bool),
    got: Option<u32>,
) {
    let (order, mobility, unmixed) = op;
    let order = Order::new(order).expect("small");
    let has = |least: Order, is: &dyn Fn(Mobility) -> bool| {
        let fits = |(&(order, of), _): (&(Order, Mobility), _)| order >= least && is(of);
        before.iter().any(fits)
    };
    let changed = types != world.types();
    let whole = world.block.max(order);
    let Some(page) = got else {
        assert!(!has(order, &|of| of == mobility), "its own list had one");
        assert!(unmixed || !has(order, &|_| true), "others had one");
        assert!(!has(whole, &|_| true), "a whole block can be claimed");
        return;
    };
    let of = types[(page >> world.block.get()) as usize];
    if has(order, &|of| of == mobility) {
        assert!(!changed && of == mobility, "its own list comes first");
        return;
    }
    if changed {
        let new = world.types();
        let kept = |(old, new): (&Mobility, &Mobility)| old == new || *new == mobility;
        assert!(
            types.iter().zip(&new).all(kept),
            "blocks change to the type wanted"
        );
        assert_eq!(world.known.types.of(page), mobility);
    } else {
        assert!(!unmixed && of != mobility, "stolen");
        assert!(!has(whole, &|_| true), "a whole block would be claimed");
        let least = before.keys().filter(|key| key.0 >= order).map(|key| key.0);
        let least = least.min().expect("there was one");
        let first = mobility.fallbacks().into_iter();
        let first = first.clone().find(|of| before.contains_key(&(least, *of)));
        assert_eq!(Some(of), first, "of the smallest size, by preference");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn lists_by_type_are_disjoint_merged_and_follow_the_rules(
        ops in ops(),
        blocks in 1u32..4,
        huge in any::<bool>(),
    ) {
        let grouping = if huge { Grouping::Huge } else { Grouping::Largest };
        let mut world = World::new(blocks * 1024, grouping);
        for op in ops {
            match op {
                Op::Take(order, mobility, unmixed) => {
                    let (before, types) = (world.counts(), world.types());
                    let mode = &mut RmqueueMode::default();
                    let got = world.take_as(order, mobility, unmixed, mode);
                    check_take(&before, &types, &world, (order, mobility, unmixed), got);
                }
                Op::Give(nth) if !world.held.is_empty() => {
                    let page = world.held[nth % world.held.len()].0;
                    world.give(page);
                }
                Op::Give(_) => {}
            }
            prop_assert_eq!(world.buddy.free().index(), world.free.len());
            prop_assert_eq!(world.counts(), world.expected());
        }
    }
}

const UNMOVABLE: Mobility = Mobility::Unmovable;
const MOVABLE: Mobility = Mobility::Movable;
const RECLAIMABLE: Mobility = Mobility::Reclaimable;

/// Creates a zone of one block of 1024 pages. Its `free` lowest pages are free, and the others are
/// allocated as single movable pages.
fn one_block(free: u32) -> World {
    let mut world = World::new(1024, Grouping::Largest);
    world.fill(MOVABLE);
    (0..free).for_each(|page| world.give(page));
    world
}

#[test]
fn a_whole_block_changes_its_type_and_the_rest_of_it_serves_what_follows() {
    let mut world = World::new(2048, Grouping::Huge);
    let mode = &mut RmqueueMode::default();
    assert_eq!(world.take(0, UNMOVABLE, mode), Some(0));
    // The whole free block of order 10 is claimed, so both of its page blocks change their type.
    assert_eq!(world.types(), [UNMOVABLE, UNMOVABLE, MOVABLE, MOVABLE]);
    assert_eq!(world.take(0, UNMOVABLE, mode), Some(1));
    assert_eq!(*mode, RmqueueMode::Normal, "a claim forgets the stages");
    assert_eq!(world.take(3, MOVABLE, mode), Some(1024));
}

#[test]
fn a_block_is_claimed_from_half_of_its_pages_on() {
    // Fewer than half of the 1024 pages are free: 511. The movable pages do not count, because they
    // are not compatible with an unmovable request. So the request does not claim the page block,
    // but steals a page from it.
    let mut world = one_block(511);
    let mode = &mut RmqueueMode::default();
    assert!(world.take(0, UNMOVABLE, mode).is_some());
    assert_eq!(
        (world.types(), *mode),
        ([MOVABLE].to_vec(), RmqueueMode::Steal)
    );
    // Half of the pages are free: 512. So the request claims the page block.
    let mut world = one_block(512);
    let mode = &mut RmqueueMode::default();
    assert_eq!(world.take(0, UNMOVABLE, mode), Some(0));
    assert_eq!(
        (world.types(), *mode),
        ([UNMOVABLE].to_vec(), RmqueueMode::Normal)
    );
}

#[test]
fn pages_that_neither_move_nor_are_free_count_for_an_unmovable_request() {
    let mut world = one_block(64);
    // Change the tags of all pages in use, as if they had been allocated for requests that are not
    // movable.
    for &(page, order) in &world.held {
        world.known.tags.set(page, tag::allocated(order));
    }
    assert!(
        world
            .take(0, RECLAIMABLE, &mut RmqueueMode::default())
            .is_some()
    );
    assert_eq!(world.types(), [RECLAIMABLE]);
    // The page block is reclaimable now. The pages in use in a reclaimable block are not compatible
    // with an unmovable request, so this request does not claim the block.
    assert!(
        world
            .take(0, UNMOVABLE, &mut RmqueueMode::default())
            .is_some()
    );
    assert_eq!(world.types(), [RECLAIMABLE]);
}

#[test]
fn movable_pages_are_alike_for_a_movable_request() {
    let mut world = World::new(1024, Grouping::Largest);
    world.fill(UNMOVABLE);
    // The lowest 32 pages form one free block of order 5, half the order of the page block. Of the
    // other pages, first 479 and then 480 are tagged as movable. Only with 480 is half of the page
    // block free or movable, so that a movable request claims it.
    (0..32).for_each(|page| world.give(page));
    let movable = |world: &World, count: u32| {
        (32..1024).for_each(|page| {
            let tag = if page < 32 + count {
                MOVABLE
            } else {
                UNMOVABLE
            };
            world
                .known
                .tags
                .set(page, tag::handed_out(Order::ZERO, tag));
        });
    };
    movable(&world, 479);
    assert!(
        world
            .take(0, MOVABLE, &mut RmqueueMode::default())
            .is_some()
    );
    assert_eq!(world.types(), [UNMOVABLE], "511 of 1024 are too few");
    let (page, _) = *world.held.last().expect("just taken");
    world.give(page);
    movable(&world, 480);
    assert!(
        world
            .take(0, MOVABLE, &mut RmqueueMode::default())
            .is_some()
    );
    assert_eq!(world.types(), [MOVABLE]);
}

#[test]
fn for_a_movable_request_only_large_pieces_are_claimed() {
    let mut world = World::new(1024, Grouping::Largest);
    world.fill(UNMOVABLE);
    // Every second run of 16 pages is free. That is half of the page block, but no free block has
    // half the page block's order, 5. So a movable request steals pages and leaves the block's
    // type.
    let free = |page: &u32| page & 16 == 0;
    (0..1024).filter(free).for_each(|page| world.give(page));
    assert!(
        world
            .take(0, MOVABLE, &mut RmqueueMode::default())
            .is_some()
    );
    assert_eq!(world.types(), [UNMOVABLE], "stolen");
    assert!(
        world
            .take(0, RECLAIMABLE, &mut RmqueueMode::default())
            .is_some()
    );
    assert_eq!(world.types(), [UNMOVABLE], "511 free, and none alike");
}

#[test]
fn a_hold_that_stole_once_goes_on_stealing() {
    let mut world = one_block(511);
    let mode = &mut RmqueueMode::default();
    assert!(world.take(0, UNMOVABLE, mode).is_some());
    // More than half of the page block is free now. A request in a new hold of the zone lock would
    // claim the page block, but `mode` says that this hold has already stolen pages.
    let back: Vec<u32> = world.held.iter().map(|held| held.0).take(400).collect();
    back.into_iter().for_each(|page| world.give(page));
    assert!(world.take(0, UNMOVABLE, mode).is_some());
    assert_eq!(world.types(), [MOVABLE]);
    assert!(
        world
            .take(0, UNMOVABLE, &mut RmqueueMode::default())
            .is_some()
    );
    assert_eq!(world.types(), [UNMOVABLE]);
}

#[test]
fn a_request_that_stays_unmixed_takes_whole_blocks_or_nothing() {
    let mut world = one_block(512);
    let mode = &mut RmqueueMode::default();
    assert_eq!(world.take_as(0, UNMOVABLE, true, mode), None);
    let mut world = World::new(1024, Grouping::Huge);
    assert_eq!(world.take_as(0, UNMOVABLE, true, mode), Some(0));
    assert_eq!(world.types(), [UNMOVABLE, UNMOVABLE]);
}

#[test]
fn of_two_blocks_that_merge_the_one_freed_last_gives_the_type() {
    let mut world = World::new(1024, Grouping::Huge);
    let mode = &mut RmqueueMode::default();
    assert_eq!(world.take(9, MOVABLE, mode), Some(0));
    assert_eq!(world.take(9, UNMOVABLE, mode), Some(512));
    assert_eq!(world.types(), [MOVABLE, UNMOVABLE]);
    world.give(512);
    world.give(0);
    assert_eq!(world.types(), [MOVABLE, MOVABLE]);
    assert_eq!(world.buddy.blocks_of(Order::MAX, MOVABLE), 1);
}

#[test]
fn kept_blocks_stay_apart_until_they_are_given_up() {
    let mut world = World::new(1024, Grouping::Huge);
    let kept = Mobility::HighAtomic;
    let frames = world.known.frames();
    let order = Order::new(1).expect("small");
    let page = world.buddy.take(frames, order, MOVABLE).expect("free");
    world.known.tags.set(page, tag::allocated(order));
    let most = order.pages().max(Order::HUGE.pages());
    world.buddy.keep(frames, page, order, most);
    assert_eq!(world.known.types.of(page), kept);
    assert_eq!(world.buddy.free_kept().0, 510);
    // Keeping a second block for atomic requests would exceed `most`, so it is not kept. When the
    // pages of the first block are freed, they do not merge with the second block, because that one
    // is not kept.
    world.buddy.keep(frames, 512, order, most);
    assert_eq!(world.buddy.kept(), Order::HUGE.pages());
    world.buddy.give(frames, page, order);
    assert_eq!(world.buddy.blocks_of(Order::HUGE, kept), 1);
    assert_eq!(world.buddy.blocks_of(Order::HUGE, MOVABLE), 1);
    // The last block kept for atomic requests stays kept unless the caller allows all to be
    // unreserved.
    assert!(!world.buddy.unkeep(frames, RECLAIMABLE, false));
    assert!(world.buddy.unkeep(frames, RECLAIMABLE, true));
    assert_eq!(world.buddy.free_kept().0, 0);
    assert_eq!(world.known.types.of(page), RECLAIMABLE);
    assert_eq!(world.buddy.free().0, 1024);
}

#[test]
fn a_kept_block_that_serves_again_is_counted_once() {
    let mut world = World::new(2048, Grouping::Huge);
    let frames = world.known.frames();
    let order = Order::new(1).expect("small");
    let most = Pages(2048);
    let page = world.buddy.take(frames, order, MOVABLE).expect("free");
    world.known.tags.set(page, tag::allocated(order));
    world.buddy.keep(frames, page, order, most);
    let kept = Mobility::HighAtomic;
    let again = world.buddy.take(frames, order, kept).expect("kept pages");
    world.known.tags.set(again, tag::allocated(order));
    world.buddy.keep(frames, again, order, most);
    assert_eq!(world.buddy.kept(), Order::HUGE.pages());
    assert_eq!(world.buddy.free_kept().0, 508);
}

#[test]
fn free_pages_of_kept_blocks_are_counted() {
    let mut world = World::new(1024, Grouping::Huge);
    let (frames, mobility) = (world.known.frames(), Mobility::HighAtomic);
    let page = world.buddy.take(frames, Order::MAX, MOVABLE).expect("free");
    world.known.tags.set(page, tag::allocated(Order::MAX));
    world.buddy.keep(frames, page, Order::MAX, Pages(1024));
    world.buddy.give(frames, page, Order::MAX);
    assert_eq!(world.buddy.free_kept(), Pages(1024));
    assert!(world.buddy.unkeep(frames, MOVABLE, true));
    assert_eq!(world.buddy.free_kept(), Pages(0));
    let page = world.buddy.take(frames, Order::MAX, MOVABLE).expect("free");
    let order = Order::ZERO;
    let piece = Piece {
        page,
        order,
        mobility,
    };
    world.buddy.lay_out(frames, &[piece]);
    assert_eq!(world.buddy.free_kept(), Pages(1));
}

/// A block larger than a page block may have parts of different types: a CPU's list holds blocks of
/// 512 pages, and two of them may be joined on their way to the zone.
#[test]
fn each_part_of_a_block_larger_than_a_page_block_is_freed_by_its_own_type() {
    let half = Order::HUGE;
    for (lower, upper, expected) in [
        // The parts merge. The merged block has the type of the part that is freed last.
        (
            Mobility::Movable,
            Mobility::Unmovable,
            &[(Order::MAX, Mobility::Unmovable)][..],
        ),
        (
            Mobility::Unmovable,
            Mobility::Movable,
            &[(Order::MAX, Mobility::Movable)],
        ),
        // A part that is kept for atomic requests merges with no other type.
        (
            Mobility::HighAtomic,
            Mobility::Movable,
            &[(half, Mobility::Movable), (half, Mobility::HighAtomic)],
        ),
        (
            Mobility::Movable,
            Mobility::HighAtomic,
            &[(half, Mobility::Movable), (half, Mobility::HighAtomic)],
        ),
    ] {
        let mut world = World::new(1024, Grouping::Huge);
        let taken = world.take(10, Mobility::Movable, &mut RmqueueMode::default());
        assert_eq!(taken, Some(0));
        world.known.types.set(0, half, lower);
        world.known.types.set(512, half, upper);
        world.give(0);
        let expected = expected.iter().map(|&block| (block, 1)).collect();
        assert_eq!(world.counts(), expected, "{lower:?}, {upper:?}");
        let kept = [lower, upper].contains(&Mobility::HighAtomic);
        assert_eq!(
            world.buddy.free_kept(),
            Pages(if kept { 512 } else { 0 }),
            "{lower:?}, {upper:?}"
        );
    }
}
