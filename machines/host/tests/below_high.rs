//! When a zone counts as below its high watermark, and whose watermarks are lowered, as in Linux.
//!
//! Seen by what a refill does: as long as a zone is below, no refill raises how much a CPU may keep.

use plimsoll_host::Host;
use plimsoll_mm::design::Design;
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::watermark::{Urgency, Watermarks};
use plimsoll_mm::page::{Config, Layout, PageAllocator, Request, ZoneKind, ZoneLayout};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};

const PAGES: u32 = 64 * 1024;
/// What the lower zone keeps from requests that the upper one could serve: a 256th of the latter.
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

/// Two zones of a node, each with these watermarks.
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
        // More than a CPU can take, so that every refill has room to raise it.
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

/// Only a request for the lower zone alone passes by its reserve.
fn lower() -> Request {
    let request = Request::new(Order::ZERO).from_zone(LOWER);
    request.of_class(ZoneKind::Dma32)
}

fn upper() -> Request {
    Request::new(Order::ZERO).from_zone(UPPER)
}

/// Takes pages until at most `left` are free.
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

/// Gives pages back until more than `least` are free.
fn give(host: &Host, pages: &PageAllocator<Host>, taken: &mut Vec<Pfn>, zone: u32, least: u32) {
    while free(host, pages, zone) <= least {
        let page = taken.pop().expect("enough were taken");
        pages.free(host, page, Order::ZERO).expect("it is ours");
    }
}

/// Whether the next refill raises how much the CPU may keep.
fn refill_raises(host: &Host, pages: &PageAllocator<Host>, request: Request, zone: u32) -> bool {
    let state = || pages.list_state(host, zone, CpuId(0)).expect("such a zone");
    let before = state().high;
    let listed = state().count().0;
    // One more than is listed.
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
    // Above the high watermark, but not by the reserve: it is still below.
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
    // Above three eighths of the high watermark, to which the urgent may go in the slow path.
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
    // Blocks that bypass lists take the zone to above its high watermark.
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
    // Now the mark is low again, and only a spill would find that out.
    pages
        .seed_sizes(&host, UPPER, MARKS, sizes)
        .expect("it is there");
    assert!(!refill_raises(&host, &pages, upper(), UPPER));
}
