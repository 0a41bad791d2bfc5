//! Tests of zones that grow and shrink while threads allocate and free.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{Config, Grouping, Holder, Layout, Mobility, Request, ResizeError};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

const BLOCK: Pages = Order::MAX.pages();

fn blocks(count: u32) -> Pages {
    Pages(count * BLOCK.0)
}

fn block(number: u32) -> Pfn {
    Pfn(number * BLOCK.0)
}

/// Creates a manager whose zone has `now` blocks of the largest order and can grow to `most` such
/// blocks.
fn growing(host: &Host, now: u32, most: u32, grouping: Grouping) -> Manager<Host> {
    let mut config = Config::new(Layout::arena_up_to(blocks(now), blocks(most)));
    config.grouping = grouping;
    Manager::new(host, config).expect("whole blocks are a layout")
}

#[test]
fn settings_follow_the_size_of_the_zone() {
    let host = Host::with_topology(Topology::flat(2));
    let grown = growing(&host, 2, 16, Grouping::Off);
    let at_once = growing(&host, 16, 16, Grouping::Off);
    let small = grown.pages().view(&host).remove(0);
    assert_eq!((small.managed, small.free), (blocks(2), blocks(2)));
    let online = grown.memory_online(&host, block(2), blocks(14));
    online.expect("these blocks are a hole");
    let large = grown.pages().view(&host).remove(0);
    assert_eq!(
        large,
        at_once.pages().view(&host)[0],
        "as if it always was so"
    );
    let offline = grown.memory_offline(&host, block(2), blocks(14));
    offline.expect("these blocks are free");
    assert_eq!(grown.pages().view(&host)[0], small);
}

#[test]
fn page_lists_get_room_when_the_zone_grows() {
    let host = Host::with_topology(Topology::flat(1));
    let _entered = host.enter(CpuId(0));
    let grown = growing(&host, 2, 64, Grouping::Off);
    let online = grown.memory_online(&host, block(2), blocks(62));
    online.expect("these blocks are a hole");
    let listed = |manager: &Manager<Host>| {
        let pages = manager.pages();
        let single = Request::new(Order::ZERO);
        let take = |_| pages.alloc(&host, single).expect("most pages are free");
        let taken: Vec<Pfn> = (0..400).map(take).collect();
        for pfn in taken {
            pages.free(&host, pfn, Order::ZERO).expect("it is ours");
        }
        pages.view(&host)[0].listed
    };
    let at_once = growing(&host, 64, 64, Grouping::Off);
    assert_eq!(listed(&grown), listed(&at_once));
}

#[test]
fn all_memory_of_a_zone_can_go_and_come_back() {
    let host = Host::with_topology(Topology::flat(1));
    let manager = growing(&host, 2, 2, Grouping::Huge);
    for number in [1, 0] {
        let offline = manager.memory_offline(&host, block(number), BLOCK);
        offline.expect("the block is free");
    }
    let zone = manager.pages().view(&host).remove(0);
    assert_eq!(
        (zone.managed, zone.free, zone.counted_free),
        (Pages(0), Pages(0), 0)
    );
    let single = Request::new(Order::ZERO).urgent(Urgency::Reserve);
    assert!(
        manager.pages().alloc(&host, single).is_err(),
        "nothing is left"
    );
    let online = manager.memory_online(&host, block(0), blocks(2));
    online.expect("both blocks are holes");
    assert_eq!(manager.pages().view(&host)[0].free, blocks(2));
}

#[test]
fn all_memory_of_a_large_zone_can_go_in_one_call() {
    let host = Host::with_topology(Topology::flat(1));
    for (now, pages_min) in [(512, 0), (8, 24 << 10)] {
        let manager = growing(&host, now, now, Grouping::Huge);
        let set = manager.pages().set_tunable(&host, Knob::MinFree, pages_min);
        set.expect("in bounds");
        let high = manager.pages().view(&host)[0].watermarks.high;
        assert!(high > BLOCK, "{high}");
        let offline = manager.memory_offline(&host, block(0), blocks(now));
        offline.expect("all blocks are free");
        assert_eq!(manager.pages().view(&host)[0].managed, Pages(0));
        let online = manager.memory_online(&host, block(0), blocks(now));
        online.expect("all blocks are holes");
    }
}

#[test]
fn an_error_has_the_number_of_free_pages_before_the_call() {
    let host = Host::with_topology(Topology::flat(1));
    let manager = growing(&host, 9, 9, Grouping::Huge);
    let set = manager.pages().set_tunable(&host, Knob::MinFree, 4 << 10);
    set.expect("in bounds");
    let keeps = manager.pages().view(&host)[0].watermarks.high;
    let free = blocks(9);
    let why = manager.memory_offline(&host, block(0), blocks(8));
    assert_eq!(why, Err(ResizeError::Needed { free, keeps }));
    let why = why.unwrap_err().to_string();
    assert!(why.contains("has 9216 free pages"), "{why}");
}

#[test]
fn errors_say_why_a_block_stays() {
    let host = Host::with_topology(Topology::flat(2));
    let manager = growing(&host, 8, 10, Grouping::Huge);
    let pages = manager.pages();
    let offline = |first, count| manager.memory_offline(&host, first, count);
    let online = |first, count| manager.memory_online(&host, first, count);
    let before = pages.view(&host);

    let (first, odd) = (block(1), Pages(1000));
    assert_eq!(
        offline(first, odd),
        Err(ResizeError::Unaligned { first, pages: odd })
    );
    assert_eq!(
        online(Pfn(5), BLOCK).unwrap_err().to_string(),
        "1024 pages from page 0x5 are not \
         whole blocks of 1024 pages: round the range to multiples of 1024"
    );
    assert_eq!(
        online(block(10), BLOCK),
        Err(ResizeError::OutsideZones(block(10)))
    );
    assert_eq!(
        online(block(9), blocks(2)),
        Err(ResizeError::OutsideZones(block(9)))
    );
    assert_eq!(
        online(block(7), blocks(2)),
        Err(ResizeError::Present(block(7)))
    );
    assert_eq!(
        offline(block(7), blocks(2)),
        Err(ResizeError::Absent(block(8)))
    );

    let order = Order::new(3).expect("at most 10");
    let request = Request::new(order).of_mobility(Mobility::Movable);
    let pfn = pages.alloc(&host, request).expect("the zone is fresh");
    let holder = Holder::Movable(order);
    let home = Pfn(pfn.0 & !(BLOCK.0 - 1));
    assert_eq!(
        offline(home, BLOCK),
        Err(ResizeError::InUse { pfn, holder })
    );
    let why = offline(home, BLOCK).unwrap_err().to_string();
    assert!(
        why.contains("allocated as a movable block of order 3"),
        "{why}"
    );
    pages
        .free_as(&host, pfn, order, Mobility::Movable)
        .expect("it is ours");

    // Pages of the block are on this CPU's page list, from which `memory_offline` drains them.
    offline(home, BLOCK).expect("all its pages are free");
    online(home, BLOCK).expect("it is a hole now");
    pages.drain_all_sync(&host);
    assert_eq!(pages.view(&host)[0].free, before[0].free);

    let mut taken = Vec::new();
    let largest = Request::new(Order::MAX).urgent(Urgency::Reserve);
    taken.extend((0..7).map(|_| pages.alloc(&host, largest).expect("eight are free")));
    let left = (0..8).map(block).find(|block| !taken.contains(block));
    let why = offline(left.expect("one is left"), BLOCK).unwrap_err();
    assert!(
        matches!(why, ResizeError::Needed { free, .. } if free == BLOCK),
        "{why}"
    );
    for pfn in taken {
        pages.free(&host, pfn, Order::MAX).expect("it is ours");
    }
    assert_eq!(pages.view(&host)[0].free, blocks(8));
}

#[test]
fn no_page_is_lost_while_threads_use_a_zone_that_changes_its_size() {
    const MOST: u32 = 16;
    for grouping in [Grouping::Off, Grouping::Huge] {
        let host = Host::with_topology(Topology::flat(3));
        let manager = growing(&host, 4, MOST, grouping);
        let done = AtomicBool::new(false);
        let mut present = [false; MOST as usize];
        thread::scope(|scope| {
            for cpu in [1, 2].map(CpuId) {
                let (host, manager, done) = (&host, &manager, &done);
                scope.spawn(move || {
                    let _entered = host.enter(cpu);
                    // Relaxed is enough: the flag only ends the load.
                    while !done.load(Relaxed) {
                        churn(host, manager);
                    }
                });
            }
            let _entered = host.enter(CpuId(0));
            present[..4].fill(true);
            let (mut removed, mut refused) = (0, 0);
            for round in 0..500 {
                let number = 4 + (round * 7) % (MOST - 4);
                let there = &mut present[number as usize];
                let outcome = if *there {
                    manager.memory_offline(&host, block(number), BLOCK)
                } else {
                    manager.memory_online(&host, block(number), BLOCK)
                };
                match outcome {
                    Ok(()) => {
                        removed += u32::from(*there);
                        *there = !*there;
                    }
                    Err(ResizeError::InUse { pfn, .. }) => {
                        assert_eq!(pfn.0 / BLOCK.0, number, "the page is in the block");
                        refused += 1;
                    }
                    Err(ResizeError::Needed { .. }) => refused += 1,
                    Err(why) => panic!("{why}"),
                }
            }
            done.store(true, Relaxed);
            assert!(removed > 10, "{removed} blocks went, {refused} stayed");
        });
        manager.pages().drain_all_sync(&host);
        let zone = &manager.pages().view(&host)[0];
        let count = present.iter().filter(|there| **there).count();
        let expected = blocks(u32::try_from(count).expect("at most 16"));
        assert_eq!((zone.managed, zone.free), (expected, expected));
        assert_eq!(zone.counted_free, u64::from(expected.0));
        assert_eq!(zone.blocks[Order::MAX.index()] as usize, count);
    }
}

/// Allocates four blocks of each order, as far as there is memory, and frees all of them.
fn churn(host: &Host, manager: &Manager<Host>) {
    let mut held = Vec::new();
    for order in (0..=10).filter_map(Order::new) {
        for _ in 0..4 {
            let pfn = manager.pages().alloc(host, Request::new(order));
            held.extend(pfn.ok().map(|pfn| (pfn, order)));
        }
    }
    for (pfn, order) in held {
        let freed = manager.pages().free(host, pfn, order);
        freed.expect("a block in use stays in its zone");
    }
}
