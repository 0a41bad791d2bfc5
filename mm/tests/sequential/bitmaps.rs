//! Tests of a zone that keeps its free pages in bitmaps: what moves between the zone and the page
//! lists, and what the zone has after it was set up, has shrunk or has grown.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_mm::Manager;
use plimsoll_mm::event::Event;
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{Config, Layout, ListState, Mobility, Request, Sweep, ZoneView};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};
use plimsoll_mm::vmstat::threshold;

use crate::heap;
use crate::machine::Plain;
use crate::watch::Watch;

/// The number of pages of the zone: 128 MiB, so that a batch has 7 pages.
const PAGES: Pages = Pages(1 << 15);
const HUGE: u32 = Order::HUGE.pages().0;

struct World {
    machine: Plain,
    watch: Arc<Watch>,
    manager: Manager<Plain>,
}

impl World {
    fn new() -> Self {
        Self::of(2, Layout::arena(PAGES).with_bitmaps())
    }

    fn of(cpus: u32, layout: Layout) -> Self {
        let watch = Arc::<Watch>::default();
        let machine = Plain::new(Topology::flat(cpus)).watched(&watch);
        let manager = Manager::new(&machine, Config::new(layout)).expect("a layout");
        Self {
            machine,
            watch,
            manager,
        }
    }

    fn view(&self) -> ZoneView {
        self.manager.pages().view(&self.machine).remove(0)
    }

    fn take(&self, order: Order) -> Pfn {
        let pfn = self
            .manager
            .pages()
            .alloc(&self.machine, Request::new(order));
        pfn.expect("most pages are free")
    }

    fn free(&self, pfn: Pfn, order: Order) {
        let freed = self.manager.pages().free(&self.machine, pfn, order);
        freed.expect("it is allocated");
    }

    fn listed(&self) -> u32 {
        self.manager.pages().listed(&self.machine, CpuId(0)).0
    }

    /// Asserts that all pages return to the zone and merge.
    fn is_whole(&self) {
        self.manager.pages().drain_all_sync(&self.machine);
        let zone = self.view();
        assert_eq!((zone.free, zone.listed), (PAGES, Pages(0)));
        assert_eq!(zone.counted_free, u64::from(PAGES.0));
        assert_eq!(zone.blocks[Order::MAX.index()], PAGES.0 / 1024);
    }
}

/// The pages of small blocks add up in a CPU's differential, an amount that the CPU has counted by
/// itself. When the differential passes the threshold, the CPU adds it to the shared counter. A block
/// that alone is beyond the threshold takes the differential with it (as in Linux), except in a zone
/// with bitmaps.
#[test]
fn a_differential_that_passes_the_threshold_is_shared() {
    let cpus = 64;
    assert_eq!(
        threshold::normal(cpus, PAGES),
        28,
        "between 16 and 32 pages"
    );
    let [small, large] = [4, 5].map(|order| Order::new(order).expect("an order"));
    for (layout, stays) in [
        (Layout::arena(PAGES), false),
        (Layout::arena(PAGES).with_bitmaps(), true),
    ] {
        let world = World::of(cpus, layout);
        world.manager.refresh(&world.machine);
        let is_dirty = || world.manager.is_dirty(&world.machine, CpuId(0));
        assert!(!is_dirty());
        let mut blocks = Vec::new();
        for (order, wanted) in [(small, true), (small, false), (small, true), (large, stays)] {
            blocks.push((world.take(order), order));
            assert_eq!(is_dirty(), wanted, "{order:?}, bitmaps: {stays}");
        }
        world.manager.refresh(&world.machine);
        for wanted in [false, true, false, true] {
            let (pfn, order) = blocks.pop().expect("four blocks");
            world.free(pfn, order);
            assert_eq!(is_dirty(), wanted, "{order:?}, bitmaps: {stays}");
        }
        world.is_whole();
    }
}

/// No hold of the zone lock moves more than a batch of single pages, neither to nor from a list.
#[test]
fn a_hold_moves_at_most_a_batch_of_pages() {
    let world = World::new();
    let batch = world.view().sizes.batch;
    assert_eq!(batch, Pages(7));
    let most = |events: Vec<Event>| {
        let pages = events.into_iter().filter_map(|event| match event {
            Event::ZoneHold { pages, .. } => Some(pages),
            _ => None,
        });
        pages.max().expect("pages were moved")
    };
    let take = || {
        (0..300)
            .map(|_| world.take(Order::ZERO))
            .collect::<Vec<_>>()
    };
    let (held, _, events) = world.watch.during(take);
    assert_eq!(most(events), batch);
    held.into_iter()
        .for_each(|pfn| world.free(pfn, Order::ZERO));
    assert!(world.listed() > 7);
    let drain = || world.manager.pages().drain_cpu(&world.machine, CpuId(0));
    let (_, _, events) = world.watch.during(drain);
    assert_eq!(most(events), batch);
    world.is_whole();
}

/// Each single page that moves from the zone to a list causes one event, which names the page.
#[test]
fn each_page_of_a_refill_causes_an_event() {
    let world = World::new();
    let take = || (0..300).map(|_| world.take(Order::ZERO)).collect();
    let (held, _, events): (Vec<Pfn>, _, _) = world.watch.during(take);
    let moved = events.into_iter().filter_map(|event| match event {
        Event::ZoneLocked { pfn, order, listed } => Some((pfn, order, listed)),
        _ => None,
    });
    let moved: Vec<_> = moved.collect();
    assert_eq!(moved.len(), 300 + world.listed() as usize);
    let moved: BTreeSet<_> = moved.into_iter().collect();
    assert!(
        held.iter()
            .all(|&pfn| moved.contains(&(pfn, Order::ZERO, true)))
    );
    held.into_iter()
        .for_each(|pfn| world.free(pfn, Order::ZERO));
    world.is_whole();
}

/// If huge blocks fill the lists, half of the pages go back to the zone, so that the next blocks
/// that are freed find room. This does not depend on how many pages were freed in a row.
#[test]
fn huge_blocks_that_fill_the_lists_go_back_by_halves() {
    let world = World::new();
    let sizes = Sizes {
        batch: Pages(63),
        high_min: Pages(4 * HUGE),
        high_max: Pages(4 * HUGE),
    };
    let (machine, pages) = (&world.machine, world.manager.pages());
    let seeded = pages.seed_sizes(machine, 0, world.view().watermarks, sizes);
    seeded.expect("lists can have these sizes");
    let held: Vec<Pfn> = (0..4).map(|_| world.take(Order::HUGE)).collect();
    pages.drain_cpu(machine, CpuId(0));
    held[..3]
        .iter()
        .for_each(|&pfn| world.free(pfn, Order::HUGE));
    let calm = ListState {
        high: Pages(4 * HUGE),
        alloc_factor: 0,
        free_count: Pages(0),
        freed_high_order: false,
        blocks: Vec::new(),
    };
    let seeded = pages.seed_lists(machine, 0, CpuId(0), &calm);
    seeded.expect("there is a zone");
    assert_eq!(world.listed(), 3 * HUGE);
    world.free(held[3], Order::HUGE);
    assert_eq!(world.listed(), 2 * HUGE);
    world.is_whole();
}

/// A zone can be given exactly the free blocks that are asked for, also blocks that are in bitmaps.
#[test]
fn a_zone_has_the_free_blocks_that_it_was_given() {
    let world = World::new();
    let mut wanted = [0; Order::COUNT];
    wanted[..10].copy_from_slice(&[3, 1, 0, 2, 1, 1, 1, 1, 2, 1]);
    let mut free = [[0; Order::COUNT]; Mobility::COUNT];
    free[Mobility::Unmovable.index()] = wanted;
    let rest = world.manager.pages().seed_free(&world.machine, 0, &free);
    let rest = rest.expect("the zone is free and large enough");
    let zone = world.view();
    assert_eq!(zone.blocks, wanted);
    let pages = wanted
        .iter()
        .zip(Order::all())
        .map(|(count, order)| count * order.pages().0);
    assert_eq!(zone.free, Pages(pages.sum()));
    for block in rest {
        world.free(block.pfn, block.order);
    }
    world.is_whole();
}

/// A zone that keeps free pages in bitmaps has its records of huge blocks from the start. So adding
/// a block to it needs no memory from the heap except for a list of the blocks.
#[test]
fn a_zone_with_bitmaps_grows_although_the_heap_is_nearly_full() {
    let world = World::new();
    let (first, pages) = (Pfn(4096), Pages(1024));
    let removed = world.manager.memory_offline(&world.machine, first, pages);
    removed.expect("all pages are free");
    let add = || world.manager.memory_online(&world.machine, first, pages);
    let (added, _) = heap::failing_from(1, add);
    assert_eq!(added, Ok(()));
    world.is_whole();
}

/// Runs a round that gives memory of free huge blocks back, over the whole zone. `gives` says whether
/// a block of the largest order is given back. Returns the indexes of the blocks that were offered.
fn round(world: &World, sweep: &mut Sweep, gives: impl Fn(u32) -> bool) -> Vec<u32> {
    let mut offered = Vec::new();
    let pages = world.manager.pages();
    let done = pages.report_free(&world.machine, sweep, PAGES, |pfn, order| {
        assert_eq!(order, Order::MAX);
        offered.push(pfn.0 / 1024);
        gives(pfn.0 / 1024)
    });
    let given = offered.iter().filter(|block| gives(**block)).count();
    assert_eq!(done.given.0 as usize, given * 1024);
    assert_eq!(done.refused.0 as usize, (offered.len() - given) * 1024);
    offered
}

/// Memory is given back once until a part of it has been used. Then it is given back again after it
/// has been free from one round to the next.
#[test]
fn memory_is_given_back_once_until_it_is_used() {
    let world = World::new();
    let sweep = &mut Sweep::default();
    let mut round = || round(&world, sweep, |_| true);
    assert_eq!(round(), []);
    assert_eq!(round(), (0..32).collect::<Vec<u32>>());
    assert_eq!(round(), []);
    for order in [Order::ZERO, Order::HUGE, Order::MAX] {
        let pfn = world.take(order);
        assert_eq!(pfn, Pfn(0));
        world.free(pfn, order);
        world.manager.pages().drain_all_sync(&world.machine);
        assert_eq!(round(), [], "{order:?}");
        assert_eq!(round()[0], 0, "{order:?}");
        assert_eq!(round(), [], "{order:?}");
    }
    world.is_whole();
}

/// A round that begins in the middle of the zone ends there. It visits no block twice, so it gives
/// back no block that was in use in the round before.
#[test]
fn a_round_visits_each_block_once() {
    let world = World::new();
    let sweep = &mut Sweep::default();
    let (machine, pages) = (&world.machine, world.manager.pages());
    let mut given = |most: Pages| pages.report_free(machine, sweep, most, |_, _| true).given;
    assert_eq!(given(PAGES), Pages(0));
    let some = Pages(5 * 1024);
    assert_eq!(given(some), some);
    let all = Request::new(Order::MAX).urgent(Urgency::Reserve);
    let users: Vec<Pfn> = std::iter::from_fn(|| pages.alloc(machine, all).ok()).collect();
    assert_eq!(users.len(), 32);
    users.iter().for_each(|&pfn| world.free(pfn, Order::MAX));
    assert_eq!([given(PAGES), given(PAGES)], [Pages(0), PAGES]);
    world.is_whole();
}

/// Memory that could not be given back is offered again after it has been free from one round to the
/// next. It is allocated before memory that was given back.
#[test]
fn memory_that_was_not_given_back_is_offered_again() {
    let world = World::new();
    let sweep = &mut Sweep::default();
    let mut round = || round(&world, sweep, |block| block != 3);
    assert_eq!(round(), []);
    assert_eq!(round().len(), 32);
    assert_eq!(round(), []);
    assert_eq!(round(), [3]);
    let first = world.take(Order::MAX);
    assert_eq!(first, Pfn(3 * 1024));
    world.free(first, Order::MAX);
    world.is_whole();
}

/// Memory that was given back can be removed from the zone.
#[test]
fn memory_that_was_given_back_can_be_removed() {
    let world = World::new();
    let sweep = &mut Sweep::default();
    let mut round = || round(&world, sweep, |_| true);
    assert_eq!((round().len(), round().len()), (0, 32));
    let (first, pages) = (Pfn(4096), Pages(1024));
    let (machine, manager) = (&world.machine, &world.manager);
    let removed = manager.memory_offline(machine, first, pages);
    assert_eq!(removed, Ok(()));
    assert_eq!(world.view().free, PAGES - pages);
    let added = manager.memory_online(machine, first, pages);
    assert_eq!(added, Ok(()));
    assert_eq!(world.take(Order::MAX), first, "this memory is new");
    world.free(first, Order::MAX);
    world.is_whole();
}

/// A zone with bitmaps keeps no blocks for atomic requests of several pages. So below the low
/// watermark, these requests get any block, and the counts of free pages stay exact.
#[test]
fn an_atomic_request_of_several_pages_gets_a_block() {
    let world = World::new();
    let (machine, pages) = (&world.machine, world.manager.pages());
    let single = Request::new(Order::ZERO);
    let mut users = Vec::new();
    while world.view().free >= world.view().watermarks.low {
        users.push(pages.alloc(machine, single).expect("pages are free"));
    }
    for order in [1, 3, 5].map(|order| Order::new(order).expect("an order")) {
        let request = Request::new(order).urgent(Urgency::Atomic);
        let block = pages.alloc(machine, request).expect("some pages are free");
        world.free(block, order);
    }
    users
        .into_iter()
        .for_each(|pfn| world.free(pfn, Order::ZERO));
    world.is_whole();
}
