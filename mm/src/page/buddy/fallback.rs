//! Takes pages from page blocks of another type when the lists of the request's own type have no
//! suitable block.
//!
//! First the request tries to claim a page block: if at least half of the page block's pages are
//! free or compatible with the request (see `claim_around`), the page block changes its type. If
//! that fails, the request steals from the smallest free block that is large enough, and the page
//! block around it keeps its type.

use super::list::End;
use super::{Buddy, order_at};
use crate::machine::Tags;
use crate::page::mobility::{Frames, Mobility};
use crate::page::tag;
use crate::units::{Order, Pages};

/// A request to the free lists for one block.
#[derive(Clone, Copy, Debug)]
pub(in crate::page) struct Wanted {
    pub(in crate::page) order: Order,
    /// The mobility of the request.
    pub(in crate::page) mobility: Mobility,
    /// True if the request must fail rather than take a page inside a page block of another type
    /// (Linux: `ALLOC_NOFRAGMENT`).
    pub(in crate::page) unmixed: bool,
}

/// The first step to try for the next block under the same hold of the zone lock (Linux: `enum
/// rmqueue_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::page) enum RmqueueMode {
    /// Try the lists of the request's own type. Then try to claim a page block of another type, and
    /// change its type. Then try to steal a block from a page block of another type.
    #[default]
    Normal,
    /// Steal at once: a block had to be stolen earlier in this hold of the zone lock, so claiming
    /// is assumed to fail until the hold ends.
    Steal,
}

impl Buddy {
    /// Takes a block from the request's own lists, or else by claiming, or else by stealing (Linux:
    /// `__rmqueue`). The caller passes a new `mode` for each hold of the zone lock.
    #[inline]
    pub(in crate::page) fn take_wanted<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        wanted: Wanted,
        mode: &mut RmqueueMode,
    ) -> Option<u32> {
        if *mode == RmqueueMode::Normal
            && let Some(page) = self.take(frames, wanted.order, wanted.mobility)
        {
            return Some(page);
        }
        if frames.types.on() {
            self.take_foreign(frames, wanted, mode)
        } else {
            None
        }
    }

    /// Takes a block of at most `pages` pages. The block consists of the pages that a series of
    /// single-page requests would take next. The order of `wanted` must be 0.
    pub(in crate::page) fn take_wanted_up_to<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        wanted: Wanted,
        mode: &mut RmqueueMode,
        pages: u32,
    ) -> Option<(u32, Order)> {
        if *mode == RmqueueMode::Normal
            && let Some(found) = self.take_up_to(frames, pages, wanted.mobility)
        {
            return Some(found);
        }
        if !frames.types.on() {
            return None;
        }
        let page = self.take_foreign(frames, wanted, mode)?;
        Some((page, wanted.order))
    }

    #[cold]
    fn take_foreign<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        wanted: Wanted,
        mode: &mut RmqueueMode,
    ) -> Option<u32> {
        if *mode == RmqueueMode::Normal
            && let Some(page) = self.claim(frames, wanted)
        {
            return Some(page);
        }
        if wanted.unmixed {
            return None;
        }
        let page = self.steal(frames, wanted)?;
        *mode = RmqueueMode::Steal;
        Some(page)
    }

    /// Claims the page block around a free block of another type, and takes the wanted block from
    /// that page block. The largest free blocks are tried first (Linux: `__rmqueue_claim`).
    fn claim<T: Tags>(&mut self, frames: Frames<'_, T>, wanted: Wanted) -> Option<u32> {
        let block = frames.types.block();
        let least = if wanted.unmixed {
            wanted.order.max(block)
        } else {
            wanted.order
        };
        for at in (least.index()..Order::COUNT).rev() {
            let order = order_at(at);
            let Some(theirs) = self.foreign(order, wanted.mobility) else {
                continue;
            };
            // A movable page in an unmovable block does little harm. So a movable request claims a
            // page block only if the order of the free block is at least half the order of the page
            // block.
            let worthwhile = at >= block.index() / 2 || wanted.mobility != Mobility::Movable;
            if !worthwhile {
                break;
            }
            if let Some(page) = self.claim_around(frames, wanted, order, theirs) {
                return Some(page);
            }
        }
        None
    }

    /// Claims the page block around the first free block of `order` and type `theirs`, if at least
    /// half of the page block is free or compatible (Linux: `try_to_claim_block`). For a movable
    /// request, the movable pages are compatible. For another request, the pages in use that are
    /// not movable are compatible, but only if the page block is of the movable type.
    fn claim_around<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        wanted: Wanted,
        order: Order,
        theirs: Mobility,
    ) -> Option<u32> {
        let mobility = wanted.mobility;
        let page = self.lists[theirs.index()][order.index()].head;
        let block = frames.types.block();
        if order >= block {
            self.unlink(page, order, theirs);
            frames.types.set(page, order, mobility);
            self.link_rest(frames, page, order, wanted.order, mobility);
            self.account_taken(wanted.order, mobility);
            return Some(page);
        }
        let start = page & !(block.pages().0 - 1);
        if start + block.pages().0 > self.spanned.0 {
            return None;
        }
        let Content { free, movable } = content(frames, start);
        let alike = match (mobility, theirs) {
            (Mobility::Movable, _) => movable,
            (_, Mobility::Movable) => block.pages().0 - free - movable,
            _ => 0,
        };
        if free + alike < block.pages().0 / 2 {
            return None;
        }
        self.move_block(frames, start, theirs, mobility);
        self.take(frames, wanted.order, mobility)
    }

    /// Takes a block from the smallest free block of another type that is large enough. The page
    /// block keeps its type (Linux: `__rmqueue_steal`).
    fn steal<T: Tags>(&mut self, frames: Frames<'_, T>, wanted: Wanted) -> Option<u32> {
        let (order, theirs) = (wanted.order.index()..Order::COUNT)
            .map(order_at)
            .find_map(|order| Some((order, self.foreign(order, wanted.mobility)?)))?;
        let page = self.lists[theirs.index()][order.index()].head;
        self.unlink(page, order, theirs);
        self.link_rest(frames, page, order, wanted.order, theirs);
        self.account_taken(wanted.order, theirs);
        Some(page)
    }

    /// Returns the first fallback type of `mobility` that has a free block of exactly `order`.
    fn foreign(&self, order: Order, mobility: Mobility) -> Option<Mobility> {
        let has = |theirs: &Mobility| self.lists[theirs.index()][order.index()].len > 0;
        mobility.fallbacks().into_iter().find(has)
    }

    /// Gives the page block at `start` the type `to`. Moves the free blocks inside it, in ascending
    /// order, from the lists of type `from` to the tails of the lists of type `to` (Linux:
    /// `__move_freepages_block`). Returns the number of free pages moved.
    pub(super) fn move_block<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        start: u32,
        from: Mobility,
        to: Mobility,
    ) -> Pages {
        let block = frames.types.block();
        let mut moved = Pages::ZERO;
        let mut at = start;
        while at < start + block.pages().0 {
            let Some(order) = tag::free_order(frames.tags.get(at)) else {
                at += 1;
                continue;
            };
            self.unlink(at, order, from);
            self.link(at, order, to, End::Tail);
            moved += order.pages();
            at += order.pages().0;
        }
        frames.types.set(start, block, to);
        if from == Mobility::HighAtomic {
            self.free_kept -= moved;
        }
        if to == Mobility::HighAtomic {
            self.free_kept += moved;
        }
        moved
    }
}

/// The number of free pages and of movable pages in a page block.
struct Content {
    free: u32,
    movable: u32,
}

/// Counts the pages of the page block at `start`. Pages on a CPU's list count as neither free nor
/// movable.
fn content<T: Tags>(frames: Frames<'_, T>, start: u32) -> Content {
    let end = start + frames.types.block().pages().0;
    let mut content = Content {
        free: 0,
        movable: 0,
    };
    let mut at = start;
    while at < end {
        let tag = frames.tags.get(at);
        let pages = if let Some(order) = tag::free_order(tag) {
            content.free += order.pages().0;
            order.pages().0
        } else if let Some(order) = tag::movable_order(tag) {
            // The task that owns the block may be splitting this block at the same time. That does
            // not change the number of movable pages, because the parts are movable too. A block
            // larger than a page block counts only up to `end`.
            let pages = order.pages().0.min(end - at);
            content.movable += pages;
            pages
        } else {
            1
        };
        at += pages;
    }
    content
}
