//! Moves of several blocks at once between a page list and a zone that keeps its free pages in
//! bitmaps.

use super::{Pcp, TuningInput};
use crate::units::{Order, count_of};

impl Pcp {
    /// Puts blocks of `order` at the cold end of a list. The block that comes first in `pages` will
    /// be allocated first.
    pub(in crate::page) fn extend_cold(&mut self, list: usize, order: Order, pages: &[u32]) {
        let stack = &mut self.lists[list];
        if stack.is_empty() {
            // Appending the pages in reverse order has the same result, and is faster.
            stack.extend(pages.iter().rev());
        } else {
            pages.iter().for_each(|&page| stack.push_front(page));
        }
        self.count += count_of(pages.len()) << order.get();
    }

    /// Removes up to `out.len()` of the coldest blocks from a list, whose blocks are of `order`,
    /// writes their first pages to `out`, and returns their number.
    pub(in crate::page) fn take_cold(
        &mut self,
        list: usize,
        order: Order,
        out: &mut [u32],
    ) -> usize {
        let stack = &mut self.lists[list];
        let got = stack.len().min(out.len());
        // For so few blocks, this is faster than `drain`.
        for out in &mut out[..got] {
            *out = stack.pop_front().unwrap_or_default();
        }
        self.count -= count_of(got) << order.get();
        got
    }

    /// The number of huge blocks with which an empty list is refilled if the zone keeps its free
    /// pages in bitmaps. They fill the lists to half of `high`, but there are at least 2 and at
    /// most 8 of them.
    pub(in crate::page) fn huge_refill(&self) -> u32 {
        let half = self.high.saturating_sub(self.count) / 2;
        (half >> Order::HUGE.get()).clamp(2, 8)
    }

    /// When huge blocks fill the lists, this number of pages returns to a zone that keeps its free
    /// pages in bitmaps. It is half of the pages on the lists, but at most 8 huge blocks.
    pub(in crate::page) fn huge_spill(&self) -> u32 {
        (self.count / 2).min(8 << Order::HUGE.get())
    }

    /// Moves single pages from the zone to the caller, and not to the lists, which are empty. Calls
    /// `take` with the number of pages that may move, which is at most `len`. `take` moves pages, and
    /// returns their number. Tunes `high`, and records the allocations, as if a refill had moved the
    /// pages to a list, and allocations had then taken all of them. `len` is at most a batch, so
    /// `alloc_factor` does not grow.
    pub(in crate::page) fn refill_run(
        &mut self,
        len: u32,
        input: &TuningInput,
        take: impl FnOnce(u32) -> u32,
    ) {
        let sizes = input.sizes;
        let (high_min, high_max) = (sizes.high_min.0, sizes.high_max.0);
        let high = self.high.clamp(high_min, high_max);
        self.free_count = 0;
        if high < sizes.batch.0 {
            take(len.min(1));
            return;
        }
        let taken = take(len);
        if high_min != high_max && !input.below_high {
            self.set_high((high + taken).min(high_max));
        }
    }

    /// Returns whether `len` pages of a run of `run` freed pages should go to the zone, and none to a
    /// list. This is so if the list could not hold the whole run without returning pages to the
    /// zone, and the number of pages that the lists may have cannot grow. If so, also records the
    /// frees of the `len` pages. Otherwise changes nothing.
    pub(in crate::page) fn passes_run(&mut self, len: u32, run: u32, input: &TuningInput) -> bool {
        if input.reclaiming || input.below_high || self.quiet_frees(input) >= run {
            return false;
        }
        let sizes = input.sizes;
        // Frees do not raise `free_count` above this number. But `seed_lists` may have done so.
        let most = (sizes.batch.0 << input.scale_max).max(self.free_count);
        let freed = self.free_count.saturating_add(len).min(most);
        let need = freed.saturating_add(sizes.batch.0);
        let may_grow = sizes.high_min != sizes.high_max && self.high < need.min(sizes.high_max.0);
        if !may_grow {
            self.note_quiet_frees(len, input);
        }
        !may_grow
    }
}
