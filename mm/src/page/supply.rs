//! Deciding whether a zone may give a block, and whether it counts as below its high watermark.
//!
//! The hint "below the high watermark" (Linux: `ZONE_BELOW_HIGH`) tunes the page lists. An
//! allocation that finds the zone below that watermark sets the hint; a free that returns pages to
//! the zone, and finds the zone above the watermark, clears the hint.

use core::sync::atomic::Ordering::Relaxed;

use super::layout::ZoneKind;
use super::mobility::Mobility;
use super::settings::Settings;
use super::watermark::{self, Urgency};
use super::zone::{Mark, Zone, ZoneRequest};
use crate::machine::{Machine, Word};
use crate::units::{Order, Pages};

/// Whether a zone's free pages are above its high watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supply {
    /// The zone is above its high watermark.
    Plenty,
    /// The zone is below its high watermark, or a hint says so. An allocation sets the hint if it
    /// finds the zone below this watermark. A free that returns pages to the zone clears the hint
    /// if it finds the zone above this watermark.
    Short,
}

impl<M: Machine> Zone<M> {
    /// Returns whether the zone may give a block and stay above the watermark that `ask` names. If
    /// the zone is below its high watermark, also sets the hint that makes frees return pages to it
    /// early.
    pub(super) fn allows(&self, machine: &M, ask: ZoneRequest) -> bool {
        let free = self.free_for(machine, ask);
        if self.notice_shortage(machine, ask, free) == Supply::Plenty {
            return true;
        }
        let marks = self.watermarks(machine);
        let mark = match ask.mark {
            Mark::Min => marks.min,
            Mark::Low => marks.low,
            Mark::High => marks.high,
        };
        // A request with `Reserve` may always try the free lists. The counter must not stop it,
        // because the counter may be too low: it may lack differentials that CPUs have not folded.
        ask.lowers_marks_as() == Urgency::Reserve || self.stays_above(machine, mark, ask, free)
    }

    pub(super) fn set_below_high(&self, machine: &M) {
        self.settings.below_high.store(machine, 1, Relaxed);
        self.settings_changed(machine);
    }

    /// Tests the high watermark, and sets the hint "below the high watermark" if the zone is below
    /// it. The hint stays set until a free returns pages from the lists and then finds the zone
    /// above the watermark again.
    fn notice_shortage(&self, machine: &M, ask: ZoneRequest, free: u64) -> Supply {
        let below_high = &self.settings.below_high;
        if below_high.load(machine, Relaxed) != 0 {
            return Supply::Short;
        }
        let high = self.watermarks(machine).high;
        if self.stays_above(machine, high, ask, free) {
            return Supply::Plenty;
        }
        below_high.store(machine, 1, Relaxed);
        self.settings_changed(machine);
        Supply::Short
    }

    /// The number of free pages that `ask` may use.
    fn free_for(&self, machine: &M, ask: ZoneRequest) -> u64 {
        let free = self.free_pages(machine);
        free.saturating_sub(self.out_of_bounds(machine, ask))
    }

    fn stays_above(&self, machine: &M, mark: Pages, ask: ZoneRequest, free: u64) -> bool {
        let reserve = Settings::<M>::pages(machine, &self.settings.reserve[ask.class as usize]);
        watermark::allows(
            free,
            ask.order.pages(),
            mark,
            reserve,
            ask.lowers_marks_as(),
        )
    }

    /// Returns whether the zone may give `count` single pages at once and stay above its low
    /// watermark. Does not set the hint "below the high watermark".
    pub(super) fn spares(&self, machine: &M, ask: ZoneRequest, count: Pages) -> bool {
        let reserve = Settings::<M>::pages(machine, &self.settings.reserve[ask.class as usize]);
        let low = self.watermarks(machine).low;
        let mark = Pages(low.0.saturating_add(count.0));
        let free = self.free_pages(machine);
        let free = free.saturating_sub(self.out_of_bounds(machine, ask));
        watermark::allows(free, Pages(1), mark, reserve, ask.lowers_marks_as())
    }

    /// Clears the hint "below the high watermark" if the number of free pages exceeds the high
    /// watermark plus the zone's largest reserve (Linux: the end of `free_frozen_page_commit`). The
    /// largest reserve is the one that the zone withholds from movable requests. If it were not
    /// included here, the next movable request could set the hint again at once.
    pub(super) fn notice_plenty(&self, machine: &M) {
        let below_high = &self.settings.below_high;
        if below_high.load(machine, Relaxed) == 0 {
            return;
        }
        let ask = ZoneRequest {
            order: Order::ZERO,
            class: ZoneKind::Movable,
            urgency: Urgency::Normal,
            mark: Mark::High,
            mobility: Mobility::Movable,
            unmixed: false,
        };
        let free = self.free_for(machine, ask);
        if self.stays_above(machine, self.watermarks(machine).high, ask, free) {
            below_high.store(machine, 0, Relaxed);
            self.settings_changed(machine);
        }
    }
}
