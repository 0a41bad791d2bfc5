//! Tests of the free lists: every result is compared with the simplest possible model, a set of
//! free pages.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

use proptest::prelude::*;

use super::buddy::{Buddy, Stays, Visited};
use super::layout::FreeIndex;
use super::links::Metadata;
use super::mobility::{BlockTypes, Frames, Grouping, Mobility};
use super::tag;
use crate::machine::Tags;
use crate::units::{Order, Pages, count_of};

/// The tags of a small test zone, one for each page. New tags have the values that [`Tags`]
/// requires.
pub(super) struct TestTags(Vec<Cell<u8>>);

impl TestTags {
    /// Creates the tags of a new zone of `pages` free pages.
    pub(super) fn new(pages: u32) -> Self {
        let head = |page: u32| {
            if page.is_multiple_of(1024) {
                Self::FRESH_HEAD
            } else {
                0
            }
        };
        Self((0..pages).map(|page| Cell::new(head(page))).collect())
    }
}

impl Tags for TestTags {
    fn get(&self, page: u32) -> u8 {
        self.0[page as usize].get()
    }
    fn set(&self, page: u32, tag: u8) {
        self.0[page as usize].set(tag);
    }
    fn replace(&self, page: u32, old: u8, new: u8) -> Result<(), u8> {
        let found = self.get(page);
        if found != old {
            return Err(found);
        }
        self.set(page, new);
        Ok(())
    }
}

/// What the free lists need to know about each page of a small test zone: its tag, and the type of
/// its page block.
pub(super) struct Known {
    pub(super) tags: TestTags,
    pub(super) types: BlockTypes<TestTags>,
}

impl Known {
    pub(super) fn frames(&self) -> Frames<'_, TestTags> {
        Frames {
            tags: &self.tags,
            types: &self.types,
        }
    }
}

/// Creates the free lists of a zone of `pages` free pages, and the zone's tags and page block
/// types.
pub(super) fn grouped(pages: u32, metadata: Metadata, grouping: Grouping) -> (Buddy, Known) {
    filled(pages, metadata, grouping, FreeIndex::Lists)
}

fn filled(pages: u32, metadata: Metadata, grouping: Grouping, index: FreeIndex) -> (Buddy, Known) {
    let known = Known {
        tags: TestTags::new(pages),
        types: BlockTypes::with(grouping, Pages(pages), |blocks| TestTags::new(blocks.0)),
    };
    let absent = vec![false; pages.div_ceil(1024) as usize];
    let mut buddy = Buddy::new(Pages(pages), metadata, absent, index);
    for page in (0..pages).step_by(1024) {
        if page + 1024 <= pages {
            buddy.give_fresh(page, known.types.of(page));
        } else {
            (page..pages).for_each(|at| known.tags.set(at, tag::HOLE));
            (page..pages).for_each(|at| buddy.give(known.frames(), at, Order::ZERO));
        }
    }
    (buddy, known)
}

fn zone(pages: u32, metadata: Metadata) -> (Buddy, Known) {
    grouped(pages, metadata, Grouping::Off)
}

/// The type of every page block when pages are not grouped.
const ANY: Mobility = Mobility::Unmovable;

/// Returns the number of free blocks of each order, if the pages of `free` are merged as far as
/// possible.
fn merged(free: &BTreeSet<u32>, pages: u32) -> [u32; Order::COUNT] {
    let mut left = free.clone();
    let mut blocks = [0; Order::COUNT];
    for order in Order::all().rev() {
        let size = order.pages().0;
        for head in (0..pages).step_by(size as usize) {
            if (head..head + size).all(|page| left.contains(&page)) {
                (head..head + size).for_each(|page| {
                    left.remove(&page);
                });
                blocks[order.index()] += 1;
            }
        }
    }
    blocks
}

#[derive(Clone, Debug)]
enum Op {
    Take(u8),
    Give(usize),
    /// Takes up to this number of single pages at once from the bitmaps. Does nothing in a zone
    /// that keeps its free pages on lists.
    TakePages(usize),
    /// Frees all allocated single pages to the bitmaps at once. Does nothing in a zone that keeps
    /// its free pages on lists.
    GivePages,
    /// Takes up to this number of huge blocks at once from the bitmaps. Does nothing in a zone that
    /// keeps its free pages on lists.
    TakeHuge(usize),
    /// Frees all allocated huge blocks to the bitmaps at once. Does nothing in a zone that keeps its
    /// free pages on lists.
    GiveHuge,
    /// Visits all huge blocks. Puts each block that a visit takes off its list back at once, with
    /// memory that was given back if this is true.
    Report(bool),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let take = (0u8..=10).prop_map(Op::Take);
    let give = any::<prop::sample::Index>().prop_map(|nth| Op::Give(nth.index(1 << 20)));
    let pages = (0usize..700).prop_map(Op::TakePages);
    let huge = (0usize..12).prop_map(Op::TakeHuge);
    let report = any::<bool>().prop_map(Op::Report);
    let runs = prop_oneof![pages, Just(Op::GivePages), huge, Just(Op::GiveHuge)];
    prop::collection::vec(
        prop_oneof![8 => take, 8 => give, 4 => runs, 1 => report],
        1..200,
    )
}

/// Removes the allocated blocks of `order` from `held`, and returns their first pages.
fn held_of(order: Order, held: &mut Vec<(u32, Order)>) -> Vec<u32> {
    let taken = held.extract_if(.., |block| block.1 == order);
    taken.map(|block| block.0).collect()
}

/// Visits all huge blocks. Puts each block that a visit takes off its list back at once.
fn report(buddy: &mut Buddy, known: &Known, pages: u32, is_given: bool) {
    for page in (0..pages).step_by(Order::HUGE.pages().index()) {
        let visited = buddy.visit(known.frames(), page, Pages::ZERO, Order::MAX.pages());
        if let Visited::Taken(block) = visited {
            buddy.put_back(known.frames(), block, is_given);
        }
    }
}

proptest! {
    #[test]
    fn blocks_are_disjoint_aligned_and_always_merged(
        ops in ops(),
        pages in 1u32..5000,
        lazily in any::<bool>(),
        index in prop_oneof![Just(FreeIndex::Lists), Just(FreeIndex::Bitmaps)],
    ) {
        let metadata = if lazily { Metadata::WhenSplit } else { Metadata::Eager };
        let (mut buddy, known) = filled(pages, metadata, Grouping::Off, index);
        let mut free: BTreeSet<u32> = (0..pages).collect();
        let mut held: Vec<(u32, Order)> = vec![];
        for op in ops {
            match op {
                Op::Take(order) => {
                    let order = Order::new(order).expect("up to 10");
                    let exists = merged(&free, pages)[order.index()..].iter().any(|&n| n > 0);
                    let taken = buddy.take(known.frames(), order, ANY);
                    prop_assert_eq!(taken.is_some(), exists, "a block is found when there is one");
                    if let Some(page) = taken {
                        known.tags.set(page, tag::allocated(order));
                        prop_assert_eq!(page % order.pages().0, 0);
                        for at in page..page + order.pages().0 {
                            prop_assert!(free.remove(&at), "page {} was free", at);
                        }
                        held.push((page, order));
                    }
                }
                Op::TakePages(most) if index == FreeIndex::Bitmaps => {
                    let mut out = vec![0; most];
                    let got = buddy.take_pages(&mut out);
                    prop_assert_eq!(got, most.min(free.len()), "all pages are found");
                    for &page in &out[..got] {
                        known.tags.set(page, tag::allocated(Order::ZERO));
                        prop_assert!(free.remove(&page), "page {} was free", page);
                        held.push((page, Order::ZERO));
                    }
                }
                Op::GivePages if index == FreeIndex::Bitmaps => {
                    let single = held_of(Order::ZERO, &mut held);
                    buddy.give_pages(&single);
                    free.extend(single);
                }
                Op::TakeHuge(most) if index == FreeIndex::Bitmaps => {
                    let there = merged(&free, pages);
                    let there = there[Order::HUGE.index()] + 2 * there[Order::MAX.index()];
                    let mut out = vec![0; most];
                    let got = buddy.take_huge(&mut out);
                    prop_assert_eq!(got, most.min(there as usize), "all huge blocks are found");
                    for &page in &out[..got] {
                        known.tags.set(page, tag::allocated(Order::HUGE));
                        for at in page..page + Order::HUGE.pages().0 {
                            prop_assert!(free.remove(&at), "page {} was free", at);
                        }
                        held.push((page, Order::HUGE));
                    }
                }
                Op::GiveHuge if index == FreeIndex::Bitmaps => {
                    let huge = held_of(Order::HUGE, &mut held);
                    buddy.give_huge(&huge);
                    free.extend(huge.iter().flat_map(|page| *page..page + Order::HUGE.pages().0));
                }
                Op::TakePages(_) | Op::GivePages | Op::TakeHuge(_) | Op::GiveHuge => {}
                Op::Report(is_given) => report(&mut buddy, &known, pages, is_given),
                Op::Give(nth) if !held.is_empty() => {
                    let (page, order) = held.swap_remove(nth % held.len());
                    buddy.give(known.frames(), page, order);
                    free.extend(page..page + order.pages().0);
                }
                Op::Give(_) => {}
            }
            prop_assert_eq!(buddy.free().index(), free.len());
            let blocks: Vec<u32> = Order::all().map(|order| buddy.blocks(order)).collect();
            let expected = merged(&free, pages);
            prop_assert_eq!(blocks, expected.to_vec());
            let largest = expected.iter().rposition(|&count| count > 0);
            for order in Order::all() {
                let has = largest.is_some_and(|largest| largest >= order.index());
                prop_assert_eq!(buddy.has(order), has);
                prop_assert_eq!(buddy.blocks_of(order, ANY), buddy.blocks(order), "one type");
            }
        }
    }
}

/// The zone gets pages that it has already, in a huge block that is partly free or free as a whole,
/// one by one or as neighbours, or a page twice at once.
#[test]
fn pages_that_are_free_are_dropped() {
    for is_whole in [false, true] {
        let (mut buddy, known) = filled(1024, Metadata::Eager, Grouping::Off, FreeIndex::Bitmaps);
        let mut held = vec![0; 130];
        assert_eq!(buddy.take_pages(&mut held), 130);
        held.sort_unstable();
        let last = held.split_off(if is_whole { 130 } else { 129 });
        assert_eq!(buddy.give_pages(&held), count_of(held.len()));
        let free = buddy.free();
        for pages in [&held[..1], &held[60..70], &[held[3], held[80], held[4]]] {
            assert_eq!(buddy.give_pages(pages), 0, "{pages:?}");
        }
        assert_eq!(buddy.give_neighbours(held[0], 129), 0);
        assert_eq!(buddy.free(), free);
        if let [last] = last[..] {
            assert_eq!(
                buddy.give_pages(&[last, last - 1, last]),
                1,
                "only the last is new"
            );
        }
        assert_eq!(buddy.free(), Pages(1024));
        assert_eq!(buddy.take(known.frames(), Order::MAX, ANY), Some(0));
    }
}

#[test]
fn a_block_that_will_soon_merge_goes_to_the_tail() {
    let (mut buddy, known) = zone(1024, Metadata::Eager);
    let pages: Vec<u32> = (0..8)
        .filter_map(|_| buddy.take(known.frames(), Order::ZERO, ANY))
        .collect();
    assert_eq!(pages, [0, 1, 2, 3, 4, 5, 6, 7]);
    pages
        .iter()
        .for_each(|&page| known.tags.set(page, tag::allocated(Order::ZERO)));
    // Pages 4 and 5 would form a pair whose buddy, pages 6 and 7, is allocated. So page 5 is not
    // likely to merge further, and goes to the head of its list.
    buddy.give(known.frames(), 5, Order::ZERO);
    // Pages 0 and 1 merge. Page 2 is then likely to become part of a larger block soon, so it goes
    // to the tail of its list.
    buddy.give(known.frames(), 0, Order::ZERO);
    buddy.give(known.frames(), 1, Order::ZERO);
    buddy.give(known.frames(), 2, Order::ZERO);
    assert_eq!(buddy.take(known.frames(), Order::ZERO, ANY), Some(5));
    assert_eq!(buddy.take(known.frames(), Order::ZERO, ANY), Some(2));
}

#[test]
fn a_split_puts_upper_halves_at_the_heads() {
    let (mut buddy, known) = zone(2048, Metadata::WhenSplit);
    assert_eq!(buddy.take(known.frames(), Order::ZERO, ANY), Some(0));
    let blocks: Vec<u32> = Order::all().map(|order| buddy.blocks(order)).collect();
    assert_eq!(blocks, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(buddy.take(known.frames(), Order::HUGE, ANY), Some(512));
}

/// Creates the free pages of a zone of `pages` pages that keeps small free blocks in bitmaps.
fn in_bitmaps(pages: u32) -> (Buddy, Known) {
    filled(pages, Metadata::Eager, Grouping::Off, FreeIndex::Bitmaps)
}

/// Takes a block of each of these orders, and asserts that it is at the page given.
fn take_each(buddy: &mut Buddy, known: &Known, blocks: &[(u8, u32)]) {
    for &(order, page) in blocks {
        let order = Order::new(order).expect("at most 10");
        let taken = buddy.take(known.frames(), order, ANY);
        assert_eq!(taken, Some(page), "order {}", order.get());
        known.tags.set(page, tag::allocated(order));
    }
}

/// Two huge blocks are split. The block whose largest free block is smaller serves the request, so
/// the larger free block stays whole.
#[test]
fn bitmaps_serve_a_request_from_the_smallest_block_that_suffices() {
    let (mut buddy, known) = in_bitmaps(4096);
    take_each(
        &mut buddy,
        &known,
        &[(0, 0), (8, 256), (8, 512), (0, 1), (8, 768)],
    );
}

/// Several split huge blocks have a largest free block of the same order. The one from which pages
/// were taken last is used next. One of which pages were freed is used last, so that more of its
/// pages can be freed meanwhile.
#[test]
fn bitmaps_use_up_a_huge_block_before_they_use_one_that_fills() {
    let seven = Order::new(7).expect("at most 10");
    let eight = Order::new(8).expect("at most 10");
    let split = [(0, 0), (8, 256), (8, 512), (8, 768)];
    let (mut buddy, known) = in_bitmaps(4096);
    take_each(&mut buddy, &known, &split);
    buddy.give(known.frames(), 512, seven);
    take_each(&mut buddy, &known, &[(7, 128), (7, 512)]);

    let (mut buddy, known) = in_bitmaps(4096);
    take_each(&mut buddy, &known, &split);
    buddy.give(known.frames(), 256, eight);
    buddy.give(known.frames(), 512, seven);
    take_each(&mut buddy, &known, &[(8, 256), (7, 128), (7, 512)]);
}

/// Only some pages of a huge block are free, so the huge block does not merge with its free buddy.
/// This holds already before the caller has set the tags of the pages that it has taken, because the
/// caller does so without the zone lock.
#[test]
fn a_huge_block_that_was_split_into_bits_does_not_merge() {
    let (mut buddy, known) = in_bitmaps(1024);
    take_each(&mut buddy, &known, &[(9, 0), (9, 512)]);
    buddy.give(known.frames(), 0, Order::HUGE);
    let mut page = [u32::MAX];
    assert_eq!((buddy.take_pages(&mut page), page), (1, [0]));
    buddy.give(known.frames(), 512, Order::HUGE);
    assert_eq!(buddy.free(), Pages(1023));
    assert_eq!(buddy.blocks(Order::HUGE), 1);
    assert_eq!(buddy.blocks(Order::MAX), 0);
}

/// A free page in a bitmap does not keep a block from being removed. The first page in use does.
#[test]
fn a_free_page_in_a_bitmap_is_no_obstacle() {
    let (mut buddy, known) = in_bitmaps(1024);
    take_each(&mut buddy, &known, &[(0, 0), (0, 1)]);
    buddy.give(known.frames(), 0, Order::ZERO);
    let tag = tag::allocated(Order::ZERO);
    let used = Err(Stays::Used { page: 1, tag });
    assert_eq!(buddy.obstacle(known.frames(), 0), used);
}
