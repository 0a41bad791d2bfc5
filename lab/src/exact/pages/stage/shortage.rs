//! Reclaim by kswapd, and allocations that find zones short of memory.

use std::ops::RangeFrom;

use plimsoll_mm::page::watermark::Watermarks;
use plimsoll_mm::page::{Kswapd, Reclaiming, SeedError, ZoneKind};
use plimsoll_mm::units::{NodeId, Pages};

use super::Stage;

impl Stage {
    /// Sets whether kswapd reclaims in the zones of node 0 up to `highest`, in the kernel's
    /// numbering. kswapd wakes when a round begins.
    pub(super) fn set_reclaiming(&self, highest: u8, active: bool) -> bool {
        let reclaiming = if active {
            Reclaiming::Yes
        } else {
            Reclaiming::No
        };
        let pages = self.mm.pages();
        pages.set_reclaiming(&self.machine, NodeId(0), counted(highest), reclaiming);
        !active || self.set_kswapd(Kswapd::Awake)
    }

    /// Sets whether kswapd of node 0 is awake or asleep until an allocation wakes it.
    pub(super) fn set_kswapd(&self, kswapd: Kswapd) -> bool {
        let pages = self.mm.pages();
        pages.set_kswapd(&self.machine, NodeId(0), kswapd);
        true
    }

    /// Sets the watermarks of a zone to `pages` pages above their values without a boost.
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

    /// Records that an allocation found the zones up to `highest`, in the kernel's numbering, below
    /// their high watermarks.
    pub(super) fn set_below_high(&self, highest: u8) -> bool {
        let highest = counted(highest);
        let zones = (0..).zip(&self.kinds).filter(|(_, kind)| **kind <= highest);
        let mut set = zones.map(|(zone, _)| self.mm.pages().set_below_high(&self.machine, zone));
        set.all(|set| set.is_ok())
    }

    /// Tests the high watermarks of `zones`, highest zone first. The kernel tested them in this
    /// order before it took a block of `order` and `mobility` from the lowest of these zones.
    pub(super) fn test_high(&self, zones: RangeFrom<u8>, (order, mobility): (u8, u8)) {
        let last = u8::try_from(self.kinds.len()).unwrap_or(u8::MAX);
        for zone in (zones.start..last).rev() {
            let request = self.request(zone, order, mobility);
            self.mm.pages().test_high(&self.machine, request);
        }
    }
}

/// The kind of the zone with the number `zone` in the kernel; `Movable` for a number beyond those
/// of all kinds.
fn counted(zone: u8) -> ZoneKind {
    let known = ZoneKind::ALL.get(usize::from(zone));
    known.copied().unwrap_or(ZoneKind::Movable)
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::design::Design;
    use plimsoll_mm::page::sizing::Sizes;

    use super::super::{Knobs, Start};
    use super::*;
    use crate::exact::pages::op::{Action, Op};
    use crate::exact::pages::zoneinfo::ZoneInfo;

    #[test]
    fn a_drain_empties_the_lists_of_the_cpu_it_is_about() {
        let zone = ZoneInfo {
            name: "DMA32".to_owned(),
            managed: 1 << 14,
            free: 1 << 13,
            ..ZoneInfo::default()
        };
        let knobs = Knobs {
            min_free_kib: 4096,
            high_fraction: 0,
            nodes: vec![0, 0],
            offline: Vec::new(),
            cache_slice: None,
        };
        let mut stage = Stage::new(Design::LINUX_6_12, &[zone], &knobs).expect("a sound zone");
        let mut start = Start::default();
        start.blocks[1] = 20;
        for cpu in 0..2 {
            stage.seed(0, cpu, &start).expect("memory in use");
        }
        let drain = Op {
            event: 0,
            cpu: 1,
            action: Action::Drain { zone: 0, by: 0 },
            moves: Vec::new(),
        };
        let moved: u32 = stage.perform(&drain).iter().map(|hold| hold.pages).sum();
        assert_eq!((moved, stage.listed(0), stage.listed(1)), (20, 20, 0));
    }

    #[test]
    fn a_boost_raises_all_watermarks_and_the_next_one_replaces_it() {
        let zone = ZoneInfo {
            name: "DMA32".to_owned(),
            managed: 1 << 14,
            free: 1 << 13,
            ..ZoneInfo::default()
        };
        let knobs = Knobs {
            min_free_kib: 4096,
            high_fraction: 0,
            nodes: vec![0],
            offline: Vec::new(),
            cache_slice: None,
        };
        let mut stage = Stage::new(Design::LINUX_6_12, &[zone], &knobs).expect("a sound zone");
        let marks = Watermarks {
            min: Pages(100),
            low: Pages(150),
            high: Pages(200),
        };
        let now = |stage: &Stage| {
            let view = stage.mm.pages().view(&stage.machine);
            let marks = view[0].watermarks;
            [marks.min.0, marks.low.0, marks.high.0]
        };
        stage.set_sizes(0, marks, Sizes::BOOT).expect("such a zone");
        assert_eq!(now(&stage), [100, 150, 200]);
        stage.boost(0, 512).expect("such a zone");
        stage.boost(0, 1024).expect("such a zone");
        assert_eq!(now(&stage), [1124, 1174, 1224]);
        stage.boost(0, 0).expect("such a zone");
        assert_eq!(now(&stage), [100, 150, 200]);
        assert_eq!(
            stage.mm.pages().view(&stage.machine)[0].free,
            Pages(1 << 13)
        );
    }
}
