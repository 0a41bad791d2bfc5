//! The free lists of one zone: blocks of 1 to 1024 pages, split on demand and merged when freed.
//!
//! A free block's buddy of the same order is never free, because the two would have been merged. So
//! when all blocks have been freed, the zone is whole again. If free pages could form a block of
//! some order, there is a free block of at least that order. (If pages are grouped by mobility, a
//! block kept for atomic requests does not merge with others.)
//!
//! There is a list for each order and mobility. A free block is on the list for the type of the
//! page block around it. Page numbers here are relative to the zone's first page.
//!
//! Locks: a `&mut Buddy` exists only while its zone's lock is held. Tags of free pages change only
//! under that lock.

mod bitmaps;
mod fallback;
mod list;
mod report;
mod reserve;
mod resize;
mod runs;
mod whole;

use self::bitmaps::Bitmaps;
pub(super) use self::fallback::{RmqueueMode, Wanted};
use self::list::{End, List};
use self::report::Ages;
pub(super) use self::report::{Isolated, Visited};
pub(super) use self::resize::{Stays, absent_blocks};
use self::whole::Backing;
use alloc::vec::Vec;

use super::carve::Piece;
use super::layout::FreeIndex;
use super::links::{Links, Metadata};
use super::mobility::{Frames, Mobility};
use super::tag;
use crate::machine::Tags;
use crate::units::{Order, Pages};

/// The free lists of a zone.
#[derive(Debug)]
pub(crate) struct Buddy {
    lists: [[List; Order::COUNT]; Mobility::COUNT],
    links: Links,
    /// All free blocks, if the zone keeps them in bitmaps. The lists are then empty.
    bitmaps: Option<Bitmaps>,
    /// The number of pages of the zone, holes included. No block extends beyond these pages.
    spanned: Pages,
    /// The number of free pages, which are on the lists or in the bitmaps.
    free: Pages,
    /// The number of free pages in blocks kept for atomic requests (Linux: `nr_free_highatomic`).
    free_kept: Pages,
    /// The number of pages of all blocks kept for atomic requests, free or not (Linux:
    /// `nr_reserved_highatomic`).
    kept: Pages,
    /// For each block of the largest order, whether all its pages are in holes. `add_block` adds a
    /// block to the zone only if this is true of the block.
    absent: Vec<bool>,
    /// For each huge block, whether it was free when `visit` last looked at it, and whether its
    /// memory has been returned to the system below the allocator.
    ages: Ages,
}

impl Buddy {
    /// Creates empty free lists for a zone of `spanned` pages. `absent` says for each block of the
    /// largest order whether it has no memory. `index` says how the zone keeps blocks that are
    /// smaller than a huge block; bitmaps are only for zones whose pages are not grouped by
    /// mobility.
    pub(super) fn new(
        spanned: Pages,
        metadata: Metadata,
        absent: Vec<bool>,
        index: FreeIndex,
    ) -> Self {
        let (links, bitmaps) = match index {
            FreeIndex::Lists => (Links::new(spanned, metadata, &absent), None),
            FreeIndex::Bitmaps => (Links::of_huge_blocks(spanned), Some(Bitmaps::new(spanned))),
        };
        Self {
            lists: [[List::EMPTY; Order::COUNT]; Mobility::COUNT],
            links,
            bitmaps,
            spanned,
            free: Pages::ZERO,
            free_kept: Pages::ZERO,
            kept: Pages::ZERO,
            absent,
            ages: Ages::new(spanned),
        }
    }

    /// Takes a block from the lists of `mobility`, splitting a larger one if there is none of
    /// `order` (Linux: `__rmqueue_smallest`). The block's tag still reads as free until the caller
    /// changes it.
    #[inline]
    pub(super) fn take<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        order: Order,
        mobility: Mobility,
    ) -> Option<u32> {
        if self.bitmaps.is_some() {
            return match order {
                // A zone with bitmaps keeps no blocks for atomic requests.
                _ if mobility == Mobility::HighAtomic => None,
                _ if order < Order::HUGE => self.take_bits(order, mobility),
                _ => self.take_whole(order, mobility),
            };
        }
        let lists = &self.lists[mobility.index()];
        let found = (order.index()..Order::COUNT).find(|&at| lists[at].len > 0)?;
        let page = lists[found].head;
        self.unlink(page, order_at(found), mobility);
        self.link_rest(frames, page, order_at(found), order, mobility);
        self.account_taken(order, mobility);
        Some(page)
    }

    /// Takes a block that is smaller than a huge block from the bitmaps. If the bitmaps have no
    /// such block, splits a whole block.
    fn take_bits(&mut self, order: Order, mobility: Mobility) -> Option<u32> {
        loop {
            let bitmaps = self.bitmaps.as_mut()?;
            if let Some(page) = bitmaps.take(&mut self.links, order) {
                self.account_taken(order, mobility);
                return Some(page);
            }
            self.open()?;
        }
    }

    /// Takes a block of 512 or 1024 pages from the sets of whole blocks.
    fn take_whole(&mut self, order: Order, mobility: Mobility) -> Option<u32> {
        let page = self.bitmaps.as_mut()?.whole.take(order)?;
        self.ages.used(page, order);
        self.account_taken(order, mobility);
        Some(page)
    }

    /// Moves a whole block to the bitmaps of single pages. Returns `None` if there is no whole
    /// block.
    #[cold]
    fn open(&mut self) -> Option<()> {
        let bitmaps = self.bitmaps.as_mut()?;
        let first = bitmaps.whole.take(Order::HUGE)?;
        self.ages.used(first, Order::HUGE);
        bitmaps.open(&mut self.links, first);
        Some(())
    }

    /// Takes the free block of `order` at `page`, which is inside one page block. The block's tag
    /// still reads as free until the caller changes it.
    pub(super) fn take_at<T: Tags>(&mut self, frames: Frames<'_, T>, page: u32, order: Order) {
        let mobility = frames.types.of(page);
        self.unlink(page, order, mobility);
        self.account_taken(order, mobility);
    }

    /// Splits a block of order `from` whose first `1 << to` pages have been taken, and puts the
    /// remaining pages on the free lists. Each upper half goes to the head of its list (Linux:
    /// `expand`).
    #[inline]
    fn link_rest<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        page: u32,
        from: Order,
        to: Order,
        mobility: Mobility,
    ) {
        if from >= Order::HUGE {
            self.ages.used(page, to);
        }
        let mut found = from.index();
        while found > to.index() {
            found -= 1;
            let half = order_at(found);
            let upper = page + half.pages().0;
            frames.tags.set(upper, tag::free(half));
            self.link(upper, half, mobility, End::Head);
        }
    }

    /// Takes a block of at most `pages` pages; `pages` is at least 1. The block consists of the
    /// pages that a series of single-page requests would take next.
    pub(super) fn take_up_to<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        pages: u32,
        mobility: Mobility,
    ) -> Option<(u32, Order)> {
        let lists = &self.lists[mobility.index()];
        let smallest = lists.iter().position(|list| list.len > 0)?;
        let fitting = order_at((pages.ilog2() as usize).min(Order::COUNT - 1));
        let order = fitting.min(order_at(smallest));
        Some((self.take(frames, order, mobility)?, order))
    }

    /// Frees a block and merges it with every free buddy (Linux: `free_one_page`). A block larger
    /// than a page block is freed in pieces, each to the list of its own type.
    #[inline]
    pub(super) fn give<T: Tags>(&mut self, frames: Frames<'_, T>, page: u32, order: Order) {
        debug_assert!(
            page + order.pages().0 <= self.spanned.0,
            "the block is inside the zone"
        );
        let block = frames.types.block();
        if order > block {
            for piece in (page..page + order.pages().0).step_by(block.pages().0 as usize) {
                self.give_piece(frames, piece, block);
            }
        } else {
            self.give_piece(frames, page, order);
        }
    }

    /// Frees a block that lies inside one page block (Linux: `__free_one_page`).
    #[inline]
    fn give_piece<T: Tags>(&mut self, frames: Frames<'_, T>, mut page: u32, mut order: Order) {
        let Frames { tags, types } = frames;
        let mobility = types.of(page);
        self.free += order.pages();
        if mobility == Mobility::HighAtomic {
            self.free_kept += order.pages();
        }
        if let Some(bitmaps) = &mut self.bitmaps {
            if order < Order::HUGE {
                match bitmaps.give(&mut self.links, page, order) {
                    Some(first) => (page, order) = (first, Order::HUGE),
                    None => return,
                }
            }
            return bitmaps.whole.give(page, order, Backing::Present);
        }
        while let Some(up) = order.up() {
            let buddy = page ^ order.pages().0;
            if !self.is_free(tags, buddy, order) {
                break;
            }
            let mut theirs = mobility;
            if order >= types.block() {
                theirs = types.of(buddy);
                if theirs != mobility {
                    if !theirs.merges() || !mobility.merges() {
                        break;
                    }
                    types.set(buddy, order, mobility);
                }
            }
            self.unlink(buddy, order, theirs);
            // The first page of the upper half is now inside the merged block. The first page of
            // the lower half gets its tag below.
            tags.set(page.max(buddy), tag::TAIL);
            page = page.min(buddy);
            order = up;
        }
        tags.set(page, tag::free(order));
        let end = if self.merge_is_likely(tags, page, order) {
            End::Tail
        } else {
            End::Head
        };
        self.link(page, order, mobility, end);
    }

    /// Puts a block of the largest order on its list, when its memory becomes a part of the zone.
    /// The block's tag already reads as free.
    pub(super) fn give_fresh(&mut self, page: u32, mobility: Mobility) {
        self.free += Order::MAX.pages();
        match &mut self.bitmaps {
            Some(bitmaps) => bitmaps.whole.give(page, Order::MAX, Backing::Present),
            None => self.link(page, Order::MAX, mobility, End::Tail),
        }
    }

    /// Puts blocks on the free lists in the sequence given, without merging them, and sets the
    /// types of the page blocks around them. No two of the blocks may be buddies.
    pub(super) fn lay_out<T: Tags>(&mut self, frames: Frames<'_, T>, pieces: &[Piece]) {
        for &Piece {
            page,
            order,
            mobility,
        } in pieces
        {
            let mobility = frames.types.served_as(mobility);
            let block = order.max(frames.types.block());
            if mobility == Mobility::HighAtomic {
                self.free_kept += order.pages();
                if frames.types.of(page) != mobility {
                    self.kept += block.pages();
                }
            }
            frames.types.set(page, order, mobility);
            self.free += order.pages();
            if let Some(bitmaps) = &mut self.bitmaps {
                frames.tags.set(page, tag::TAIL);
                if order < Order::HUGE {
                    // The block has no free buddy, so the huge block around it does not become
                    // whole.
                    let _split = bitmaps.give(&mut self.links, page, order);
                } else {
                    bitmaps.whole.give(page, order, Backing::Present);
                }
                continue;
            }
            frames.tags.set(page, tag::free(order));
            self.link(page, order, mobility, End::Tail);
        }
    }

    /// The number of free pages, which are on the lists or in the bitmaps.
    pub(crate) fn free(&self) -> Pages {
        self.free
    }

    /// The number of free blocks of `order` (Linux: `nr_free` in `/proc/buddyinfo`).
    pub(crate) fn blocks(&self, order: Order) -> u32 {
        let of = |lists: &[List; Order::COUNT]| lists[order.index()].len;
        self.lists.iter().map(of).sum::<u32>() + self.blocks_in_bitmaps(order)
    }

    fn blocks_in_bitmaps(&self, order: Order) -> u32 {
        let bitmaps = self.bitmaps.as_ref();
        bitmaps.map_or(0, |bitmaps| bitmaps.count(order))
    }

    /// The number of free blocks of `order` in page blocks of type `mobility` (Linux:
    /// `/proc/pagetypeinfo`).
    pub(crate) fn blocks_of(&self, order: Order, mobility: Mobility) -> u32 {
        let on_list = self.lists[mobility.index()][order.index()].len;
        if mobility == Mobility::Unmovable {
            on_list + self.blocks_in_bitmaps(order)
        } else {
            on_list
        }
    }

    /// Returns whether there is a free block of at least `order`.
    pub(super) fn has(&self, order: Order) -> bool {
        let has =
            |lists: &[List; Order::COUNT]| lists[order.index()..].iter().any(|list| list.len > 0);
        let bitmaps = self.bitmaps.as_ref();
        self.lists.iter().any(has) || bitmaps.is_some_and(|bitmaps| bitmaps.has(order))
    }

    /// The order of the free block whose first page is `page`, or `None` if there is no such block.
    /// A free page in a bitmap counts as a block of one page.
    fn free_at(&self, tags: &impl Tags, page: u32) -> Option<Order> {
        match &self.bitmaps {
            Some(bitmaps) if bitmaps.is_free(page) => Some(Order::ZERO),
            Some(bitmaps) => bitmaps.whole.order_at(page),
            None => tag::free_order(tags.get(page)),
        }
    }

    /// Subtracts a block of `order` from the counts of free pages. The block was taken from the
    /// lists of `mobility`.
    #[inline]
    fn account_taken(&mut self, order: Order, mobility: Mobility) {
        self.free -= order.pages();
        if mobility == Mobility::HighAtomic {
            self.free_kept -= order.pages();
        }
    }

    #[inline]
    fn is_free(&self, tags: &impl Tags, page: u32, order: Order) -> bool {
        page + order.pages().0 <= self.spanned.0 && tags.get(page) == tag::free(order)
    }

    /// Returns whether the block at `page` is likely to merge with other blocks soon, unless it is
    /// allocated first. This is the case if the larger block that it would form with its buddy has
    /// a free buddy. As in Linux, the result is always false for blocks of order 9 and above.
    #[inline]
    fn merge_is_likely(&self, tags: &impl Tags, page: u32, order: Order) -> bool {
        match order.up() {
            Some(up) if up < Order::MAX => {
                let parent = page & !order.pages().0;
                self.is_free(tags, parent ^ up.pages().0, up)
            }
            _ => false,
        }
    }

    #[inline]
    fn link(&mut self, page: u32, order: Order, mobility: Mobility, end: End) {
        let list = &mut self.lists[mobility.index()][order.index()];
        list.insert(&mut self.links, page, order, end);
    }

    #[inline]
    fn unlink(&mut self, page: u32, order: Order, mobility: Mobility) {
        if let Some(bitmaps) = &mut self.bitmaps {
            let was_free = bitmaps.whole.remove(page, order);
            debug_assert!(was_free, "the block is free and whole");
            return;
        }
        let list = &mut self.lists[mobility.index()][order.index()];
        list.remove(&mut self.links, page, order);
    }
}

fn order_at(index: usize) -> Order {
    let order = u8::try_from(index).ok().and_then(Order::new);
    order.expect("an index of the free lists")
}
