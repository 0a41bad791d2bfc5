//! Per-CPU page lists of one zone: the fast path of most allocations (Linux: `per_cpu_pages`).
//!
//! This file holds the state of the lists and the decisions about them; `alloc`, `free` and `drain`
//! take the locks and move the pages. A list is a flat stack of page numbers, with the most
//! recently freed at the end. A list linked through page descriptors would cost a cache miss for
//! each cold page.
//!
//! Memory for the lists is allocated when their sizes are set, with no lock held, so allocating or
//! freeing a block never allocates memory for a list. When a list is full, a refill leaves blocks
//! in the zone, and a freed block goes to the zone. Lists grow on use only with
//! [`Metadata::WhenSplit`].
//!
//! Locks: a `&mut Pcp` exists only while its pcp lock is held.

mod quiet;
#[cfg(test)]
mod run_tests;
mod runs;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

use crate::page::holds::FlushFrom;
use crate::page::links::Metadata;
use crate::page::list_state::{ListState, TypedBlock};
use crate::page::mobility::Mobility;
use crate::page::owned::Stock;
use crate::page::sizing::Sizes;
use crate::units::{Order, Pages, Pfn, count_of};

/// The number of lists that a CPU has in a zone: one for each combination of order 0 to 3 and three
/// mobilities, and two for huge pages, movable and unmovable. Without grouping by mobility, only
/// the lists of unmovable pages are used.
pub(super) const LISTS: usize = 14;

/// The maximum number of pages that [`PageAllocator::free_pages`](super::PageAllocator::free_pages)
/// puts on a list under one hold of the pcp lock (Linux: the size of a folio batch).
pub(crate) const FREE_BATCH: usize = 31;

const HUGE_UNMOVABLE: usize = 12;
const HUGE_MOVABLE: usize = 13;

/// The index of the list for `order` and `mobility`, or `None` if there is none for blocks of that
/// order (Linux: `order_to_pindex`).
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

/// The order of the blocks on a list (Linux: `pindex_to_order`).
pub(super) fn order_of(list: usize) -> Order {
    let order = if list >= HUGE_UNMOVABLE {
        Order::HUGE.get()
    } else {
        u8::try_from(list / 3).expect("there are few lists")
    };
    Order::new(order).expect("lists are of small orders")
}

/// The mobility of the blocks on a list. For huge pages this is either movable or unmovable.
fn mobility_of(list: usize) -> Mobility {
    match list {
        HUGE_UNMOVABLE => Mobility::Unmovable,
        HUGE_MOVABLE => Mobility::Movable,
        small => Mobility::OF_REQUESTS[small % 3],
    }
}

/// All inputs of a decision about page lists except the lists themselves: the sizes set for the
/// lists, and the current state of the zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct TuningInput {
    pub(super) sizes: Sizes,
    /// log₂ of the maximum number of batches that move at once to or from the zone (the knob
    /// `BatchScaleMax`).
    pub(super) scale_max: u32,
    /// True if the zone was found below its high watermark; `high` then does not grow, and frees
    /// return pages to it early.
    pub(super) below_high: bool,
    /// True while reclaim is active in this zone; lists are then kept short.
    pub(super) reclaiming: bool,
    /// True if the CPU's share of the data cache holds more than three batches of pages.
    pub(super) large_cache: bool,
    /// The rule for how many pages must have been freed in a row before frees of order 1 to 3 empty
    /// the lists.
    pub(super) flush_from: FlushFrom,
}

impl TuningInput {
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

/// One CPU's lists in one zone. The order of the fields puts those that are used for single pages
/// into one cache line.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Pcp {
    /// The number of pages on all lists and in `stock`.
    pub(super) count: u32,
    /// If a free leaves at least this number of pages on the lists, it returns pages to the zone.
    /// Tuning keeps this number between the zone's `high_min` and `high_max`.
    high: u32,
    /// The next refill of single pages takes at most `batch << alloc_factor` pages. A refill may
    /// add 1 to `alloc_factor`; each free halves `alloc_factor`.
    alloc_factor: u32,
    /// The number of pages freed in a row. Each allocation halves this number.
    free_count: u32,
    /// A free certainly returns no pages to the zone if it leaves at most this number of pages on
    /// the lists (such a free is *quiet*; see `quiet.rs`). Each change of `high` sets this number
    /// to 0.
    quiet_max: u32,
    /// Frees add to `free_count` only while `free_count` is below this number. The number is
    /// computed together with `quiet_max`, and valid as long as `quiet_max` is.
    free_count_max: u32,
    /// The version of the zone's settings for which `quiet_max` was computed.
    quiet_version: i64,
    /// True if the last free was of order 1 to 3.
    freed_high_order: bool,
    /// If the zone is on a remote node: the number of vmstat intervals until a batch of pages must
    /// be returned to the zone, or 0 if no countdown is running.
    expire: u8,
    /// When memory for the lists is allocated: in advance, or as the lists grow.
    metadata: Metadata,
    lists: Lists,
    /// The free pages of blocks that the CPU owns.
    pub(super) stock: Stock,
}

/// The lists of page numbers. [`list_of`] returns the index of a list in this array.
pub(super) type Lists = [VecDeque<u32>; LISTS];

/// Creates empty lists for a zone of `managed` pages. Each list has room for the blocks that it can
/// hold while frees return pages to the zone at `high`. Unless pages are `grouped`, only lists of
/// unmovable pages get room. Must be called with no lock held.
pub(super) fn lists_for(high: Pages, batch: Pages, managed: Pages, grouped: bool) -> Lists {
    // A refill may leave up to a batch more than `high` on the lists, and a free then adds one more
    // block. So there is room for two batches more than `high`.
    let pages = high.0.saturating_add(2 * batch.0).min(managed.0);
    core::array::from_fn(|list| {
        let mut blocks = VecDeque::new();
        if grouped || mobility_of(list) == Mobility::Unmovable {
            let room = (pages >> order_of(list).get()) + 2;
            // If this memory cannot be allocated, the list gets no room, and allocations take
            // blocks from the zone instead.
            let _kept = blocks.try_reserve_exact(room as usize);
        }
        blocks
    })
}

/// Makes room for 64 more blocks in a full list if lists grow on use. Returns whether there is room
/// now.
#[cold]
#[inline(never)]
fn has_grown(stack: &mut VecDeque<u32>, metadata: Metadata) -> bool {
    // A single call may push [`FREE_BATCH`] blocks, and 64 must be enough for them.
    const { assert!(FREE_BATCH <= 64) };
    metadata == Metadata::WhenSplit && stack.try_reserve(64).is_ok()
}

impl Pcp {
    /// Creates empty lists that have no memory yet. `metadata` says whether the lists allocate
    /// memory as they grow.
    pub(super) fn new(metadata: Metadata) -> Self {
        Self {
            metadata,
            ..Self::default()
        }
    }

    /// Replaces each list by the corresponding list of `longer` if that one has more room, and
    /// moves the blocks over. The caller drops the old lists, now in `longer`, with no lock held.
    pub(super) fn replace(&mut self, longer: &mut Lists) {
        for (list, longer) in self.lists.iter_mut().zip(longer) {
            if list.capacity() < longer.capacity() {
                longer.append(list);
                mem::swap(list, longer);
            }
        }
    }

    /// The number of pages on all lists of the CPU for this zone.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The number of pages on the lists at which frees start to return pages to the zone.
    pub(super) fn high(&self) -> u32 {
        self.high
    }

    /// The tuning state, on which later transfers to and from the zone depend: `high`,
    /// `alloc_factor`, `free_count` and `freed_high_order`.
    #[cfg(test)]
    pub(super) fn decided(&self) -> (u32, u32, u32, bool) {
        let Self {
            high, alloc_factor, ..
        } = *self;
        (high, alloc_factor, self.free_count, self.freed_high_order)
    }

    /// The state of the lists, with page numbers converted to frames by `pfn`. The blocks are
    /// written into `room`, whose memory becomes part of the result. If `room` is too small, the
    /// error is the number of blocks that it must hold.
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

    /// Copies everything from `state` except the blocks.
    pub(super) fn set_state(&mut self, state: &ListState) {
        self.set_high(state.high.0);
        self.alloc_factor = state.alloc_factor;
        self.free_count = state.free_count.0;
        self.freed_high_order = state.freed_high_order;
    }

    fn set_high(&mut self, high: u32) {
        self.high = high;
        self.quiet_max = 0;
    }

    /// Removes the hottest block from a list.
    #[inline]
    pub(super) fn pop(&mut self, list: usize, order: Order) -> Option<u32> {
        let page = self.lists[list].pop_back()?;
        self.count -= order.pages().0;
        Some(page)
    }

    /// Records an allocation, which halves the count of pages freed in a row.
    #[inline]
    pub(super) fn note_alloc(&mut self) {
        self.free_count >>= 1;
    }

    /// Puts a block at the hot end of a list. Returns `false` if the list has no room.
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

    /// Puts a block at the cold end of a list. So the blocks of a refill are allocated in the order
    /// in which they were put on the list.
    pub(super) fn push_cold(&mut self, list: usize, order: Order, page: u32) {
        self.lists[list].push_front(page);
        self.count += order.pages().0;
    }

    /// The number of further blocks for which a list has room, at most `blocks`.
    pub(super) fn room(&mut self, list: usize, blocks: u32) -> u32 {
        let stack = &mut self.lists[list];
        let room = stack.capacity() - stack.len();
        match self.metadata {
            Metadata::WhenSplit if stack.try_reserve(blocks as usize).is_ok() => blocks,
            _ => count_of(room.min(blocks as usize)),
        }
    }

    /// Returns the number of blocks to refill an empty list with, and tunes `high` and
    /// `alloc_factor` (Linux: `nr_pcp_alloc`).
    pub(super) fn refill_blocks(&mut self, order: Order, input: &TuningInput) -> u32 {
        let Sizes {
            batch,
            high_min,
            high_max,
        } = input.sizes;
        let (base, high_min, high_max) = (batch.0, high_min.0, high_max.0);
        let mut high = self.high.clamp(high_min, high_max);
        if high < base {
            return 1;
        }
        let mut batch = if order == Order::ZERO {
            // The knob `BatchScaleMax` may have been lowered since `alloc_factor` was raised.
            base << self.alloc_factor.min(input.scale_max)
        } else {
            base
        };
        if high_min != high_max && !input.below_high {
            high = (high + batch).min(high_max);
            self.set_high(high);
        }
        if order == Order::ZERO {
            let room = high
                .saturating_sub(self.count)
                .saturating_sub(base)
                .max(base);
            if batch <= room && self.alloc_factor < input.scale_max {
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

    /// Records that a block of `order` was pushed. Returns the number of pages to return to the
    /// zone now (Linux: the first half of `free_frozen_page_commit`).
    #[inline]
    pub(super) fn note_free(&mut self, order: Order, input: &TuningInput) -> u32 {
        let batch = input.sizes.batch.0;
        self.alloc_factor >>= 1;
        let high_order = (1..=3).contains(&order.get());
        let flush = high_order
            && self.freed_high_order
            && self.free_count >= input.flush_from()
            && (!input.large_cache || self.count >= batch);
        self.freed_high_order = high_order;
        if self.free_count < batch << input.scale_max {
            self.free_count += order.pages().0;
        }
        let high = self.spill_threshold(flush, input);
        if self.count < high {
            0
        } else {
            self.spill_pages(flush, high, input)
        }
    }

    /// Returns the number of pages at which frees start to return pages to the zone, and tunes
    /// `high` (Linux: `nr_pcp_high`).
    #[inline]
    fn spill_threshold(&mut self, flush: bool, input: &TuningInput) -> u32 {
        let Sizes {
            batch,
            high_min,
            high_max,
        } = input.sizes;
        let (batch, high_min, high_max) = (batch.0, high_min.0, high_max.0);
        let high = self.high.clamp(high_min, high_max);
        if high == 0 {
            return 0;
        }
        let lowered_by = |pages: u32| high.saturating_sub(pages).max(high_min);
        if flush {
            self.set_high(lowered_by(batch << input.scale_max));
            return 0;
        }
        if input.reclaiming {
            self.set_high(lowered_by(self.free_count.max(batch)));
            return self.high.min(4 * batch);
        }
        if high_min == high_max {
            return high;
        }
        if input.below_high {
            self.set_high(lowered_by(self.free_count.max(batch)));
            return self.count.max(high_min);
        }
        // `seed_lists` may have set `free_count` to any number, so the sum must saturate.
        let need = self.free_count.saturating_add(batch);
        if self.count >= high && self.high < need {
            self.set_high(need.clamp(high_min, high_max));
        }
        high
    }

    /// The number of pages that a free returns to the zone from lists that are too long (Linux:
    /// `nr_pcp_free`).
    fn spill_pages(&self, flush: bool, high: u32, input: &TuningInput) -> u32 {
        let batch = input.sizes.batch.0;
        if flush {
            self.count.min(batch << input.scale_max)
        } else if high < batch {
            1
        } else {
            self.free_count.clamp(batch, (high - batch).max(batch))
        }
    }

    /// If `high` is above `high_min`, sets it to the largest of `high_min`, 7/8 of `high`, and the
    /// lists' page count minus `batch << scale_max`. Returns the number of pages to return to the
    /// zone now, and whether the next vmstat interval may find more (Linux: `decay_pcp_high`).
    pub(super) fn decay(&mut self, input: &TuningInput) -> (u32, bool) {
        let (batch, high_min) = (input.sizes.batch.0, input.sizes.high_min.0);
        let mut more = false;
        if self.high > high_min {
            let one_drain = self.count.saturating_sub(batch << input.scale_max);
            self.set_high(one_drain.max(self.high - self.high / 8).max(high_min));
            more = self.high > high_min;
        }
        let excess = self.count.saturating_sub(self.high.max(high_min));
        (excess, more || excess > 0)
    }

    /// Says whether a batch of pages must be returned to the zone, which is on a remote node. Each
    /// call counts down by one vmstat interval. The countdown starts again if `used` is true: the
    /// CPU had counted something for the zone in this interval (it had differentials).
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

    /// Returns the coldest block of the list at `cursor`. If that list is empty, first moves
    /// `cursor` on to the next list that is not empty.
    #[inline]
    pub(super) fn coldest(&mut self, cursor: &mut usize) -> Option<Coldest<'_>> {
        if self.lists[*cursor].is_empty() {
            let mut list = (1..LISTS).map(|step| (*cursor + step) % LISTS);
            *cursor = list.find(|&list| !self.lists[list].is_empty())?;
        }
        let order = order_of(*cursor);
        Some(Coldest {
            pcp: self,
            list: *cursor,
            order,
        })
    }
}

/// Whether, and when, a batch from the lists of a remote node's zone is due to be returned to the
/// zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// No batch is due: the lists are empty, or the countdown is not running.
    Never,
    /// A batch is due in a later interval: the countdown is running.
    Later,
    /// A batch must be returned to the zone in the current interval of the vmstat work.
    Now,
}

/// The block that may return to the zone next, still on its list.
pub(super) struct Coldest<'a> {
    pcp: &'a mut Pcp,
    list: usize,
    /// The order of the block.
    pub(super) order: Order,
}

impl Coldest<'_> {
    /// Removes the block from its list and returns its page number.
    #[inline]
    pub(super) fn take(self) -> u32 {
        self.pcp.count -= self.order.pages().0;
        self.pcp.lists[self.list]
            .pop_front()
            .expect("its list was seen non-empty")
    }
}
