//! Checks two rules against Linux. The first says when a zone counts as below its high watermark.
//! The second says which zones' page lists stay short because kswapd reclaims.
//!
//! The tests observe refills: while a zone is below its high watermark, no refill raises `high`,
//! the number of pages that a CPU may keep.

use plimsoll_host::Host;
use plimsoll_mm::design::Design;
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::watermark::{Urgency, Watermarks};
use plimsoll_mm::page::{
    Config, Grouping, Kswapd, Layout, PageAllocator, Reclaiming, Request, ZoneKind, ZoneLayout,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};

const PAGES: u32 = 64 * 1024;
/// The number of pages that the lower zone reserves from requests that the upper zone could serve.
/// It is a 256th of the pages of the upper zone.
const RESERVE: u32 = PAGES / 256;
const MARKS: Watermarks = Watermarks {
    min: Pages(1000),
    low: Pages(2000),
    high: Pages(3000),
};
const LOWER: u32 = 0;
const UPPER: u32 = 1;

fn host() -> Host {
    Host::with_observer(Topology::flat(1), |_, _, _| {})
}

/// Creates an allocator with two zones on one node, each with the watermarks [`MARKS`].
fn allocator(host: &Host) -> PageAllocator<Host> {
    let zone = |kind, start| ZoneLayout {
        kind,
        node: NodeId(0),
        start: Pfn(start),
        spanned: Pages(PAGES),
        holes: Vec::new(),
    };
    let zones = vec![zone(ZoneKind::Dma32, 0), zone(ZoneKind::Normal, PAGES)];
    let mut config = Config::new(Layout::of(zones));
    config.design = Design::LINUX_6_12;
    let pages = PageAllocator::new(host, config).expect("a sound layout");
    let sizes = Sizes {
        batch: Pages(8),
        high_min: Pages(32),
        // `high_max` is above the number of pages that a CPU can take. So every refill has room to
        // raise `high`, the number of pages that a CPU may keep.
        high_max: Pages(2 * PAGES),
    };
    for zone in [LOWER, UPPER] {
        pages
            .seed_sizes(host, zone, MARKS, sizes)
            .expect("there is such a zone");
    }
    pages
}

fn free(host: &Host, pages: &PageAllocator<Host>, zone: u32) -> u32 {
    pages.view(host)[zone as usize].free.0
}

/// Returns a request that only the lower zone can serve, and that may use the reserve of this zone.
/// A request that the upper zone could also serve may not use the reserve.
fn lower() -> Request {
    let request = Request::new(Order::ZERO).from_zone(LOWER);
    request.of_class(ZoneKind::Dma32)
}

fn upper() -> Request {
    Request::new(Order::ZERO).from_zone(UPPER)
}

/// Allocates pages until at most `left` are free in `zone`. Returns the pages.
fn take(
    host: &Host,
    pages: &PageAllocator<Host>,
    request: Request,
    zone: u32,
    left: u32,
) -> Vec<Pfn> {
    let mut taken = Vec::new();
    while free(host, pages, zone) > left {
        taken.push(pages.alloc(host, request).expect("above the min watermark"));
    }
    taken
}

/// Frees pages until more than `least` are free in `zone`.
fn give(host: &Host, pages: &PageAllocator<Host>, taken: &mut Vec<Pfn>, zone: u32, least: u32) {
    while free(host, pages, zone) <= least {
        let page = taken.pop().expect("enough were taken");
        pages.free(host, page, Order::ZERO).expect("it is ours");
    }
}

/// Allocates pages until the next refill. Returns whether that refill raised `high`, the number of
/// pages that a CPU may keep.
fn refill_raises(host: &Host, pages: &PageAllocator<Host>, request: Request, zone: u32) -> bool {
    let state = || pages.list_state(host, zone, CpuId(0)).expect("such a zone");
    let before = state().high;
    let listed = state().count().0;
    // Allocate one page more than the lists hold.
    for _ in 0..=listed {
        pages.alloc(host, request).expect("above the min watermark");
    }
    state().high > before
}

#[test]
fn a_zone_is_below_high_until_it_is_above_what_it_keeps_for_itself_too() {
    let host = host();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host);
    let mut taken = take(&host, &pages, lower(), LOWER, MARKS.high.0 - 500);
    assert!(!refill_raises(&host, &pages, lower(), LOWER));
    // The zone is above its high watermark, but not above the sum of the watermark and the pages
    // that the zone reserves. So the zone still counts as below its high watermark.
    give(&host, &pages, &mut taken, LOWER, MARKS.high.0 + RESERVE / 2);
    assert!(free(&host, &pages, LOWER) <= MARKS.high.0 + RESERVE);
    assert!(!refill_raises(&host, &pages, lower(), LOWER));
    give(
        &host,
        &pages,
        &mut taken,
        LOWER,
        MARKS.high.0 + RESERVE + 100,
    );
    assert!(refill_raises(&host, &pages, lower(), LOWER));
}

#[test]
fn an_urgent_request_notes_that_a_zone_is_below_high_as_any_other() {
    let host = host();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host);
    let urgent = upper().urgent(Urgency::Atomic);
    assert!(refill_raises(&host, &pages, urgent, UPPER));
    // An urgent request compares the free pages with the whole high watermark on the fast path
    // only. On the slow path, it compares them with three eighths of this watermark, and the zone
    // has more free pages than that. So if `high` is not raised, the fast path has found the zone
    // below its high watermark.
    take(&host, &pages, urgent, UPPER, MARKS.high.0 - 500);
    assert!(!refill_raises(&host, &pages, urgent, UPPER));
}

#[test]
fn an_urgent_request_prefers_a_lower_zone_to_one_below_its_low_watermark() {
    let host = host();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host);
    take(
        &host,
        &pages,
        upper().urgent(Urgency::Atomic),
        UPPER,
        MARKS.low.0 - 500,
    );
    let state = || {
        pages
            .list_state(&host, UPPER, CpuId(0))
            .expect("it is there")
    };
    while state().count() > Pages::ZERO {
        pages.alloc(&host, upper()).expect("it is listed");
    }
    let anywhere = Request::new(Order::ZERO).urgent(Urgency::Atomic);
    let page = pages
        .alloc(&host, anywhere)
        .expect("the lower zone has some");
    assert!(page.0 < PAGES, "it comes from the lower zone");
}

#[test]
fn a_page_from_a_list_shows_that_its_zone_is_below_high_if_the_caller_asks() {
    let host = host();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host);
    let big = Request::new(Order::new(10).expect("the largest")).from_zone(UPPER);
    let single = pages.alloc(&host, upper()).expect("there is plenty");
    // These allocations leave the zone more free pages than its high watermark. They bypass the
    // lists, so the single page that is freed below stays on a list.
    take(&host, &pages, big, UPPER, MARKS.high.0 + 3000);
    let before = free(&host, &pages, UPPER);
    assert!(before > MARKS.high.0);
    pages.free(&host, single, Order::ZERO).expect("it is ours");
    let high = Watermarks {
        high: Pages(before + 1),
        ..MARKS
    };
    let sizes = pages.view(&host)[UPPER as usize].sizes;
    pages
        .seed_sizes(&host, UPPER, high, sizes)
        .expect("it is there");
    pages.test_high(&host, upper());
    // The zone is above its high watermark again, but the zone still counts as below its high
    // watermark: only a spill (a transfer of pages from a CPU's lists to the zone) would notice the
    // change, and no spill happens here.
    pages
        .seed_sizes(&host, UPPER, MARKS, sizes)
        .expect("it is there");
    assert!(!refill_raises(&host, &pages, upper(), UPPER));
}

/// Sets the watermarks of a zone.
fn mark(host: &Host, pages: &PageAllocator<Host>, zone: u32, marks: Watermarks) {
    let sizes = pages.view(host)[zone as usize].sizes;
    pages
        .seed_sizes(host, zone, marks, sizes)
        .expect("there is such a zone");
}

/// Watermarks whose `low` and `high` are above the number of free pages of any zone in these tests.
const UNREACHED: Watermarks = Watermarks {
    min: Pages(1),
    low: Pages(2 * PAGES),
    high: Pages(2 * PAGES),
};

#[test]
fn a_test_goes_on_to_lower_zones_until_one_may_give() {
    let anywhere = Request::new(Order::ZERO);
    for (upper_marks, lower_is_tested) in [(UNREACHED, true), (MARKS, false)] {
        let host = host();
        let _entered = host.enter(CpuId(0));
        let pages = allocator(&host);
        mark(&host, &pages, UPPER, upper_marks);
        mark(&host, &pages, LOWER, UNREACHED);
        pages.test_high(&host, anywhere);
        mark(&host, &pages, UPPER, MARKS);
        mark(&host, &pages, LOWER, MARKS);
        assert_eq!(
            refill_raises(&host, &pages, lower(), LOWER),
            !lower_is_tested
        );
        assert_eq!(
            refill_raises(&host, &pages, upper(), UPPER),
            !lower_is_tested
        );
    }
}

/// A CPU lowers a zone's counter of free pages only when it has taken more pages than a threshold,
/// here 6. So a refill that takes 8 pages lowers the counter by 7 at once. The CPU subtracts the
/// last page later.
#[test]
fn blocks_of_one_refill_are_counted_one_by_one() {
    for (high_below_start, raises) in [(8, true), (7, false)] {
        let host = host();
        let _entered = host.enter(CpuId(0));
        let pages = allocator(&host);
        let start = free(&host, &pages, UPPER);
        pages.alloc(&host, upper()).expect("there is plenty");
        assert_eq!(start - free(&host, &pages, UPPER), 8);
        let high = Watermarks {
            high: Pages(start - high_below_start),
            ..MARKS
        };
        mark(&host, &pages, UPPER, high);
        pages.test_high(&host, upper());
        mark(&host, &pages, UPPER, MARKS);
        assert_eq!(refill_raises(&host, &pages, upper(), UPPER), raises);
    }
}

/// Creates an allocator with zones of these kinds on these nodes, each with `PAGES` pages, the
/// watermarks [`MARKS`] and a batch of 8 pages.
fn allocator_of(host: &Host, kinds: &[(ZoneKind, u32)], grouping: Grouping) -> PageAllocator<Host> {
    let zone = |(at, &(kind, node)): (u32, &(ZoneKind, u32))| ZoneLayout {
        kind,
        node: NodeId(node),
        start: Pfn(at * PAGES),
        spanned: Pages(PAGES),
        holes: Vec::new(),
    };
    let zones: Vec<ZoneLayout> = (0..).zip(kinds).map(zone).collect();
    let mut config = Config::new(Layout::of(zones));
    config.design = Design::LINUX_6_12;
    config.grouping = grouping;
    let pages = PageAllocator::new(host, config).expect("a sound layout");
    let sizes = Sizes {
        batch: Pages(8),
        high_min: Pages(32),
        high_max: Pages(2 * PAGES),
    };
    for (zone, _) in (0..).zip(kinds) {
        pages
            .seed_sizes(host, zone, MARKS, sizes)
            .expect("there is such a zone");
    }
    pages
}

/// When pages are freed, Linux compares the number of free pages of the zone with a sum: the zone's
/// high watermark plus the pages that the zone reserves from requests for movable pages. A zone
/// below the movable zone has such a reserve.
#[test]
fn a_zone_is_below_high_until_it_is_above_what_it_keeps_from_movable_pages() {
    const KEPT: u32 = PAGES / 32;
    let host = host();
    let _entered = host.enter(CpuId(0));
    let kinds = [(ZoneKind::Normal, 0), (ZoneKind::Movable, 0)];
    let pages = allocator_of(&host, &kinds, Grouping::Off);
    let request = Request::new(Order::ZERO).from_zone(0);
    let mut taken = take(&host, &pages, request, 0, MARKS.high.0 - 500);
    give(&host, &pages, &mut taken, 0, MARKS.high.0 + KEPT / 2);
    assert!(!refill_raises(&host, &pages, request, 0));
    give(&host, &pages, &mut taken, 0, MARKS.high.0 + KEPT + 100);
    assert!(refill_raises(&host, &pages, request, 0));
}

#[test]
fn free_pages_that_are_kept_for_atomic_requests_do_not_bring_a_zone_above_high() {
    let host = host();
    let _entered = host.enter(CpuId(0));
    let pages = allocator_of(&host, &[(ZoneKind::Normal, 0)], Grouping::Huge);
    let request = Request::new(Order::ZERO).from_zone(0);
    let mut taken = take(&host, &pages, request, 0, MARKS.low.0 - 100);
    let pair = Request::new(Order::new(1).expect("a small one")).from_zone(0);
    pages
        .alloc(&host, pair.urgent(Urgency::Atomic))
        .expect("it may go below the low watermark");
    // Only frees are used here, because an allocation would itself notice that the zone is below
    // its high watermark.
    let mut spills_raise = |least| {
        give(&host, &pages, &mut taken, 0, least);
        for page in taken.drain(taken.len() - 100..) {
            pages.free(&host, page, Order::ZERO).expect("it is ours");
        }
        assert!(free(&host, &pages, 0) < least + 200);
        let state = pages.list_state(&host, 0, CpuId(0));
        state.expect("such a zone").high > Pages(32)
    };
    // The page block from which the two pages of `pair` were allocated is kept for atomic requests.
    // Most of its pages are free, but they do not count when the free pages are compared with the
    // high watermark.
    assert!(!spills_raise(MARKS.high.0 + 100));
    assert!(spills_raise(MARKS.high.0 + 700));
}

#[test]
fn lists_are_short_where_kswapd_reclaims_and_nowhere_else() {
    let host = host();
    let _entered = host.enter(CpuId(0));
    let kinds = [
        (ZoneKind::Dma, 0),
        (ZoneKind::Dma32, 0),
        (ZoneKind::Normal, 0),
        (ZoneKind::Normal, 1),
    ];
    let pages = allocator_of(&host, &kinds, Grouping::Off);
    let sizes = Sizes {
        batch: Pages(8),
        high_min: Pages(256),
        high_max: Pages(256),
    };
    for zone in 0..4 {
        let seeded = pages.seed_sizes(&host, zone, MARKS, sizes);
        seeded.expect("there is such a zone");
    }
    let short = |highest, reclaiming| {
        pages.set_reclaiming(&host, NodeId(0), highest, reclaiming);
        [0, 1, 2, 3].map(|zone: u32| {
            let request = Request::new(Order::ZERO).from_zone(zone);
            let request = request.of_class(kinds[zone as usize].0);
            let taken: Vec<Pfn> = (0..200)
                .map(|_| pages.alloc(&host, request).expect("there is plenty"))
                .collect();
            for page in taken {
                pages.free(&host, page, Order::ZERO).expect("it is ours");
            }
            let state = pages.list_state(&host, zone, CpuId(0));
            state.expect("such a zone").count() <= Pages(4 * 8)
        })
    };
    assert_eq!(
        short(ZoneKind::Dma32, Reclaiming::Yes),
        [true, true, false, false]
    );
    assert_eq!(
        short(ZoneKind::Movable, Reclaiming::Yes),
        [true, true, true, false]
    );
    assert_eq!(short(ZoneKind::Movable, Reclaiming::No), [false; 4]);
}

/// A CPU that has taken pages from a zone subtracts them from the zone's counter of free pages only
/// when their number exceeds a threshold. Of a refill of 8 blocks, the CPU subtracts 7 at once if
/// the threshold is 6. While kswapd is awake, the threshold is 2, and the CPU subtracts 6 at once.
#[test]
fn a_cpu_holds_back_less_while_kswapd_is_awake_if_it_could_hide_the_min_watermark() {
    let raises = |distance: u32, told: &[Kswapd]| {
        let host = host();
        let _entered = host.enter(CpuId(0));
        let pages = allocator(&host);
        let start = free(&host, &pages, LOWER);
        let marks = |high| Watermarks {
            min: Pages(1000),
            low: Pages(1000 + distance),
            high,
        };
        // The allocator compares the zone's free pages with the high watermark plus the reserve.
        // This sum is above the zone's drift mark (Linux: `percpu_drift_mark`). So the allocator
        // uses the zone's counter alone, without the amounts that CPUs have not added to this
        // counter yet.
        mark(&host, &pages, LOWER, marks(Pages(start - 7 - RESERVE)));
        for &kswapd in told {
            pages.set_kswapd(&host, NodeId(0), kswapd);
        }
        pages.alloc(&host, lower()).expect("there is plenty");
        assert_eq!(start - free(&host, &pages, LOWER), 8);
        pages.test_high(&host, Request::new(Order::ZERO).from_zone(LOWER));
        mark(&host, &pages, LOWER, MARKS);
        refill_raises(&host, &pages, lower(), LOWER)
    };
    assert!(!raises(2, &[]));
    assert!(raises(2, &[Kswapd::Awake]));
    assert!(!raises(2, &[Kswapd::Awake, Kswapd::Asleep]));
    assert!(!raises(6, &[Kswapd::Awake]), "it cannot hide six pages");
}
