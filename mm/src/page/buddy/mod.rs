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

mod fallback;
mod report;
mod reserve;
mod resize;

pub(super) use self::fallback::{Stage, Wanted};
use self::report::Ages;
pub(super) use self::report::{Isolated, Visited};
pub(super) use self::resize::{Stays, absent_blocks};
use alloc::vec::Vec;

use super::carve::Piece;
use super::links::{Link, Links, Metadata, NONE};
use super::mobility::{Frames, Mobility};
use super::tag;
use crate::machine::Tags;
use crate::units::{Order, Pages};

/// The free lists of a zone.
#[derive(Debug)]
pub(crate) struct Buddy {
    lists: [[List; Order::COUNT]; Mobility::COUNT],
    links: Links,
    /// The number of pages of the zone, holes included. No block extends beyond it.
    spanned: Pages,
    /// The number of free pages, which are on the lists.
    free: Pages,
    /// The number of free pages in blocks kept for atomic requests (Linux: `nr_free_highatomic`).
    free_kept: Pages,
    /// The number of pages of all blocks kept for atomic requests, free or not (Linux:
    /// `nr_reserved_highatomic`).
    kept: Pages,
    /// For each block of the largest order, whether all its pages are in holes. Only then can
    /// `add_block` add the block to the zone.
    absent: Vec<bool>,
    /// For each huge block, whether it was free when `visit` last looked at it, and whether its
    /// memory has been returned to the system below the allocator.
    ages: Ages,
}

/// The free blocks of one order and type. Blocks are taken from the head, where the hottest blocks
/// are.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    len: u32,
}

/// The end of a list at which a block is inserted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The end from which blocks are taken, so this block is taken next.
    Head,
    /// The other end, for a block that should be taken last, because it is likely to merge soon.
    Tail,
}

impl Buddy {
    /// Creates empty free lists for a zone of `spanned` pages. `absent` says for each block of the
    /// largest order whether it has no memory.
    pub(super) fn new(spanned: Pages, metadata: Metadata, absent: Vec<bool>) -> Self {
        let empty = List {
            head: NONE,
            tail: NONE,
            len: 0,
        };
        Self {
            lists: [[empty; Order::COUNT]; Mobility::COUNT],
            links: Links::new(spanned, metadata, &absent),
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
        let lists = &self.lists[mobility.index()];
        let found = (order.index()..Order::COUNT).find(|&at| lists[at].len > 0)?;
        let page = lists[found].head;
        self.unlink(page, order_at(found), mobility);
        self.link_rest(frames, page, order_at(found), order, mobility);
        self.account_taken(order, mobility);
        Some(page)
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

    /// Puts a fresh block of the largest order on its list. The block's tag already reads as free.
    pub(super) fn give_fresh(&mut self, page: u32, mobility: Mobility) {
        self.free += Order::MAX.pages();
        self.link(page, Order::MAX, mobility, End::Tail);
    }

    /// Puts blocks on the free lists in the given order without merging them, and sets the types of
    /// the page blocks around them. No two of the blocks may be buddies.
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
            frames.tags.set(page, tag::free(order));
            self.free += order.pages();
            self.link(page, order, mobility, End::Tail);
        }
    }

    /// The number of free pages, which are on the lists.
    pub(crate) fn free(&self) -> Pages {
        self.free
    }

    /// The number of free blocks of `order` (Linux: `nr_free` in `/proc/buddyinfo`).
    pub(crate) fn blocks(&self, order: Order) -> u32 {
        let of = |lists: &[List; Order::COUNT]| lists[order.index()].len;
        self.lists.iter().map(of).sum()
    }

    /// The number of free blocks of `order` in page blocks of type `mobility` (Linux:
    /// `/proc/pagetypeinfo`).
    pub(crate) fn blocks_of(&self, order: Order, mobility: Mobility) -> u32 {
        self.lists[mobility.index()][order.index()].len
    }

    /// Returns whether there is a free block of at least `order`.
    pub(super) fn has(&self, order: Order) -> bool {
        let has =
            |lists: &[List; Order::COUNT]| lists[order.index()..].iter().any(|list| list.len > 0);
        self.lists.iter().any(has)
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
        list.len += 1;
        let (neighbour, link) = match end {
            End::Head => (
                list.head,
                Link {
                    prev: NONE,
                    next: list.head,
                },
            ),
            End::Tail => (
                list.tail,
                Link {
                    prev: list.tail,
                    next: NONE,
                },
            ),
        };
        let (at_head, at_tail) = (link.prev == NONE, link.next == NONE);
        if at_head {
            list.head = page;
        }
        if at_tail {
            list.tail = page;
        }
        *self.links.of(page, order) = link;
        if neighbour != NONE {
            let beside = self.links.of(neighbour, order);
            match end {
                End::Head => beside.prev = page,
                End::Tail => beside.next = page,
            }
        }
    }

    #[inline]
    fn unlink(&mut self, page: u32, order: Order, mobility: Mobility) {
        let Link { prev, next } = *self.links.of(page, order);
        let list = &mut self.lists[mobility.index()][order.index()];
        debug_assert!(list.len > 0, "a free block is on its list");
        list.len -= 1;
        if prev == NONE {
            list.head = next;
        }
        if next == NONE {
            list.tail = prev;
        }
        if prev != NONE {
            self.links.of(prev, order).next = next;
        }
        if next != NONE {
            self.links.of(next, order).prev = prev;
        }
    }
}

fn order_at(index: usize) -> Order {
    let order = u8::try_from(index).ok().and_then(Order::new);
    order.expect("an index of the free lists")
}
