//! Tests of fronts (the CPUs' stacks of free pages) that are so long that a CPU moves several runs of
//! their pages to the zone at once.

use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Pages};

use crate::front::Depot;
use crate::front_direct::{BATCH, WORD, direct, further, held, holds, is_exact, view};
use crate::fronts::World;
use crate::machine::Plain;
use crate::watch::count;

/// A machine whose fronts (the CPUs' stacks of free pages) hold `limit` pages, and whose lists do not
/// grow.
fn world(limit: u32, config: Config<Plain>) -> World {
    let depot = Depot::of_long_fronts(limit);
    let world = World::of_depot(Topology::flat(2), config, depot).sized(512, 512);
    assert_eq!(world.depot.limit_of(0), limit);
    world
}

/// Zones of this size have fronts (stacks of free pages) of more than 1024 pages, if the machine has
/// room for so many.
fn long_config() -> Config<Plain> {
    Config::new(Layout::arena(Pages(1 << 18)).with_bitmaps())
}

/// A CPU frees many pages. At the end, each operation moves a quarter of the front (the CPU's stack of
/// free pages), but at most four words.
#[test]
fn a_quarter_of_a_long_front_moves_to_the_zone_at_once() {
    for (limit, words) in [(1024, 4), (832, 3), (512, 2), (448, 1), (256, 1)] {
        let world = world(limit, long_config());
        world.depot.fill_up();
        let users = world.held(40 * WORD as usize);
        let mut left = users.len();
        let free = || {
            for pfn in users {
                world.free(pfn);
                left -= 1;
                is_exact(&world, left);
            }
        };
        let ((), _, events) = world.watch.during(free);
        let (_, given) = direct(&events);
        assert_eq!((given > 0, given % (words * WORD)), (true, 0), "{limit}");
        let moved = holds(&events, Site::Spill);
        assert!(moved.ends_with(&vec![WORD; (given / WORD) as usize]));
        let of_an_operation: Vec<bool> = (0..words).map(|nth| nth > 0).collect();
        assert!(further(&events, Site::Spill).ends_with(&of_an_operation));
        world.is_whole();
    }
}

/// The pages are no words, so each hold of the zone lock moves a batch. The pages that are left are
/// less than a batch. They stay in the front (the CPU's stack of free pages), in their order.
#[test]
fn the_rest_of_several_runs_keeps_its_order() {
    let world = world(1024, long_config());
    world.depot.fill_up();
    let pages = held(&world, 2561);
    let mut freed = 0;
    let mut spill = || {
        let mut events = Vec::new();
        while events.is_empty() {
            let ((), _, seen) = world.watch.during(|| world.free(pages[freed]));
            (freed, events) = (freed + 1, seen);
        }
        (freed, events)
    };
    let (freed, events) = loop {
        let (freed, events) = spill();
        if direct(&events).1 > 0 {
            break (freed, events);
        }
    };
    assert_eq!(holds(&events, Site::Spill), [BATCH; 4]);
    is_exact(&world, pages.len() - freed);
    // The page that was freed last was not in the front when it was full. Of the 256 pages below it,
    // the four oldest ones stayed.
    let stayed = &pages[freed - 257..freed - 253];
    let expected = [&pages[freed - 1]].into_iter().chain(stayed.iter().rev());
    expected.for_each(|&pfn| assert_eq!(world.take(), pfn));
}

/// The depot takes one run at a time, and then no more pages move.
#[test]
fn a_long_front_gives_the_depot_one_run() {
    let world = world(1024, long_config());
    let pages = held(&world, 1025);
    pages.iter().for_each(|&pfn| world.free(pfn));
    let runs: Vec<usize> = world.depot.runs().iter().map(|run| run.1.len()).collect();
    assert_eq!((runs, world.listed(0)), (vec![64], 1025));
    assert_eq!(view(&world).free, view(&world).managed - Pages(1025));
}

/// A zone with lists moves one run at a time to the page list, and a zone with bitmaps several.
#[test]
fn without_bitmaps_a_long_front_moves_one_run() {
    let lists = Config::new(Layout::arena(Pages(1 << 18)));
    for (config, moved) in [(lists, 64), (long_config(), 256)] {
        let world = world(1024, config);
        world.depot.fill_up();
        let pages = world.held(1025);
        pages.into_iter().for_each(|pfn| world.free(pfn));
        let pages = world.manager.pages();
        let state = pages.list_state(&world.machine, 0, CpuId(0));
        let state = state.expect("there is a zone");
        assert_eq!(state.free_count, Pages(moved));
    }
}

/// A full front (a CPU's stack of free pages) moves whole runs of 64 pages, and no more of them
/// than fit into a quarter of its limit.
#[test]
fn no_more_than_a_quarter_of_a_long_front_moves_at_once() {
    for (limit, moved) in [(511, 64), (512, 128), (767, 128), (768, 192), (1023, 192)] {
        let world = world(limit, long_config());
        world.depot.fill_up();
        let pages = world.held(limit as usize + 1);
        pages.into_iter().for_each(|pfn| world.free(pfn));
        let pages = world.manager.pages();
        let state = pages.list_state(&world.machine, 0, CpuId(0));
        let state = state.expect("there is a zone");
        assert_eq!(state.free_count, Pages(moved), "{limit}");
        world.is_whole();
    }
}

/// A CPU that cannot push a page passes the pages of its front (its stack of free pages) on,
/// although the front is not full. These are fewer than a quarter of the limit.
#[test]
fn a_front_that_is_not_full_passes_on_the_pages_that_it_has() {
    let world = world(1024, long_config());
    world.depot.fill_up();
    let pages = world.held(101);
    pages[..100].iter().for_each(|&pfn| world.free(pfn));
    world.depot.limit_pushes(Some(0));
    let ((), locks, _) = world.watch.during(|| world.free(pages[100]));
    assert!(count(&locks, LockClass::Pcp, Site::PcpFree) > 0);
    world.depot.limit_pushes(None);
    assert_eq!(world.manager.pages().double_frees(), 0);
    assert_eq!(world.listed(0), 101);
    is_exact(&world, 0);
    world.is_whole();
}

/// Of the pages that move at once, only the newest ones are a word. So each hold of the zone lock
/// moves a batch, and none moves a run of 64 pages that is no word.
#[test]
fn pages_that_are_no_words_move_in_batches_although_a_word_comes_first() {
    let world = world(1024, long_config());
    world.depot.fill_up();
    let users = world.held(40 * WORD as usize);
    let mut freed = 0;
    loop {
        let ((), _, events) = world.watch.during(|| world.free(users[freed]));
        if direct(&events).1 > 0 {
            break;
        }
        freed += 1;
    }
    // The last page that was freed is the first page of a word. It is the oldest one of the 256
    // pages that move next.
    assert_eq!(users[freed].0 % WORD, 0);
    let (skipped, rest) = users[freed + 1..].split_at(31);
    let (others, rest) = rest.split_at(191);
    let (also_skipped, rest) = rest.split_at(33);
    let (word, rest) = rest.split_at(WORD as usize);
    assert_eq!(word[0].0 % WORD, 0);
    others.iter().chain(word).for_each(|&pfn| world.free(pfn));
    let ((), _, events) = world.watch.during(|| world.free(rest[0]));
    assert_eq!(holds(&events, Site::Spill), [BATCH; 4]);
    let mut left = skipped.to_vec();
    left.extend([also_skipped, &rest[1..]].concat());
    is_exact(&world, left.len());
    left.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
}
