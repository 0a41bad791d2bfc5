//! Memory runs out: what the allocator tries before the allocation fails, what the error reports,
//! and that no page is lost.

use crate::support;

use std::rc::Rc;

use plimsoll_mm::design::{Design, HOLDS};
use plimsoll_mm::event::Event;
use plimsoll_mm::page::watermark::{Urgency, Watermarks};
use plimsoll_mm::page::{
    AllocError, Config, Grouping, Layout, Mobility, NoKill, PageAllocator, Request, Tried, ZoneKind,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};
use plimsoll_sim::Sim;
use support::cache::Cache;
use support::small::{any, order, profile};
use support::{Dice, Small, seeds};

/// Creates a machine of two CPUs and `pages` pages, with each of `caches` as a reclaimer.
fn with_caches(pages: u32, caches: [&Cache; 2]) -> Small {
    let mut config = Config::new(Layout::arena(Pages(pages)));
    for cache in caches {
        config.reclaimers.push(Box::new(cache.clone()));
    }
    Small::new(&profile(Topology::flat(2), 1000), config)
}

/// Allocates single pages until none is left. Returns all of them.
fn take_all(sim: &Sim, pages: &PageAllocator<Sim>) -> Vec<Pfn> {
    let take = || pages.alloc(sim, any(Order::ZERO)).ok();
    std::iter::from_fn(take).collect()
}

#[test]
fn the_error_says_what_was_tried() {
    let (empty, full) = (Cache::default(), Cache::default());
    let small = with_caches(600, [&empty, &full]);
    let cache = full.clone();
    small.on(0, move |sim, mm| {
        let pages = mm.pages();
        let all = take_all(sim, pages);
        assert_eq!(all.len(), 600);
        // No two of these pages are neighbours, so they cannot merge.
        let odd = |pfn: &&Pfn| pfn.0 % 2 == 1;
        let mut apart = all.iter().filter(odd);
        let five: Vec<Pfn> = apart.by_ref().take(5).copied().collect();
        pages.free_pages(sim, &five).expect("all were handed out");
        let listed = pages.listed(sim, CpuId(0));
        assert!(listed > Pages::ZERO, "the lists are not empty");
        for &pfn in apart.take(3) {
            cache.push(pfn, Order::ZERO);
        }

        let Err(AllocError::OutOfMemory(tried)) = pages.alloc(sim, any(order(1))) else {
            panic!("there is no pair")
        };
        // The drain after reclaim also counts the reclaimed pages, because they were on a page
        // list.
        let expected = Tried {
            zones: 1,
            kept_back: 0,
            drained: listed + Pages(3),
            reclaimers: 2,
            reclaimed: Pages(3),
            no_kill: NoKill::NotAsked,
        };
        assert_eq!(tried, expected);
        let text = AllocError::OutOfMemory(tried).to_string();
        assert!(
            text.starts_with(
                "out of memory: asked 1 zones (0 of them have a block but must keep it)"
            )
        );
    });
    // The allocation that found no single page called each reclaimer once. The allocation of the
    // pair called each reclaimer twice: the first round of calls freed pages, the second round
    // freed none.
    assert_eq!([empty, full].map(|cache| cache.calls()), [1 + 2; 2]);
    let told = |seen: &support::small::Seen| matches!(seen.2, Event::OutOfMemory { .. });
    assert_eq!(
        small.seen.borrow().iter().filter(|seen| told(seen)).count(),
        2
    );
    let zone = small.zone();
    assert_eq!((zone.free.0, zone.counted_free, zone.listed.0), (8, 8, 0));
}

#[test]
fn an_allocation_succeeds_after_a_reclaimer_freed_its_pages() {
    let (empty, full) = (Cache::default(), Cache::default());
    let small = with_caches(2048, [&empty, &full]);
    let cache = full.clone();
    small.on(0, move |sim, mm| {
        let blocks = [(); 2].map(|()| {
            mm.pages()
                .alloc(sim, any(Order::MAX))
                .expect("there is a block")
        });
        cache.push(blocks[0], Order::MAX);
        let again = mm
            .pages()
            .alloc(sim, Request::new(Order::MAX).urgent(Urgency::Reserve));
        assert_eq!(again, Ok(blocks[0]));
        mm.pages().alloc(sim, any(Order::MAX)).unwrap_err();
    });
    assert!(full.calls() > 0);
}

#[test]
fn a_watermark_keeps_pages_from_those_who_can_wait_and_the_error_says_so() {
    let small = Small::flat(1, 4096, Design::OURS);
    let marks = small.zone().watermarks;
    small.on(0, move |sim, mm| {
        let normal = Request::new(Order::MAX);
        let mut error = None;
        let mut had = 0;
        while error.is_none() {
            match mm.pages().alloc(sim, normal) {
                Ok(_) => had += 1,
                Err(why) => error = Some(why),
            }
        }
        let Some(AllocError::OutOfMemory(tried)) = error else {
            panic!("{error:?}")
        };
        assert_eq!((had, tried.kept_back), (3, 1), "{marks:?}");
        mm.pages()
            .alloc(sim, any(Order::MAX))
            .expect("the reserve is for this");
    });
}

#[test]
fn there_is_no_zone_for_a_kind_below_all() {
    let mut layout = Layout::arena(Pages(1024));
    layout.zones[0].kind = ZoneKind::Movable;
    let small = Small::new(&profile(Topology::flat(1), 1000), Config::new(layout));
    small.on(0, |sim, mm| {
        assert_eq!(
            mm.pages().alloc(sim, any(Order::ZERO)),
            Err(AllocError::NoSuchZone)
        );
        let mut movable = Request::new(Order::ZERO);
        movable.class = ZoneKind::Movable;
        mm.pages()
            .alloc(sim, movable)
            .expect("an empty machine gives movable memory");
    });
}

/// Allocates blocks of each order until memory is exhausted. One more allocation fails and changes
/// nothing.
#[test]
fn a_failed_allocation_of_any_order_at_any_time_changes_nothing() {
    for (pages, holds) in [700, 1024, 1500].into_iter().zip(HOLDS) {
        for of in Order::all() {
            let small = Small::flat(
                2,
                pages,
                Design {
                    holds,
                    ..Design::OURS
                },
            );
            small.on(0, move |sim, mm| {
                let pages = mm.pages();
                let mut held = Vec::new();
                while let Ok(pfn) = pages.alloc(sim, any(of)) {
                    held.push(pfn);
                }
                pages.drain_all_sync(sim);
                let before = pages.view(sim);
                pages.alloc(sim, any(of)).unwrap_err();
                assert_eq!(pages.view(sim), before, "nothing changed");
                let blocks = u32::try_from(held.len()).expect("small");
                assert_eq!(
                    before[0].free.0 + blocks * of.pages().0,
                    before[0].managed.0
                );
                assert_eq!(
                    blocks,
                    before[0].managed.0 >> of.get(),
                    "every block was had"
                );
                held.into_iter()
                    .for_each(|pfn| pages.free(sim, pfn, of).expect("it was handed out"));
            });
        }
    }
}

/// Two CPUs free all pages one by one, in random order and at the same time. Afterwards as many
/// huge blocks (or, with other seeds, largest blocks) can be allocated as fit into memory.
#[test]
fn after_a_drain_every_block_that_can_exist_can_be_had() {
    seeds::each(
        "after_a_drain_every_block_that_can_exist_can_be_had",
        60,
        |seed| {
            let dice = &mut Dice::new(seed, 0);
            let (blocks, holds) = (dice.between(1, 6), *dice.pick(&HOLDS));
            let tail = dice.below(1024);
            let of = *dice.pick(&[Order::HUGE, Order::MAX]);
            let small = Small::flat(
                2,
                blocks * 1024 + tail,
                Design {
                    holds,
                    ..Design::OURS
                },
            );
            let mut all = take_all(&small.sim, small.mm.pages());
            dice.shuffle(&mut all);
            let half = all.split_off(dice.index(all.len()));
            for (cpu, part) in (0..).map(CpuId).zip([all, half]) {
                let mm = Rc::clone(&small.mm);
                small.sim.spawn(cpu, move |sim| {
                    part.into_iter().for_each(|pfn| {
                        mm.pages()
                            .free(sim, pfn, Order::ZERO)
                            .expect("it was handed out");
                    });
                });
            }
            small.sim.run();
            let count = (blocks * 1024 + tail) >> of.get();
            small.on(0, move |sim, mm| {
                for _ in 0..count {
                    mm.pages()
                        .alloc(sim, any(of))
                        .expect("a block of that order exists");
                }
                mm.pages().alloc(sim, any(of)).expect_err("all were had");
            });
        },
    );
}

/// Every CPU frees single pages, then all CPUs allocate the largest blocks at the same time. No
/// allocation fails because another CPU is draining.
#[test]
fn cpus_that_drain_at_the_same_time_all_get_their_block() {
    seeds::each(
        "cpus_that_drain_at_the_same_time_all_get_their_block",
        60,
        |seed| {
            let cpus = Dice::new(seed, 0).between(2, 8);
            let small = Small::flat(cpus, cpus * 1024, Design::OURS);
            let mut all = take_all(&small.sim, small.mm.pages());
            Dice::new(seed, 1).shuffle(&mut all);
            for (cpu, part) in (0..).map(CpuId).zip(all.chunks(1024)) {
                let (mm, part) = (Rc::clone(&small.mm), part.to_vec());
                small.sim.spawn(cpu, move |sim| {
                    mm.pages()
                        .free_pages(sim, &part)
                        .expect("all were handed out");
                });
            }
            small.sim.run();
            assert!(
                small.zone().listed > Pages::ZERO,
                "the lists keep some blocks apart"
            );
            for cpu in (0..cpus).map(CpuId) {
                let mm = Rc::clone(&small.mm);
                small.sim.spawn(cpu, move |sim| {
                    mm.pages()
                        .alloc(sim, any(Order::MAX))
                        .expect("there is one for each");
                });
            }
            small.sim.run();
        },
    );
}

/// Creates a machine of one CPU whose zone keeps two page blocks for atomic requests, and in which
/// no other page is free. `cache` has 128 pages, which do not merge.
fn with_two_kept_blocks(cache: &Cache) -> Small {
    const PAGES: u32 = 1 << 16;
    let mut config = Config::new(Layout::arena(Pages(PAGES)));
    config.grouping = Grouping::Huge;
    config.reclaimers.push(Box::new(cache.clone()));
    let small = Small::new(&profile(Topology::flat(1), 1000), config);
    let marks = Watermarks {
        min: Pages(8),
        low: Pages(PAGES - 1000),
        high: Pages(PAGES - 900),
    };
    let pages = small.mm.pages();
    let seeded = pages.seed_sizes(&small.sim, 0, marks, small.zone().sizes);
    seeded.expect("there is such a zone");
    let cache = cache.clone();
    small.on(0, move |sim, mm| {
        let pages = mm.pages();
        let get = |request| pages.alloc(sim, request).expect("there is a block");
        let first = get(any(Order::MAX));
        pages
            .split(sim, first, Order::MAX)
            .expect("it was handed out");
        for page in (0..1024).step_by(8) {
            cache.push(first.plus(Pages(page)), Order::ZERO);
        }
        while pages.view(sim)[0].free > Order::MAX.pages() {
            get(any(Order::MAX));
        }
        // An atomic request gets 16 pages here. So 32 requests fill a page block, and for the 33rd
        // request the zone keeps a second page block.
        let atomic = Request::new(order(4)).urgent(Urgency::Atomic);
        let mut served: Vec<Pfn> = (0..33).map(|_| get(atomic)).collect();
        served.pop();
        for pfn in served.drain(1..) {
            pages.free(sim, pfn, order(4)).expect("it was handed out");
        }
    });
    assert_eq!(kept_blocks(&small).len(), 2);
    assert_eq!(small.zone().free, Pages(2 * (512 - 16)));
    small
}

/// Returns the first pages of the page blocks that are kept for atomic requests.
fn kept_blocks(small: &Small) -> Vec<Pfn> {
    let blocks = (0..small.zone().managed.0).step_by(512).map(Pfn);
    let is_kept = |pfn: &Pfn| small.mm.pages().block_type(*pfn) == Some(Mobility::HighAtomic);
    blocks.filter(is_kept).collect()
}

/// Only page blocks that are kept for atomic requests have enough memory for a request that is not
/// atomic. Such a request may use the first of these blocks as soon as reclaimers have freed
/// something. It may use the last one only when reclaimers free nothing more.
#[test]
fn blocks_kept_for_atomic_requests_are_given_up_one_by_one() {
    let cache = Cache::default();
    let small = with_two_kept_blocks(&cache);
    for (blocks, calls, kept) in [
        // Each row says how many blocks to allocate, how often the reclaimer has been called
        // afterwards, and how many page blocks are still kept. A kept page block has 31 free blocks
        // of this order.
        (1, 1, 1),
        (30, 1, 1),
        // This allocation calls the reclaimer five times. Three calls free the rest of the cache.
        // The fourth call frees nothing, so the zone gives up the page block that it kept. One more
        // call precedes the next attempt.
        (1, 1 + 5, 0),
        (30, 1 + 5, 0),
    ] {
        small.on(0, move |sim, mm| {
            for _ in 0..blocks {
                let block = mm.pages().alloc(sim, Request::new(order(4)));
                block.expect("one is left");
            }
        });
        assert_eq!(cache.calls(), calls);
        assert_eq!(kept_blocks(&small).len(), kept);
    }
}
