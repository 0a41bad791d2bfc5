//! Tests on real threads of three features: grouping pages by mobility, allocating pages in bulk,
//! and starting zones in a given state.

use std::sync::{Arc, Mutex};

use plimsoll_host::Host;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::Event;
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::watermark::{Urgency, Watermarks};
use plimsoll_mm::page::{
    AllocError, Config, FreeError, Grouping, Layout, ListState, Mobility, PageAllocator, Request,
    SeedError, TypedBlock, ZoneKind, ZoneLayout,
};
use plimsoll_mm::site::Site;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};

const PAGES: u32 = 64 * 1024;
const UNMOVABLE: Mobility = Mobility::Unmovable;
const MOVABLE: Mobility = Mobility::Movable;

/// A hold of a zone lock: the holder's CPU, the call site, the CPU whose page lists are involved,
/// whether the hold continues an earlier one, and the number of pages moved.
type Hold = (u32, Site, u32, bool, u32);
type Holds = Arc<Mutex<Vec<Hold>>>;

fn watched() -> (Host, Holds) {
    let holds = Holds::default();
    let seen = Arc::clone(&holds);
    let host = Host::with_observer(Topology::flat(2), move |by, _, event| {
        if let Event::ZoneHold {
            site,
            cpu,
            further,
            pages,
            ..
        } = event
        {
            let hold = (by.0, site, cpu.0, further, pages.0);
            seen.lock().expect("no panic").push(hold);
        }
    });
    (host, holds)
}

fn took(holds: &Holds) -> Vec<Hold> {
    std::mem::take(&mut holds.lock().expect("no panic"))
}

fn config(grouping: Grouping) -> Config<Host> {
    let mut config = Config::new(Layout::arena(Pages(PAGES)));
    config.design = Design::LINUX_6_12;
    config.grouping = grouping;
    config
}

fn allocator(host: &Host, grouping: Grouping) -> PageAllocator<Host> {
    PageAllocator::new(host, config(grouping)).expect("an arena is a layout")
}

fn single(mobility: Mobility) -> Request {
    Request::new(Order::ZERO).of_mobility(mobility)
}

fn state(host: &Host, pages: &PageAllocator<Host>, cpu: u32) -> ListState {
    let state = pages.list_state(host, 0, CpuId(cpu));
    state.expect("there is a zone 0")
}

#[test]
fn each_mobility_has_lists_of_its_own_and_a_free_goes_where_its_block_belongs() {
    let (host, _) = watched();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host, Grouping::Huge);
    let fixed = pages.alloc(&host, single(UNMOVABLE)).expect("free");
    let user = pages.alloc(&host, single(MOVABLE)).expect("free");
    assert_eq!(pages.block_type(fixed), Some(UNMOVABLE));
    assert_eq!(pages.block_type(user), Some(MOVABLE));
    let listed = |mobility| {
        let blocks = state(&host, &pages, 0).blocks;
        blocks
            .iter()
            .filter(|block| block.mobility == mobility)
            .count()
    };
    let (unmovable, movable) = (listed(UNMOVABLE), listed(MOVABLE));
    pages.free(&host, user, Order::ZERO).expect("ours");
    assert_eq!(
        (listed(UNMOVABLE), listed(MOVABLE)),
        (unmovable, movable + 1)
    );
    // `free_as` puts the page onto the page list of the given type. A drain then puts the page onto
    // the free list for the type of its page block.
    let again = pages.alloc(&host, single(MOVABLE)).expect("free");
    assert_eq!(again, user, "the hottest");
    pages
        .free_as(&host, user, Order::ZERO, UNMOVABLE)
        .expect("ours");
    assert_eq!(
        (listed(UNMOVABLE), listed(MOVABLE)),
        (unmovable + 1, movable)
    );
    let again = pages.free_as(&host, user, Order::ZERO, UNMOVABLE);
    assert_eq!(again, Err(FreeError::NotAllocated(user)));
    pages.free(&host, fixed, Order::ZERO).expect("ours");
    pages.drain_all_sync(&host);
    let zone = &pages.view(&host)[0];
    let whole = zone.blocks_by_mobility.map(|blocks| blocks[10]);
    assert_eq!(whole, [1, 63, 0, 0]);
    assert_eq!(zone.free, Pages(PAGES));
}

#[test]
fn without_grouping_all_mobilities_are_one() {
    let (host, _) = watched();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host, Grouping::Off);
    let user = pages.alloc(&host, single(MOVABLE)).expect("free");
    pages
        .free_as(&host, user, Order::ZERO, Mobility::Reclaimable)
        .expect("ours");
    assert_eq!(pages.alloc(&host, single(UNMOVABLE)), Ok(user));
    assert_eq!(pages.block_type(user), Some(UNMOVABLE));
    let blocks = state(&host, &pages, 0).blocks;
    assert!(blocks.iter().all(|block| block.mobility == UNMOVABLE));
}

#[test]
fn a_bulk_allocation_refills_as_often_as_it_must_and_forgets_no_frees() {
    let (host, holds) = watched();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host, Grouping::Huge);
    let mut pfns = [Pfn(0); 300];
    assert_eq!(pages.alloc_bulk(&host, single(UNMOVABLE), &mut pfns), 300);
    let refills: Vec<u32> = took(&holds).iter().map(|hold| hold.4).collect();
    // The batch (the unit of transfers to page lists) is 15 pages here, and each refill moves twice
    // as many pages as the previous one.
    assert_eq!(refills, [15, 30, 60, 120, 240]);
    for pfn in pfns {
        pages.free(&host, pfn, Order::ZERO).expect("ours");
    }
    let free_count = state(&host, &pages, 0).free_count;
    assert!(free_count > Pages(100));
    assert_eq!(
        pages.alloc_bulk(&host, single(UNMOVABLE), &mut pfns[..8]),
        8
    );
    assert_eq!(state(&host, &pages, 0).free_count, free_count);
    pages.alloc(&host, single(UNMOVABLE)).expect("free");
    assert_eq!(state(&host, &pages, 0).free_count.0, free_count.0 / 2);
}

#[test]
fn a_bulk_allocation_that_would_go_below_the_low_mark_takes_one_page() {
    let (host, _) = watched();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host, Grouping::Huge);
    let zone = &pages.view(&host)[0];
    let above = (zone.free.0 - zone.watermarks.low.0) as usize;
    let mut pfns = vec![Pfn(0); above];
    assert_eq!(pages.alloc_bulk(&host, single(MOVABLE), &mut pfns), 1);
    pages.free(&host, pfns[0], Order::ZERO).expect("ours");
    pages.drain_all_sync(&host);
    let fits = &mut pfns[..above - 1];
    assert_eq!(pages.alloc_bulk(&host, single(MOVABLE), fits), above - 1);
    assert_eq!(pages.alloc_bulk(&host, single(MOVABLE), &mut []), 0);
}

#[test]
fn a_request_for_a_zone_takes_from_no_other() {
    let (host, _) = watched();
    let _entered = host.enter(CpuId(0));
    let pages = PageAllocator::new(&host, two_zones()).expect("a layout");
    for zone in 0..2 {
        let request = single(UNMOVABLE).from_zone(zone);
        let pfn = pages.alloc(&host, request).expect("free");
        assert_eq!(pfn.0 >= PAGES, zone == 1, "{pfn:?} of zone {zone}");
        let mut pfns = [Pfn(0); 40];
        assert_eq!(pages.alloc_bulk(&host, request, &mut pfns), 40);
        assert!(pfns.iter().all(|pfn| (pfn.0 >= PAGES) == (zone == 1)));
    }
    let request = single(UNMOVABLE).from_zone(2);
    assert_eq!(pages.alloc(&host, request), Err(AllocError::NoSuchZone));
}

/// Returns a configuration with DMA32 and normal memory on one node.
fn two_zones() -> Config<Host> {
    let zone = |kind, start| ZoneLayout {
        kind,
        node: NodeId(0),
        start: Pfn(start),
        spanned: Pages(PAGES),
        holes: Vec::new(),
    };
    let zones = [zone(ZoneKind::Dma32, 0), zone(ZoneKind::Normal, PAGES)];
    let mut config = config(Grouping::Huge);
    config.layout = Layout::of(zones);
    config
}

#[test]
fn lower_memory_is_taken_before_types_are_mixed_in_normal_memory() {
    let (host, _) = watched();
    let _entered = host.enter(CpuId(0));
    let pages = PageAllocator::new(&host, two_zones()).expect("a layout");
    // Much normal memory is free, but only in free blocks inside movable page blocks. These free
    // blocks are so small that the request is not allowed to take over the page blocks.
    let mut free = [[0; Order::COUNT]; Mobility::COUNT];
    free[MOVABLE.index()][3] = 4000;
    pages.seed_free(&host, 1, &free).expect("it is fresh");
    let order = Order::new(2).expect("small");
    let request = Request::new(order).of_mobility(Mobility::Reclaimable);
    let low = pages.alloc(&host, request).expect("free");
    assert!(low.0 < PAGES, "{low:?} is in DMA32");
    // A request that may use only normal memory gets a page even from a page block of another type,
    // because otherwise it would fail.
    let request = request.from_zone(1).urgent(Urgency::Reserve);
    let high = pages.alloc(&host, request).expect("free");
    assert!(high.0 >= PAGES);
}

#[test]
fn a_block_that_served_an_atomic_request_is_kept_for_the_next() {
    let (host, _) = watched();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host, Grouping::Huge);
    let low = pages.view(&host)[0].watermarks.low;
    let big = Request::new(Order::MAX).of_mobility(MOVABLE);
    while pages.view(&host)[0].free > low + Order::MAX.pages() {
        pages.alloc(&host, big).expect("above the mark");
    }
    let order = Order::new(4).expect("small");
    let fill = Request::new(order).of_mobility(MOVABLE);
    let before_low = || pages.view(&host)[0].free > low + order.pages();
    while before_low() {
        pages.alloc(&host, fill).expect("above the mark");
    }
    let atomic = Request::new(order).urgent(Urgency::Atomic);
    let pfn = loop {
        let pfn = pages.alloc(&host, atomic).expect("below the mark");
        if pages.block_type(pfn) == Some(Mobility::HighAtomic) {
            break pfn;
        }
    };
    let of_kept = |pages: &PageAllocator<Host>| {
        let blocks = pages.view(&host)[0].blocks_by_mobility[Mobility::HighAtomic.index()];
        let free = Order::all().map(|order| blocks[order.index()] * order.pages().0);
        free.sum::<u32>()
    };
    let kept = of_kept(&pages);
    // The next atomic request is served from the page block that is kept for atomic requests, if
    // this block has enough free pages.
    let next = pages.alloc(&host, atomic).expect("below the mark");
    if kept >= order.pages().0 {
        assert_eq!(pages.block_type(next), Some(Mobility::HighAtomic));
    }
    pages.free(&host, pfn, order).expect("ours");
    assert!(of_kept(&pages) >= order.pages().0);
}

#[test]
fn about_a_hundredth_of_a_zone_is_kept_for_atomic_requests() {
    let (host, _) = watched();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host, Grouping::Huge);
    // The low mark is nearly the size of the zone. Below this mark, a page block that serves an
    // atomic request is kept for further atomic requests.
    let marks = Watermarks {
        min: Pages(1000),
        low: Pages(PAGES - 1000),
        high: Pages(PAGES - 900),
    };
    let sizes = Sizes {
        batch: Pages(8),
        high_min: Pages(32),
        high_max: Pages(32),
    };
    let seeded = pages.seed_sizes(&host, 0, marks, sizes);
    seeded.expect("there is such a zone");
    let order = Order::new(4).expect("small");
    let atomic = Request::new(order).urgent(Urgency::Atomic);
    for _ in 0..2000 {
        pages.alloc(&host, atomic).expect("above the reserve");
    }
    let block = Order::HUGE.pages();
    let kept = (0..PAGES)
        .step_by(block.0 as usize)
        .filter(|page| pages.block_type(Pfn(*page)) == Some(Mobility::HighAtomic));
    // At most a hundredth of the zone, 655 pages rounded up to whole page blocks, is kept for
    // atomic requests.
    assert_eq!(kept.count(), 2);
}

#[test]
fn a_fresh_zone_gets_exactly_the_free_blocks_that_are_given() {
    let (host, _) = watched();
    let _entered = host.enter(CpuId(0));
    for grouping in [Grouping::Huge, Grouping::Largest] {
        let pages = allocator(&host, grouping);
        let mut free = [[0; Order::COUNT]; Mobility::COUNT];
        free[0] = [7, 3, 0, 2, 5, 1, 0, 0, 1, 0, 1];
        free[1] = [100, 50, 25, 12, 6, 3, 2, 1, 4, 0, 20];
        free[2] = [1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0];
        let in_use = pages.seed_free(&host, 0, &free).expect("it is fresh");
        let zone = &pages.view(&host)[0];
        assert_eq!(zone.blocks_by_mobility, free);
        assert_eq!(zone.counted_free, u64::from(zone.free.0));
        let used: u32 = in_use.iter().map(|block| block.order.pages().0).sum();
        assert_eq!(used + zone.free.0, PAGES);
        let again = pages.seed_free(&host, 0, &free);
        assert_eq!(again, Err(SeedError::NotFresh(0)));
        // `seed_free` returned all other memory as allocated blocks, `in_use`. This test owns these
        // blocks, and may split and free them.
        let unmovable = in_use
            .iter()
            .find(|block| block.mobility == UNMOVABLE && block.order > Order::ZERO);
        let block = *unmovable.expect("beside the free ones");
        assert_eq!(pages.block_type(block.pfn), Some(UNMOVABLE));
        pages
            .split_to(&host, block.pfn, block.order, Order::ZERO)
            .expect("ours");
        for page in 0..block.order.pages().0 {
            let pfn = Pfn(block.pfn.0 + page);
            pages.free(&host, pfn, Order::ZERO).expect("ours");
        }
        for other in in_use.iter().filter(|used| used.pfn != block.pfn) {
            pages.free(&host, other.pfn, other.order).expect("ours");
        }
        pages.drain_all_sync(&host);
        assert_eq!(pages.view(&host)[0].blocks[10], PAGES / 1024);
    }
}

#[test]
fn what_does_not_fit_leaves_a_zone_as_it_was() {
    let (host, _) = watched();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host, Grouping::Huge);
    let mut free = [[0; Order::COUNT]; Mobility::COUNT];
    free[1][0] = PAGES / 2 + 1;
    let refused = pages.seed_free(&host, 0, &free);
    assert_eq!(refused, Err(SeedError::TooSmall(0)));
    assert_eq!(pages.view(&host)[0].blocks[10], PAGES / 1024);
    let refused = pages.seed_free(&host, 1, &free);
    assert_eq!(refused, Err(SeedError::NoSuchZone(1)));
}

#[test]
fn lists_begin_in_the_state_that_is_given() {
    let (host, holds) = watched();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host, Grouping::Huge);
    let free = [[0; Order::COUNT]; Mobility::COUNT];
    let in_use = pages.seed_free(&host, 0, &free).expect("it is fresh");
    let pair = Order::new(1).expect("small");
    let mut blocks = Vec::new();
    for (order, mobility, block) in [
        (Order::ZERO, UNMOVABLE, in_use[0]),
        (Order::ZERO, MOVABLE, in_use[1]),
        (pair, MOVABLE, in_use[2]),
    ] {
        pages
            .split_to(&host, block.pfn, block.order, order)
            .expect("ours");
        blocks.extend([2, 0, 1].map(|nth| TypedBlock {
            pfn: Pfn(block.pfn.0 + nth * order.pages().0),
            order,
            mobility,
        }));
    }
    let given = ListState {
        high: Pages(300),
        alloc_factor: 2,
        free_count: Pages(17),
        freed_high_order: true,
        blocks,
    };
    pages
        .seed_lists(&host, 0, CpuId(1), &given)
        .expect("blocks of ours");
    assert_eq!(state(&host, &pages, 1), given);
    assert_eq!(pages.listed(&host, CpuId(1)), given.count());
    assert_eq!(given.count(), Pages(12));
    // The blocks are already on the page lists, so they cannot be put there a second time. Blocks
    // of order 4 are refused too, because no page list takes them.
    let twice = pages.seed_lists(&host, 0, CpuId(1), &given);
    let first = given.blocks[0].pfn;
    assert_eq!(twice, Err(SeedError::Block(FreeError::NotAllocated(first))));
    let order = Order::new(4).expect("small");
    let unlisted = ListState {
        blocks: vec![TypedBlock { order, ..in_use[3] }],
        ..given
    };
    let refused = pages.seed_lists(&host, 0, CpuId(1), &unlisted);
    assert_eq!(refused, Err(SeedError::NotListed(order)));
    drop(took(&holds));
    assert_eq!(pages.drain_lists(&host, 0, CpuId(1)), Ok(Pages(12)));
    assert_eq!(took(&holds), [(0, Site::Drain, 1, false, 12)]);
    assert_eq!(pages.list_state(&host, 1, CpuId(0)), None);
}

#[test]
fn holds_of_one_operation_are_told_from_those_of_the_next() {
    let (host, holds) = watched();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host, Grouping::Off);
    let free = [[0; Order::COUNT]; Mobility::COUNT];
    let in_use = pages.seed_free(&host, 0, &free).expect("it is fresh");
    let block = in_use[0];
    pages
        .split_to(&host, block.pfn, block.order, Order::ZERO)
        .expect("ours");
    let page = |nth| TypedBlock {
        pfn: Pfn(block.pfn.0 + nth),
        order: Order::ZERO,
        mobility: UNMOVABLE,
    };
    let listed = ListState {
        high: Pages(3000),
        blocks: (0..900).map(page).collect(),
        ..ListState::default()
    };
    pages
        .seed_lists(&host, 0, CpuId(1), &listed)
        .expect("blocks of ours");
    pages.drain_cpu(&host, CpuId(1));
    // CPU 0 drains the lists of CPU 1, 32 batches of 15 pages in each hold of the zone lock.
    assert_eq!(
        took(&holds),
        [
            (0, Site::Drain, 1, false, 480),
            (0, Site::Drain, 1, true, 420)
        ]
    );
}

#[test]
fn a_list_that_is_full_refuses_a_block_and_leaves_it_with_the_caller() {
    let (host, _) = watched();
    let _entered = host.enter(CpuId(0));
    let pages = allocator(&host, Grouping::Off);
    let free = [[0; Order::COUNT]; Mobility::COUNT];
    let in_use = pages.seed_free(&host, 0, &free).expect("it is fresh");
    let mut outcome = Ok(());
    let mut given = 0;
    for block in in_use {
        pages
            .split_to(&host, block.pfn, block.order, Order::ZERO)
            .expect("ours");
        for nth in 0..block.order.pages().0 {
            let page = TypedBlock {
                pfn: Pfn(block.pfn.0 + nth),
                order: Order::ZERO,
                mobility: UNMOVABLE,
            };
            let one = ListState {
                high: Pages(3000),
                blocks: vec![page],
                ..ListState::default()
            };
            outcome = outcome.and_then(|()| {
                pages.seed_lists(&host, 0, CpuId(1), &one)?;
                given += 1;
                Ok(())
            });
            if outcome.is_err() {
                assert_eq!(outcome, Err(SeedError::NoRoom(Order::ZERO)));
                assert_eq!(pages.listed(&host, CpuId(1)), Pages(given));
                assert_eq!(pages.free(&host, page.pfn, Order::ZERO), Ok(()));
                return;
            }
        }
    }
    panic!("a list took {given} pages");
}
