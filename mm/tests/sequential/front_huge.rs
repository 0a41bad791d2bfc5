//! Tests of fronts for huge blocks (each CPU's stack of free huge blocks): how many blocks a front
//! may hold, and where an allocation finds a block.

use plimsoll_mm::page::{AllocError, Config, Layout, ListState, Request, TypedBlock};
use plimsoll_mm::page::{Mobility, watermark::Urgency};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

use crate::front_direct::{holds, view};
use crate::fronts::{ONE, World};
use crate::machine::Plain;
use crate::watch::count;

pub(super) const HUGE: u32 = Order::HUGE.pages().0;
pub(super) const BLOCK: Request = Request::new(Order::HUGE);
/// The number of huge blocks of the zone in most tests.
pub(super) const BLOCKS: u32 = 512;
/// The number of blocks that a front (a CPU's stack of free blocks) may hold in a zone of this size.
pub(super) const LIMIT: usize = 16;
/// The number of blocks that move at once: three quarters of the limit.
pub(super) const RUN: usize = 12;
/// A refill or a spill of `RUN` blocks, in pages.
const RUN_PAGES: u32 = 12 * HUGE;

pub(super) fn config(blocks: u32) -> Config<Plain> {
    Config::new(Layout::arena(Pages(blocks * HUGE)).with_bitmaps())
}

/// A machine whose CPUs have fronts (stacks of free blocks) for 16 huge blocks. The CPUs' lists may
/// keep as many pages as they get in these tests.
pub(super) fn world() -> World {
    let most = 32 * HUGE;
    World::of(Topology::flat(2), config(BLOCKS)).sized(most, most)
}

pub(super) fn take(world: &World) -> Pfn {
    let pfn = world.manager.pages().alloc(&world.machine, BLOCK);
    pfn.expect("most blocks are free")
}

pub(super) fn take_some(world: &World, count: usize) -> Vec<Pfn> {
    (0..count).map(|_| take(world)).collect()
}

pub(super) fn free(world: &World, pfn: Pfn) {
    let freed = world.manager.pages().free(&world.machine, pfn, Order::HUGE);
    freed.expect("it is allocated");
}

pub(super) fn free_all(world: &World, pfns: &[Pfn]) {
    pfns.iter().for_each(|&pfn| free(world, pfn));
}

/// Allocates `count` huge blocks on CPU 0, and then empties the CPU's front (its stack of free
/// blocks).
pub(super) fn held(world: &World, count: usize) -> Vec<Pfn> {
    world.machine.on(0);
    let held = take_some(world, count);
    world.manager.pages().drain_all_sync(&world.machine);
    held
}

/// Allocates huge blocks until memory is out. Returns the blocks and the error.
pub(super) fn exhaust(world: &World, urgency: Urgency) -> (Vec<Pfn>, AllocError) {
    let (mut users, pages) = (Vec::new(), world.manager.pages());
    loop {
        match pages.alloc(&world.machine, BLOCK.urgent(urgency)) {
            Ok(pfn) => users.push(pfn),
            Err(why) => return (users, why),
        }
    }
}

/// Asserts that `held` huge blocks are allocated, that `listed` are on lists and in fronts (stacks of
/// free blocks), and that all other pages are in the zone and counted exactly.
pub(super) fn is_exact(world: &World, held: usize, listed: usize) {
    let zone = view(world);
    let pages = |blocks: usize| u32::try_from(blocks).expect("few blocks") * HUGE;
    assert_eq!(zone.listed.0, pages(listed));
    assert_eq!(zone.free.0, zone.managed.0 - pages(held + listed));
    assert_eq!(zone.counted_free, u64::from(zone.free.0));
}

/// The index of each block in the zone.
pub(super) fn indexes(pfns: &[Pfn]) -> Vec<u32> {
    pfns.iter().map(|pfn| pfn.0 / HUGE).collect()
}

/// The lists of each of two CPUs may hold a sixteenth of the zone. The front (the stack of free
/// blocks) may hold as many pages, but at most 16 blocks. It has no room for a single block.
#[test]
fn the_limit_follows_from_the_size_of_the_zone() {
    for (blocks, limit) in [
        (8, 0),
        (16, 0),
        (30, 0),
        (32, 2),
        (46, 2),
        (48, 3),
        (64, 4),
        (192, 12),
        (254, 15),
        (256, 16),
        (512, 16),
    ] {
        let world = World::of(Topology::flat(2), config(blocks));
        let limits = [0, 1].map(|cpu| world.depot.limit_for(cpu, Order::HUGE));
        assert_eq!(limits, [limit; 2], "{blocks}");
    }
}

#[test]
fn a_zone_without_bitmaps_has_no_fronts_for_huge_blocks() {
    let config = Config::new(Layout::arena(Pages(BLOCKS * HUGE)));
    let world = World::of(Topology::flat(2), config);
    assert_eq!(world.depot.limit_for(0, Order::HUGE), 0);
    assert_eq!(world.depot.limit_of(0), 128, "there are fronts for pages");
    let users = take_some(&world, 5);
    let (_, locks, _) = world.watch.during(|| free_all(&world, &users));
    assert!(
        count(&locks, LockClass::Pcp, Site::PcpFree) >= 5,
        "each block goes onto the list"
    );
    let user = take(&world);
    free(&world, user);
    let (again, locks, _) = world.watch.during(|| take(&world));
    let pop = (LockClass::Pcp, Site::PcpAlloc);
    assert_eq!((again, locks), (user, vec![pop]), "it was on the list");
    free(&world, again);
    world.is_whole();
}

/// The lists of the only CPU that is online may hold twice as many pages. The front (the stack of
/// free blocks) of the other CPU gets no room, and its blocks return to the zone.
#[test]
fn only_the_front_of_an_online_cpu_has_room() {
    let world = World::of(Topology::flat(2), config(64));
    let limits = || [0, 1].map(|cpu| world.depot.limit_for(cpu, Order::HUGE));
    assert_eq!(limits(), [4, 4]);
    world.machine.on(1);
    let user = take(&world);
    assert_eq!(world.listed(1), 2 * HUGE, "three blocks moved");
    free(&world, user);
    world.manager.cpu_going(&world.machine, CpuId(1));
    world.machine.on(0);
    world.manager.cpu_dead(&world.machine, CpuId(1));
    assert_eq!((limits(), world.listed(1)), ([8, 0], 0));
    is_exact(&world, 0, 0);
    world.manager.cpu_online(&world.machine, CpuId(1));
    assert_eq!(limits(), [4, 4]);
    world.is_whole();
}

/// If all is empty but the zone, a run of the blocks with the lowest addresses moves to the front
/// (the CPU's stack of free blocks), in one hold of the zone lock. The blocks are allocated in
/// ascending order.
#[test]
fn an_empty_front_takes_a_run_from_the_zone() {
    let world = world();
    let (first, locks, events) = world.watch.during(|| take(&world));
    assert_eq!(holds(&events, Site::Refill), [RUN_PAGES]);
    assert_eq!(count(&locks, LockClass::Zone, Site::Refill), 1);
    is_exact(&world, 1, RUN - 1);
    let (mut users, locks, _) = world.watch.during(|| take_some(&world, RUN - 1));
    assert_eq!(locks, []);
    users.insert(0, first);
    let (next, _, events) = world.watch.during(|| take(&world));
    assert_eq!(holds(&events, Site::Refill), [RUN_PAGES]);
    users.push(next);
    assert_eq!(indexes(&users), (0..=12).collect::<Vec<u32>>());
    is_exact(&world, RUN + 1, RUN - 1);
    free_all(&world, &users);
    world.is_whole();
}

/// A run for an empty front (a CPU's stack of free blocks) leaves a quarter of the front's places
/// empty, rounded down.
#[test]
fn a_run_of_blocks_leaves_a_quarter_of_a_front_empty() {
    for (blocks, run) in [(32, 2), (48, 3), (64, 3), (254, 12), (256, 12)] {
        let world = World::of(Topology::flat(2), config(blocks));
        let user = take(&world);
        is_exact(&world, 1, run - 1);
        free(&world, user);
        world.is_whole();
    }
}

/// Other threads take the front (the stack of free blocks) away from a CPU, and the CPU gets it
/// back when it needs it. The block that was freed last is still allocated first, and no lock is
/// taken.
#[test]
fn a_front_that_comes_back_has_its_blocks() {
    let world = world();
    let held = held(&world, 3);
    free_all(&world, &held);
    world.depot.take_fronts_away();
    let (user, locks, _) = world.watch.during(|| take(&world));
    assert_eq!((user, locks), (held[2], vec![]));
    world.depot.take_fronts_away();
    let ((), locks, _) = world.watch.during(|| free(&world, user));
    assert_eq!(locks, []);
    assert_eq!(take(&world), user);
    free(&world, user);
    world.is_whole();
}

/// The block that was freed last is allocated first, also if a run lies below it. No lock is taken.
#[test]
fn a_front_is_a_stack() {
    let world = world();
    let held = held(&world, 15);
    let (first, second) = held.split_at(4);
    free_all(&world, first);
    let ((), locks, _) = world.watch.during(|| free_all(&world, second));
    assert_eq!(locks, []);
    is_exact(&world, 0, 15);
    let (users, locks, _) = world.watch.during(|| take_some(&world, 15));
    assert_eq!(locks, []);
    assert!(users.iter().eq(held.iter().rev()), "{users:?}");
    free_all(&world, &users);
    world.is_whole();
}

/// An empty front (a CPU's stack of free blocks) takes a run from the list, and the rest of the list
/// later. It takes blocks from the zone only when the list is empty, too. Through all this, the
/// block that was freed last is allocated first.
#[test]
fn blocks_on_the_list_are_found_before_those_of_the_zone() {
    let world = world();
    let held = held(&world, 14);
    free_all(&world, &held);
    let state = world.manager.pages();
    let state = state.list_state(&world.machine, 0, CpuId(0));
    assert_eq!(state.map(|state| state.blocks.len()), Some(14));

    let (mut users, locks, _) = world.watch.during(|| take_some(&world, 14));
    assert!(users.iter().eq(held.iter().rev()), "{users:?}");
    let pops = vec![(LockClass::Pcp, Site::PcpAlloc); 2];
    assert_eq!(locks, pops, "a run of 12 blocks, and one of 2");
    let (next, locks, _) = world.watch.during(|| take(&world));
    assert_eq!(count(&locks, LockClass::Zone, Site::Refill), 1);
    assert!(!held.contains(&next));
    users.push(next);
    free_all(&world, &users);
    world.is_whole();
}

/// The blocks of a front (a CPU's stack of free blocks) are allocated before those of the list, and
/// only blocks of the same order move from the list to the front.
#[test]
fn a_front_is_used_before_the_list() {
    let world = world();
    let held = held(&world, 3);
    free(&world, held[0]);
    let small = world.held(2);
    small.iter().for_each(|&pfn| world.free(pfn));
    let state = world.manager.pages();
    let state = state.list_state(&world.machine, 0, CpuId(0));
    assert_eq!(
        state.map(|state| state.blocks.len()),
        Some(2),
        "all was drained"
    );
    free_all(&world, &held[1..]);
    let (users, locks, _) = world.watch.during(|| take_some(&world, 2));
    assert_eq!((users, locks), (vec![held[2], held[1]], vec![]));
    let (next, _, events) = world.watch.during(|| take(&world));
    assert_eq!(
        holds(&events, Site::Refill),
        [RUN_PAGES],
        "pages are no huge blocks"
    );
    let users = [held[2], held[1], next];
    free_all(&world, &users);
    world.is_whole();
}

/// The zone has five blocks left, so a run has five. Then memory is out, unless another CPU has
/// blocks in its front (its stack of free blocks): these are drained.
#[test]
fn a_run_has_at_most_the_blocks_that_are_left() {
    let world = world();
    let (mut users, why) = exhaust(&world, Urgency::Reserve);
    assert_eq!(users.len(), BLOCKS as usize);
    assert!(matches!(why, AllocError::OutOfMemory(_)), "{why:?}");
    is_exact(&world, users.len(), 0);
    let back = users.split_off(users.len() - 5);
    free_all(&world, &back);
    world.manager.pages().drain_all_sync(&world.machine);
    let last = BLOCK.urgent(Urgency::Reserve);
    let pages = world.manager.pages();
    let (first, _, events) = world.watch.during(|| pages.alloc(&world.machine, last));
    assert_eq!(first, Ok(back[0]), "the one with the lowest address");
    assert_eq!(holds(&events, Site::Refill), [5 * HUGE]);
    is_exact(&world, users.len() + 1, 4);

    world.machine.on(1);
    let drained = pages.alloc(&world.machine, last);
    let drained = drained.expect("CPU 0 has four free blocks");
    assert!(back[1..].contains(&drained));
    let zone = view(&world);
    assert_eq!(zone.free + zone.listed, Pages(3 * HUGE));
    users.extend([back[0], drained]);
    free_all(&world, &users);
    world.is_whole();
}

/// A run moves only if the zone has more than its low watermark before the last page of a block is
/// taken. Here that is also the min watermark, so then memory is out.
#[test]
fn watermarks_stop_refills() {
    for (mark, runs) in [(20 * HUGE - 511, 41), (20 * HUGE - 512, 42)] {
        let world = world();
        let (pages, zone) = (world.manager.pages(), view(&world));
        let mut marks = zone.watermarks;
        marks.min = Pages(mark);
        (marks.low, marks.high) = (marks.min, marks.min);
        let seeded = pages.seed_sizes(&world.machine, 0, marks, zone.sizes);
        seeded.expect("lists can have these sizes");
        let (users, _) = exhaust(&world, Urgency::NoWait);
        assert_eq!(users.len(), runs * RUN, "{mark}");
        is_exact(&world, users.len(), 0);
        let (rest, _) = exhaust(&world, Urgency::Reserve);
        assert_eq!(users.len() + rest.len(), BLOCKS as usize);
        let mut all: Vec<Pfn> = users.into_iter().chain(rest).collect();
        free_all(&world, &all);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), BLOCKS as usize, "each block has one user");
        world.is_whole();
    }
}

/// `list_state` moves the blocks of a front (a CPU's stack of free blocks) to the list, and reports
/// them in the order in which they were freed. `seed_lists` does so, too, and its own blocks are
/// allocated before them.
#[test]
fn the_state_of_the_lists_has_the_blocks_of_the_front() {
    let world = world();
    let held = held(&world, 7);
    free_all(&world, &held[..3]);
    let page = world.take();
    world.free(page);
    let (machine, pages) = (&world.machine, world.manager.pages());
    let block = |pfn: &Pfn| TypedBlock {
        pfn: *pfn,
        order: Order::HUGE,
        mobility: Mobility::Unmovable,
    };
    let huge = |state: Option<ListState>| {
        let mut blocks = state.expect("there is a zone").blocks;
        blocks.retain(|block| block.order == Order::HUGE);
        blocks
    };
    let expected: Vec<TypedBlock> = held[..3].iter().map(block).collect();
    assert_eq!(huge(pages.list_state(machine, 0, CpuId(0))), expected);
    assert_eq!(huge(pages.list_state(machine, 0, CpuId(1))), []);

    free_all(&world, &held[3..5]);
    let state = ListState {
        high: Pages(32 * HUGE),
        blocks: held[5..].iter().map(block).collect(),
        ..ListState::default()
    };
    let seeded = pages.seed_lists(machine, 0, CpuId(0), &state);
    seeded.expect("the blocks are allocated");
    let expected: Vec<TypedBlock> = held.iter().map(block).collect();
    assert_eq!(huge(pages.list_state(machine, 0, CpuId(0))), expected);
    let users = take_some(&world, 7);
    assert!(users.iter().eq(held.iter().rev()), "{users:?}");
    assert_eq!(pages.alloc(machine, ONE), Ok(page));
    world.free(page);
    free_all(&world, &users);
    world.is_whole();
}
