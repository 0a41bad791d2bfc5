//! Every layout of zones, knob (setting) and size that a caller can pass either works or is refused
//! with an error.
//!
//! With debug assertions an overflow stops the test at once. Without debug assertions, the
//! comparisons at the end of each test detect it.

use crate::support;

use plimsoll_host::Host;
use plimsoll_mm::design::{Design, HOLDS};
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::watermark::{Urgency, Watermarks};
use plimsoll_mm::page::{
    AllocError, Config, FreeError, Grouping, Layout, ListState, Mobility, NODES_MAX, PageAllocator,
    Request, ZONE_PAGES_MAX, ZoneKind, ZoneLayout,
};
use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};
use proptest::prelude::*;
use proptest::{collection, option, sample};
use support::numbers::{any_u32, any_u64};

fn kind() -> impl Strategy<Value = ZoneKind> {
    sample::select(ZoneKind::ALL.to_vec())
}

/// Generates a zone at any address, of any size and with any holes. Most such zones are refused.
fn any_zone() -> impl Strategy<Value = ZoneLayout> {
    let holes = collection::vec(
        any_u32().prop_flat_map(|from| (Just(from), any_u32())),
        0..4,
    );
    let start = prop_oneof![any_u32(), any_u32().prop_map(|at| at & !1023)];
    let node = prop_oneof![0..3u32, any_u32()];
    (kind(), node, start, any_u32(), holes).prop_map(|(kind, node, start, spanned, holes)| {
        ZoneLayout {
            kind,
            node: NodeId(node),
            start: Pfn(start),
            spanned: Pages(spanned),
            holes: holes.into_iter().map(|(from, to)| from..to).collect(),
        }
    })
}

/// Returns whether an allocator can manage `zones`. This function computes with 64-bit numbers,
/// which cannot overflow here.
fn is_possible(zones: &[ZoneLayout]) -> bool {
    let span = |zone: &ZoneLayout| {
        let start = u64::from(zone.start.0);
        (start, start + u64::from(zone.spanned.0))
    };
    let fits = |zone: &ZoneLayout| {
        let (start, end) = span(zone);
        let mut from = start;
        let mut memory = end - start;
        let holes = zone.holes.iter().all(|hole| {
            let (first, last) = (u64::from(hole.start), u64::from(hole.end));
            let is_good = from <= first && first < last && last <= end;
            from = last;
            memory = memory.saturating_sub(last.saturating_sub(first));
            is_good
        });
        start.is_multiple_of(1024)
            && end <= u64::from(u32::MAX)
            && zone.spanned <= ZONE_PAGES_MAX
            && zone.node.0 < NODES_MAX
            && holes
            && memory > 0
    };
    let apart = |(at, zone): (usize, &ZoneLayout)| {
        let (start, end) = span(zone);
        zones[..at]
            .iter()
            .map(span)
            .all(|other| other.1 <= start || end <= other.0)
    };
    !zones.is_empty() && zones.iter().all(fits) && zones.iter().enumerate().all(apart)
}

/// Zones of a few thousand pages, adjacent or with gaps between them. They are anywhere from low
/// memory to the last possible frame. Most such layouts are valid.
fn small_layout() -> impl Strategy<Value = Layout> {
    let zone = (
        kind(),
        0..5u32,
        1..5000u32,
        0..3u32,
        option::of((0..5000u32, 1..2000u32)),
    );
    (collection::vec(zone, 1..4), any_u32(), any::<bool>()).prop_map(|(zones, from, lazily)| {
        let mut start = (from & !1023).min(u32::MAX - (1 << 16));
        let mut all = Vec::new();
        for (kind, node, pages, gap, hole) in zones {
            start = (start + 1024 * gap) & !1023;
            let hole = hole.map(|(at, len)| start + at..start + (at + len).min(pages));
            all.push(ZoneLayout {
                kind,
                node: NodeId(node),
                start: Pfn(start),
                spanned: Pages(pages),
                holes: hole.into_iter().collect(),
            });
            start += pages + 1023;
        }
        let layout = Layout::of(all);
        if lazily { layout.lazily() } else { layout }
    })
}

fn urgency() -> impl Strategy<Value = Urgency> {
    sample::select(vec![
        Urgency::Normal,
        Urgency::NoWait,
        Urgency::High,
        Urgency::Atomic,
        Urgency::Victim,
        Urgency::Reserve,
    ])
}

fn request() -> impl Strategy<Value = Request> {
    let orders: Vec<Order> = Order::all().collect();
    let mobility = sample::select(Mobility::ALL.to_vec());
    let place = option::of((any::<bool>(), any_u32()));
    (sample::select(orders), kind(), urgency(), mobility, place).prop_map(
        |(order, class, urgency, mobility, place)| {
            let request = Request::new(order)
                .of_class(class)
                .urgent(urgency)
                .of_mobility(mobility);
            match place {
                None => request,
                Some((true, node)) => request.from_node(NodeId(node)),
                Some((false, zone)) => request.from_zone(zone),
            }
        },
    )
}

fn sizes() -> impl Strategy<Value = (Watermarks, Sizes)> {
    collection::vec(any_u32(), 6).prop_map(|of| {
        let marks = Watermarks {
            min: Pages(of[0]),
            low: Pages(of[1]),
            high: Pages(of[2]),
        };
        let sizes = Sizes {
            batch: Pages(of[3]),
            high_min: Pages(of[4]),
            high_max: Pages(of[5]),
        };
        (marks, sizes)
    })
}

/// A random operation on an allocator. Its arguments may be impossible.
#[derive(Clone, Debug)]
enum Step {
    Alloc(Request),
    Bulk(Request, usize),
    All(Request, usize),
    Free(usize),
    FreeAny(u32, Order),
    Tune(Knob, u64),
    Sizes(u32, Watermarks, Sizes),
    Lists(u32, u32, u32, u32),
    Drain,
    Decay(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let orders: Vec<Order> = Order::all().collect();
    prop_oneof![
        6 => request().prop_map(Step::Alloc),
        1 => (request(), 0..200usize).prop_map(|(request, pages)| Step::Bulk(request, pages)),
        1 => (request(), 0..2000usize).prop_map(|(request, pages)| Step::All(request, pages)),
        6 => any::<usize>().prop_map(Step::Free),
        1 => (any_u32(), sample::select(orders)).prop_map(|(pfn, order)| Step::FreeAny(pfn, order)),
        2 => (sample::select(Knob::ALL.to_vec()), any_u64()).prop_map(|(knob, to)| Step::Tune(knob, to)),
        1 => (0..4u32, sizes()).prop_map(|(zone, (marks, sizes))| Step::Sizes(zone, marks, sizes)),
        1 => (any_u32(), any_u32(), any_u32(), any_u32())
            .prop_map(|(zone, high, factor, freed)| Step::Lists(zone % 4, high, factor, freed)),
        1 => Just(Step::Drain),
        1 => (0..5u32).prop_map(Step::Decay),
    ]
}

/// An allocator and the blocks that are allocated from it.
struct Held<'a> {
    host: &'a Host,
    pages: &'a PageAllocator<Host>,
    blocks: Vec<(Pfn, Order)>,
}

impl Held<'_> {
    fn take(&mut self, step: &Step) {
        let (host, pages) = (self.host, self.pages);
        match step {
            Step::Alloc(request) => match pages.alloc(host, *request) {
                Ok(pfn) => self.blocks.push((pfn, request.order)),
                Err(AllocError::OutOfMemory(_) | AllocError::NoSuchZone) => {}
            },
            Step::Bulk(request, count) => {
                let mut pfns = vec![Pfn(0); *count];
                let got = pages.alloc_bulk(host, *request, &mut pfns);
                self.blocks
                    .extend(pfns[..got].iter().map(|&pfn| (pfn, Order::ZERO)));
            }
            Step::All(request, count) => {
                let mut pfns = vec![Pfn(u32::MAX); *count];
                let got = match pages.alloc_pages(host, *request, &mut pfns) {
                    Ok(()) => *count,
                    Err(error) => error.got,
                };
                assert!(pfns[got..].iter().all(|&pfn| pfn == Pfn(u32::MAX)));
                self.blocks
                    .extend(pfns[..got].iter().map(|&pfn| (pfn, Order::ZERO)));
            }
            Step::Free(nth) if !self.blocks.is_empty() => {
                let at = nth % self.blocks.len();
                let (pfn, order) = self.blocks.swap_remove(at);
                pages.free(host, pfn, order).expect("it was handed out");
            }
            Step::Free(_) => {}
            Step::FreeAny(pfn, order) => {
                let is_held = |&(held, of): &(Pfn, Order)| (held, of) == (Pfn(*pfn), *order);
                let at = self.blocks.iter().position(is_held);
                assert_eq!(pages.free(host, Pfn(*pfn), *order).is_ok(), at.is_some());
                at.map(|at| self.blocks.swap_remove(at));
            }
            Step::Tune(knob, to) => {
                let before = pages.tunable(host, *knob);
                let now = match pages.set_tunable(host, *knob, *to) {
                    Ok(()) => *to,
                    Err(_) => before,
                };
                assert_eq!(pages.tunable(host, *knob), now);
            }
            Step::Sizes(zone, marks, sizes) => {
                let before = pages.view(host).get(*zone as usize).map(|view| view.sizes);
                let outcome = pages.seed_sizes(host, *zone, *marks, *sizes);
                let now = pages.view(host).get(*zone as usize).map(|view| view.sizes);
                let wanted = if outcome.is_ok() {
                    Some(*sizes)
                } else {
                    before
                };
                assert_eq!(now, wanted, "set as they are, or refused");
            }
            Step::Lists(zone, high, alloc_factor, freed) => {
                let state = ListState {
                    high: Pages(*high),
                    alloc_factor: *alloc_factor,
                    free_count: Pages(*freed),
                    ..ListState::default()
                };
                let _no_such_zone = pages.seed_lists(host, *zone, CpuId(0), &state);
            }
            Step::Drain => {
                pages.drain_all_sync(host);
            }
            Step::Decay(zone) => {
                let _no_such_zone = pages.decay_lists(host, *zone, CpuId(0));
            }
        }
    }
}

fn topology(nodes: &[u32]) -> Topology {
    let place = |(core, &node): (u32, &u32)| CpuPlace {
        core,
        llc: node,
        node: NodeId(node),
        socket: node,
    };
    Topology::new((0..).zip(nodes).map(place).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_layout_is_refused_exactly_if_it_cannot_be(zones in collection::vec(any_zone(), 0..4)) {
        let layout = Layout::of(zones);
        prop_assert_eq!(layout.check().is_ok(), is_possible(&layout.zones), "{:?}", layout.check());
        let managed: Vec<Pages> = layout.zones.iter().map(ZoneLayout::managed).collect();
        prop_assert_eq!(managed.len(), layout.zones.len());
    }

    #[test]
    fn nodes_of_any_sizes_can_be_managed_or_are_refused(bytes in collection::vec(any_u64(), 0..6)) {
        let layout = Layout::of_nodes(&bytes);
        prop_assert_eq!(layout.check().is_ok(), is_possible(&layout.zones));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_passed_no_page_is_lost(
        layout in small_layout(),
        cpus in collection::vec(0..4u32, 1..4),
        (holds, grouping) in (sample::select(HOLDS.to_vec()), 0..3usize),
        knobs in collection::vec((sample::select(Knob::ALL.to_vec()), any_u64()), 0..6),
        cache_slice in any_u32(),
        steps in collection::vec(step(), 0..120),
    ) {
        let host = Host::with_topology(topology(&cpus));
        let _entered = host.enter(CpuId(0));
        let mut config = Config::new(layout.clone());
        config.design = Design { holds, ..Design::OURS };
        config.grouping = [Grouping::Off, Grouping::Huge, Grouping::Largest][grouping];
        config.cache_slice = Pages(cache_slice);
        for (knob, to) in knobs {
            let _refused = config.tunables.set(knob, to);
        }
        let pages = match PageAllocator::new(&host, config) {
            Ok(pages) => pages,
            Err(why) => {
                prop_assert_eq!(Err(why), layout.check());
                return Ok(());
            }
        };
        let mut held = Held { host: &host, pages: &pages, blocks: Vec::new() };
        steps.iter().for_each(|step| held.take(step));
        for (pfn, order) in held.blocks {
            prop_assert_eq!(pages.free(&host, pfn, order), Ok(()));
        }
        pages.drain_all_sync(&host);
        for view in pages.view(&host) {
            prop_assert_eq!((view.free, view.listed), (view.managed, Pages::ZERO));
            prop_assert_eq!(view.counted_free, u64::from(view.managed.0));
        }
    }
}

#[test]
#[should_panic(
    expected = "CPU 3 does not exist on the machine of 2 CPUs with which this allocator was created"
)]
fn a_machine_with_more_cpus_is_not_the_one_that_the_allocator_was_made_with() {
    let [small, large] = [2, 4].map(|cpus| Host::with_topology(Topology::flat(cpus)));
    let config = Config::new(Layout::arena(Pages(1 << 12)));
    let pages = PageAllocator::new(&small, config).expect("an arena is a layout");
    let _entered = large.enter(CpuId(3));
    let _none = pages.alloc(&large, Request::new(Order::ZERO));
}

#[test]
fn of_many_zones_each_finds_its_own_pages_and_gaps_belong_to_none() {
    const ZONES: u32 = 30;
    // The zones are not sorted by their frames.
    let start = |nth: u32| 4096 * (nth * 7 % ZONES) + 1024;
    let zone = |nth| ZoneLayout {
        kind: ZoneKind::Normal,
        node: NodeId(nth % 3),
        start: Pfn(start(nth)),
        spanned: Pages(1500),
        holes: vec![
            start(nth) + 10..start(nth) + 12,
            start(nth) + 1100..start(nth) + 1200,
        ],
    };
    let host = Host::with_topology(Topology::flat(1));
    let layout = Layout::of((0..ZONES).map(zone));
    let pages = PageAllocator::new(&host, Config::new(layout)).expect("they are apart");
    for nth in 0..ZONES {
        let request = Request::new(Order::ZERO)
            .urgent(Urgency::Reserve)
            .from_zone(nth);
        let mut taken = Vec::new();
        while let Ok(pfn) = pages.alloc(&host, request) {
            taken.push(pfn.0);
        }
        taken.sort_unstable();
        let first = start(nth);
        let is_hole = |at: &u32| (10..12).contains(at) || (1100..1200).contains(at);
        let memory = (0..1500).filter(|at| !is_hole(at)).map(|at| first + at);
        assert!(
            taken.iter().copied().eq(memory),
            "zone {nth} from {first} on"
        );
        for pfn in [first - 1, first + 1500, 0, u32::MAX] {
            let outside = FreeError::OutsideZones(Pfn(pfn));
            assert_eq!(pages.free(&host, Pfn(pfn), Order::ZERO), Err(outside));
        }
        assert_eq!(pages.node_of(Pfn(first)), Some(NodeId(nth % 3)));
        let taken: Vec<Pfn> = taken.into_iter().map(Pfn).collect();
        assert_eq!(pages.free_pages(&host, &taken), Ok(()));
    }
}
