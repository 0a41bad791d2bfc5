//! Tests that the memory of free huge blocks returns to the kernel in the background.
#![expect(unsafe_code, reason = "the tests write pages through their pointers")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_host::Host;
use plimsoll_host::arena::{Arena, ArenaOptions, HugePages};
use plimsoll_host::discard::ToKernel;
use plimsoll_host::return_free::{Pace, ReturnFree};
use plimsoll_mm::Manager;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{Config, Grouping, Layout, Request, ResizeError, Sweep};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{Order, Pages, Pfn};

const PAGES: Pages = Pages(16 << 10);

struct World {
    host: Host,
    arena: Arc<Arena>,
    manager: Arc<Manager<Host>>,
    to_kernel: ToKernel,
}

fn world(options: ArenaOptions, grouping: Grouping) -> World {
    let host = Host::with_topology(Topology::flat(2));
    let options = options.huge_pages(HugePages::Refuse);
    let arena = Arc::new(options.map().expect("64 MiB can be mapped"));
    let mut config = Config::new(Layout::arena(PAGES));
    config.grouping = grouping;
    let manager = Manager::new(&host, config).expect("an arena is a layout");
    // SAFETY: the tests access a page only between its allocation and its free.
    let to_kernel = unsafe { ToKernel::new(&host, Arc::clone(&arena)) };
    World {
        host,
        arena,
        manager: Arc::new(manager),
        to_kernel,
    }
}

impl World {
    fn take(&self, order: Order) -> Pfn {
        let pfn = self.manager.pages().alloc(&self.host, Request::new(order));
        pfn.expect("most pages are free")
    }

    fn free(&self, pfn: Pfn, order: Order) {
        let freed = self.manager.pages().free(&self.host, pfn, order);
        freed.expect("it was handed out");
    }

    /// Writes to each page of a block that is in use.
    fn touch(&self, pfn: Pfn, order: Order) {
        for page in pfn.0..pfn.0 + order.pages().0 {
            // SAFETY: this thread has allocated the page.
            unsafe { self.arena.page(Pfn(page)).write(7) };
        }
    }

    /// Allocates 32 MiB, writes to each page, and frees all of it.
    fn use_much(&self) {
        let taken: Vec<Pfn> = (0..8).map(|_| self.take(Order::MAX)).collect();
        taken.iter().for_each(|&pfn| self.touch(pfn, Order::MAX));
        taken.iter().for_each(|&pfn| self.free(pfn, Order::MAX));
    }

    fn resident(&self) -> u32 {
        self.arena.resident().expect("Linux says").0
    }

    fn is_whole(&self) {
        self.manager.pages().drain_all_sync(&self.host);
        let zone = &self.manager.pages().view(&self.host)[0];
        assert_eq!((zone.free, zone.counted_free), (PAGES, u64::from(PAGES.0)));
        assert_eq!(zone.blocks[Order::MAX.index()], 16);
    }

    /// Runs one round on this thread, which returns at most about `most` pages of free memory to
    /// the kernel. Returns the number of pages whose memory the kernel got.
    fn round(&self, sweep: &mut Sweep, most: Pages) -> u32 {
        let report = |pfn, order: Order| {
            // SAFETY: the block is free, so nothing uses its memory.
            let given = unsafe { self.arena.give_back(pfn, order.pages()) };
            given.is_ok()
        };
        let pages = self.manager.pages();
        let done = pages.report_free(&self.host, sweep, most, report);
        assert_eq!(done.refused, Pages(0));
        done.given.0
    }
}

#[test]
fn a_block_is_returned_once_after_it_stayed_free() {
    for grouping in [Grouping::Off, Grouping::Huge] {
        let world = world(ArenaOptions::new(PAGES), grouping);
        let (mut sweep, all) = (Sweep::default(), PAGES);
        world.use_much();
        assert_eq!(world.resident(), 8192);
        assert_eq!(world.round(&mut sweep, all), 0, "it has just been used");
        let given = world.round(&mut sweep, all);
        // While a round holds free blocks outside the zone, at least as many pages as the high
        // watermark stay free. This zone has so many free pages that the rule delays no block.
        assert_eq!(given, PAGES.0);
        assert_eq!(world.resident(), 0);
        assert_eq!(world.round(&mut sweep, all), 0, "it was returned before");

        // After a huge block was used and freed, a later round returns its memory again.
        let pfn = world.take(Order::HUGE);
        world.touch(pfn, Order::HUGE);
        world.free(pfn, Order::HUGE);
        // The block is on a page list. Blocks on page lists count as used.
        world.manager.pages().drain_all_sync(&world.host);
        assert_eq!(world.round(&mut sweep, all), 0);
        assert_eq!(
            world.round(&mut sweep, all),
            1024,
            "it merged with its buddy"
        );
        assert_eq!(world.resident(), 0);

        let single = world.take(Order::ZERO);
        world.touch(single, Order::ZERO);
        (0..3).for_each(|_| {
            world.round(&mut sweep, all);
        });
        assert_eq!(world.resident(), 1, "a page in use stays");
        world.free(single, Order::ZERO);
        world.is_whole();
    }
}

#[test]
fn a_round_is_bounded_and_the_next_one_goes_on() {
    let world = world(ArenaOptions::new(PAGES), Grouping::Off);
    let mut sweep = Sweep::default();
    world.round(&mut sweep, Pages(2048));
    let mut rounds = Vec::new();
    for _ in 0..8 {
        rounds.push(world.round(&mut sweep, Pages(2048)));
    }
    assert_eq!(rounds, [2048; 8], "16 blocks in eight rounds");
    assert_eq!(world.round(&mut sweep, Pages(2048)), 0);
    world.is_whole();
}

#[test]
fn what_is_refused_is_tried_again() {
    let world = world(ArenaOptions::new(PAGES), Grouping::Off);
    let (mut sweep, pages) = (Sweep::default(), world.manager.pages());
    let mut refuse = || pages.report_free(&world.host, &mut sweep, PAGES, |_, _| false);
    assert_eq!(refuse().refused, Pages(0));
    assert_eq!(refuse().refused, PAGES);
    world.is_whole();
    assert_eq!(world.round(&mut sweep, PAGES), 0);
    assert_eq!(world.round(&mut sweep, PAGES), PAGES.0);
}

#[test]
fn the_watermark_stays_free_while_blocks_are_away() {
    let world = world(ArenaOptions::new(PAGES), Grouping::Off);
    // Two free blocks are left. One of them has enough pages for the high watermark, so one block
    // may leave the zone at a time, but not both.
    let taken: Vec<Pfn> = (0..14).map(|_| world.take(Order::MAX)).collect();
    let high = world.manager.pages().view(&world.host)[0].watermarks.high;
    let mut sweep = Sweep::default();
    let mut given = 0;
    for _ in 0..2 {
        let pages = world.manager.pages();
        let done = pages.report_free(&world.host, &mut sweep, PAGES, |_, _| {
            let free = pages.view(&world.host)[0].free;
            assert!(free >= high, "{free} pages are left");
            true
        });
        given += done.given.0;
    }
    assert!(given > 0);
    taken.iter().for_each(|&pfn| world.free(pfn, Order::MAX));
    world.is_whole();
}

#[test]
fn a_thread_returns_what_is_not_used() {
    for options in [
        ArenaOptions::new(PAGES),
        ArenaOptions::new(PAGES).memfd("plimsoll-test"),
    ] {
        let world = world(options, Grouping::Off);
        world.use_much();
        assert!(world.resident() >= 8192);
        let pace = Pace {
            interval: Duration::from_millis(5),
            ..Pace::default()
        };
        let (manager, to_kernel) = (Arc::clone(&world.manager), world.to_kernel.clone());
        // SAFETY: the test accesses a page only between its allocation and its free.
        let thread = unsafe { ReturnFree::start(&world.host, manager, to_kernel, pace) };
        let thread = thread.expect("a thread can be created");
        let begun = Instant::now();
        // The thread returns the memory of a block before it counts the block, so wait for the
        // count too.
        while world.resident() > 0 || thread.returned().given < 8192 {
            let waited = begun.elapsed();
            assert!(waited < Duration::from_secs(20), "{:?}", thread.returned());
            thread::sleep(Duration::from_millis(5));
        }
        let returned = thread.returned();
        assert!(
            returned.rounds >= 1 && returned.given >= 8192,
            "{returned:?}"
        );
        assert_eq!(returned.refused, 0);
        drop(thread);
        assert!(world.to_kernel.given().pages >= 8192);
        world.is_whole();
    }
}

#[test]
fn a_pace_that_cannot_work_is_refused() {
    let world = world(ArenaOptions::new(PAGES), Grouping::Off);
    let start = |pace| {
        let (manager, to_kernel) = (Arc::clone(&world.manager), world.to_kernel.clone());
        // SAFETY: the test accesses no page.
        unsafe { ReturnFree::start(&world.host, manager, to_kernel, pace) }
    };
    let (few, often) = (Pages(1023), Duration::ZERO);
    for (pace, what) in [
        (
            Pace {
                most: few,
                ..Pace::default()
            },
            "at least 1024 pages",
        ),
        (
            Pace {
                interval: often,
                ..Pace::default()
            },
            "interval above 0",
        ),
    ] {
        let why = start(pace).expect_err("such a pace cannot work");
        assert!(why.to_string().contains(what), "{why}");
    }
}

#[test]
fn dropping_ends_the_sleep_of_the_thread() {
    let world = world(ArenaOptions::new(PAGES), Grouping::Off);
    let (manager, to_kernel) = (Arc::clone(&world.manager), world.to_kernel.clone());
    let interval = Duration::from_secs(3600);
    let pace = Pace {
        interval,
        ..Pace::default()
    };
    // SAFETY: the test accesses no page.
    let thread = unsafe { ReturnFree::start(&world.host, manager, to_kernel, pace) };
    let thread = thread.expect("a thread can be created");
    thread::sleep(Duration::from_millis(50));
    assert!(thread.is_running());
    let begun = Instant::now();
    drop(thread);
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn blocks_come_back_if_giving_their_memory_back_panics() {
    let world = world(ArenaOptions::new(PAGES), Grouping::Off);
    let (mut sweep, pages) = (Sweep::default(), world.manager.pages());
    world.round(&mut sweep, PAGES);
    let round = AssertUnwindSafe(|| {
        let mut calls = 0;
        pages.report_free(&world.host, &mut sweep, PAGES, |_, _| {
            calls += 1;
            assert!(calls < 3, "the third block is one too many");
            true
        })
    });
    catch_unwind(round).expect_err("the third block panics");
    world.is_whole();
    let given = world.round(&mut sweep, PAGES) + world.round(&mut sweep, PAGES);
    assert_eq!(given, PAGES.0 - 2048, "two blocks were given back");
}

#[test]
fn blocks_that_were_given_back_are_used_last() {
    let world = world(ArenaOptions::new(PAGES), Grouping::Off);
    let mut sweep = Sweep::default();
    world.round(&mut sweep, PAGES);
    assert_eq!(world.round(&mut sweep, Pages(4096)), 4096);
    let taken: Vec<Pfn> = (0..12).map(|_| world.take(Order::MAX)).collect();
    assert!(taken.iter().all(|pfn| pfn.0 >= 4096), "{taken:?}");
    taken.iter().for_each(|&pfn| world.free(pfn, Order::MAX));
    world.is_whole();
}

#[test]
fn memory_that_went_and_came_back_is_given_back_again() {
    let world = world(ArenaOptions::new(PAGES), Grouping::Off);
    let mut sweep = Sweep::default();
    (0..2).for_each(|_| {
        world.round(&mut sweep, PAGES);
    });
    let (first, block) = (Pfn(2048), Order::MAX.pages());
    let offline = world.manager.memory_offline(&world.host, first, block);
    offline.expect("all memory is free");
    let online = world.manager.memory_online(&world.host, first, block);
    online.expect("the block is a hole");
    assert_eq!(world.round(&mut sweep, PAGES), 0, "the block is young");
    assert_eq!(world.round(&mut sweep, PAGES), block.0);
}

#[test]
fn a_refused_removal_leaves_the_rest_of_its_range_alone() {
    let world = world(ArenaOptions::new(PAGES), Grouping::Off);
    let (spare, taken) = (world.take(Order::MAX), world.take(Order::MAX));
    world.free(spare, Order::MAX);
    let mut sweep = Sweep::default();
    let given: u32 = (0..2).map(|_| world.round(&mut sweep, PAGES)).sum();
    assert_eq!(given, PAGES.0 - 1024);
    let refused = world.manager.memory_offline(&world.host, Pfn(0), PAGES);
    assert!(matches!(refused, Err(ResizeError::InUse { pfn, .. }) if pfn == taken));
    assert_ne!(taken, Pfn(0), "a free block is in front of it");
    let again: u32 = (0..2).map(|_| world.round(&mut sweep, PAGES)).sum();
    assert_eq!(again, 0, "these blocks were given back, and not used since");
    world.free(taken, Order::MAX);
    world.is_whole();
}

#[test]
fn the_high_watermark_is_the_one_that_stays() {
    let world = world(ArenaOptions::new(PAGES), Grouping::Off);
    let (host, pages) = (&world.host, world.manager.pages());
    let set = pages.set_tunable(host, Knob::WatermarkScale, 450);
    set.expect("in bounds");
    let marks = pages.view(host)[0].watermarks;
    let block = Order::MAX.pages();
    assert!(marks.low < block && block < marks.high, "{marks:?}");
    let largest = Request::new(Order::MAX).urgent(Urgency::Reserve);
    let take = || pages.alloc(host, largest).expect("two blocks are left");
    let taken: Vec<Pfn> = (0..14).map(|_| take()).collect();
    let mut sweep = Sweep::default();
    let given: u32 = (0..3).map(|_| world.round(&mut sweep, PAGES)).sum();
    assert_eq!(given, 0);
    let left = (0..16).map(|at| Pfn(at * block.0));
    let left = left.filter(|pfn| !taken.contains(pfn));
    for pfn in left {
        let why = world.manager.memory_offline(host, pfn, block);
        let (free, keeps) = (Pages(2 * block.0), marks.high);
        assert_eq!(why, Err(ResizeError::Needed { free, keeps }));
    }
    taken.iter().for_each(|&pfn| world.free(pfn, Order::MAX));
    world.is_whole();
}
