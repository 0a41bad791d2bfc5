//! Tests of runs of pages that move directly between a front (a CPU's stack of free pages) and a
//! zone with bitmaps, while other threads take the front or the list away, or free a page again.

use std::sync::Arc;

use plimsoll_mm::page::FreeError;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

use crate::front_direct::{
    BATCH, calm, config, direct, filled, held, holds, is_exact, view, without_words, world,
};
use crate::fronts::World;

/// If the lock of the list cannot be taken, nothing passes the list, because the list could not be
/// tuned. No page is lost.
#[test]
fn a_locked_list_lets_no_run_pass() {
    let world = world();
    let refuse_after = |at| {
        let watch = Arc::clone(&world.watch);
        world.watch.before(at, 0, move || watch.refuse(1));
    };
    refuse_after((LockClass::Pcp, Site::PcpAlloc));
    let (pfn, _, events) = world.watch.during(|| world.take());
    assert_eq!(direct(&events), (0, 0));
    assert!(world.watch.is_done());
    world.free(pfn);
    world.manager.pages().drain_all_sync(&world.machine);

    let pages = held(&world, 2500);
    let mut rest = filled(&world, &pages);
    rest.drain(..63).for_each(|pfn| world.free(pfn));
    world.watch.refuse(1);
    let free = || world.free(rest.pop().expect("there are pages"));
    let ((), _, events) = world.watch.during(free);
    assert_eq!(direct(&events), (0, 0));
    assert!(holds(&events, Site::Spill).len() > 3, "the list was full");
    is_exact(&world, rest.len());
    rest.into_iter().for_each(|pfn| world.free(pfn));
    pages[..1984 + 65].iter().for_each(|&pfn| {
        let again = world.manager.pages().free(&world.machine, pfn, Order::ZERO);
        assert!(again.is_err(), "it is free");
    });
    world.is_whole();
}

/// Another CPU takes the lock of the list between two holds of the zone lock that move one run. The
/// run ends then, with the pages of the first hold.
#[test]
fn a_list_that_is_locked_ends_a_run() {
    let world = World::of(Topology::flat(2), config()).batched(15, 256, 1024);
    let kept = without_words(&world).len();
    let watch = Arc::clone(&world.watch);
    let refuse = move || watch.refuse(1);
    world
        .watch
        .before((LockClass::Zone, Site::Refill), 0, refuse);
    let take = || (0..90).map(|_| world.take()).collect::<Vec<_>>();
    let (users, _, events) = world.watch.during(take);
    // A word has 63 free pages: the first run takes 15 of them, and the second one the other 48.
    let expected = [15, 15, 15, 15, 3, 15, 15, 15, 15];
    assert_eq!(holds(&events, Site::Refill), expected);
    assert!(users.iter().copied().eq((1..64).chain(65..92).map(Pfn)));
    is_exact(&world, kept + 90);
}

/// Another thread takes the front (the stack of free pages) away from a CPU that has just taken a run
/// from the zone. The pages that cannot be pushed any more go to the list.
#[test]
fn a_run_from_the_zone_that_loses_its_front_goes_to_the_list() {
    let world = world();
    world.depot.limit_pushes(Some(10));
    let mut users = vec![world.take()];
    assert_eq!((users[0], world.listed(0)), (Pfn(0), 63));
    is_exact(&world, 1);
    world.depot.limit_pushes(None);
    users.extend((0..63).map(|_| world.take()));
    // The pages that would be allocated last were pushed first.
    let expected: Vec<Pfn> = (0..1).chain(54..64).chain(1..54).map(Pfn).collect();
    assert_eq!(users, expected);
    users.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
}

/// A batch has 15 pages, so four batches of a run of 64 pages go to the zone. The four oldest pages go
/// back to the front (the CPU's stack of free pages), or to the list if the front is lost. The page
/// that was freed last is still allocated first.
#[test]
fn the_rest_of_a_run_keeps_its_order() {
    // Two pushes are allowed: one that finds the front full, and one of the rest of the run.
    for (pushes, in_front, on_list) in [
        (None, vec![128, 67, 66, 65, 64], vec![]),
        (Some(2), vec![64], vec![128, 67, 66, 65]),
    ] {
        let world = World::of(Topology::flat(2), config()).batched(15, 64, 64);
        world.depot.fill_up();
        let pages = held(&world, 129);
        // The list may have 63 pages before it returns pages to the zone: one less than the run.
        pages[..128].iter().for_each(|&pfn| world.free(pfn));
        world.depot.limit_pushes(pushes);
        let ((), _, events) = world.watch.during(|| world.free(pages[128]));
        assert_eq!(holds(&events, Site::Spill), [15; 4]);
        world.depot.limit_pushes(None);
        let oldest = (0..64).rev();
        let order = in_front.into_iter().chain(oldest).chain(on_list);
        order.for_each(|nth| assert_eq!(world.take(), pages[nth]));
    }
}

/// A CPU has moved a batch of its front (its stack of free pages) to the zone when another thread
/// takes the front away. If the page that was left of the run, or the page that is freed, cannot be
/// pushed, it goes to the list.
#[test]
fn a_run_to_the_zone_that_loses_its_front_loses_no_page() {
    for pushes in [0, 1, 2] {
        let world = world();
        let pages = held(&world, 2500);
        let mut rest = filled(&world, &pages);
        rest.drain(..63).for_each(|pfn| world.free(pfn));
        world.depot.limit_pushes(Some(pushes));
        let last = rest.pop().expect("there are pages");
        let ((), _, events) = world.watch.during(|| world.free(last));
        assert_eq!(direct(&events), (0, BATCH));
        is_exact(&world, rest.len());
        world.depot.limit_pushes(None);
        rest.into_iter().for_each(|pfn| world.free(pfn));
        world.is_whole();
        let mut all = world.held(2500);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2500);
    }
}

/// Two frees of a page have raced, and both entries are in one run that passes the list. The page
/// goes to the zone once.
#[test]
fn a_page_that_is_twice_in_a_run_goes_to_the_zone_once() {
    let world = world();
    let pages = held(&world, 2500);
    let mut rest = filled(&world, &pages);
    let twice = rest[40];
    rest.drain(..62).for_each(|pfn| world.free(pfn));
    world.depot.let_the_next_free_be_late();
    world.free(twice);
    let free_before = view(&world).free;
    let last = rest.pop().expect("there are pages");
    let ((), _, events) = world.watch.during(|| world.free(last));
    assert_eq!(holds(&events, Site::Spill), [62]);
    assert_eq!(view(&world).free, free_before + Pages(62));
    assert_eq!(world.manager.pages().double_frees(), 1);
    is_exact(&world, rest.len());
    rest.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
    assert_eq!(world.manager.pages().double_frees(), 1);
}

/// Two frees of a page on two CPUs have raced, so the page is in two runs, which pass the lists one
/// after the other. The page goes to the zone once. The pages of one run are neighbours, whose tags
/// change together; this run may be the first or the second.
#[test]
fn a_page_that_is_in_runs_of_two_cpus_goes_to_the_zone_once() {
    for first_cpu in [0, 1] {
        spill_a_page_on_two_cpus(first_cpu);
    }
}

/// The run of CPU 0 consists of neighbours. The run of `first_cpu` goes to the zone first.
fn spill_a_page_on_two_cpus(first_cpu: u32) {
    let world = world();
    let pages = held(&world, 6000);
    let (first, second) = pages.split_at(3000);
    let mut here = filled(&world, first);
    world.machine.on(1);
    let seeded = world.manager.pages();
    let seeded = seeded.seed_lists(&world.machine, 0, CpuId(1), &calm(256));
    seeded.expect("there is a zone");
    let (given, there) = second.split_at(1984 + 65);
    given.iter().for_each(|&pfn| world.free(pfn));
    let mut there = there.to_vec();

    world.machine.on(0);
    let twice = here[30];
    here.drain(..63).for_each(|pfn| world.free(pfn));
    world.machine.on(1);
    there.drain(..62).for_each(|pfn| world.free(pfn));
    world.depot.let_the_next_free_be_late();
    world.free(twice);

    for (cpu, expected) in [(first_cpu, 63), (1 - first_cpu, 62)] {
        world.machine.on(cpu);
        let left = if cpu == 0 { &mut here } else { &mut there };
        let last = left.pop().expect("there are pages");
        let ((), _, events) = world.watch.during(|| world.free(last));
        assert_eq!(holds(&events, Site::Spill), [expected]);
    }
    assert_eq!(world.manager.pages().double_frees(), 1);
    is_exact(&world, here.len() + there.len());
    here.into_iter()
        .chain(there)
        .for_each(|pfn| world.free(pfn));
    world.is_whole();
}

/// Two frees of a page have raced, and the second one finds the front (the CPU's stack of free pages)
/// full. A run with the page itself passes the list. If the front is then lost, the second free
/// returns an error.
#[test]
fn a_second_free_that_finds_its_page_in_the_zone_is_an_error() {
    let world = world();
    let pages = held(&world, 2500);
    let mut rest = filled(&world, &pages);
    let twice = rest[62];
    rest.drain(..63).for_each(|pfn| world.free(pfn));
    world.depot.let_the_next_free_be_late();
    world.depot.limit_pushes(Some(0));
    let pages = world.manager.pages();
    let freed = pages.free(&world.machine, twice, Order::ZERO);
    assert_eq!(freed, Err(FreeError::NotAllocated(twice)));
    assert_eq!(pages.double_frees(), 1);
    world.depot.limit_pushes(None);
    is_exact(&world, rest.len());
    rest.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
}
