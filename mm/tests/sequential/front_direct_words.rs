//! Tests of words, blocks of 64 pages, that move between a front (a CPU's stack of free pages) and a
//! zone with bitmaps. The tags of a word share a cache line, so a word should have one CPU only.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_mm::event::Event;
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::{Config, Layout, Request, Sweep, ZoneKind, ZoneLayout};
use plimsoll_mm::site::Site;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};

use crate::front_direct::{
    PAGES, WORD, config, direct, filled, held, is_exact, view, without_words, world,
};
use crate::fronts::{ONE, World};

/// The numbers of pages and blocks that each hold of the zone lock at `site` has moved.
fn moved(events: &[Event], site: Site) -> Vec<(u32, u32)> {
    let moved = events.iter().filter_map(|event| match *event {
        Event::ZoneHold {
            site: at,
            pages,
            blocks,
            ..
        } if at == site => Some((pages.0, blocks)),
        _ => None,
    });
    moved.collect()
}

/// Asserts that no two CPUs have pages of the same word.
fn have_words_of_their_own(pages_of: &[Vec<Pfn>]) {
    let mut owners = BTreeMap::new();
    for (cpu, pages) in pages_of.iter().enumerate() {
        for pfn in pages {
            let owner = *owners.entry(pfn.0 / WORD).or_insert(cpu);
            assert_eq!(owner, cpu, "{pfn:?} is in a word of CPU {owner}");
        }
    }
}

/// Three CPUs take pages in turns.
fn take_in_turns(world: &World, pages: usize) -> Vec<Vec<Pfn>> {
    let mut taken = vec![Vec::new(); 3];
    for _ in 0..pages {
        for (cpu, taken) in (0..).zip(&mut taken) {
            world.machine.on(cpu);
            taken.push(world.take());
        }
    }
    taken
}

/// The batch may be smaller than a word, and words may have pages that are in use.
#[test]
fn cpus_that_take_pages_in_turns_get_words_of_their_own() {
    for (batch, has_words) in [(63, true), (31, true), (8, true), (63, false)] {
        let world = World::of(Topology::flat(3), config()).batched(batch, 256, 1024);
        world.depot.fill_up();
        let kept = if has_words {
            Vec::new()
        } else {
            without_words(&world)
        };
        let (taken, _, events) = world.watch.during(|| take_in_turns(&world, 500));
        have_words_of_their_own(&taken);
        let expected = if has_words { (WORD, 1) } else { (63, 63) };
        assert!(
            moved(&events, Site::Refill)
                .iter()
                .all(|hold| *hold == expected)
        );
        is_exact(&world, kept.len() + 1500);
    }
}

/// A part of a word is better than a word of a huge block that is whole. The zone splits a whole
/// block only if it has no other page.
#[test]
fn no_huge_block_is_split_while_the_zone_has_other_pages() {
    let world = world();
    let mut users = world.held(509);
    let before = view(&world).blocks;
    let (pfn, _, events) = world.watch.during(|| world.take());
    assert_eq!(
        (pfn, moved(&events, Site::Refill)),
        (Pfn(509), vec![(3, 3)])
    );
    assert_eq!(view(&world).blocks[3..], before[3..]);
    users.push(pfn);
    users.extend((0..3).map(|_| world.take()));
    assert_eq!(users[512], Pfn(512), "now it splits one");
    is_exact(&world, 513);
    users.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
}

/// A CPU that frees in another order than it allocated gives words back, too. The front becomes full
/// between two words, because 64 divides its limit.
#[test]
fn a_freed_word_moves_as_one_block() {
    for (batch, is_reversed) in [(63, false), (63, true), (15, false), (15, true)] {
        let world = World::of(Topology::flat(2), config()).batched(batch, 512, 512);
        world.depot.fill_up();
        let mut users = world.held(40 * WORD as usize);
        if is_reversed {
            users.reverse();
        }
        let free = || users.into_iter().for_each(|pfn| world.free(pfn));
        let ((), _, events) = world.watch.during(free);
        let (_, given) = direct(&events);
        assert!(given > 20 * WORD, "{given}");
        let words = moved(&events, Site::Spill);
        let words = words.iter().filter(|hold| **hold == (WORD, 1)).count();
        assert_eq!(
            words,
            (given / WORD) as usize,
            "nothing else passes the list"
        );
        world.is_whole();
    }
}

/// A page of a word was freed twice, and another CPU has allocated it since then. The other pages of
/// the word go to the zone.
#[test]
fn a_word_loses_a_page_that_has_another_user() {
    let world = world();
    let mut pages = held(&world, 2500);
    // So the front becomes full between two words.
    world.free(pages.remove(0));
    pages.drain(..62).for_each(|pfn| world.free(pfn));
    let seeded = world.manager.pages();
    seeded.drain_all_sync(&world.machine);
    let mut rest = filled(&world, &pages);
    let start = rest.iter().position(|pfn| pfn.0 % WORD == 0);
    let fill = start.expect("there is a word") + WORD as usize;
    let last = rest.split_off(fill);
    let twice = rest[fill - 7];
    rest.iter().for_each(|&pfn| world.free(pfn));
    world.machine.on(1);
    world.depot.let_the_next_free_be_late();
    world.free(twice);
    assert_eq!(world.take(), twice);

    world.machine.on(0);
    let before = view(&world).free;
    let (mut freed, mut events) = (0, Vec::new());
    while events.is_empty() {
        let ((), _, seen) = world.watch.during(|| world.free(last[freed]));
        (freed, events) = (freed + 1, seen);
    }
    assert_eq!(moved(&events, Site::Spill), [(63, 63)]);
    assert_eq!(view(&world).free, before + Pages(63));
    assert_eq!(world.manager.pages().double_frees(), 1);
    last[freed..].iter().for_each(|&pfn| world.free(pfn));
    world.free(twice);
    world.is_whole();
}

/// Words that move to the zone make huge blocks whole. Their memory has been in use, so it is
/// allocated before memory that was given back to the system.
#[test]
fn huge_blocks_of_freed_words_are_used_before_memory_that_was_given_back() {
    let world = World::of(Topology::flat(2), config()).sized(512, 512);
    world.depot.fill_up();
    let pages = world.manager.pages();
    let mut users = world.held(6 * 1024);
    let others = users.split_off(3 * 1024);
    users.into_iter().for_each(|pfn| world.free(pfn));
    pages.drain_all_sync(&world.machine);
    let mut sweep = Sweep::default();
    let mut round = || pages.report_free(&world.machine, &mut sweep, Pages(PAGES), |_, _| true);
    assert_eq!(
        [round().given, round().given],
        [Pages(0), Pages(PAGES - 3 * 1024)]
    );
    let first = others[0];
    let free = || others.into_iter().for_each(|pfn| world.free(pfn));
    let ((), _, events) = world.watch.during(free);
    assert!(direct(&events).1 > 20 * WORD);
    pages.drain_all_sync(&world.machine);
    let huge = Request::new(Order::HUGE);
    let take = || pages.alloc(&world.machine, huge).expect("there is memory");
    let blocks: Vec<Pfn> = (0..6).map(|_| take()).collect();
    let was_used = |pfn: &Pfn| (first.0..first.0 + 3 * 1024).contains(&pfn.0);
    assert!(blocks.iter().all(was_used), "{blocks:?}");
    for pfn in blocks {
        let freed = pages.free(&world.machine, pfn, Order::HUGE);
        freed.expect("it is allocated");
    }
    world.is_whole();
}

/// The event for a hold of the zone lock names the zone, the zone's batch and the CPU that moved
/// the pages past its lists.
#[test]
fn a_hold_past_the_lists_names_its_zone_its_batch_and_its_cpu() {
    let zone = |kind, start| ZoneLayout {
        kind,
        node: NodeId(0),
        start: Pfn(start),
        spanned: Pages(PAGES),
        holes: Vec::new(),
    };
    let zones = [zone(ZoneKind::Normal, 0), zone(ZoneKind::Movable, PAGES)];
    let layout = Layout::of(zones).with_bitmaps();
    let world = World::of(Topology::flat(2), Config::new(layout));
    world.depot.fill_up();
    let pages = world.manager.pages();
    let sizes = Sizes {
        batch: Pages(31),
        high_min: Pages(512),
        high_max: Pages(512),
    };
    let marks = pages.view(&world.machine)[1].watermarks;
    let seed = || pages.seed_sizes(&world.machine, 1, marks, sizes);
    let seeded = world.depot.keeping_limits(seed);
    seeded.expect("lists can have these sizes");
    world.machine.on(1);
    let movable = ONE.of_class(ZoneKind::Movable);
    let take = || pages.alloc(&world.machine, movable);
    let take_and_free = || {
        let users: Vec<Pfn> = (0..40 * WORD).map_while(|_| take().ok()).collect();
        users.into_iter().for_each(|pfn| world.free(pfn));
    };
    let ((), _, events) = world.watch.during(take_and_free);
    let (taken, given) = direct(&events);
    assert!(taken > 20 * WORD && given > 20 * WORD);
    let seen = events.iter().filter_map(|event| match *event {
        Event::ZoneHold {
            zone, cpu, batch, ..
        } => Some((zone, cpu, batch)),
        _ => None,
    });
    let seen: BTreeSet<(u32, CpuId, Pages)> = seen.collect();
    assert_eq!(seen, [(1, CpuId(1), Pages(31))].into());
    pages.drain_all_sync(&world.machine);
    for zone in pages.view(&world.machine) {
        assert_eq!((zone.free, zone.listed), (zone.managed, Pages(0)));
        assert_eq!(zone.counted_free, u64::from(zone.free.0));
    }
}
