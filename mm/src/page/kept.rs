//! Keeping page blocks for atomic requests of several pages, and unreserving them when memory runs
//! out (Linux: the `MIGRATE_HIGHATOMIC` reserve). Blocks are kept only if pages are grouped by
//! mobility.
//!
//! Locks: the zone lock, around each change.

use core::sync::atomic::Ordering::Relaxed;

use super::watermark::Urgency;
use super::zone::{Mark, Zone, ZoneRequest};
use super::{PageAllocator, Request};
use crate::machine::{Machine, Word};
use crate::site::Site;
use crate::units::{Order, Pages, count_in};

/// Which of the page blocks kept for atomic requests may be unreserved for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Any block kept for atomic requests, except the last one of a zone.
    Few,
    /// Any kept block.
    All,
}

impl ZoneRequest {
    /// Returns whether the page block that serves this request is kept for later atomic requests of
    /// several pages (Linux: `ALLOC_HIGHATOMIC`, which only the slow path sets).
    #[inline]
    pub(super) fn keeps_block(&self) -> bool {
        self.mark == Mark::Min && self.urgency == Urgency::Atomic && self.order > Order::ZERO
    }

    /// Returns whether this request may take pages of blocks kept for atomic requests when no other
    /// pages are left. If so, those pages count as free for this request.
    pub(super) fn may_use_kept(&self) -> bool {
        self.mark == Mark::Min && self.urgency != Urgency::Normal
    }
}

impl<M: Machine> PageAllocator<M> {
    /// Unreserves one page block that is kept for atomic requests, in a zone that could serve
    /// `request`. Returns whether there was such a page block (Linux:
    /// `unreserve_highatomic_pageblock`).
    pub(super) fn give_kept(&self, machine: &M, request: Request, kept: Kept) -> bool {
        let gives = |zone: &Zone<M>| {
            zone.types.on()
                && zone.locked(machine, Site::Control, |buddy| {
                    buddy.unkeep(zone.frames(), request.mobility, kept == Kept::All)
                })
        };
        self.zonelist(machine, request).any(gives)
    }
}

impl<M: Machine> Zone<M> {
    /// Keeps the page block that contains the allocated `page` for atomic requests. Kept blocks
    /// have at most about one percent of the zone's pages.
    #[cold]
    pub(super) fn keep_block(&self, machine: &M, page: u32, order: Order) {
        let block = self.types.block().pages();
        let share = Pages(self.managed().0 / 100);
        if share < block {
            return;
        }
        let most = Pages(share.0.next_multiple_of(block.0));
        self.locked(machine, Site::Control, |buddy| {
            buddy.keep(self.frames(), page, order, most);
        });
    }

    /// Stores the number of free pages in blocks kept for atomic requests, for watermark tests that
    /// do not take the zone lock. The caller holds that lock.
    pub(super) fn note_kept(&self, machine: &M, free: Pages) {
        let word = &self.settings.free_kept;
        let free = i64::from(free.0);
        if word.load(machine, Relaxed) != free {
            word.store(machine, free, Relaxed);
        }
    }

    /// The number of free pages that `ask` may not take, because they are in blocks kept for atomic
    /// requests.
    pub(super) fn out_of_bounds(&self, machine: &M, ask: ZoneRequest) -> u64 {
        if !self.types.on() || ask.may_use_kept() {
            return 0;
        }
        u64::from(count_in(self.settings.free_kept.load(machine, Relaxed)))
    }
}
