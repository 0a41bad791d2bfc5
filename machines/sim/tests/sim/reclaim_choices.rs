//! Tests which pages reclaim chooses, and on which node. Also tests what reclaim remembers of pages
//! that leave memory and are needed again soon.

use std::rc::Rc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::{Request, ZoneKind};
use plimsoll_mm::reclaim::Next;
use plimsoll_mm::space::lru::List;
use plimsoll_mm::space::{Access, Backing, Faulted, MapRequest, Place};
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn, Vpn};
use plimsoll_sim::Sim;

use crate::support::reclaim_world::{NODE, PAGES, World};

const OTHER: NodeId = NodeId(1);
const HUGE: u64 = 512;

fn any_of(node: NodeId) -> Request {
    Request::new(Order::ZERO).from_node(node)
}

/// Drops pages of a file until `at_least` of its pages have left memory. Returns the number of
/// pages that have left. Reclaim drops the pages in the order in which they were read.
fn drop_some(world: &Rc<World>, at_least: u64) -> u64 {
    let mut left = 0;
    while left < at_least {
        let freed = u64::from(world.direct().0);
        assert!(freed > 0, "there are pages to drop");
        left += freed;
    }
    assert_eq!(world.swapped(), 0, "only pages of the file have left");
    left
}

/// While kswapd reclaims, CPUs keep their page lists short. Afterwards the lists may be long again.
#[test]
fn page_lists_may_be_long_after_kswapd_has_reclaimed() {
    let world = World::new(1, 1000, 1);
    let _space = world.filled(64);
    let (sim, pages) = (&world.sim, world.mm.pages());
    let listed = || {
        (0..2).for_each(|zone| world.mark_with_lists(zone, 0, 0, Pages(256)));
        let take = |_| pages.alloc(sim, any_of(NODE)).expect("there is plenty");
        let taken: Vec<Pfn> = (0..200).map(take).collect();
        for page in taken {
            pages.free(sim, page, Order::ZERO).expect("it is ours");
        }
        let state = pages.list_state(sim, 1, CpuId(0));
        state.expect("such a zone").count()
    };
    let before = listed();
    assert!(before > Pages(100), "{before:?}");
    world.press();
    world.ask(ZoneKind::Normal);
    world.step();
    assert!(!world.looks.borrow().is_empty(), "kswapd has reclaimed");
    let after = listed();
    assert!(after > Pages(100), "{after:?}");
}

/// Nearly all memory has been used for small pages, which reclaim could move to swap. Part of the
/// same memory is now used for huge pages. These cannot be moved to swap, so they are on the list
/// of unevictable pages.
#[test]
fn a_huge_page_is_unevictable_where_a_small_page_was_evictable() {
    let world = World::new(1, 1000, 1);
    let memory = world.memory(&world.sim);
    let small = world.filled(u64::from(2 * PAGES) - 4 * HUGE);
    small.exit(memory).expect("it ends once");
    drop(small);
    let space = world.space();
    memory.enlist(&space).expect("there is a number for it");
    let request = MapRequest {
        backing: Backing::Anonymous { huge: true },
        ..MapRequest::anonymous(Place::Fixed(Vpn(HUGE)), 4 * HUGE)
    };
    space.map(memory, request).expect("nothing is there");
    for nth in 1..=4 {
        let faulted = space.fault(memory, Vpn(nth * HUGE), Access::Write);
        assert_eq!(faulted, Ok(Faulted::Huge));
    }
    world.spaces.lru().drain(&world.sim, world.mm.pages());
    let lists = [List::Unevictable, List::Inactive].map(|list| world.len(list));
    assert_eq!(lists, [4, 0]);
    assert_eq!(world.reclaim.reclaimable(&world.sim, NODE), 0);
}

/// Sets the high watermark of each zone to 100 pages more than are free in the zone.
fn press_a_little(world: &World) {
    let zones = world.mm.pages().view(&world.sim);
    for (zone, view) in (0..).zip(&zones) {
        world.mark(zone, 0, view.free.0 + 100);
    }
}

/// Pages of a file have left memory and are soon needed again, so they begin as active pages. The
/// next reclaim makes active pages inactive, although there are enough inactive pages. The reclaim
/// after that one makes no page inactive.
#[test]
fn pages_that_are_needed_again_count_for_one_reclaim_only() {
    let by_direct = |world: &Rc<World>| assert!(world.direct() > Pages::ZERO);
    let by_kswapd = |world: &Rc<World>| {
        press_a_little(world);
        world.ask(ZoneKind::Normal);
        world.step();
    };
    for reclaim in [by_direct as fn(&Rc<World>), by_kswapd] {
        let world = World::new(1, 1000, 2);
        let _space = world.filled(400);
        let file = world.cached(1000, NODE);
        let left = drop_some(&world, 200);
        world.read(&file, 0..left, NODE);
        assert_eq!(world.len(List::ActiveFile), left, "they are needed again");
        assert_eq!(world.deactivated.get(), 0);
        reclaim(&world);
        let once = world.deactivated.get();
        assert!(once > 0, "active pages become inactive");
        let lists = [List::InactiveFile, List::ActiveFile].map(|list| world.len(list));
        assert!(lists[0] > lists[1] && lists[1] > 32, "{lists:?}");
        let looks = world.looks.borrow().len();
        reclaim(&world);
        assert!(world.looks.borrow().len() > looks, "reclaim ran again");
        assert_eq!(world.deactivated.get(), once, "none was needed since");
    }
}

/// Pages of a file come back in the reverse of the order in which they left. A page comes back as
/// an active page if its refault distance (the number of pages that left or became active since
/// this page left) is at most the number of pages with which it competes: 10 anonymous pages, and
/// the active pages of the file.
#[test]
fn each_page_that_leaves_has_a_distance_of_its_own() {
    let world = World::new(1, 1000, 2);
    let _space = world.filled(10);
    let file = world.cached(1000, NODE);
    let left = drop_some(&world, 200);
    // Consider the page with the number `back` from the end. Since it began to leave, `back` pages
    // have left, and `back - 1` pages have come back as active pages. Each of these pages has
    // raised the node's age by one. So the page's refault distance is `2 * back - 1`, and it
    // competes with `10 + back - 1` pages.
    for back in 1..=10 {
        let index = left - back;
        world.read(&file, index..index + 1, NODE);
        assert_eq!(world.len(List::ActiveFile), back);
    }
    world.read(&file, left - 11..left - 10, NODE);
    assert_eq!(
        world.len(List::ActiveFile),
        10,
        "its distance is 21, not 20"
    );
}

/// When anonymous pages leave memory, the refault distance of each file page that left before them
/// grows.
#[test]
fn anonymous_pages_that_leave_make_earlier_pages_older() {
    let world = World::new(1, 1000, 2);
    let _space = world.filled(400);
    let file = world.cached(1000, NODE);
    let left = drop_some(&world, 40);
    // The file page that was dropped last is needed again at once, so it comes back as an active
    // page.
    world.read(&file, left - 1..left, NODE);
    assert_eq!(world.len(List::ActiveFile), 1);
    world.press();
    world.ask(ZoneKind::Normal);
    while world.swapped() < 250 {
        world.step();
    }
    let competing = world.len(List::Inactive) + world.len(List::Active);
    assert!(competing + 40 < world.swapped(), "{competing}");
    let before = world.len(List::ActiveFile);
    // The file page that left second to last is needed again only after hundreds of anonymous pages
    // have left, so it does not come back as an active page.
    world.read(&file, left - 2..left - 1, NODE);
    assert!(world.len(List::ActiveFile) <= before, "it left long ago");
}

/// A node has only inactive pages of a file. So a page that comes back competes with no page, and
/// begins as an inactive page. The age of the other node, which is 0, does not matter.
#[test]
fn the_age_of_a_page_that_left_is_that_of_its_node() {
    let world = World::new(2, 1000, 1);
    let file = world.cached(400, OTHER);
    assert!(world.direct_for(any_of(OTHER)) > Pages::ZERO);
    world.read(&file, 0..16, OTHER);
    let lists =
        [List::InactiveFile, List::ActiveFile].map(|list| world.spaces.lru().len(OTHER, list));
    assert!(lists[0] > 300 && lists[1] == 0, "{lists:?}");
}

/// The kswapd of the second node has given up. When an allocation has reclaimed a page of this
/// node, the kswapd of the node is woken again.
#[test]
fn progress_on_a_node_revives_the_kswapd_of_that_node() {
    let world = World::new(2, 0, 1);
    (2..4).for_each(|zone| world.mark(zone, 0, 2 * PAGES));
    let wake = || {
        let (sim, pages) = (&world.sim, world.mm.pages());
        world.reclaim.wake(sim, pages, any_of(OTHER));
        world.asks().woken.borrow().len()
    };
    assert_eq!(wake(), 1);
    let step = || world.reclaim.kswapd(&world.sim, OTHER);
    for _ in 0..16 {
        assert_eq!(step(), Next::At(world.sim.now()), "it tries again");
    }
    while step() != Next::Woken {}
    assert_eq!(wake(), 1, "it has given up");
    let _file = world.cached(400, OTHER);
    assert!(world.direct_for(any_of(OTHER)) > Pages::ZERO);
    assert_eq!(wake(), 2);
    assert_eq!(*world.asks().woken.borrow(), [OTHER, OTHER]);
}

/// Six CPUs reclaim from 200 pages of a file at once, so more than an eighth of the inactive pages
/// are isolated (off their lists while reclaim looks at them).
#[test]
fn an_allocation_waits_while_other_cpus_have_isolated_too_many_pages_of_files() {
    let world = World::new(6, 1000, 1);
    let _file = world.cached(200, NODE);
    for cpu in 0..6 {
        let reclaimer = Rc::clone(&world);
        world.sim.spawn(CpuId(cpu), move |sim: &Sim| {
            reclaimer.reclaim.reclaim(sim, any_of(NODE));
        });
    }
    world.sim.run();
    assert!(!world.asks().pauses.borrow().is_empty());
}

/// Free pages of the movable zone do not help an allocation that may use the lower zone only. So
/// the allocation waits for kswapd, until it is killed.
#[test]
fn the_movable_zone_is_no_part_of_the_reserve() {
    let kinds = [ZoneKind::Dma32, ZoneKind::Movable];
    let world = World::of_zones(kinds, PAGES, [1, 1000, 1]);
    let _space = world.filled(64);
    world.mark(0, 2 * PAGES, 4 * PAGES);
    world.asks().killed_after.set(Some(2));
    world.direct();
    assert_eq!(world.asks().pauses.borrow().len(), 3);
    assert!(world.looks.borrow().is_empty(), "it was killed");
}

/// The first pass of direct reclaim looks at a 4096th of the pages: here 48 pages. It looks at all
/// of them, although 32 pages are enough.
#[test]
fn the_first_pass_of_direct_reclaim_ends_only_when_it_has_looked_at_its_part() {
    let kinds = [ZoneKind::Dma32, ZoneKind::Normal];
    let world = World::of_zones(kinds, 1 << 17, [1, 0, 1]);
    let _file = world.cached(48 * 4096, NODE);
    assert_eq!(world.direct(), Pages(48));
    assert_eq!(world.looks.borrow().len(), 2, "batches of 32 and 16 pages");
}
