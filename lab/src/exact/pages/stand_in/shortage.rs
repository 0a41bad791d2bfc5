//! Performs the recorded operations that concern reclaim by kswapd, and allocations that find zones
//! short of memory.

use plimsoll_mm::page::watermark::Watermarks;
use plimsoll_mm::page::{Kswapd, Reclaiming, SeedError, ZoneKind};
use plimsoll_mm::units::{NodeId, Pages};

use super::super::lists::MOVABLE;
use super::StandIn;

impl StandIn {
    /// Sets whether the kswapd of `node` reclaims in the node's zones up to `highest`, an index in
    /// the kernel's order of zones. If `active` is true, also marks kswapd as awake.
    pub(super) fn set_reclaiming(&self, node: NodeId, highest: u8, active: bool) -> bool {
        let reclaiming = if active {
            Reclaiming::Yes
        } else {
            Reclaiming::No
        };
        let pages = self.mm.pages();
        pages.set_reclaiming(&self.machine, node, counted(highest), reclaiming);
        !active || self.set_kswapd(node, Kswapd::Awake)
    }

    /// Tells Plimsoll whether the kswapd of `node` is awake, or sleeps until an allocation wakes
    /// it.
    pub(super) fn set_kswapd(&self, node: NodeId, kswapd: Kswapd) -> bool {
        let pages = self.mm.pages();
        pages.set_kswapd(&self.machine, node, kswapd);
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

    /// Records that an allocation found the zones of `node` below their high watermarks, up to the
    /// zone with the index `highest` in the kernel.
    ///
    /// If `node` is unknown and several nodes have memory, the allocation did not necessarily try
    /// all nodes, because a memory policy or a cpuset may forbid some. So the function then marks
    /// only zones that really are below their high watermarks.
    pub(super) fn set_below_high(&self, node: Option<NodeId>, highest: u8) -> bool {
        let certain = node.is_some() || self.has_one_node();
        let highest = counted(highest);
        let tried = |kind, home| kind <= highest && node.is_none_or(|node| node == home);
        let mut done = true;
        for (zone, &(kind, home)) in (0..).zip(&self.kinds) {
            if !tried(kind, home) {
                continue;
            }
            let pages = self.mm.pages();
            if certain {
                let set = pages.set_below_high(&self.machine, u32::from(zone));
                done &= set.is_ok();
            } else {
                pages.test_high(&self.machine, self.request(zone, 0, MOVABLE));
            }
        }
        done
    }

    fn has_one_node(&self) -> bool {
        let mut nodes = self.kinds.iter().map(|(_, node)| node);
        let first = nodes.next();
        nodes.all(|node| Some(node) == first)
    }

    /// Tests the high watermarks of `zone` and of the higher zones of its node, highest zone first.
    /// The kernel tested them in this order before it took a block of `order` and `mobility` from
    /// `zone`. If the allocation preferred other nodes, the kernel also tested zones of these
    /// nodes, but no event shows this.
    pub(super) fn test_high(&self, zone: u8, (order, mobility): (u8, u8)) {
        let last = u8::try_from(self.kinds.len()).unwrap_or(u8::MAX);
        let node = |zone: u8| self.kinds[usize::from(zone)].1;
        let home = node(zone);
        for zone in (zone..last).rev().filter(|zone| node(*zone) == home) {
            let request = self.request(zone, order, mobility);
            self.mm.pages().test_high(&self.machine, request);
        }
    }
}

/// The kind of the zone with the index `zone` in the kernel. Returns `Movable` if no kind has this
/// index.
fn counted(zone: u8) -> ZoneKind {
    let known = ZoneKind::ALL.get(usize::from(zone));
    known.copied().unwrap_or(ZoneKind::Movable)
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::design::Design;
    use plimsoll_mm::page::sizing::Sizes;

    use super::super::super::lists::ListId;
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
        let mut stand_in = StandIn::new(Design::LINUX_6_12, &[zone], &knobs).expect("a sound zone");
        let mut start = Start::default();
        start.blocks[1] = 20;
        for cpu in 0..2 {
            stand_in.seed(0, cpu, &start).expect("memory in use");
        }
        let drain = Op {
            event: 0,
            cpu: 1,
            action: Action::Drain { zone: 0, by: 0 },
            moves: Vec::new(),
        };
        let moved: u32 = stand_in.perform(&drain).iter().map(|hold| hold.pages).sum();
        assert_eq!((moved, stand_in.listed(0), stand_in.listed(1)), (20, 20, 0));
    }

    const SIZES: Sizes = Sizes {
        batch: Pages(31),
        high_min: Pages(100),
        high_max: Pages(1000),
    };

    /// Makes two nodes with one CPU and one zone each. Each zone has 8,192 free pages, and `high`
    /// has the zones' high watermarks in pages. Every CPU has 500 pages on its list of movable
    /// pages for each zone. The `high` of these lists is 1,000 and can shrink to 100.
    fn two_nodes(high: [u32; 2]) -> StandIn {
        two_zones([(0, "DMA32"), (1, "DMA32")], high)
    }

    /// Makes two zones of the given nodes and names, and two CPUs, one for each of these nodes. The
    /// free pages, watermarks and lists are as in [`two_nodes`].
    fn two_zones(zones: [(u32, &str); 2], high: [u32; 2]) -> StandIn {
        let zone = |(node, name): (u32, &str)| ZoneInfo {
            node,
            name: name.to_owned(),
            managed: 1 << 14,
            free: 1 << 13,
            ..ZoneInfo::default()
        };
        let knobs = Knobs {
            min_free_kib: 4096,
            high_fraction: 0,
            nodes: zones.map(|(node, _)| node).to_vec(),
            offline: Vec::new(),
            cache_slice: None,
        };
        let zones = zones.map(zone);
        let mut stand_in = StandIn::new(Design::LINUX_6_12, &zones, &knobs).expect("sound zones");
        let mut start = Start {
            high: 1000,
            ..Start::default()
        };
        start.blocks[1] = 500;
        for (zone, high) in (0..).zip(high) {
            let marks = Watermarks {
                min: Pages(10),
                low: Pages(20),
                high: Pages(high),
            };
            stand_in.set_sizes(zone, marks, SIZES).expect("such a zone");
            for cpu in 0..2 {
                stand_in.seed(zone, cpu, &start).expect("memory in use");
            }
        }
        stand_in
    }

    fn perform(stand_in: &mut StandIn, action: Action) -> u32 {
        let op = Op {
            event: 0,
            cpu: 0,
            action,
            moves: Vec::new(),
        };
        stand_in.perform(&op).iter().map(|hold| hold.pages).sum()
    }

    /// Frees one page to a list of `zone`. Returns the number of pages that the lists return to the
    /// zone as a result.
    fn spilled(stand_in: &mut StandIn, zone: u8) -> u32 {
        let list = ListId(1);
        perform(stand_in, Action::Free { zone, list, pfn: 7 })
    }

    #[test]
    fn kswapd_shortens_only_the_lists_of_its_node() {
        let mut stand_in = two_nodes([200; 2]);
        let reclaim = |active| Action::Reclaim {
            node: 1,
            highest: 1,
            active,
        };
        perform(&mut stand_in, reclaim(true));
        assert_eq!([0, 1].map(|zone| spilled(&mut stand_in, zone)), [0, 31]);
        perform(&mut stand_in, reclaim(false));
        assert_eq!([0, 1].map(|zone| spilled(&mut stand_in, zone)), [0, 0]);
    }

    /// The kswapd of a node wakes when it begins a round, and stays awake after the round until it
    /// sleeps. While kswapd is awake, CPUs add their changes to the zone's count of free pages
    /// sooner. So the next allocation finds sooner that the zone is short.
    #[test]
    fn kswapd_is_awake_from_its_round_until_it_sleeps() {
        let round = |active| Action::Reclaim {
            node: 0,
            highest: 2,
            active,
        };
        let spilled_after = |actions: &[Action]| {
            let mut stand_in = two_zones([(0, "DMA32"), (0, "Normal")], [200; 2]);
            // The zone withholds 64 pages from the requests of this test. So the zone is short of
            // memory as soon as its count of free pages falls by two.
            let marks = Watermarks {
                min: Pages(10),
                low: Pages(12),
                high: Pages((1 << 13) - 64 - 1),
            };
            stand_in.set_sizes(0, marks, SIZES).expect("such a zone");
            for action in actions {
                perform(&mut stand_in, action.clone());
            }
            for pfn in 20..24 {
                let direct = Action::AllocDirect {
                    zone: 0,
                    order: 0,
                    mobility: MOVABLE,
                    pfn,
                };
                perform(&mut stand_in, direct);
            }
            spilled(&mut stand_in, 0)
        };
        let rounds = [round(true), round(false), Action::Sleep { node: 0 }];
        assert_eq!(spilled_after(&rounds[..2]), 31, "kswapd is awake");
        assert_eq!(spilled_after(&rounds), 0, "kswapd sleeps");
    }

    #[test]
    fn a_shortage_of_one_node_is_none_of_the_other() {
        let mut stand_in = two_nodes([200; 2]);
        let shortage = Action::Shortage {
            node: Some(1),
            highest: 1,
        };
        perform(&mut stand_in, shortage);
        assert_eq!([0, 1].map(|zone| spilled(&mut stand_in, zone)), [0, 31]);
    }

    /// The event of a shortage can lack a node although several nodes have memory. In this case,
    /// only zones below their high watermarks count as short of memory.
    #[test]
    fn a_shortage_of_unknown_nodes_is_one_of_those_with_too_few_free_pages() {
        let mut stand_in = two_nodes([200, 1 << 14]);
        let shortage = Action::Shortage {
            node: None,
            highest: u8::MAX,
        };
        perform(&mut stand_in, shortage);
        assert_eq!([0, 1].map(|zone| spilled(&mut stand_in, zone)), [0, 31]);
    }

    /// On a computer with one node, no memory policy can keep an allocation from a part of the
    /// memory. So an allocation that found no block has tried every zone, including zones of kinds
    /// that the event does not name. Each zone counts as short, however many free pages it has.
    #[test]
    fn a_shortage_on_a_computer_with_one_node_is_one_of_all_zones() {
        let mut stand_in = two_zones([(0, "Normal"), (0, "Movable")], [200; 2]);
        let shortage = Action::Shortage {
            node: None,
            highest: u8::MAX,
        };
        perform(&mut stand_in, shortage);
        assert_eq!([0, 1].map(|zone| spilled(&mut stand_in, zone)), [31, 31]);
    }

    /// Linux tests the high watermarks of a node's zones from the highest zone to the lowest. So an
    /// allocation from a lower zone shows that the kernel also tested the higher zones.
    #[test]
    fn an_allocation_from_a_zone_tests_the_higher_zones_of_its_node_too() {
        let mut stand_in = two_zones([(0, "DMA32"), (0, "Normal")], [200, 1 << 14]);
        let taken = Action::Alloc {
            zone: 0,
            list: ListId(1),
            pfn: 9,
        };
        perform(&mut stand_in, taken);
        assert_eq!([0, 1].map(|zone| spilled(&mut stand_in, zone)), [0, 31]);
    }

    #[test]
    fn an_allocation_from_one_node_says_nothing_about_another() {
        let mut stand_in = two_nodes([200, 1 << 14]);
        let taken = Action::Alloc {
            zone: 0,
            list: ListId(1),
            pfn: 9,
        };
        perform(&mut stand_in, taken);
        assert_eq!([0, 1].map(|zone| spilled(&mut stand_in, zone)), [0, 0]);
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
        let mut stand_in = StandIn::new(Design::LINUX_6_12, &[zone], &knobs).expect("a sound zone");
        let marks = Watermarks {
            min: Pages(100),
            low: Pages(150),
            high: Pages(200),
        };
        let now = |stand_in: &StandIn| {
            let view = stand_in.mm.pages().view(&stand_in.machine);
            let marks = view[0].watermarks;
            [marks.min.0, marks.low.0, marks.high.0]
        };
        stand_in
            .set_sizes(0, marks, Sizes::BOOT)
            .expect("such a zone");
        assert_eq!(now(&stand_in), [100, 150, 200]);
        stand_in.boost(0, 512).expect("such a zone");
        stand_in.boost(0, 1024).expect("such a zone");
        assert_eq!(now(&stand_in), [1124, 1174, 1224]);
        stand_in.boost(0, 0).expect("such a zone");
        assert_eq!(now(&stand_in), [100, 150, 200]);
        assert_eq!(
            stand_in.mm.pages().view(&stand_in.machine)[0].free,
            Pages(1 << 13)
        );
    }
}
