//! Tests of *runs*, groups of pages that move between fronts (the CPUs' stacks of free pages), the
//! page lists and the depot. The *depot* has the runs that full fronts have given away and no other
//! front has taken yet.

use std::sync::Arc;

use plimsoll_mm::Manager;
use plimsoll_mm::page::{Config, Layout, Request};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

use crate::front::Depot;
use crate::machine::Plain;

const PAGES: Pages = Pages(1 << 15);
/// A front (a CPU's stack of free pages) may hold `LIMIT` pages. `RUN` pages at a time move between
/// a front and the depot.
const LIMIT: usize = 128;
const RUN: usize = 64;
const ONE: Request = Request::new(Order::ZERO);

struct World {
    machine: Plain,
    depot: Arc<Depot>,
    manager: Manager<Plain>,
}

impl World {
    fn new() -> Self {
        let depot = Arc::new(Depot::default());
        let machine = Plain::with_fronts(Topology::flat(2), &depot);
        let config = Config::new(Layout::arena(PAGES));
        let manager = Manager::new(&machine, config).expect("a layout");
        Self {
            machine,
            depot,
            manager,
        }
    }

    fn take(&self) -> Pfn {
        let pfn = self.manager.pages().alloc(&self.machine, ONE);
        pfn.expect("most pages are free")
    }

    fn free(&self, pfn: Pfn) {
        let freed = self.manager.pages().free(&self.machine, pfn, Order::ZERO);
        freed.expect("it is allocated");
    }

    /// Allocates `count` pages on CPU 0, and empties the CPU's front (its stack of free pages) and
    /// page lists.
    fn held(&self, count: usize) -> Vec<Pfn> {
        self.machine.on(0);
        let held = (0..count).map(|_| self.take()).collect();
        self.manager.pages().drain_all_sync(&self.machine);
        held
    }

    /// Returns the pages of each run in the depot, the newest run first. Any CPU may take one of
    /// these runs.
    fn offered(&self) -> Vec<Vec<Pfn>> {
        let runs = self.depot.runs();
        let pages = |run: &[u32]| run.iter().copied().map(Pfn).collect();
        runs.iter().rev().map(|run| pages(&run.1)).collect()
    }

    /// Asserts that every page is free, and in the zone once all lists are drained.
    fn is_whole(&self) {
        let pages = self.manager.pages();
        let zone = pages.view(&self.machine).remove(0);
        assert_eq!(zone.free + zone.listed, PAGES);
        pages.drain_all_sync(&self.machine);
        let zone = pages.view(&self.machine).remove(0);
        assert_eq!((zone.free, zone.listed), (PAGES, Pages(0)));
        assert_eq!(zone.counted_free, u64::from(PAGES.0));
    }
}

/// A full front (a CPU's stack of free pages) gives the pages that the CPU freed most recently to
/// the depot. Another CPU gets these pages in reverse order of the frees. Until then, the pages
/// count as pages of the front that gave them.
#[test]
fn a_run_goes_from_a_full_front_to_an_empty_one() {
    let world = World::new();
    let held = world.held(LIMIT + 1);
    held.iter().for_each(|&pfn| world.free(pfn));
    let newest: Vec<Pfn> = held[LIMIT - RUN..LIMIT].iter().rev().copied().collect();
    assert_eq!(world.offered(), std::slice::from_ref(&newest));
    let listed = |cpu| world.manager.pages().listed(&world.machine, CpuId(cpu));
    assert_eq!((listed(0), listed(1)), (Pages(129), Pages(0)));

    world.machine.on(1);
    let taken: Vec<Pfn> = (0..RUN).map(|_| world.take()).collect();
    assert_eq!(taken, newest);
    assert_eq!((listed(0), listed(1)), (Pages(65), Pages(0)));
    assert!(world.offered().is_empty());
    taken.iter().for_each(|&pfn| world.free(pfn));
    world.is_whole();
    assert_eq!(world.manager.pages().double_frees(), 0);
}

/// A CPU is drained while some pages of its front (its stack of free pages) are in the depot, which
/// all CPUs share. These pages return to the zone, too.
#[test]
fn a_drain_returns_the_runs_in_the_depot() {
    let world = World::new();
    let held = world.held(LIMIT + 1);
    held.iter().for_each(|&pfn| world.free(pfn));
    assert_eq!(world.offered().len(), 1);
    let drained = world.manager.pages().drain_cpu(&world.machine, CpuId(0));
    assert_eq!(drained, Pages(129));
    assert!(world.offered().is_empty());
    world.is_whole();
}

/// Two frees of a page have raced, so the page is twice in a front (a CPU's stack of free pages). A
/// run of pages with one of the entries goes to the depot, which all CPUs share. The other entry is
/// popped, so the page has a user. When another CPU then takes the run, it drops the entry, because
/// the page must not get a second user.
#[test]
fn a_page_that_was_freed_twice_leaves_the_depot_only_if_it_is_still_free() {
    let world = World::new();
    let held = world.held(LIMIT);
    let (&twice, others) = held.split_first().expect("many pages");
    world.free(twice);
    others[..LIMIT - 2].iter().for_each(|&pfn| world.free(pfn));
    world.depot.let_the_next_free_be_late();
    world.free(twice);
    world.free(others[LIMIT - 2]);
    let offered = world.offered();
    assert_eq!(offered[0][0], twice, "a CPU would allocate it first");

    let mut users: Vec<Pfn> = (0..=RUN).map(|_| world.take()).collect();
    assert_eq!(
        users.last(),
        Some(&twice),
        "it was at the bottom of the front"
    );
    world.machine.on(1);
    users.extend((0..RUN - 1).map(|_| world.take()));
    assert_eq!(world.manager.pages().double_frees(), 1);
    let count = users.len();
    users.sort_unstable();
    users.dedup();
    assert_eq!(users.len(), count, "no page has two users");
    users.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
}

/// Two frees of a page have raced, and both entries are in the front (a CPU's stack of free pages).
/// The page is allocated once, or returns to the zone once.
#[test]
fn a_page_that_was_freed_twice_is_in_the_front_once() {
    for drains in [false, true] {
        let world = World::new();
        let held = world.held(3);
        world.free(held[0]);
        world.depot.let_the_next_free_be_late();
        world.free(held[0]);
        if drains {
            world.manager.pages().drain_all_sync(&world.machine);
        }
        let mut users: Vec<Pfn> = (0..3).map(|_| world.take()).collect();
        users.extend(&held[1..]);
        users.sort_unstable();
        users.dedup();
        assert_eq!(users.len(), 5, "no page has two users");
        assert_eq!(world.manager.pages().double_frees(), 1);
        users.into_iter().for_each(|pfn| world.free(pfn));
        world.is_whole();
    }
}
