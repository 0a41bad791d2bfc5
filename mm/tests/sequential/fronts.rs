//! Tests of *runs*, groups of pages that move between fronts (the CPUs' stacks of free pages), the
//! page lists and the depot. The *depot* has the runs that full fronts have given away and no other
//! front has taken yet.

use std::sync::Arc;

use plimsoll_mm::Manager;
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::{Config, FreeError, Layout, ListState, Mobility, Request, TypedBlock};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

use crate::front::Depot;
use crate::heap;
use crate::machine::Plain;
use crate::watch::{Watch, count};

const PAGES: Pages = Pages(1 << 15);
/// A front (a CPU's stack of free pages) may hold `LIMIT` pages. `RUN` pages at a time move between
/// a front and the depot.
const LIMIT: usize = 128;
const RUN: usize = 64;
pub(super) const ONE: Request = Request::new(Order::ZERO);

/// A machine whose CPUs have fronts, with a manager of one zone.
pub(super) struct World {
    pub(super) machine: Plain,
    pub(super) depot: Arc<Depot>,
    pub(super) watch: Arc<Watch>,
    pub(super) manager: Manager<Plain>,
}

impl World {
    fn new() -> Self {
        Self::with(PAGES)
    }

    fn with(pages: Pages) -> Self {
        Self::of(Topology::flat(2), Config::new(Layout::arena(pages)))
    }

    pub(super) fn of(topology: Topology, config: Config<Plain>) -> Self {
        Self::of_depot(topology, config, Depot::default())
    }

    pub(super) fn of_depot(topology: Topology, config: Config<Plain>, depot: Depot) -> Self {
        let depot = Arc::new(depot);
        let machine = Plain::with_fronts(topology, &depot);
        Self::on(machine, depot, config)
    }

    /// A machine whose CPUs have no fronts (stacks of free pages).
    pub(super) fn without_fronts(topology: Topology, config: Config<Plain>) -> Self {
        Self::on(Plain::new(topology), Arc::default(), config)
    }

    fn on(machine: Plain, depot: Arc<Depot>, config: Config<Plain>) -> Self {
        let watch = Arc::<Watch>::default();
        let machine = machine.watched(&watch);
        let manager = Manager::new(&machine, config).expect("a layout");
        Self {
            machine,
            depot,
            watch,
            manager,
        }
    }

    /// Sets the sizes of the page lists of the first zone. The limits of the fronts (the CPUs'
    /// stacks of free pages) stay as they are.
    pub(super) fn sized(self, high_min: u32, high_max: u32) -> Self {
        self.batched(63, high_min, high_max)
    }

    /// Sets the sizes of the page lists as [`World::sized`] does, and also the batch.
    pub(super) fn batched(self, batch: u32, high_min: u32, high_max: u32) -> Self {
        let sizes = Sizes {
            batch: Pages(batch),
            high_min: Pages(high_min),
            high_max: Pages(high_max),
        };
        let marks = self.manager.pages().view(&self.machine)[0].watermarks;
        let pages = self.manager.pages();
        let seed = || pages.seed_sizes(&self.machine, 0, marks, sizes);
        let seeded = self.depot.keeping_limits(seed);
        seeded.expect("lists can have these sizes");
        self
    }

    pub(super) fn listed(&self, cpu: u32) -> u32 {
        self.manager.pages().listed(&self.machine, CpuId(cpu)).0
    }

    pub(super) fn take(&self) -> Pfn {
        let pfn = self.manager.pages().alloc(&self.machine, ONE);
        pfn.expect("most pages are free")
    }

    pub(super) fn free(&self, pfn: Pfn) {
        let freed = self.manager.pages().free(&self.machine, pfn, Order::ZERO);
        freed.expect("it is allocated");
    }

    /// Allocates `count` pages on CPU 0, and empties the CPU's front (its stack of free pages) and
    /// page lists.
    pub(super) fn held(&self, count: usize) -> Vec<Pfn> {
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
    pub(super) fn is_whole(&self) {
        let pages = self.manager.pages();
        let zone = pages.view(&self.machine).remove(0);
        assert_eq!(zone.free + zone.listed, zone.managed);
        pages.drain_all_sync(&self.machine);
        let zone = pages.view(&self.machine).remove(0);
        assert_eq!((zone.free, zone.listed), (zone.managed, Pages(0)));
        assert_eq!(zone.counted_free, u64::from(zone.managed.0));
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

/// If the depot is full, a full front (a CPU's stack of free pages) moves pages to the page list.
/// The page that was freed last stays the first of these that is allocated again.
#[test]
fn a_run_that_the_depot_refuses_keeps_its_order_on_the_list() {
    let world = World::new().sized(2048, 2048);
    let held = world.held(LIMIT + 1);
    world.depot.fill_up();
    held.iter().for_each(|&pfn| world.free(pfn));
    let (front, listed) = held[..LIMIT].split_at(RUN);
    let newest = [held[LIMIT]];
    let expected = newest
        .iter()
        .chain(front.iter().rev())
        .chain(listed.iter().rev());
    for &pfn in expected {
        assert_eq!(world.take(), pfn);
    }
    held.iter().for_each(|&pfn| world.free(pfn));
    world.is_whole();
}

/// Another thread takes the front (the stack of free pages) away from a CPU while the CPU refills
/// the front. The pages that the CPU cannot push any more go back to the page list.
#[test]
fn a_refill_that_loses_the_front_loses_no_page() {
    let world = World::new().sized(2048, 2048);
    let held = world.held(LIMIT + RUN);
    world.depot.fill_up();
    held.iter().for_each(|&pfn| world.free(pfn));
    assert_eq!(
        world.listed(0),
        192,
        "64 pages on the list, the others in the front"
    );
    let mut users: Vec<Pfn> = (0..LIMIT).map(|_| world.take()).collect();
    world.depot.limit_pushes(Some(10));
    users.push(world.take());
    assert_eq!(world.listed(0), 63);
    world.depot.limit_pushes(None);
    users.extend((0..63).map(|_| world.take()));
    let (pushed, left) = held[RUN..LIMIT - 1].split_at(10);
    let newest_first: Vec<Pfn> = pushed
        .iter()
        .rev()
        .chain(left.iter().rev())
        .copied()
        .collect();
    assert_eq!(users[LIMIT + 1..], newest_first);
    let mut all = held.clone();
    users.sort_unstable();
    all.sort_unstable();
    assert_eq!(users, all, "each page is allocated once");
    users.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
}

/// Another thread takes the front (the stack of free pages) away from a CPU that has just taken a
/// run out of the depot. The pages that the CPU cannot push any more go to the page list.
#[test]
fn a_run_from_the_depot_that_loses_the_front_loses_no_page() {
    for pushes in [0, 10] {
        let world = World::new();
        let held = world.held(LIMIT + 1);
        held.iter().for_each(|&pfn| world.free(pfn));
        world.machine.on(1);
        world.depot.limit_pushes(Some(pushes));
        let mut users = vec![world.take()];
        assert!(world.offered().is_empty(), "the CPU took the run");
        world.depot.limit_pushes(None);
        users.extend((1..RUN).map(|_| world.take()));
        let mut run = held[LIMIT - RUN..LIMIT].to_vec();
        users.sort_unstable();
        run.sort_unstable();
        assert_eq!(users, run, "each page of the run is allocated once");
        users.into_iter().for_each(|pfn| world.free(pfn));
        world.is_whole();
    }
}

/// A front (a CPU's stack of free pages) is taken away while the CPU frees a page, and the CPU gets
/// it back at once. The front has room, so the page goes there, and no run has to leave the front.
#[test]
fn a_front_with_room_that_is_lost_and_found_keeps_its_pages() {
    let world = World::new();
    let held = world.held(3);
    world.free(held[0]);
    world.free(held[1]);
    world.depot.take_the_front_away_during_the_next_free();
    let ((), locks, _) = world.watch.during(|| world.free(held[2]));
    assert_eq!(locks, [], "no page went to the list or the zone");
    for &pfn in held.iter().rev() {
        assert_eq!(
            world.take(),
            pfn,
            "the page that was freed last comes first"
        );
    }
    held.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
}

/// A full front (a CPU's stack of free pages) is taken away before the CPU frees a page, or while
/// it does so. The CPU gets the front back at once. So a run goes to the depot, and the page goes
/// to the front, as if the front had not been away.
#[test]
fn a_full_front_that_is_lost_and_found_gives_a_run_to_the_depot() {
    for is_lost_before in [true, false] {
        let world = World::new();
        let held = world.held(LIMIT + 1);
        held[..LIMIT].iter().for_each(|&pfn| world.free(pfn));
        if is_lost_before {
            world.depot.take_fronts_away();
        } else {
            world.depot.take_the_front_away_during_the_next_free();
        }
        let ((), locks, _) = world.watch.during(|| world.free(held[LIMIT]));
        assert_eq!(locks, [], "no page went to the list or the zone");
        assert_eq!(world.offered().len(), 1);
        assert_eq!(world.take(), held[LIMIT]);
        world.free(held[LIMIT]);
        world.is_whole();
    }
}

/// Three frees of a page have raced, and all three entries are on top of the front (the CPU's stack
/// of free pages). The page below them is allocated next, and no list is locked.
#[test]
fn several_invalid_entries_in_a_row_do_not_hide_the_page_below_them() {
    let world = World::new();
    let held = world.held(2);
    held.iter().for_each(|&pfn| world.free(pfn));
    for _ in 0..2 {
        world.depot.let_the_next_free_be_late();
        world.free(held[1]);
    }
    let take = || [world.take(), world.take()];
    let (users, locks, _) = world.watch.during(take);
    assert_eq!((users, locks), ([held[1], held[0]], vec![]));
    assert_eq!(world.manager.pages().double_frees(), 2);
    users.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
}

/// Two frees of a page have raced, and the CPU of the second free finds the front (its stack of free
/// pages) full. It moves a run of pages, the page itself among them, to the list. Then another
/// thread takes the front away from the CPU, so the second free cannot push the page. It must not
/// put the page on the list a second time, and returns an error.
#[test]
fn a_second_free_that_finds_its_page_on_the_list_is_an_error() {
    for for_one_cpu in [false, true] {
        let world = World::new().sized(2048, 2048);
        let held = world.held(LIMIT);
        held.iter().for_each(|&pfn| world.free(pfn));
        let twice = held[LIMIT - 1];
        world.depot.fill_up();
        world.depot.limit_pushes(Some(0));
        world.depot.let_the_next_free_be_late();
        let (machine, pages) = (&world.machine, world.manager.pages());
        let freed = if for_one_cpu {
            let local = pages.local(machine, CpuId(0));
            local.free(machine, twice, Order::ZERO)
        } else {
            pages.free(machine, twice, Order::ZERO)
        };
        assert_eq!(freed, Err(FreeError::NotAllocated(twice)));
        assert_eq!((pages.double_frees(), world.listed(0)), (1, 128));
        world.depot.limit_pushes(None);
        world.is_whole();
    }
}

/// The periodic decay moves the pages of a front (a CPU's stack of free pages) to the page list, 64
/// under one hold of the list's lock. The page that was freed last is the first to be allocated.
#[test]
fn a_front_that_decays_keeps_the_order_of_its_pages() {
    let world = World::new().sized(2048, 2048);
    let held = world.held(100);
    held.iter().for_each(|&pfn| world.free(pfn));
    let pages = world.manager.pages();
    let decay = || pages.decay_lists(&world.machine, 0, CpuId(0));
    assert_eq!(decay(), Ok(Pages(0)), "the front was in use");
    let (moved, locks, _) = world.watch.during(decay);
    assert_eq!(moved, Ok(Pages(0)), "the pages go to the list");
    let holds = count(&locks, LockClass::Pcp, Site::Decay);
    assert_eq!(holds, 3, "64 pages, 36 pages, and the decay of the list");
    for &pfn in held.iter().rev() {
        assert_eq!(world.take(), pfn);
    }
    held.iter().for_each(|&pfn| world.free(pfn));
    world.is_whole();
}

/// Fills the page list of CPU 0, and puts 10 more pages in the CPU's front (its stack of free pages).
/// Returns the pages that are still allocated, and the number of pages on the list.
fn full_list() -> (World, Vec<Pfn>, u32) {
    let world = World::with(Pages(1024));
    let held = world.held(200);
    // Without CPU 1, the lists of CPU 0 may be longer. But the heap has no memory for them.
    heap::failing_from(0, || {
        world.machine.on(1);
        world.manager.cpu_going(&world.machine, CpuId(1));
        world.machine.on(0);
        world.manager.cpu_dead(&world.machine, CpuId(1));
    });
    let block = |&pfn: &Pfn| TypedBlock {
        pfn,
        order: Order::ZERO,
        mobility: Mobility::Unmovable,
    };
    let state = ListState {
        high: Pages(128),
        blocks: held.iter().map(block).collect(),
        ..ListState::default()
    };
    let pages = world.manager.pages();
    let seeded = pages.seed_lists(&world.machine, 0, CpuId(0), &state);
    assert!(seeded.is_err(), "the list is full");
    let listed = world.listed(0);
    assert!((60..100).contains(&listed), "{listed}");
    let rest = &held[listed as usize..];
    rest[..10].iter().for_each(|&pfn| world.free(pfn));
    assert_eq!(world.listed(0), listed + 10);
    let rest = rest[10..].to_vec();
    (world, rest, listed)
}

/// A drain empties a front (a CPU's stack of free pages), and the page list has no room for its
/// pages. They go to the zone, and the drain counts them as pages that it has moved.
#[test]
fn a_drain_counts_the_pages_for_which_the_list_has_no_room() {
    let (world, rest, listed) = full_list();
    let pages = world.manager.pages();
    let drained = pages.drain_cpu(&world.machine, CpuId(0));
    assert_eq!((drained, world.listed(0)), (Pages(listed + 10), 0));
    rest.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
}

/// The periodic work counts these pages, too. The list has fewer pages than `high`, so it keeps
/// them.
#[test]
fn the_periodic_work_counts_the_pages_for_which_the_list_has_no_room() {
    let (world, rest, listed) = full_list();
    let pages = world.manager.pages();
    let decay = || pages.decay_lists(&world.machine, 0, CpuId(0));
    assert_eq!(decay(), Ok(Pages(0)), "the front was used");
    assert_eq!((decay(), world.listed(0)), (Ok(Pages(10)), listed));
    rest.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
}
