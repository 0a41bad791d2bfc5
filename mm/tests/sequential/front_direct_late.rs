//! Tests of a page that was freed twice at once: the store of its tag by the second free takes effect
//! only after the page has reached the zone. The page is then free in a zone with bitmaps, and on a
//! CPU's front (its stack of free pages).

use std::collections::BTreeSet;

use plimsoll_mm::page::Sweep;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

use crate::front_direct::{
    PAGES, WORD, config, direct, filled, held, holds, is_exact, view, world,
};
use crate::fronts::World;
use crate::watch::count;

/// A machine on which a page is free in the zone, and also on CPU 1's front (its stack of free
/// pages). If `is_split`, only a part of the huge block around `page` is free. Returns the page,
/// and the pages that are allocated. Afterwards, CPU 0 runs.
fn with_a_page_that_is_free_twice(page: usize, is_split: bool) -> (World, Pfn, Vec<Pfn>) {
    let world = world();
    let mut users = world.held(200);
    let twice = users.remove(page);
    world.free(twice);
    if !is_split {
        users.drain(..).for_each(|pfn| world.free(pfn));
    }
    world.manager.pages().drain_all_sync(&world.machine);
    world.machine.on(1);
    world.depot.let_the_next_free_be_late();
    world.free(twice);
    world.machine.on(0);
    (world, twice, users)
}

fn end(world: &World, users: Vec<Pfn>) {
    users.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
    assert_eq!(world.manager.pages().double_frees(), 1);
}

#[test]
fn a_page_that_goes_to_the_zone_from_a_list_is_dropped_there() {
    for (page, is_split) in [
        (64, true),
        (70, true),
        (127, true),
        (70, false),
        (127, false),
    ] {
        let (world, _, users) = with_a_page_that_is_free_twice(page, is_split);
        world.manager.pages().drain_cpu(&world.machine, CpuId(1));
        assert_eq!(world.manager.pages().double_frees(), 1);
        is_exact(&world, users.len());
        end(&world, users);
    }
}

/// The huge block around the page may be free as a whole, with or without its buddy, and its memory
/// may have been given back to the system. The page is dropped in each case.
#[test]
fn a_page_of_a_whole_huge_block_is_dropped() {
    for (has_buddy, is_given_back) in [(true, false), (false, false), (true, true), (false, true)] {
        let world = world();
        let mut users = world.held(1024);
        // If the buddy has a user, the other block is free as a block of 512 pages.
        let twice = users[70];
        users
            .drain(..if has_buddy { 1024 } else { 512 })
            .for_each(|pfn| world.free(pfn));
        let pages = world.manager.pages();
        pages.drain_all_sync(&world.machine);
        let mut given = BTreeSet::new();
        for _ in 0..if is_given_back { 2 } else { 0 } {
            let mut sweep = Sweep::default();
            pages.report_free(&world.machine, &mut sweep, Pages(PAGES), |pfn, order| {
                given.insert((pfn, order));
                true
            });
        }
        let order = if has_buddy { Order::MAX } else { Order::HUGE };
        assert_eq!(given.contains(&(Pfn(0), order)), is_given_back);
        world.machine.on(1);
        world.depot.let_the_next_free_be_late();
        world.free(twice);
        pages.drain_cpu(&world.machine, CpuId(1));
        assert_eq!(pages.double_frees(), 1);
        is_exact(&world, users.len());
        world.machine.on(0);
        end(&world, users);
    }
}

/// Two neighbours were freed twice. Both are dropped and counted, and the zone gives no other page
/// twice afterwards.
#[test]
fn each_page_of_a_word_that_is_dropped_counts() {
    for is_split in [true, false] {
        let world = world();
        let mut users = world.held(200);
        let twice: Vec<Pfn> = users.drain(70..72).collect();
        twice.iter().for_each(|&pfn| world.free(pfn));
        if !is_split {
            users.drain(..).for_each(|pfn| world.free(pfn));
        }
        let pages = world.manager.pages();
        pages.drain_all_sync(&world.machine);
        world.machine.on(1);
        for pfn in twice {
            world.depot.let_the_next_free_be_late();
            world.free(pfn);
        }
        pages.drain_cpu(&world.machine, CpuId(1));
        assert_eq!(pages.double_frees(), 2);
        is_exact(&world, users.len());
        world.machine.on(0);
        users.extend((0..1500).map(|_| world.take()));
        is_exact(&world, users.len());
        let count = users.len();
        users.sort_unstable();
        users.dedup();
        assert_eq!(users.len(), count, "no page has two users");
        users.into_iter().for_each(|pfn| world.free(pfn));
        world.is_whole();
        assert_eq!(pages.double_frees(), 2);
    }
}

/// The CPU's front is used first, so it has the page.
#[test]
fn a_page_that_the_zone_gives_is_dropped_if_it_is_on_a_front() {
    for is_split in [true, false] {
        let (world, twice, mut users) = with_a_page_that_is_free_twice(70, is_split);
        users.extend((0..200).map(|_| world.take()));
        assert!(!users.contains(&twice));
        assert_eq!(world.manager.pages().double_frees(), 1);
        world.machine.on(1);
        assert_eq!(world.take(), twice);
        users.push(twice);
        is_exact(&world, users.len());
        end(&world, users);
    }
}

#[test]
fn a_page_that_the_zone_gives_is_dropped_if_it_is_allocated() {
    let (world, twice, mut users) = with_a_page_that_is_free_twice(70, true);
    world.machine.on(1);
    assert_eq!(world.take(), twice);
    world.machine.on(0);
    users.extend((0..200).map(|_| world.take()));
    assert!(!users.contains(&twice));
    assert_eq!(world.manager.pages().double_frees(), 1);
    users.push(twice);
    is_exact(&world, users.len());
    end(&world, users);
}

/// The page is one of a run of 64 pages that goes to the zone: of a word (64 pages that are a block),
/// of other neighbours, or of pages in another order. A run that is no word loses its oldest page,
/// which goes back to the front.
#[test]
fn a_page_of_a_run_to_the_zone_is_dropped_if_it_is_free_there() {
    for (shift, swaps, given) in [(0, false, 63), (1, false, 62), (0, true, 62)] {
        let world = world();
        let pages = held(&world, 2500);
        let mut rest = filled(&world, &pages);
        // 64 pages stay in the front, which has room for 64 more.
        let mut users = vec![world.take()];
        let start = rest.iter().position(|pfn| pfn.0 % WORD == 0);
        users.extend(rest.drain(..start.expect("there is a word") + shift));
        let mut run: Vec<Pfn> = rest.drain(..64).collect();
        let twice = run[30];
        if swaps {
            run.swap(10, 11);
        }
        give_to_the_zone(&world, twice);
        for pfn in run {
            if pfn == twice {
                world.depot.let_the_next_free_be_late();
            }
            world.free(pfn);
        }
        let (before, last) = (view(&world).free, rest.remove(0));
        let ((), _, events) = world.watch.during(|| world.free(last));
        assert_eq!(direct(&events), (0, given));
        assert_eq!(holds(&events, Site::Spill), [given]);
        assert_eq!(view(&world).free, before + Pages(given));
        assert_eq!(world.manager.pages().double_frees(), 1);
        users.extend(rest);
        is_exact(&world, users.len());
        end(&world, users);
    }
}

/// Frees a page on a CPU whose front and list are empty otherwise, and empties them.
fn give_to_the_zone(world: &World, pfn: Pfn) {
    world.machine.on(1);
    let freed = world.manager.pages().free(&world.machine, pfn, Order::ZERO);
    freed.expect("it is allocated");
    world.manager.pages().drain_cpu(&world.machine, CpuId(1));
    world.machine.on(0);
}

/// A page goes to the zone without a list if the CPU can use neither its front nor its list.
#[test]
fn a_page_that_goes_to_the_zone_past_the_list_is_dropped_there() {
    for is_split in [true, false] {
        let world = world();
        let mut users = world.held(200);
        let twice = users.remove(70);
        world.free(twice);
        if !is_split {
            users.drain(..).for_each(|pfn| world.free(pfn));
        }
        world.manager.pages().drain_all_sync(&world.machine);
        world.machine.on(1);
        world.depot.let_the_next_free_be_late();
        world.depot.limit_pushes(Some(0));
        world.watch.refuse(1);
        let ((), locks, _) = world.watch.during(|| world.free(twice));
        assert_eq!(count(&locks, LockClass::Zone, Site::FreeDirect), 1);
        world.depot.limit_pushes(None);
        assert_eq!(world.manager.pages().double_frees(), 1);
        is_exact(&world, users.len());
        world.machine.on(0);
        end(&world, users);
    }
}

/// A CPU that can use neither its front nor its list allocates a page of the zone. The page is on
/// the front of another CPU, so the zone gives the next page.
#[test]
fn a_page_that_the_zone_gives_past_the_list_is_dropped_if_it_is_on_a_front() {
    let (world, twice, mut users) = with_a_page_that_is_free_twice(70, true);
    world.watch.refuse(3);
    let (other, locks, _) = world.watch.during(|| world.take());
    world.watch.refuse(0);
    assert_eq!(count(&locks, LockClass::Zone, Site::AllocDirect), 1);
    assert_ne!(other, twice);
    users.push(other);
    assert_eq!(world.manager.pages().double_frees(), 1);
    world.machine.on(1);
    assert_eq!(world.take(), twice);
    users.push(twice);
    is_exact(&world, users.len());
    end(&world, users);
}

/// The store of the tag takes effect after the page has reached a list, and then the page gets onto
/// the list a second time. It goes to the zone once.
#[test]
fn a_page_that_is_twice_on_a_list_goes_to_the_zone_once() {
    let world = world();
    let mut users = world.held(200);
    let twice = users.remove(70);
    world.depot.limit_pushes(Some(0));
    world.free(twice);
    world.depot.let_the_next_free_be_late();
    world.free(twice);
    world.depot.limit_pushes(None);
    assert_eq!(world.listed(0), 2, "it is twice on the list");
    world.manager.pages().drain_cpu(&world.machine, CpuId(0));
    assert_eq!(world.manager.pages().double_frees(), 1);
    is_exact(&world, users.len());
    end(&world, users);
}

/// A list may be refilled if a CPU cannot use its front. The page is then on another CPU's front,
/// or allocated.
#[test]
fn a_refill_of_a_list_drops_the_page() {
    for is_allocated in [false, true] {
        let world = World::of(Topology::flat(2), config()).sized(256, 1024);
        let mut users = world.held(200);
        let twice = users.remove(70);
        give_to_the_zone(&world, twice);
        world.machine.on(1);
        world.depot.let_the_next_free_be_late();
        world.free(twice);
        if is_allocated {
            assert_eq!(world.take(), twice);
        }
        world.machine.on(0);
        world.depot.take_fronts_away();
        let mut pfns = [Pfn(0); 150];
        let pages = world.manager.pages();
        let taken = pages.alloc_pages(&world.machine, crate::fronts::ONE, &mut pfns);
        taken.expect("there is memory");
        assert!(!pfns.contains(&twice));
        assert_eq!(pages.double_frees(), 1);
        users.extend(pfns);
        users.extend(is_allocated.then_some(twice));
        end(&world, users);
    }
}
