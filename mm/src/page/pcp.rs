//! Per-CPU page lists of one zone: the fast path of most allocations (Linux: `per_cpu_pages`).
//!
//! This file is the state and its decisions; taking locks and moving pages is `alloc`, `free` and
//! `drain`. A list is a flat stack of page numbers, hot end at the back: links through cold page
//! descriptors would cost a cache miss per page.
//!
//! Memory for the lists is set aside when their sizes are set, with no lock held, so that no
//! allocation and no free ever asks for it; a block for which a list has no room stays in its zone, or
//! goes there. Only where metadata is made when it is needed ([`Metadata::WhenSplit`]) lists grow as
//! they are used.
//!
//! Locks: whoever has a `&mut Pcp` holds its pcp lock.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

use super::free::FREE_BATCH;
use super::holds::FlushFrom;
use super::links::Metadata;
use super::mobility::Mobility;
use super::seed::{ListState, TypedBlock};
use super::sizing::Sizes;
use crate::units::{Order, Pages, Pfn};

/// Lists of a CPU in a zone: orders 0 to 3 by three mobilities each, and huge pages that can or
/// cannot be moved. Without grouping by mobility only those of unmovable pages are used.
pub(super) const LISTS: usize = 14;

const HUGE_UNMOVABLE: usize = 12;
const HUGE_MOVABLE: usize = 13;

/// The list of `order` and `mobility`, or `None` when blocks of that order bypass the lists (Linux:
/// `order_to_pindex`).
#[inline]
pub(super) const fn list_of(order: Order, mobility: Mobility) -> Option<usize> {
    let mobility = mobility.listed();
    match order.index() {
        small @ 0..=3 => Some(small * 3 + mobility.index()),
        9 if matches!(mobility, Mobility::Movable) => Some(HUGE_MOVABLE),
        9 => Some(HUGE_UNMOVABLE),
        _ => None,
    }
}

/// The size of the blocks on a list (Linux: `pindex_to_order`).
pub(super) fn order_of(list: usize) -> Order {
    let order = if list >= HUGE_UNMOVABLE {
        Order::HUGE.get()
    } else {
        u8::try_from(list / 3).unwrap_or(0)
    };
    Order::new(order).expect("lists are of small orders")
}

/// The mobility of the blocks on a list; of huge pages only whether they can be moved.
fn mobility_of(list: usize) -> Mobility {
    match list {
        HUGE_UNMOVABLE => Mobility::Unmovable,
        HUGE_MOVABLE => Mobility::Movable,
        small => Mobility::OF_REQUESTS[small % 3],
    }
}

/// What a decision depends on besides the lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mood {
    pub(super) sizes: Sizes,
    /// log₂ of how many batches one move may grow to.
    pub(super) scale_max: u32,
    /// The zone was seen below its high watermark: free early, cache little.
    pub(super) below_high: bool,
    /// Somebody reclaims in this zone: cache little.
    pub(super) reclaiming: bool,
    /// The CPU's slice of data cache holds more than three batches.
    pub(super) large_cache: bool,
    /// How many pages freed in a row make frees of several pages empty the lists.
    pub(super) flush_from: FlushFrom,
}

impl Mood {
    #[inline]
    fn flush_from(&self) -> u32 {
        let Sizes {
            batch, high_min, ..
        } = self.sizes;
        match self.flush_from {
            FlushFrom::Batch => batch.0,
            FlushFrom::BatchAndHalfMin => batch.0 + high_min.0 / 2,
        }
    }
}

/// One CPU's lists in one zone. In this order, all that single pages need is in one cache line.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Pcp {
    /// Pages on all lists.
    count: u32,
    /// Above this many pages, frees spill. Tuned between the zone's `high_min` and `high_max`.
    high: u32,
    /// Consecutive refills double the batch this many times.
    alloc_factor: u32,
    /// Pages freed in a row, halved by each allocation.
    free_count: u32,
    /// The last free was of order 1 to 3.
    freed_high_order: bool,
    /// Stat intervals until lists of a remote node are given back.
    expire: u8,
    /// When lists get memory.
    metadata: Metadata,
    lists: Lists,
}

/// Lists of page numbers.
pub(super) type Lists = [VecDeque<u32>; LISTS];

/// Empty lists as long as they get in a zone of `managed` pages that spills above `high`, as far as
/// there is memory; those of unmovable pages only unless pages are `grouped`. With no lock held.
pub(super) fn lists_for(high: Pages, batch: Pages, managed: Pages, grouped: bool) -> Lists {
    // A refill may leave a batch more than `high`, and a free one block more.
    let pages = high.0.saturating_add(2 * batch.0).min(managed.0);
    core::array::from_fn(|list| {
        let mut blocks = VecDeque::new();
        if grouped || mobility_of(list) == Mobility::Unmovable {
            let room = (pages >> order_of(list).get()) + 2;
            // Without memory the zone serves instead.
            let _kept = blocks.try_reserve_exact(room as usize);
        }
        blocks
    })
}

/// Makes a full list longer by 64 blocks, where that is how lists get memory.
#[cold]
#[inline(never)]
fn has_grown(stack: &mut VecDeque<u32>, metadata: Metadata) -> bool {
    // More than are freed together.
    const { assert!(FREE_BATCH <= 64) };
    metadata == Metadata::WhenSplit && stack.try_reserve(64).is_ok()
}

impl Pcp {
    /// Empty lists, with memory as `metadata` says.
    pub(super) fn new(metadata: Metadata) -> Self {
        Self {
            metadata,
            ..Self::default()
        }
    }

    /// Makes those of `longer` the lists that are longer than what there is. What is left in `longer` is
    /// to be dropped with no lock held.
    pub(super) fn replace(&mut self, longer: &mut Lists) {
        for (list, longer) in self.lists.iter_mut().zip(longer) {
            if list.capacity() < longer.capacity() {
                longer.append(list);
                mem::swap(list, longer);
            }
        }
    }

    /// Pages on all lists.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Where spilling starts.
    #[cfg(test)]
    pub(super) fn high(&self) -> u32 {
        self.high
    }

    /// What the lists are like, with frames told by `pfn`, in `room`; or how much room it takes.
    pub(super) fn state(
        &self,
        pfn: impl Fn(u32) -> Pfn,
        room: &mut Vec<TypedBlock>,
    ) -> Result<ListState, usize> {
        let blocks = self.lists.iter().map(VecDeque::len).sum();
        if room.capacity() < blocks {
            return Err(blocks);
        }
        let block = |list: usize, page: u32| TypedBlock {
            pfn: pfn(page),
            order: order_of(list),
            mobility: mobility_of(list),
        };
        let lists = self.lists.iter().enumerate();
        let pages = lists.flat_map(|(list, pages)| pages.iter().map(move |&page| (list, page)));
        room.extend(pages.map(|(list, page)| block(list, page)));
        Ok(ListState {
            high: Pages(self.high),
            alloc_factor: self.alloc_factor,
            free_count: Pages(self.free_count),
            freed_high_order: self.freed_high_order,
            blocks: mem::take(room),
        })
    }

    /// Takes everything but the blocks from `state`.
    pub(super) fn set_state(&mut self, state: &ListState) {
        self.high = state.high.0;
        self.alloc_factor = state.alloc_factor;
        self.free_count = state.free_count.0;
        self.freed_high_order = state.freed_high_order;
    }

    /// The hottest block of a list.
    #[inline]
    pub(super) fn pop(&mut self, list: usize, order: Order) -> Option<u32> {
        let page = self.lists[list].pop_back()?;
        self.count -= order.pages().0;
        Some(page)
    }

    /// Notes an allocation: frees no longer come in a row.
    #[inline]
    pub(super) fn note_alloc(&mut self) {
        self.free_count >>= 1;
    }

    /// Puts a block at the hot end, or returns `false` when the list has no room.
    #[inline]
    pub(super) fn push(&mut self, list: usize, order: Order, page: u32) -> bool {
        let stack = &mut self.lists[list];
        if stack.len() == stack.capacity() && !has_grown(stack, self.metadata) {
            return false;
        }
        stack.push_back(page);
        self.count += order.pages().0;
        true
    }

    /// Puts a block at the cold end: refilled blocks are handed out in the order they came.
    pub(super) fn push_cold(&mut self, list: usize, order: Order, page: u32) {
        self.lists[list].push_front(page);
        self.count += order.pages().0;
    }

    /// How many of `blocks` more a list has room for.
    pub(super) fn room(&mut self, list: usize, blocks: u32) -> u32 {
        let stack = &mut self.lists[list];
        let room = stack.capacity() - stack.len();
        match self.metadata {
            Metadata::WhenSplit if stack.try_reserve(blocks as usize).is_ok() => blocks,
            _ => u32::try_from(room).unwrap_or(u32::MAX).min(blocks),
        }
    }

    /// How many blocks an empty list refills with (Linux: `nr_pcp_alloc`).
    pub(super) fn refill_blocks(&mut self, order: Order, mood: &Mood) -> u32 {
        let Sizes {
            batch,
            high_min,
            high_max,
        } = mood.sizes;
        let (base, high_min, high_max) = (batch.0, high_min.0, high_max.0);
        let mut high = self.high.clamp(high_min, high_max);
        if high < base {
            return 1;
        }
        let mut batch = if order == Order::ZERO {
            // The knob may have been lowered since the factor grew.
            base << self.alloc_factor.min(mood.scale_max)
        } else {
            base
        };
        if high_min != high_max && !mood.below_high {
            high = (high + batch).min(high_max);
            self.high = high;
        }
        if order == Order::ZERO {
            let room = high
                .saturating_sub(self.count)
                .saturating_sub(base)
                .max(base);
            if batch <= room && self.alloc_factor < mood.scale_max {
                self.alloc_factor += 1;
            }
            batch = batch.min(room);
        }
        if batch > 1 {
            (batch >> order.get()).max(2)
        } else {
            batch
        }
    }

    /// Notes that a block of `order` was pushed; returns how many pages are now too many (Linux:
    /// the first half of `free_frozen_page_commit`).
    #[inline]
    pub(super) fn note_free(&mut self, order: Order, mood: &Mood) -> u32 {
        let batch = mood.sizes.batch.0;
        self.alloc_factor >>= 1;
        let high_order = (1..=3).contains(&order.get());
        let flush = high_order
            && self.freed_high_order
            && self.free_count >= mood.flush_from()
            && (!mood.large_cache || self.count >= batch);
        self.freed_high_order = high_order;
        if self.free_count < batch << mood.scale_max {
            self.free_count += order.pages().0;
        }
        let high = self.spill_threshold(flush, mood);
        if self.count < high {
            0
        } else {
            self.spill_pages(flush, high, mood)
        }
    }

    /// How many single pages may be freed before there is anything to decide.
    #[inline]
    pub(super) fn quiet_frees(&self, mood: &Mood) -> u32 {
        if mood.reclaiming || mood.below_high {
            return 0;
        }
        let Sizes {
            high_min, high_max, ..
        } = mood.sizes;
        let high = self.high.clamp(high_min.0, high_max.0);
        high.saturating_sub(self.count + 1)
    }

    /// Pushes unmovable single pages of which there are at most [`Pcp::quiet_frees`], as `push` and
    /// `note_free` would one by one. Returns `false` when the list has no room.
    #[inline]
    pub(super) fn push_quietly(&mut self, pages: &[u32], mood: &Mood) -> bool {
        let Ok(count) = u32::try_from(pages.len()) else {
            return false;
        };
        let stack = &mut self.lists[0];
        if stack.capacity() - stack.len() < pages.len() && !has_grown(stack, self.metadata) {
            return false;
        }
        self.lists[0].extend(pages);
        self.count += count;
        self.alloc_factor = self.alloc_factor.checked_shr(count).unwrap_or(0);
        self.freed_high_order &= pages.is_empty();
        let most = mood.sizes.batch.0 << mood.scale_max;
        if self.free_count < most {
            self.free_count = (self.free_count + count).min(most);
        }
        true
    }

    /// The count from which on frees spill; tunes `high` (Linux: `nr_pcp_high`).
    #[inline]
    fn spill_threshold(&mut self, flush: bool, mood: &Mood) -> u32 {
        let Sizes {
            batch,
            high_min,
            high_max,
        } = mood.sizes;
        let (batch, high_min, high_max) = (batch.0, high_min.0, high_max.0);
        let high = self.high.clamp(high_min, high_max);
        if high == 0 {
            return 0;
        }
        let lowered_by = |pages: u32| high.saturating_sub(pages).max(high_min);
        if flush {
            self.high = lowered_by(batch << mood.scale_max);
            return 0;
        }
        if mood.reclaiming {
            self.high = lowered_by(self.free_count.max(batch));
            return self.high.min(4 * batch);
        }
        if high_min == high_max {
            return high;
        }
        if mood.below_high {
            self.high = lowered_by(self.free_count.max(batch));
            return self.count.max(high_min);
        }
        // Pages freed in a row may have been set to any number.
        let need = self.free_count.saturating_add(batch);
        if self.count >= high && self.high < need {
            self.high = need.clamp(high_min, high_max);
        }
        high
    }

    /// How many pages a spill gives back (Linux: `nr_pcp_free`).
    fn spill_pages(&self, flush: bool, high: u32, mood: &Mood) -> u32 {
        let batch = mood.sizes.batch.0;
        if flush {
            self.count.min(batch << mood.scale_max)
        } else if high < batch {
            1
        } else {
            self.free_count.clamp(batch, (high - batch).max(batch))
        }
    }

    /// Lowers `high` by an eighth, or to what one drain would leave; returns how many pages are
    /// now too many, and whether there is more to come (Linux: `decay_pcp_high`).
    pub(super) fn decay(&mut self, mood: &Mood) -> (u32, bool) {
        let (batch, high_min) = (mood.sizes.batch.0, mood.sizes.high_min.0);
        let mut more = false;
        if self.high > high_min {
            let one_drain = self.count.saturating_sub(batch << mood.scale_max);
            self.high = one_drain.max(self.high - self.high / 8).max(high_min);
            more = self.high > high_min;
        }
        let excess = self.count.saturating_sub(self.high.max(high_min));
        (excess, more || excess > 0)
    }

    /// Counts down to giving back the lists of a remote node. Returns `true` when it is time.
    pub(super) fn expires(&mut self, used: bool) -> Expiry {
        const INTERVALS: u8 = 3;
        if used {
            self.expire = INTERVALS;
        }
        if self.expire == 0 || self.count == 0 {
            return Expiry::Never;
        }
        self.expire -= 1;
        if self.expire == 0 {
            Expiry::Now
        } else {
            Expiry::Later
        }
    }

    /// The coldest block of the list `cursor` points at, moving on from empty lists.
    #[inline]
    pub(super) fn coldest(&mut self, cursor: &mut usize) -> Option<Coldest<'_>> {
        let list = (0..LISTS).map(|step| (*cursor + step) % LISTS);
        *cursor = list
            .into_iter()
            .find(|&list| !self.lists[list].is_empty())?;
        let order = order_of(*cursor);
        Some(Coldest {
            pcp: self,
            list: *cursor,
            order,
        })
    }
}

/// Whether the lists of a remote node are due to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// Nothing there, or the node is this CPU's own.
    Never,
    /// Not yet.
    Later,
    /// This interval.
    Now,
}

/// A block that may be given back next.
pub(super) struct Coldest<'a> {
    pcp: &'a mut Pcp,
    list: usize,
    /// Its size.
    pub(super) order: Order,
}

impl Coldest<'_> {
    /// Takes it off its list.
    #[inline]
    pub(super) fn take(self) -> u32 {
        self.pcp.count -= self.order.pages().0;
        self.pcp.lists[self.list]
            .pop_front()
            .expect("its list was seen non-empty")
    }
}

#[cfg(test)]
#[path = "pcp_tests.rs"]
mod tests;
