//! Finds huge blocks that stay free, and takes them off the lists while their memory is given back
//! to the system below the allocator, such as a hypervisor (Linux: `mm/page_reporting.c`).
//!
//! Each huge block has an age, which says whether the block has been free since it was last
//! visited. The age is exact: an allocation from the huge block resets the age to [`Age::Used`]. An
//! allocation from a smaller block leaves the age alone, because the age was reset when the huge
//! block was split.

use alloc::vec;
use alloc::vec::Vec;

use super::Buddy;
use super::list::End;
use super::whole::Backing;
use crate::machine::Tags;
use crate::page::mobility::Frames;
use crate::page::tag;
use crate::units::{Order, Pages};

/// The age of a part of memory, which says whether the part was used lately. A part has the size
/// and the alignment of a huge block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    /// A page of this part of memory was allocated since [`Buddy::visit`] last looked at the part.
    Used,
    /// The part was free when [`Buddy::visit`] last looked at it, and has been free since.
    Seen,
    /// The memory of the part was returned to the system below the allocator, and no page of the
    /// part was allocated since.
    Given,
}

/// The ages of a zone's huge blocks. The age of a block says whether the block has been free since
/// it was last visited.
#[derive(Debug)]
pub(super) struct Ages(Vec<Age>);

impl Ages {
    pub(super) fn new(spanned: Pages) -> Self {
        Self(vec![Age::Used; spanned.0.div_ceil(HUGE) as usize])
    }

    /// Records that the block of `order` at `page` was allocated, or that its memory is new.
    #[cold]
    pub(super) fn used(&mut self, page: u32, order: Order) {
        self.set(page, order, Age::Used);
    }

    /// Records that the huge blocks at `pages` were allocated.
    pub(super) fn used_huge(&mut self, pages: &[u32]) {
        for page in pages {
            self.0[(page / HUGE) as usize] = Age::Used;
        }
    }

    fn set(&mut self, page: u32, order: Order, age: Age) {
        // The slice has one or two entries, for which a call of `memset` would be slow.
        if let [first, rest @ ..] = self.of(page, order) {
            *first = age;
            if let [second] = rest {
                *second = age;
            }
        }
    }

    /// The ages of the parts of the zone that the block of `order` at `page` covers. A part is as
    /// large as a huge block. If the block is smaller, returns the age of the part around it.
    fn of(&mut self, page: u32, order: Order) -> &mut [Age] {
        let first = (page / HUGE) as usize;
        let count = (order.pages().0 / HUGE).max(1) as usize;
        let end = (first + count).min(self.0.len());
        &mut self.0[first..end]
    }
}

const HUGE: u32 = Order::HUGE.pages().0;

/// A free block that is on no list while its memory is given back. The page number is relative to
/// the zone's first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) struct Isolated {
    pub(in crate::page) page: u32,
    pub(in crate::page) order: Order,
}

/// The outcome of a visit to a huge block by [`Buddy::visit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) enum Visited {
    /// No block was taken. The next huge block to visit begins `pages` pages further on.
    Passed { pages: u32 },
    /// This block was taken off its list.
    Taken(Isolated),
    /// The block could be taken, but is larger than the caller's `room`.
    NoRoom,
}

impl Buddy {
    /// Visits the huge block at `page`, and takes it off its list if all of these are true:
    ///
    /// - The block is free and has been free since the previous visit.
    /// - A part of the block's memory, or all of it, has not been given back since the block became
    ///   free.
    /// - Without the block, the zone still has `leave` free pages.
    /// - The block has at most `room` pages.
    pub(in crate::page) fn visit<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        page: u32,
        leave: Pages,
        room: Pages,
    ) -> Visited {
        let order = match self.free_at(frames.tags, page) {
            Some(order) if order >= Order::HUGE => order,
            _ => return Visited::Passed { pages: HUGE },
        };
        let pages = order.pages();
        let ages = self.ages.of(page, order);
        let is_given = ages.iter().all(|&age| age == Age::Given);
        let is_old = ages.iter().all(|&age| age != Age::Used);
        if !is_old {
            let young = ages.iter_mut().filter(|age| **age == Age::Used);
            young.for_each(|age| *age = Age::Seen);
        }
        if is_given || !is_old || self.free.saturating_sub(pages) < leave {
            return Visited::Passed { pages: pages.0 };
        }
        if pages > room {
            return Visited::NoRoom;
        }
        let mobility = frames.types.of(page);
        self.unlink(page, order, mobility);
        self.account_taken(order, mobility);
        frames.tags.set(page, tag::ISOLATED);
        Visited::Taken(Isolated { page, order })
    }

    /// Puts a block back on its list, and records whether its memory was given back. The block
    /// becomes the last of its list. So memory that was given back is faulted in again only if no
    /// other block is left (Linux: `__putback_isolated_page`).
    pub(in crate::page) fn put_back<T: Tags>(
        &mut self,
        frames: Frames<'_, T>,
        block: Isolated,
        is_given: bool,
    ) {
        let Isolated { page, order } = block;
        let (age, backing) = if is_given {
            (Age::Given, Backing::Given)
        } else {
            (Age::Used, Backing::Present)
        };
        if let Some(bitmaps) = &mut self.bitmaps {
            frames.tags.set(page, tag::TAIL);
            bitmaps.whole.give(page, order, backing);
            self.free += order.pages();
            self.ages.set(page, order, age);
            return;
        }
        self.give(frames, page, order);
        self.ages.set(page, order, age);
        // The block may have merged with its buddy, into a block of the largest order.
        let both = page & !(Order::MAX.pages().0 - 1);
        let is_merged = tag::free_order(frames.tags.get(both)) == Some(Order::MAX);
        let (page, order) = if is_merged {
            (both, Order::MAX)
        } else {
            (page, order)
        };
        // If page blocks are smaller than the block, `give` may have freed the block in several
        // parts. Each of them moves to the tail of its list.
        for page in (page..page + order.pages().0).step_by(HUGE as usize) {
            if let Some(order) = tag::free_order(frames.tags.get(page)) {
                let mobility = frames.types.of(page);
                self.unlink(page, order, mobility);
                self.link(page, order, mobility, End::Tail);
            }
        }
    }
}
