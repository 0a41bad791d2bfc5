//! Tests of a page that was freed twice at once: the store of its tag by the second free takes effect
//! only after the page has reached the zone. The page is then free in a zone with bitmaps, and on a
//! CPU's front (its stack of free pages).

use plimsoll_mm::site::Site;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

use crate::front_direct::{WORD, config, direct, filled, held, holds, is_exact, view, world};
use crate::fronts::World;

/// A machine on which a page is free in the zone, and also on CPU 1's front (its stack of free
/// pages). If `is_split`, only a part of the huge block around the page is free. Returns the page,
/// and the pages that are allocated. Afterwards, CPU 0 runs.
fn with_a_page_that_is_free_twice(is_split: bool) -> (World, Pfn, Vec<Pfn>) {
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
    for is_split in [true, false] {
        let (world, _, users) = with_a_page_that_is_free_twice(is_split);
        world.manager.pages().drain_cpu(&world.machine, CpuId(1));
        assert_eq!(world.manager.pages().double_frees(), 1);
        is_exact(&world, users.len());
        end(&world, users);
    }
}

/// The CPU's front is used first, so it has the page.
#[test]
fn a_page_that_the_zone_gives_is_dropped_if_it_is_on_a_front() {
    for is_split in [true, false] {
        let (world, twice, mut users) = with_a_page_that_is_free_twice(is_split);
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
    let (world, twice, mut users) = with_a_page_that_is_free_twice(true);
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

/// A list may be refilled if a CPU cannot use its front.
#[test]
fn a_refill_of_a_list_drops_the_page() {
    let world = World::of(Topology::flat(2), config()).sized(256, 1024);
    let mut users = world.held(200);
    let twice = users.remove(70);
    give_to_the_zone(&world, twice);
    world.machine.on(1);
    world.depot.let_the_next_free_be_late();
    world.free(twice);
    world.machine.on(0);
    world.depot.take_fronts_away();
    let mut pfns = [Pfn(0); 150];
    let pages = world.manager.pages();
    let taken = pages.alloc_pages(&world.machine, crate::fronts::ONE, &mut pfns);
    taken.expect("there is memory");
    assert!(!pfns.contains(&twice));
    assert_eq!(pages.double_frees(), 1);
    users.extend(pfns);
    end(&world, users);
}
