//! Operations on an address space while memory runs out, at each allocation that an operation
//! makes. The operation returns an error, no page is lost, and all pages are freed at the end.
//!
//! Each operation is tried with every small number of free pages. So each allocation of the
//! operation fails in one of these attempts.

use crate::support;

use plimsoll_mm::design::Design;
use plimsoll_mm::page::Request;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::space::{Access, FaultError, Faulted, Flag};
use plimsoll_mm::units::{CpuId, Order, Pfn, Vpn};
use support::world::{Sizes, What, World};

const ANONYMOUS: What = What::Anonymous { huge: false };
const HUGE: What = What::Anonymous { huge: true };
const MEMORY: u32 = 4096;

fn world(reaping: Reaping) -> World {
    let design = Design {
        reaping,
        ..Design::OURS
    };
    let sizes = Sizes {
        memory: MEMORY,
        swap: 100_000,
        ..Sizes::AMPLE
    };
    World::new(design, sizes)
}

/// Allocates all memory except `left` single pages.
fn take_all_but(world: &World, left: usize) -> Vec<Pfn> {
    let request = Request::new(Order::ZERO).urgent(Urgency::Reserve);
    let take = || world.mm.pages().alloc(&world.host, request).ok();
    let mut taken: Vec<Pfn> = std::iter::from_fn(take).collect();
    let kept = taken.len().saturating_sub(left);
    give_back(world, &taken.split_off(kept));
    taken
}

fn give_back(world: &World, pfns: &[Pfn]) {
    let freed = world.mm.pages().free_pages(&world.host, pfns);
    freed.expect("they were taken");
}

fn is_out_of_memory(why: &FaultError) {
    assert!(matches!(why, FaultError::OutOfMemory(_)), "{why:?}");
    let text = why.to_string();
    assert!(text.starts_with("out of memory: asked 1 zones"), "{text}");
}

/// Touches a page of a mapping of `what`: first while no page is free, then with one more free page
/// at each attempt, until an attempt succeeds. Returns the number of free pages at that attempt.
fn touch_with_ever_more(what: What, access: Access) -> usize {
    let world = world(Reaping::MeetInTheMiddle);
    let _entered = world.host.enter(CpuId(0));
    world.map_at(1024, 512, what);
    // The `left` free pages are on this CPU's page list, where no watermark is checked, so all of
    // them can be allocated. A victim's thread may also use some of the zone's reserves.
    assert!(world.space.raise(&world.host, Flag::Victim));
    for left in 0.. {
        let taken = take_all_but(&world, left);
        let before = world.state();
        let faulted = world.space.fault(world.memory(), Vpn(1030), access);
        give_back(&world, &taken);
        let Err(why) = faulted else {
            assert_eq!(faulted, Ok(Faulted::Mapped { swapped: false }));
            world.end();
            return left;
        };
        is_out_of_memory(&why);
        let mut after = world.state();
        // An attempt may read a page into the file or into the shared memory. The page remains
        // there for the next attempt.
        let read = after.file + after.shared - before.file - before.shared;
        assert!(read <= 1);
        after.handed_out += taken.len() as u64 - read;
        (after.file, after.shared) = (before.file, before.shared);
        assert_eq!(after, before);
    }
    unreachable!("there is memory in the end")
}

#[test]
fn whichever_page_of_a_fault_is_missing_nothing_is_lost() {
    // The fault needs three pages: the touched page, its page table, and the upper table.
    assert_eq!(touch_with_ever_more(ANONYMOUS, Access::Write), 3);
    assert_eq!(touch_with_ever_more(HUGE, Access::Write), 3);
    let file = What::File { offset: 7 };
    let shared = What::Shared { offset: 7 };
    assert_eq!(touch_with_ever_more(file, Access::Write), 3);
    assert_eq!(
        touch_with_ever_more(What::Frames { first: 9 }, Access::Read),
        2
    );
    // These faults first read a page into the file or the shared memory. The page stays there even
    // if the attempt then finds no page for a table. So the attempt that succeeds needs free pages
    // only for the page table and the upper table.
    assert_eq!(touch_with_ever_more(file, Access::Read), 2);
    assert_eq!(touch_with_ever_more(shared, Access::Write), 2);
}

#[test]
fn a_reserved_page_needs_a_huge_one() {
    let world = world(Reaping::MeetInTheMiddle);
    let _entered = world.host.enter(CpuId(0));
    world.map_at(1024, 1024, What::Reserved);
    for left in [0, 1, 2, 5, 300] {
        let taken = take_all_but(&world, left);
        let fault = || world.space.fault(world.memory(), Vpn(1030), Access::Write);
        is_out_of_memory(&world.refused(fault));
        give_back(&world, &taken);
    }
    world.mm.pages().drain_all_sync(&world.host);
    let faulted = world.space.fault(world.memory(), Vpn(1030), Access::Write);
    assert_eq!(faulted, Ok(Faulted::Huge));
    world.end();
}

#[test]
fn small_pages_serve_where_no_huge_one_is_to_be_had() {
    let world = world(Reaping::MeetInTheMiddle);
    let _entered = world.host.enter(CpuId(0));
    world.map_at(1024, 1024, HUGE);
    assert!(world.space.raise(&world.host, Flag::Victim));
    let taken = take_all_but(&world, 100);
    let faulted = world.space.fault(world.memory(), Vpn(1024), Access::Write);
    assert_eq!(faulted, Ok(Faulted::Mapped { swapped: false }));
    let state = world.state();
    assert_eq!((state.rss[1], state.tables[0]), (1, 2));
    give_back(&world, &taken);
    world.end();
}

#[test]
fn populating_maps_every_page_up_to_the_one_that_is_missing() {
    for left in 0..120_usize {
        let world = world(Reaping::MeetInTheMiddle);
        let _entered = world.host.enter(CpuId(0));
        // The mapping spans two page tables, so that some attempts have no memory for the second
        // one.
        world.map_at(1000, 100, ANONYMOUS);
        assert!(world.space.raise(&world.host, Flag::Victim));
        let taken = take_all_but(&world, left);
        let listed = world.mm.pages().listed(&world.host, CpuId(0)).0 as usize;
        let populated = world.space.populate(world.memory(), Vpn(1000)..Vpn(1100));
        let state = world.state();
        assert_eq!(
            state.handed_out,
            taken.len() as u64 + state.rss[1] + state.tables[0]
        );
        assert_eq!(state.used, [state.rss[1]; 3]);
        // The first 24 pages need a page table and an upper table. The other pages also need a
        // second page table.
        let mapped = |pages: usize| match pages {
            0..=2 => 0,
            _ => (pages - 2).min(24).max(pages - 3).min(100) as u64,
        };
        // A victim can allocate all pages on its CPU's lists. Of the pages that spilled to the
        // zone, it can allocate only those above half of the zone's min watermark.
        let between = mapped(listed)..=mapped(left);
        assert!(
            between.contains(&state.rss[1]),
            "{} of {left} pages, {listed} of them listed",
            state.rss[1]
        );
        match populated {
            Ok(()) => assert_eq!(state.rss[1], 100),
            Err(why) => {
                assert!(state.rss[1] < 100);
                is_out_of_memory(&why);
            }
        }
        give_back(&world, &taken);
        world.end();
    }
}

/// Maps and populates memory with every kind of backing, then allocates all free pages. Returns
/// these pages.
fn crowded(world: &World) -> Vec<Pfn> {
    let memory = world.memory();
    world.map_at(1000, 1500, ANONYMOUS);
    world.map_at(3072, 1024, HUGE);
    world.map_at(5000, 40, What::File { offset: 0 });
    world.map_at(5100, 40, What::Shared { offset: 0 });
    world.map_at(5632, 512, What::Reserved);
    for (from, to) in [
        (1000, 1700),
        (3072, 3600),
        (5000, 5040),
        (5100, 5140),
        (5632, 5640),
    ] {
        let populated = world.space.populate(memory, Vpn(from)..Vpn(to));
        populated.expect("there is memory");
    }
    for page in 1800..1850 {
        let faulted = world.space.fault(memory, Vpn(page), Access::Write);
        faulted.expect("there is memory");
    }
    take_all_but(world, 0)
}

#[test]
fn emptying_needs_no_memory() {
    for reaping in Reaping::ALL {
        for left in [0, 1, 2, 3] {
            let world = world(reaping);
            let _entered = world.host.enter(CpuId(0));
            let mut taken = crowded(&world);
            give_back(&world, &taken.split_off(taken.len() - left));
            let memory = world.memory();
            assert_eq!(world.space.unmap(memory, Vpn(1500), 2000), Ok(()));
            let state = world.state();
            // The huge page was split, and `parts` of its pages remain mapped. `copies` is the
            // number of private copies of file pages.
            let (parts, copies) = (3584 - 3500, 40);
            assert_eq!(state.rss[1], 500 + parts + 512 + copies);
            assert_eq!(state.used, [state.rss[1]; 3]);
            let went = world.space.swap_out(memory, Vpn(0)..Vpn(1 << 30));
            assert_eq!(went, 500 + parts + copies);
            let _reaped = world.space.try_reap(memory);
            assert!(world.space.has(&world.host, Flag::Unstable));
            give_back(&world, &taken);
            world.end();
        }
    }
}

#[test]
fn the_last_user_needs_no_memory() {
    for reaping in Reaping::ALL {
        let world = world(reaping);
        let _entered = world.host.enter(CpuId(0));
        let taken = crowded(&world);
        let memory = world.memory();
        world.space.exit(memory).expect("no thread ended it before");
        let state = world.state();
        let objects = state.file + state.shared;
        assert_eq!(state.handed_out, taken.len() as u64 + objects);
        give_back(&world, &taken);
        world.assert_ended();
        assert_eq!(world.space.destroy(&world.host), Ok(()));
    }
}
