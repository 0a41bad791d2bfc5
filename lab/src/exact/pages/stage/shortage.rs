//! Reclaim, and what allocations find out about zones that are short of memory.

use std::ops::RangeFrom;

use plimsoll_mm::page::watermark::Watermarks;
use plimsoll_mm::page::{Reclaiming, SeedError, ZoneKind};
use plimsoll_mm::units::{NodeId, Pages};

use super::Stage;

impl Stage {
    /// kswapd reclaims, or no longer, in zones up to `highest`, counted as the kernel does.
    pub(super) fn set_reclaiming(&self, highest: u8, active: bool) {
        let reclaiming = if active {
            Reclaiming::Yes
        } else {
            Reclaiming::No
        };
        let pages = self.mm.pages();
        pages.set_reclaiming(&self.machine, NodeId(0), counted(highest), reclaiming);
    }

    /// Raises the watermarks of a zone above what they are without a boost.
    pub(super) fn boost(&self, zone: u8, pages: u64) -> Result<(), SeedError> {
        let (marks, sizes) = self.sizes[usize::from(zone)];
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        let raised = |mark: Pages| Pages(mark.0.saturating_add(pages));
        let marks = Watermarks {
            min: raised(marks.min),
            low: raised(marks.low),
            high: raised(marks.high),
        };
        let allocator = self.mm.pages();
        allocator.seed_sizes(&self.machine, u32::from(zone), marks, sizes)
    }

    /// An allocation found the zones up to `highest`, counted as the kernel does, below their high
    /// watermarks.
    pub(super) fn set_below_high(&self, highest: u8) -> bool {
        let highest = counted(highest);
        let zones = (0..).zip(&self.kinds).filter(|(_, kind)| **kind <= highest);
        let mut set = zones.map(|(zone, _)| self.mm.pages().set_below_high(&self.machine, zone));
        set.all(|set| set.is_ok())
    }

    /// Tests the high watermarks of `zones`, highest first, as an allocation of a block of `order` and
    /// `mobility` did in the kernel before it took the block from the lowest of them.
    pub(super) fn test_high(&self, zones: RangeFrom<u8>, (order, mobility): (u8, u8)) {
        let last = u8::try_from(self.kinds.len()).unwrap_or(u8::MAX);
        for zone in (zones.start..last).rev() {
            let request = self.request(zone, order, mobility);
            self.mm.pages().test_high(&self.machine, request);
        }
    }
}

/// The kind of the zone that the kernel counts so; it has more than these on some computers.
fn counted(zone: u8) -> ZoneKind {
    let known = ZoneKind::ALL.get(usize::from(zone));
    known.copied().unwrap_or(ZoneKind::Movable)
}
