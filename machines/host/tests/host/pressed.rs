//! Tests the rule by which an allocation that finds no block tries again. A [`Pressure`], the
//! object that reclaims used pages, returns what the test tells it to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use plimsoll_host::Host;
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::watermark::Watermarks;
use plimsoll_mm::page::{
    AllocError, Config, Layout, PageAllocator, Pressure, Request, Tried, ZoneKind, ZoneLayout,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};

/// The largest number of rounds in a row without progress after which an allocation still tries
/// again (Linux: `MAX_RECLAIM_RETRIES`).
const ROUNDS: u32 = 16;

/// A [`Pressure`] that frees nothing, but reports freed pages in the rounds for which `progress` is
/// true.
struct Scripted {
    progress: fn(u32) -> bool,
    rounds: Arc<AtomicU32>,
    reclaimable: u64,
}

impl Pressure<Host> for Scripted {
    fn wake(&self, _: &Host, _: &PageAllocator<Host>, _: Request) {}

    fn reclaim(&self, _: &Host, _: &PageAllocator<Host>, _: Request) -> Option<Pages> {
        let round = self.rounds.fetch_add(1, Relaxed);
        Some(Pages(u32::from((self.progress)(round))))
    }

    fn reclaimable(&self, _: &Host, _: NodeId) -> u64 {
        self.reclaimable
    }
}

const PAGES: u32 = 1 << 14;

/// Requests a block while the min watermark, `min`, is above the number of free pages, so that the
/// allocation reclaims and finally fails. Returns the number of rounds of reclaim, and what the
/// error says about them.
fn rounds(
    layout: Layout,
    min: u32,
    reclaimable: u64,
    request: Request,
    progress: fn(u32) -> bool,
) -> (u32, Tried) {
    let host = Host::with_observer(Topology::flat(2), |_, _, _| {});
    let _entered = host.enter(CpuId(0));
    let rounds = Arc::new(AtomicU32::new(0));
    let mut config = Config::new(layout);
    config.pressure = Some(Box::new(Scripted {
        progress,
        rounds: Arc::clone(&rounds),
        reclaimable,
    }));
    let pages = PageAllocator::new(&host, config).expect("a sound layout");
    let marks = Watermarks {
        min: Pages(min),
        low: Pages(min),
        high: Pages(min),
    };
    let sizes = Sizes {
        batch: Pages(8),
        high_min: Pages(32),
        high_max: Pages(64),
    };
    for zone in 0..count(&host, &pages) {
        let set = pages.seed_sizes(&host, zone, marks, sizes);
        set.expect("there is such a zone");
    }
    match pages.alloc(&host, request) {
        Err(AllocError::OutOfMemory(tried)) => (rounds.load(Relaxed), tried),
        other => panic!("no zone may give a block: {other:?}"),
    }
}

fn count(host: &Host, pages: &PageAllocator<Host>) -> u32 {
    u32::try_from(pages.view(host).len()).expect("few")
}

fn single() -> Request {
    Request::new(Order::ZERO)
}

fn order(order: u8) -> Request {
    Request::new(Order::new(order).expect("at most 10"))
}

#[test]
fn an_allocation_gives_up_after_more_than_sixteen_rounds_without_progress() {
    let arena = || Layout::arena(Pages(PAGES));
    let of = |request, progress| rounds(arena(), 2 * PAGES, 1 << 20, request, progress).0;
    assert_eq!(of(single(), |_| false), ROUNDS + 1);
    // For blocks of up to 8 pages, a round with progress restarts the count of rounds without
    // progress.
    let once = |round| round == 9;
    assert_eq!(of(single(), once), 10 + ROUNDS + 1);
    assert_eq!(of(order(3), once), 10 + ROUNDS + 1);
    assert_eq!(of(order(4), once), ROUNDS + 1);
}

#[test]
fn an_allocation_gives_up_at_once_if_reclaim_could_not_help() {
    let arena = || Layout::arena(Pages(PAGES));
    // All `PAGES` pages are free, and the watermark is `2 * PAGES`. So reclaim can help only if it
    // can free more than `PAGES` pages.
    let of = |reclaimable| rounds(arena(), 2 * PAGES, reclaimable, single(), |_| false).0;
    assert_eq!(of(u64::from(PAGES)), 1, "it would only be at the watermark");
    assert_eq!(of(u64::from(PAGES) + 1), ROUNDS + 1);
}

/// The lower of two zones withholds its reserve, a 256th of the upper zone's pages, from requests
/// that the upper zone could serve. For such a request, reclaim must be able to free the pages of
/// the reserve in addition; otherwise the allocation gives up after one round.
#[test]
fn the_reserve_of_a_lower_zone_does_not_help_a_request_for_the_upper_one() {
    let of = |reclaimable, class| {
        let zone = |kind, start| ZoneLayout {
            kind,
            node: NodeId(0),
            start: Pfn(start),
            spanned: Pages(PAGES),
            holes: Vec::new(),
        };
        let zones = [zone(ZoneKind::Dma32, 0), zone(ZoneKind::Normal, PAGES)];
        // The request may use the lower zone only.
        let request = single().of_class(class).from_zone(0);
        rounds(Layout::of(zones), 2 * PAGES, reclaimable, request, |_| {
            false
        })
        .0
    };
    let enough = u64::from(PAGES) + 1;
    assert_eq!(of(enough, ZoneKind::Dma32), ROUNDS + 1);
    assert_eq!(of(enough, ZoneKind::Normal), 1, "the reserve is missing");
    assert_eq!(
        of(enough + u64::from(PAGES / 256), ZoneKind::Normal),
        ROUNDS + 1
    );
}

/// Pages on another CPU's lists do not count as free. If no round of reclaim has made progress, an
/// allocation drains all lists before it gives up, and so finds a page here.
#[test]
fn an_allocation_drains_all_lists_before_it_gives_up() {
    let host = Host::with_observer(Topology::flat(2), |_, _, _| {});
    let mut config = Config::new(Layout::arena(Pages(PAGES)));
    config.pressure = Some(Box::new(Scripted {
        progress: |_| false,
        rounds: Arc::default(),
        reclaimable: 0,
    }));
    let pages = PageAllocator::new(&host, config).expect("a sound layout");
    let sizes = Sizes {
        batch: Pages(8),
        high_min: Pages(64),
        high_max: Pages(64),
    };
    let set = pages.seed_sizes(&host, 0, Watermarks::default(), sizes);
    set.expect("there is a zone");
    let one = {
        let _entered = host.enter(CpuId(1));
        let mut all: Vec<Pfn> = std::iter::from_fn(|| pages.alloc(&host, single()).ok()).collect();
        let one = all.pop().expect("there was memory");
        let freed = pages.free(&host, one, Order::ZERO);
        freed.expect("it was handed out");
        one
    };
    let _entered = host.enter(CpuId(0));
    assert_eq!(pages.listed(&host, CpuId(1)), Pages(1));
    assert_eq!(pages.alloc(&host, single()), Ok(one));
}
