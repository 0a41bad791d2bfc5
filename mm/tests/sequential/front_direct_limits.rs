//! Tests of when no runs of pages may move directly between a front (a CPU's stack of free pages)
//! and a zone with bitmaps, and of what happens if such a move is disturbed.

use plimsoll_mm::design::{Design, HOLDS};
use plimsoll_mm::page::holds::Limit;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{AllocError, Config, FreeError, Layout, Reclaiming, ZoneKind};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};

use crate::front_direct::{
    BATCH, PAGES, calm, config, direct, filled, held, holds, is_exact, view, world,
};
use crate::fronts::{ONE, World};

/// Allocates pages on CPU 0 until memory is out. Returns the pages and the error.
fn exhaust(world: &World, urgency: Urgency) -> (Vec<Pfn>, AllocError) {
    let mut users = Vec::new();
    let pages = world.manager.pages();
    loop {
        match pages.alloc(&world.machine, ONE.urgent(urgency)) {
            Ok(pfn) => users.push(pfn),
            Err(why) => return (users, why),
        }
    }
}

/// Runs take a batch at a time, so a request gets as many pages as it gets without a front if each
/// refill of a list is one batch: the zone gives batches until its free pages are at most the
/// watermark. The error is the same, too.
#[test]
fn memory_is_out_when_it_is_out_without_fronts() {
    let small = || {
        let mut config = config();
        let one_batch = config.tunables.set(Knob::BatchScaleMax, 0);
        one_batch.expect("in bounds");
        config
    };
    for urgency in [
        Urgency::Normal,
        Urgency::NoWait,
        Urgency::High,
        Urgency::Atomic,
        Urgency::Victim,
        Urgency::Reserve,
    ] {
        let world = World::of(Topology::flat(2), small()).sized(256, 1024);
        let twin = World::without_fronts(Topology::flat(2), small()).sized(256, 1024);
        let min = view(&world).watermarks.min.0;
        let half = min.div_ceil(2);
        let mark = match urgency {
            Urgency::Normal | Urgency::NoWait => min,
            Urgency::High | Urgency::Victim => half,
            Urgency::Atomic => half - half / 4,
            Urgency::Reserve => 0,
        };
        let batches = (PAGES - mark).div_ceil(BATCH);
        let expected = (batches * BATCH).min(PAGES);

        let ((mut users, why), _, events) = world.watch.during(|| exhaust(&world, urgency));
        assert!(direct(&events).0 > PAGES - PAGES / 8, "{urgency:?}");
        assert_eq!(users.len(), expected as usize, "{urgency:?}");
        is_exact(&world, users.len());
        let (others, because) = exhaust(&twin, urgency);
        assert_eq!((others.len(), because), (users.len(), why), "{urgency:?}");
        users.sort_unstable();
        users.dedup();
        assert_eq!(users.len(), expected as usize, "each page has one user");
        users.into_iter().for_each(|pfn| world.free(pfn));
        world.is_whole();
    }
}

/// Runs pass the list only as long as the zone is above its low watermark. Each hold of the zone
/// lock tests the watermark again.
#[test]
fn no_run_is_taken_at_the_low_watermark() {
    for batch in [63, 15] {
        let world = World::of(Topology::flat(2), config()).batched(batch, 256, 1024);
        let marks = view(&world).watermarks;
        let low = marks.low.0;
        let (_, _, events) = world.watch.during(|| exhaust(&world, Urgency::Reserve));
        let (taken, _) = direct(&events);
        assert_eq!(taken, (PAGES - low).div_ceil(batch) * batch);
    }
}

/// While a zone is below its high watermark, a run that finds the list full shortens the list. The
/// first page makes the list return all pages but a batch of its old `high`: 1024 - 63. The zone is
/// not short of pages, so the hint is cleared then, and the other 63 pages stay on the list.
#[test]
fn below_the_high_watermark_freed_runs_shorten_the_list() {
    let world = world();
    let pages = held(&world, 2500);
    let mut rest = filled(&world, &pages);
    rest.drain(..64).for_each(|pfn| world.free(pfn));
    let hint = world.manager.pages().set_below_high(&world.machine, 0);
    hint.expect("there is a zone");
    let free = || rest.drain(..63).for_each(|pfn| world.free(pfn));
    let ((), _, events) = world.watch.during(free);
    assert_eq!(holds(&events, Site::Spill).iter().sum::<u32>(), 961);
    assert_eq!(direct(&events), (0, 0));
    let front = 128 - 64 + 1;
    assert_eq!(world.listed(0), 63 + 63 + front);
    let state = world.manager.pages();
    let state = state.list_state(&world.machine, 0, CpuId(0));
    assert_eq!(state.map(|state| state.high), Some(Pages(256)));
    is_exact(&world, rest.len());
}

/// While reclaim is active, four batches of pages stay on the list, also if the list was full. Each
/// page that finds more pages there makes the list return three batches.
#[test]
fn while_reclaim_is_active_freed_runs_shorten_the_list() {
    let world = world();
    let pages = held(&world, 2500);
    let mut rest = filled(&world, &pages);
    rest.drain(..64).for_each(|pfn| world.free(pfn));
    let reclaims = |is_active| {
        let (pages, machine) = (world.manager.pages(), &world.machine);
        pages.set_reclaiming(machine, NodeId(0), ZoneKind::Normal, is_active);
    };
    reclaims(Reclaiming::Yes);
    let free = || rest.drain(..63).for_each(|pfn| world.free(pfn));
    let ((), _, events) = world.watch.during(free);
    assert_eq!(holds(&events, Site::Spill), [63; 15]);
    assert_eq!(direct(&events), (0, 0));
    assert_eq!(world.listed(0), 1023 + 64 - 15 * 63 + 65);
    reclaims(Reclaiming::No);
    is_exact(&world, rest.len());
}

/// A free that was returning pages to the zone could not finish, so the lists owe pages. The next run
/// goes through the list, which then returns these pages, too.
#[test]
fn a_run_goes_through_a_list_that_owes_pages() {
    let world = world();
    let pages = held(&world, 2500);
    let mut rest = filled(&world, &pages);
    rest.drain(..64).for_each(|pfn| world.free(pfn));
    // This page goes onto the list and not to the front. The list has 1024 pages then, so it returns
    // all but a batch. Another CPU takes the lock of the list after the first batch.
    let listed = rest.pop().expect("there are pages");
    let watch = std::sync::Arc::clone(&world.watch);
    let refuse = move || watch.refuse(1);
    world
        .watch
        .before((LockClass::Zone, Site::Spill), 0, refuse);
    let freed = world.manager.pages().free_pages(&world.machine, &[listed]);
    freed.expect("it is allocated");
    assert_eq!(world.listed(0), 1024 - 63 + 66);
    // 62 more pages fit on the list, so the run does not. With the 898 pages that are owed, the list
    // returns all its pages.
    let free = || rest.drain(..63).for_each(|pfn| world.free(pfn));
    let ((), _, events) = world.watch.during(free);
    assert_eq!(direct(&events), (0, 0));
    assert_eq!(holds(&events, Site::Spill).iter().sum::<u32>(), 1024);
    assert_eq!(world.listed(0), 1 + 65);
    is_exact(&world, rest.len());
}

/// If the lock of the list cannot be taken, nothing passes the list, because the list could not be
/// tuned. No page is lost.
#[test]
fn a_locked_list_lets_no_run_pass() {
    let world = world();
    let refuse_after = |at| {
        let watch = std::sync::Arc::clone(&world.watch);
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

/// A design whose refills or spills are not limited to a batch moves as many pages in one hold as
/// without fronts, so no run passes the lists. In zones with free lists, none does either.
#[test]
fn only_holds_of_a_batch_pass_the_lists() {
    for policy in HOLDS {
        for has_bitmaps in [true, false] {
            let layout = Layout::arena(Pages(PAGES));
            let layout = if has_bitmaps {
                layout.with_bitmaps()
            } else {
                layout
            };
            let mut config = Config::new(layout);
            config.design = Design {
                holds: policy,
                ..Design::OURS
            };
            let world = World::of(Topology::flat(2), config).sized(256, 1024);
            world.depot.fill_up();
            let is_batch = |site| match policy.limit(site, Pages(BATCH)) {
                Limit::None => false,
                Limit::About(most) | Limit::Strict(most) => most == Pages(BATCH),
            };
            let take = || (0..300).map(|_| world.take()).collect::<Vec<_>>();
            let (users, _, events) = world.watch.during(take);
            let (taken, _) = direct(&events);
            let expected = has_bitmaps && is_batch(Site::Refill);
            assert_eq!(taken > 0, expected, "{policy:?}, {has_bitmaps}");
            users.into_iter().for_each(|pfn| world.free(pfn));

            let users = world.held(3500);
            let free = || users.into_iter().for_each(|pfn| world.free(pfn));
            let ((), _, events) = world.watch.during(free);
            let (_, given) = direct(&events);
            let expected = has_bitmaps && is_batch(Site::Spill);
            assert_eq!(given > 0, expected, "{policy:?}, {has_bitmaps}");
            world.is_whole();
        }
    }
}

/// Another thread takes the front (the stack of free pages) away from a CPU that has just taken a run
/// from the zone. The pages that cannot be pushed any more go to the list.
#[test]
fn a_run_from_the_zone_that_loses_its_front_goes_to_the_list() {
    let world = world();
    world.depot.limit_pushes(Some(10));
    let mut users = vec![world.take()];
    assert_eq!((users[0], world.listed(0)), (Pfn(0), 62));
    is_exact(&world, 1);
    world.depot.limit_pushes(None);
    users.extend((0..62).map(|_| world.take()));
    // The pages that would be allocated last were pushed first.
    let expected: Vec<Pfn> = (0..1).chain(53..63).chain(1..53).map(Pfn).collect();
    assert_eq!(users, expected);
    users.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
}

/// A CPU has moved a batch of its front (its stack of free pages) to the zone when another thread
/// takes the front away. Neither the page that was left of the run nor the page that is freed can be
/// pushed, so both go to the list.
#[test]
fn a_run_to_the_zone_that_loses_its_front_loses_no_page() {
    for pushes in [0, 1] {
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
/// after the other. The page goes to the zone once.
#[test]
fn a_page_that_is_in_runs_of_two_cpus_goes_to_the_zone_once() {
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

    world.machine.on(0);
    let last = here.pop().expect("there are pages");
    let ((), _, events) = world.watch.during(|| world.free(last));
    assert_eq!(holds(&events, Site::Spill), [63]);
    world.machine.on(1);
    let last = there.pop().expect("there are pages");
    let ((), _, events) = world.watch.during(|| world.free(last));
    assert_eq!(holds(&events, Site::Spill), [62]);
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
