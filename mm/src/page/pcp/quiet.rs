//! Quiet frees: frees that certainly return no pages from the lists to the zone, and so need no
//! decision.
//!
//! The limit `high` and the zone's settings seldom change. So a CPU computes a bound only once: the
//! largest number of pages that its lists may have after a quiet free. Until `high` or a setting
//! changes, a free only compares the number of pages on the lists with this bound.

use super::{Pcp, TuningInput, has_grown};
use crate::page::sizing::Sizes;
use crate::units::{Order, count_of};

impl Pcp {
    /// Computes the largest number of pages on the lists at which a free certainly returns no page
    /// to the zone. `version` is the version of the settings in `input`.
    pub(in crate::page) fn note_quiet(&mut self, input: &TuningInput, version: i64) {
        self.quiet_max = self.quiet_bound(input);
        self.free_count_max = input.sizes.batch.0 << input.scale_max;
        self.quiet_version = version;
    }

    /// Pushes a block onto `list` and records that it was freed, like [`Pcp::push`] and
    /// [`Pcp::note_free`]. Returns `false` and changes nothing if the list has no room, or if pages
    /// might have to return to the zone after this free. Does the same if the settings have
    /// changed, so that `version` is not that of the last [`Pcp::note_quiet`]. `order` must not be
    /// 1 to 3, because frees of these orders can empty the lists.
    #[inline(always)]
    pub(in crate::page) fn push_if_quiet(
        &mut self,
        list: usize,
        order: Order,
        page: u32,
        version: i64,
    ) -> bool {
        debug_assert!(!(1..=3).contains(&order.get()), "may empty the lists");
        let count = self.count + order.pages().0;
        let stack = &mut self.lists[list];
        if count > self.quiet_max
            || self.quiet_version != version
            || stack.len() == stack.capacity()
        {
            return false;
        }
        stack.push_back(page);
        self.count = count;
        self.alloc_factor >>= 1;
        self.freed_high_order = false;
        if self.free_count < self.free_count_max {
            self.free_count += order.pages().0;
        }
        true
    }

    /// Takes the hottest block of a list and records the allocation. Does nothing if the list is
    /// empty.
    #[inline(always)]
    pub(in crate::page) fn pop_if_any(&mut self, list: usize, order: Order) -> Option<u32> {
        let page = self.pop(list, order)?;
        self.note_alloc();
        Some(page)
    }

    /// Takes the hottest blocks of a list of blocks of `order`, the hottest first, until `pages` is
    /// full or the list is empty. Records the allocations. Returns the number of blocks.
    pub(in crate::page) fn pop_run(
        &mut self,
        list: usize,
        order: Order,
        pages: &mut [u32],
    ) -> usize {
        let stack = &mut self.lists[list];
        let len = pages.len().min(stack.len());
        let from = stack.len() - len;
        let hottest = stack.drain(from..).rev();
        pages
            .iter_mut()
            .zip(hottest)
            .for_each(|(to, page)| *to = page);
        self.count -= count_of(len) << order.get();
        self.free_count = self.free_count.checked_shr(count_of(len)).unwrap_or(0);
        len
    }

    /// The number of single pages that can be freed before a free might have to return pages to the
    /// zone.
    #[inline]
    pub(in crate::page) fn quiet_frees(&self, input: &TuningInput) -> u32 {
        self.quiet_bound(input).saturating_sub(self.count)
    }

    /// The largest number of pages that the lists may have after a free that returns no page to the
    /// zone.
    #[inline]
    fn quiet_bound(&self, input: &TuningInput) -> u32 {
        if input.reclaiming || input.below_high {
            return 0;
        }
        let Sizes {
            high_min, high_max, ..
        } = input.sizes;
        let high = self.high.clamp(high_min.0, high_max.0);
        high.saturating_sub(1)
    }

    /// Pushes single pages onto the unmovable list, with the same result as calling [`Pcp::push`]
    /// and [`Pcp::note_free`] for each page. There must be at most [`Pcp::quiet_frees`] of them. If
    /// the list has no room, returns `false` and changes nothing.
    #[inline]
    pub(in crate::page) fn push_quietly(&mut self, pages: &[u32], input: &TuningInput) -> bool {
        let count = count_of(pages.len());
        let stack = &mut self.lists[0];
        if stack.capacity() - stack.len() < pages.len() && !has_grown(stack, self.metadata) {
            return false;
        }
        self.lists[0].extend(pages);
        self.count += count;
        self.note_quiet_frees(count, input);
        true
    }

    /// Records that `count` single pages were freed in a row, with the same result as calling
    /// [`Pcp::note_free`] for each page, if none of these calls would return pages to the zone.
    #[inline]
    pub(super) fn note_quiet_frees(&mut self, count: u32, input: &TuningInput) {
        self.alloc_factor = self.alloc_factor.checked_shr(count).unwrap_or(0);
        self.freed_high_order &= count == 0;
        let most = input.sizes.batch.0 << input.scale_max;
        if self.free_count < most {
            self.free_count = (self.free_count + count).min(most);
        }
    }
}
