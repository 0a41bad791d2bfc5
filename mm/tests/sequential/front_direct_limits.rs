//! Tests of when runs of pages may move directly between a front (a CPU's stack of free pages) and a
//! zone with bitmaps.

use std::sync::Arc;

use plimsoll_mm::design::{Design, HOLDS};
use plimsoll_mm::page::holds::Limit;
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::watermark::{Urgency, Watermarks};
use plimsoll_mm::page::{AllocError, Config, Layout, Reclaiming, Request, ZoneKind, ZoneLayout};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};

use crate::front_direct::{
    BATCH, PAGES, WORD, config, direct, filled, held, holds, is_exact, view, world,
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

/// Near the watermark, runs take a batch at a time. So a request gets all pages that it gets without
/// a front if each refill of a list is one batch, to within a batch: the zone gives batches until its
/// free pages are at most the watermark. The error is the same, too.
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
        let expected = PAGES - mark..=(PAGES - mark + BATCH - 1).min(PAGES);
        let is_expected =
            |users: &[Pfn]| expected.contains(&u32::try_from(users.len()).expect("few"));

        let ((mut users, why), _, events) = world.watch.during(|| exhaust(&world, urgency));
        assert!(direct(&events).0 > PAGES - PAGES / 8, "{urgency:?}");
        assert!(is_expected(&users), "{urgency:?}, {}", users.len());
        is_exact(&world, users.len());
        let (others, because) = exhaust(&twin, urgency);
        assert!(is_expected(&others), "{urgency:?}, {}", others.len());
        assert_eq!(because, why, "{urgency:?}");
        let count = users.len();
        users.sort_unstable();
        users.dedup();
        assert_eq!(users.len(), count, "each page has one user");
        users.into_iter().for_each(|pfn| world.free(pfn));
        world.is_whole();
    }
}

/// Runs pass the list only as long as the zone is above its low watermark. Each hold of the zone
/// lock tests the watermark again, and a hold moves a word only if the zone stays above it.
#[test]
fn no_run_is_taken_at_the_low_watermark() {
    for batch in [63, 15] {
        let world = World::of(Topology::flat(2), config()).batched(batch, 256, 1024);
        let marks = view(&world).watermarks;
        let low = marks.low.0;
        let (_, _, events) = world.watch.during(|| exhaust(&world, Urgency::Reserve));
        let (taken, _) = direct(&events);
        assert!(
            (PAGES - low..PAGES - low + batch).contains(&taken),
            "{taken}"
        );
    }
}

/// A hold moves a word only if the zone stays above its low watermark. Otherwise it moves at most a
/// batch, as long as the zone is above this watermark.
#[test]
fn no_word_is_taken_if_the_zone_would_reach_the_low_watermark() {
    for batch in [63, 15] {
        // The number of pages above the watermark, beyond ten words.
        for rest in [0, 1, 2, 15, 16, 17, 62, 63] {
            let world = World::of(Topology::flat(2), config());
            let low = Pages(PAGES - 10 * WORD - rest);
            let marks = Watermarks {
                min: Pages(100),
                low,
                high: low,
            };
            let sizes = Sizes {
                batch: Pages(batch),
                high_min: Pages(256),
                high_max: Pages(1024),
            };
            let pages = world.manager.pages();
            let seed = || pages.seed_sizes(&world.machine, 0, marks, sizes);
            world
                .depot
                .keeping_limits(seed)
                .expect("lists can have these sizes");
            let mut users = Vec::new();
            let take = || {
                while view(&world).free > low {
                    users.push(world.take());
                }
            };
            let ((), _, events) = world.watch.during(take);
            let taken = holds(&events, Site::Refill);
            assert_eq!(direct(&events).0, taken.iter().sum::<u32>());
            let mut left = 10 * WORD + rest;
            for pages in taken {
                if left > WORD {
                    assert_eq!(pages, WORD, "{left} pages above the watermark");
                } else {
                    assert!(
                        0 < left && pages <= batch,
                        "{left} pages above the watermark"
                    );
                }
                left = left.saturating_sub(pages);
            }
            users.into_iter().for_each(|pfn| world.free(pfn));
            world.is_whole();
        }
    }
}

/// A zone withholds a reserve from requests that could also use movable memory. Other requests may
/// go down to the low watermark, also by runs.
#[test]
fn runs_for_unmovable_pages_take_from_the_reserve_for_others() {
    let zone = |kind, start, pages| ZoneLayout {
        kind,
        node: NodeId(0),
        start: Pfn(start),
        spanned: Pages(pages),
        holes: Vec::new(),
    };
    let movable = zone(ZoneKind::Movable, PAGES, 1 << 17);
    let zones = [zone(ZoneKind::Normal, 0, PAGES), movable];
    let layout = Layout::of(zones).with_bitmaps();
    let world = World::of(Topology::flat(2), Config::new(layout)).sized(256, 1024);
    let low = view(&world).watermarks.low.0;
    let (_, _, events) = world.watch.during(|| exhaust(&world, Urgency::Normal));
    let (taken, _) = direct(&events);
    assert!(
        (PAGES - low..PAGES - low + BATCH).contains(&taken),
        "{taken}"
    );
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
    let watch = Arc::clone(&world.watch);
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

/// In a small zone a run has fewer pages than a batch. It passes the list like a longer one.
#[test]
fn runs_of_less_than_a_batch_pass_the_list() {
    let small = Config::new(Layout::arena(Pages(4096)).with_bitmaps());
    let world = World::of(Topology::flat(2), small).sized(64, 64);
    assert_eq!(world.depot.limit_of(0), 32);
    let take = || (0..48).map(|_| world.take()).collect::<Vec<_>>();
    let (users, _, events) = world.watch.during(take);
    assert_eq!(holds(&events, Site::Refill), [16; 3]);
    assert_eq!(direct(&events), (48, 0));
    users.into_iter().for_each(|pfn| world.free(pfn));

    // The list may have 63 pages before it returns pages to the zone, so three runs fit on it.
    let users = world.held(32 + 3 * 16 + 1);
    let free = || users.into_iter().for_each(|pfn| world.free(pfn));
    let ((), _, events) = world.watch.during(free);
    assert_eq!(holds(&events, Site::Spill), [16]);
    assert_eq!(direct(&events), (0, 16));
    world.is_whole();
}

/// Of a run that passes the list, only the pages that go to the zone count as freed in a row. The
/// others are in the front (the CPU's stack of free pages) again.
#[test]
fn only_pages_that_pass_the_list_count_as_freed() {
    let world = World::of(Topology::flat(2), config()).batched(15, 64, 64);
    world.depot.fill_up();
    let users = held(&world, 129);
    let free = || users.into_iter().for_each(|pfn| world.free(pfn));
    let ((), _, events) = world.watch.during(free);
    assert_eq!(direct(&events), (0, 60));
    let pages = world.manager.pages();
    let state = pages.list_state(&world.machine, 0, CpuId(0));
    assert_eq!(state.map(|state| state.free_count), Some(Pages(60)));
    world.is_whole();
}

/// An allocator for one CPU passes on what a request says, if the front (the CPU's stack of free
/// pages) has no pages and no run may pass the list.
#[test]
fn an_allocator_for_one_cpu_gets_every_page() {
    let world = world();
    let local = world.manager.pages().local(&world.machine, CpuId(0));
    let urgent = ONE.urgent(Urgency::Reserve);
    let take = || std::iter::from_fn(|| local.alloc(&world.machine, urgent).ok());
    let (users, _, events) = world.watch.during(|| take().collect::<Vec<_>>());
    assert_eq!(users.len(), PAGES as usize);
    assert!(direct(&events).0 > PAGES - PAGES / 8);
    let free = |pfn| local.free(&world.machine, pfn, Order::ZERO);
    let frees = || users.into_iter().map(free).filter(Result::is_ok).count();
    let (freed, _, events) = world.watch.during(frees);
    assert_eq!(freed, PAGES as usize);
    assert!(direct(&events).1 > PAGES - PAGES / 8);
    world.is_whole();
}

/// An allocator for one CPU gives blocks of each order, although only single pages and huge blocks
/// come from a front (a stack of free blocks).
#[test]
fn an_allocator_for_one_cpu_gives_blocks_of_each_order() {
    let world = world();
    let local = world.manager.pages().local(&world.machine, CpuId(0));
    for order in Order::all() {
        let take = |_| local.alloc(&world.machine, Request::new(order));
        let blocks: Vec<_> = (0..3).map(take).collect();
        for block in blocks {
            let pfn = block.expect("there is memory");
            assert_eq!(pfn.0 % order.pages().0, 0, "{order:?}");
            assert_eq!(local.free(&world.machine, pfn, order), Ok(()), "{order:?}");
        }
    }
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
