//! Tests that an allocated block can be split into single pages, and that a request that must not
//! wait fails at once.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_host::Host;
use plimsoll_mm::design::HOLDS;
use plimsoll_mm::event::Event;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{
    AllocError, Config, FreeError, Layout, PageAllocator, Reclaimer, Request, Tried,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};

const PAGES: u32 = 4096;

fn any(order: Order) -> Request {
    Request::new(order).urgent(Urgency::Reserve)
}

fn allocator(host: &Host, config: Config<Host>) -> PageAllocator<Host> {
    PageAllocator::new(host, config).expect("an arena is a layout")
}

fn arena() -> Config<Host> {
    Config::new(Layout::arena(Pages(PAGES)))
}

/// Checks that every page is free and part of a block of the largest order.
fn is_whole(host: &Host, pages: &PageAllocator<Host>) {
    pages.drain_all_sync(host);
    let zone = &pages.view(host)[0];
    assert_eq!(zone.free, Pages(PAGES));
    assert_eq!(zone.counted_free, u64::from(PAGES));
    assert_eq!(
        zone.blocks[Order::MAX.index()],
        PAGES / Order::MAX.pages().0
    );
}

#[test]
fn single_pages_of_a_split_block_come_back_in_any_order_and_merge() {
    for holds in HOLDS {
        let host = Host::with_topology(Topology::flat(2));
        let _entered = host.enter(CpuId(0));
        let mut config = arena();
        config.design.holds = holds;
        let pages = allocator(&host, config);
        for order in Order::all() {
            let pfn = pages.alloc(&host, any(order)).expect("there is a block");
            assert_eq!(pages.split(&host, pfn, order), Ok(()));
            let len = order.pages().0;
            // `nth * 7 % len` takes every value below `len` once, because 7 is odd and `len` is a
            // power of two.
            let singles: Vec<Pfn> = (0..len).map(|nth| Pfn(pfn.0 + nth * 7 % len)).collect();
            let (one_by_one, together) = singles.split_at(singles.len() / 2);
            for &single in one_by_one {
                assert_eq!(pages.free(&host, single, Order::ZERO), Ok(()));
                let again = pages.free(&host, single, Order::ZERO);
                assert_eq!(again, Err(FreeError::NotAllocated(single)));
            }
            assert_eq!(pages.free_pages(&host, together), Ok(()));
        }
        is_whole(&host, &pages);
    }
}

#[test]
fn only_a_block_with_its_order_is_split() {
    let host = Host::with_topology(Topology::flat(2));
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host, arena());
    let outside = Pfn(PAGES);
    assert_eq!(
        pages.split(&host, outside, Order::ZERO),
        Err(FreeError::OutsideZones(outside))
    );
    for allocated in Order::all() {
        let pfn = pages
            .alloc(&host, any(allocated))
            .expect("there is a block");
        for freed in Order::all().filter(|&freed| freed != allocated) {
            let why = FreeError::WrongOrder {
                pfn,
                allocated,
                freed,
            };
            assert_eq!(pages.split(&host, pfn, freed), Err(why));
        }
        if allocated != Order::ZERO {
            let inside = Pfn(pfn.0 + allocated.pages().0 - 1);
            let why = Err(FreeError::NotAllocated(inside));
            assert_eq!(pages.split(&host, inside, Order::ZERO), why);
        }
        // The refused calls changed nothing: the block is still whole.
        assert_eq!(pages.free(&host, pfn, allocated), Ok(()));
        let why = Err(FreeError::NotAllocated(pfn));
        assert_eq!(pages.split(&host, pfn, allocated), why);
    }
    is_whole(&host, &pages);
}

#[test]
fn a_split_block_is_not_a_block_any_more() {
    let host = Host::with_topology(Topology::flat(2));
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host, arena());
    let pfn = pages
        .alloc(&host, any(Order::HUGE))
        .expect("there is a block");
    assert_eq!(pages.split(&host, pfn, Order::HUGE), Ok(()));
    let why = FreeError::WrongOrder {
        pfn,
        allocated: Order::ZERO,
        freed: Order::HUGE,
    };
    assert_eq!(pages.free(&host, pfn, Order::HUGE), Err(why));
    assert_eq!(pages.split(&host, pfn, Order::HUGE), Err(why));
}

#[test]
fn a_page_has_the_node_of_its_zone_or_none() {
    let host = Host::with_topology(Topology::flat(2));
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host, arena());
    assert_eq!(pages.node_of(Pfn(0)), Some(NodeId(0)));
    assert_eq!(pages.node_of(Pfn(PAGES - 1)), Some(NodeId(0)));
    assert_eq!(pages.node_of(Pfn(PAGES)), None);
}

/// A reclaimer that frees nothing and counts its calls.
struct Asked(Arc<AtomicU32>);

impl Reclaimer<Host> for Asked {
    fn name(&self) -> &'static str {
        "asked"
    }

    fn reclaim(&self, _: &Host, _: &PageAllocator<Host>, _: Pages) -> Pages {
        self.0.fetch_add(1, Relaxed);
        Pages::ZERO
    }
}

#[test]
fn who_does_not_wait_takes_as_much_as_who_does_but_neither_drains_nor_reclaims() {
    let told = Arc::new(AtomicU32::new(0));
    let tells = Arc::clone(&told);
    let host = Host::with_observer(Topology::flat(2), move |_, _, event| {
        if matches!(event, Event::OutOfMemory { .. }) {
            tells.fetch_add(1, Relaxed);
        }
    });
    let _entered = host.enter(CpuId(0));
    let asked = Arc::new(AtomicU32::new(0));
    let mut config = arena();
    config.reclaimers.push(Box::new(Asked(Arc::clone(&asked))));
    let pages = allocator(&host, config);
    // There is no page list for order 4, so every request of this order checks the watermarks. A
    // request for a single page is served from a page list without this check.
    let order = Order::new(4).expect("small");
    let request = |urgency| Request::new(order).urgent(urgency);
    let take = |urgency| std::iter::from_fn(|| pages.alloc(&host, request(urgency)).ok()).count();
    let taken = take(Urgency::NoWait);
    assert!(taken > 0);
    assert_eq!(asked.load(Relaxed), 0);
    assert_eq!(told.load(Relaxed), 0);
    let why = pages.alloc(&host, request(Urgency::NoWait));
    let tried = Tried {
        zones: 1,
        ..Tried::default()
    };
    assert_eq!(why, Err(AllocError::OutOfMemory(tried)));
    // The `NoWait` requests above stopped at the min watermark. A request that may wait gets no
    // more pages, but calls the reclaimer before it fails.
    assert_eq!(take(Urgency::Normal), 0);
    assert_eq!(asked.load(Relaxed), 1);
    assert!(take(Urgency::Atomic) > 0, "it may go below the mark");
}
