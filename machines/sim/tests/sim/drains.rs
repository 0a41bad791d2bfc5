//! Tests of hold policies, the rules that limit how many pages one hold of a zone lock moves. The
//! policies also differ in how long a drain keeps the page lists locked, and in whether an
//! allocation drains although another CPU is draining. If a hold moves more pages than its limit,
//! only some policies count all of these pages.

use crate::support;

use std::cell::Cell;
use std::rc::Rc;

use plimsoll_mm::design::{Design, HOLDS};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::holds::{
    Batched, BatchedZoneLock, Bounded, BoundedPages, Holds, Lists612, Lists618, MeetsDrain,
    Unbatched,
};
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::watermark::Watermarks;
use plimsoll_mm::page::{AllocError, ListState, Mobility, Request, TypedBlock};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, Nanos, Order, Pages};
use support::Small;
use support::small::any;

const PAGES: u32 = 1 << 16;
const BATCH: Pages = Pages(63);
const OWNER: CpuId = CpuId(1);

/// Creates a machine with two CPUs and the watermark `min`. The lists of CPU 1 have `listed` blocks
/// of `order`, and are just full: `high` is the number of pages in these blocks.
fn listed(holds: &'static dyn Holds, min: Pages, order: Order, listed: u32) -> Small {
    let design = Design {
        holds,
        ..Design::OURS
    };
    let small = Small::flat(2, PAGES, design);
    let marks = Watermarks {
        min,
        low: min,
        high: min,
    };
    let sizes = Sizes {
        batch: BATCH,
        high_min: BATCH,
        high_max: Pages(PAGES / 2),
    };
    let pages = small.mm.pages();
    let set = pages.seed_sizes(&small.sim, 0, marks, sizes);
    set.expect("lists may have these sizes");
    let block = |_| TypedBlock {
        pfn: pages.alloc(&small.sim, any(order)).expect("is free"),
        order,
        mobility: Mobility::Unmovable,
    };
    let blocks: Vec<_> = (0..listed).map(block).collect();
    pages.drain_all_sync(&small.sim);
    let state = ListState {
        high: Pages(listed * order.pages().0),
        blocks,
        ..ListState::default()
    };
    let seeded = pages.seed_lists(&small.sim, 0, OWNER, &state);
    seeded.expect("the blocks were allocated");
    small
}

/// Returns how often one drain of 5000 pages takes the pcp lock, and how often it takes the zone
/// lock.
fn holds_of_a_drain(holds: &'static dyn Holds) -> [u64; 2] {
    let small = listed(holds, Pages::ZERO, Order::ZERO, 5000);
    let taken = |small: &Small| {
        let stats = small.sim.stats();
        [LockClass::Pcp, LockClass::Zone].map(|class| stats.site(class, Site::Drain).acquisitions)
    };
    let before = taken(&small);
    small.on(0, |sim, mm| {
        assert_eq!(mm.pages().drain_cpu(sim, OWNER), Pages(5000));
    });
    let after = taken(&small);
    [after[0] - before[0], after[1] - before[1]]
}

/// A drain of 5000 pages moves 80 batches of at most 63 pages. It moves at most 32 batches each
/// time that it takes the pcp lock, so it takes this lock three times.
#[test]
fn a_drain_under_batched_zone_lock_releases_the_lists_after_32_batches() {
    assert_eq!(holds_of_a_drain(&BatchedZoneLock), [3, 80]);
    assert_eq!(holds_of_a_drain(&Unbatched), [3, 3]);
    assert_eq!(holds_of_a_drain(&Bounded), [80, 80]);
}

/// Returns the number of pages that an allocation on CPU 0 drains while CPU 1 is draining its own
/// long lists. The allocation fails, because the watermark is above all memory.
fn drained_meanwhile(holds: &'static dyn Holds) -> Pages {
    let small = listed(holds, Pages(PAGES), Order::ZERO, 16_000);
    let drained = Rc::new(Cell::new(None));
    let (mm, seen) = (Rc::clone(&small.mm), Rc::clone(&drained));
    small.sim.spawn(CpuId(0), move |sim| {
        sim.sleep_until(Nanos(1_100_000));
        match mm.pages().alloc(sim, Request::new(Order::ZERO)) {
            Err(AllocError::OutOfMemory(tried)) => seen.set(Some(tried.drained)),
            other => panic!("no zone may give a page: {other:?}"),
        }
    });
    let mm = Rc::clone(&small.mm);
    small.sim.spawn(OWNER, move |sim| {
        sim.sleep_until(Nanos::from_ms(1));
        mm.pages().drain_all(sim);
        assert!(sim.now() > Nanos(1_300_000), "it drains for long");
    });
    small.sim.run();
    let drains = small.sim.stats();
    let drains = drains.site(LockClass::DrainAll, Site::Drain);
    assert!(drains.failed_tries > 0, "another CPU is draining");
    drained.get().expect("the allocation has failed")
}

#[test]
fn an_allocation_drains_beside_another_drain_only_if_the_policy_says_so() {
    for holds in HOLDS {
        let drains_too = holds.meets_drain() == MeetsDrain::DrainsToo;
        let drained = drained_meanwhile(holds);
        assert_eq!(drained > Pages::ZERO, drains_too, "{holds:?}: {drained:?}");
    }
}

/// The lists have eight blocks of 512 pages. Their longest allowed length (`high`) falls by an
/// eighth, so they have one block too many. In Linux 6.12 and 6.18, each hold of the zone lock
/// moves one block but counts as only 63 pages (a batch). The decay (the periodic shrinking of the
/// lists) continues until these counts add up to the 512 pages of the block that is too many. So
/// these kernels return nine blocks, or all blocks if there are fewer.
#[test]
fn long_term_kernels_return_more_than_a_decay_asks_for() {
    let decayed = |holds| {
        let small = listed(holds, Pages::ZERO, Order::HUGE, 8);
        let decayed = small.mm.pages().decay_lists(&small.sim, 0, OWNER);
        decayed.expect("there is a zone")
    };
    assert_eq!(decayed(&Batched), Pages(512));
    assert_eq!(decayed(&BatchedZoneLock), Pages(512));
    assert_eq!(decayed(&Lists612), Pages(8 * 512));
    assert_eq!(decayed(&Lists618), Pages(8 * 512));
}

/// A hold policy says what may move in one hold of the zone lock. A policy that moves whole blocks
/// splits and joins them outside the lock. That costs as much for each page as splitting and
/// merging under the lock.
#[test]
fn a_page_costs_as_much_in_a_block_as_alone() {
    const PRICE_NS: u64 = 50;
    for holds in [&Bounded as &'static dyn Holds, &BoundedPages] {
        let small = Small::flat(
            1,
            PAGES,
            Design {
                holds,
                ..Design::OURS
            },
        );
        small.on(0, |sim, mm| {
            let take = |_| mm.pages().alloc(sim, any(Order::ZERO)).expect("is free");
            let held: Vec<_> = (0..1000).map(take).collect();
            mm.pages().free_pages(sim, &held).expect("all are ours");
            mm.pages().drain_cpu(sim, CpuId(0));
        });
        let moved = |sites: &[Site]| -> u64 {
            let holds = sites.iter().flat_map(|site| small.holds(*site));
            holds.map(u64::from).sum()
        };
        let spent = small.sim.stats().work_ns;
        let of = |work: Work| spent[work as usize];
        let (taken, given) = (moved(&[Site::Refill]), moved(&[Site::Spill, Site::Drain]));
        assert!(taken >= 1000 && given == taken, "{taken} {given}");
        assert_eq!(of(Work::BuddyAlloc), taken * PRICE_NS, "{holds:?}");
        assert_eq!(of(Work::BuddyFree), given * PRICE_NS, "{holds:?}");
    }
}

/// The time of a hold of the zone lock counts from the moment when the lock was taken. A drain of
/// 60 pages, no two of which are neighbours, takes about 3 µs. So a limit of 100 µs does not divide
/// such a drain, however late in the run it happens.
#[test]
fn the_time_of_a_hold_counts_from_its_beginning() {
    for holds in [&Bounded as &'static dyn Holds, &BoundedPages] {
        let small = listed(holds, Pages::ZERO, Order::ZERO, 0);
        small.tune(Knob::HoldTimeMax, 100_000);
        small.on(0, |sim, mm| {
            sim.sleep_until(Nanos::from_ms(10));
            let take = |_| mm.pages().alloc(sim, any(Order::ZERO)).expect("is free");
            let held: Vec<_> = (0..120).map(take).collect();
            mm.pages().drain_cpu(sim, CpuId(0));
            let every_other: Vec<_> = held.iter().copied().step_by(2).collect();
            mm.pages()
                .free_pages(sim, &every_other)
                .expect("all are ours");
        });
        small.seen.borrow_mut().clear();
        small.on(0, |sim, mm| {
            mm.pages().drain_cpu(sim, CpuId(0));
        });
        // The call of `tune` above has also recomputed the sizes of the lists, which the test had
        // set. So read the batch from the zone.
        let batch = small.zone().sizes.batch.0;
        assert!(
            batch > 8 && 60 % batch == 0,
            "holds read the clock each 8 blocks"
        );
        let whole = vec![batch; 60 / batch as usize];
        assert_eq!(small.holds(Site::Drain), whole, "{holds:?}");
    }
}
