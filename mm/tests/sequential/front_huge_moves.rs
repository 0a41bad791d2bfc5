//! Tests of fronts for huge blocks (each CPU's stack of free huge blocks): when blocks move from a
//! front to the list or to the zone.

use std::iter;

use plimsoll_mm::event::{Changed, Event};
use plimsoll_mm::machine::{Job, JobState, Machine};
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{Holder, ListState, ResizeError, Sweep};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

use crate::front_direct::{further, holds, view};
use crate::front_huge::{BLOCK, BLOCKS, HUGE, LIMIT, RUN};
use crate::front_huge::{config, exhaust, free, free_all, held, indexes, is_exact, take};
use crate::front_huge::{take_some, world};
use crate::fronts::{ONE, World};
use crate::watch::count;

/// A full front (a CPU's stack of free blocks) passes all its blocks to the zone. The block that is
/// freed then is allocated next.
#[test]
fn a_full_front_passes_its_blocks_to_the_zone() {
    let world = world();
    let held = held(&world, LIMIT + 1);
    let ((), locks, _) = world.watch.during(|| free_all(&world, &held[..LIMIT]));
    assert_eq!(locks, []);
    is_exact(&world, 1, LIMIT);
    let ((), locks, events) = world.watch.during(|| free(&world, held[LIMIT]));
    assert_eq!(holds(&events, Site::Spill), [16 * HUGE]);
    assert_eq!(count(&locks, LockClass::Zone, Site::Spill), 1);
    is_exact(&world, 0, 1);
    let ((), locks, _) = world.watch.during(|| {
        let user = take(&world);
        assert_eq!(user, held[LIMIT]);
        free(&world, user);
    });
    assert_eq!(locks, []);
    world.is_whole();
    assert_eq!(view(&world).blocks[Order::MAX.index()], BLOCKS / 2);
}

/// A hold of the zone lock moves at most a batch of blocks. The rest of a run that is passed to the
/// zone stays in the front (the stack of free blocks), in its order.
#[test]
fn one_hold_of_the_zone_lock_moves_at_most_a_batch() {
    let most = 32 * HUGE;
    let all_but_the_first = |holds: usize| (0..holds).map(|nth| nth > 0).collect::<Vec<_>>();
    for (batch, refill, spills, left) in [
        (7, vec![7 * HUGE], vec![7 * HUGE; 2], 2),
        (5, vec![5 * HUGE; 2], vec![5 * HUGE; 3], 1),
        (1, vec![HUGE; RUN], vec![HUGE; LIMIT], 0),
    ] {
        let world = World::of(Topology::flat(2), config(BLOCKS)).batched(batch, most, most);
        let (user, _, events) = world.watch.during(|| take(&world));
        assert_eq!(holds(&events, Site::Refill), refill);
        assert_eq!(
            further(&events, Site::Refill),
            all_but_the_first(refill.len())
        );
        is_exact(&world, 1, refill.iter().sum::<u32>() as usize / 512 - 1);
        free(&world, user);
        let held = held(&world, LIMIT + 1);
        let free_here = || free_all(&world, &held);
        let ((), _, events) = world.watch.during(free_here);
        assert_eq!(holds(&events, Site::Spill), spills);
        assert_eq!(
            further(&events, Site::Spill),
            all_but_the_first(spills.len())
        );
        is_exact(&world, 0, left + 1);
        let users = take_some(&world, left + 1);
        let expected = held[LIMIT..].iter().chain(held[..left].iter().rev());
        assert!(users.iter().eq(expected), "{users:?}");
        free_all(&world, &users);
        world.is_whole();
    }
}

/// A page of each block is allocated, so there are enough free pages, but no free block. No hold of
/// the zone lock is recorded, because none has moved a block.
#[test]
fn a_run_of_no_blocks_is_no_hold() {
    let world = World::of(Topology::flat(2), config(64));
    let (machine, pages) = (&world.machine, world.manager.pages());
    let urgent = ONE.urgent(Urgency::Reserve);
    let users: Vec<Pfn> = iter::from_fn(|| pages.alloc(machine, urgent).ok()).collect();
    let (kept, others): (Vec<Pfn>, Vec<Pfn>) = users.iter().partition(|pfn| pfn.0 % HUGE == 7);
    others.into_iter().for_each(|pfn| world.free(pfn));
    pages.drain_all_sync(machine);
    let take = || pages.alloc(machine, BLOCK.urgent(Urgency::NoWait));
    let (block, _, events) = world.watch.during(take);
    assert!(block.is_err(), "{block:?}");
    assert_eq!(holds(&events, Site::Refill), []);
    kept.into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
}

/// `listed` and the views count the blocks of fronts (stacks of free blocks) with all their pages. A
/// drain returns them.
#[test]
fn a_drain_returns_the_blocks_of_a_front() {
    let world = world();
    let held = held(&world, 9);
    free_all(&world, &held[..5]);
    world.machine.on(1);
    free_all(&world, &held[5..]);
    let listed = || [0, 1].map(|cpu| world.listed(cpu) / HUGE);
    assert_eq!(listed(), [5, 4]);
    is_exact(&world, 0, 9);
    let pages = world.manager.pages();
    assert_eq!(pages.drain_cpu(&world.machine, CpuId(0)), Pages(5 * HUGE));
    assert_eq!(listed(), [0, 4]);
    is_exact(&world, 0, 4);
    let drained = pages.drain_lists(&world.machine, 0, CpuId(1));
    assert_eq!(drained, Ok(Pages(4 * HUGE)));
    assert_eq!(view(&world).blocks[Order::MAX.index()], BLOCKS / 2);
    is_exact(&world, 0, 0);
}

/// The periodic work leaves a front (a CPU's stack of free blocks) alone that was used since the last
/// time. Otherwise it moves the blocks to the list, and the blocks that exceed `high` from there to
/// the zone, those first that were freed first. It looks at the CPU's two fronts separately.
#[test]
fn the_periodic_work_empties_only_an_idle_front() {
    let world = World::of(Topology::flat(2), config(BLOCKS)).sized(2 * HUGE + 100, 32 * HUGE);
    let held = held(&world, 5);
    let (machine, pages) = (&world.machine, world.manager.pages());
    let high = ListState {
        high: Pages(2 * HUGE + 100),
        ..ListState::default()
    };
    let seeded = pages.seed_lists(machine, 0, CpuId(0), &high);
    seeded.expect("there is a zone");
    let decay = || pages.decay_lists(machine, 0, CpuId(0));
    free_all(&world, &held);
    assert_eq!(decay(), Ok(Pages(0)), "it was used");
    is_exact(&world, 0, 5);
    let (user, locks, _) = world.watch.during(|| take(&world));
    assert_eq!((user, locks), (held[4], vec![]));
    free(&world, user);
    assert_eq!(decay(), Ok(Pages(0)), "it was used again");
    // The front for single pages is in use, and that for huge blocks is not. Two blocks fit into
    // `high`. The list has at least one page too many, so the third one returns, too.
    let page = world.take();
    world.free(page);
    let small = world.listed(0) % HUGE;
    assert!((1..100).contains(&small));
    assert_eq!(decay(), Ok(Pages(3 * HUGE)));
    assert_eq!(world.listed(0), 2 * HUGE + small);
    let (user, locks, _) = world.watch.during(|| world.take());
    assert_eq!((user, locks), (page, vec![]), "it is still in the front");
    world.free(user);
    let (users, locks, _) = world.watch.during(|| take_some(&world, 2));
    assert_eq!(users, [held[4], held[3]]);
    assert_eq!(locks, [(LockClass::Pcp, Site::PcpAlloc)]);
    free_all(&world, &users);
    world.is_whole();
}

/// The periodic work goes on while a front (a CPU's stack of free blocks) has huge blocks.
#[test]
fn the_periodic_work_goes_on_until_the_front_is_empty() {
    let world = world();
    let held = held(&world, 2);
    let refresh = || world.manager.refresh(&world.machine);
    while refresh() == Changed::Yes {}
    free_all(&world, &held);
    assert_eq!(refresh(), Changed::Yes, "the front was used");
    assert_eq!(refresh(), Changed::No, "the front is empty");
    let (user, locks, _) = world.watch.during(|| take(&world));
    assert_eq!((user, locks.len()), (held[1], 1), "it was on the list");
    free(&world, user);
    world.is_whole();
}

/// The shepherd, which restarts the periodic work of CPUs, counts every page of the huge blocks in a
/// front (a CPU's stack of free blocks).
#[test]
fn the_shepherd_counts_the_pages_of_huge_blocks() {
    for (high_min, is_kicked) in [(5 * HUGE - 1, true), (5 * HUGE, false)] {
        let world = World::of(Topology::flat(2), config(BLOCKS)).sized(high_min, 32 * HUGE);
        let held = held(&world, 5);
        let (machine, manager) = (&world.machine, &world.manager);
        manager.start(machine);
        while machine.take_job().is_some() {}
        for cpu in [1, 0] {
            machine.on(cpu);
            while manager.refresh(machine) == Changed::Yes {}
        }
        free_all(&world, &held);
        let watch = || manager.run(machine, Job::Shepherd);
        let ((), _, events) = world.watch.during(watch);
        let kick = Event::Kick { cpu: CpuId(0) };
        assert_eq!(events.contains(&kick), is_kicked, "{high_min}");
        let state = machine.job_state(CpuId(0), Job::VmstatUpdate);
        assert_eq!(state != JobState::Dormant, is_kicked);
    }
}

/// A zone shrinks although some of the memory is in a front (a CPU's stack of free blocks): the
/// removal drains the fronts. It fails if a block is in use.
#[test]
fn memory_whose_blocks_are_in_a_front_can_be_removed() {
    let world = World::of(Topology::flat(2), config(64));
    let limit = || world.depot.limit_for(0, Order::HUGE);
    let (machine, manager) = (&world.machine, &world.manager);
    let users = held(&world, 6);
    assert_eq!(indexes(&users), [0, 1, 2, 3, 4, 5]);
    [1, 2, 3, 4].iter().for_each(|&at| free(&world, users[at]));
    let removed = manager.memory_offline(machine, Pfn(4 * HUGE), Pages(2 * HUGE));
    let in_use = |pfn| ResizeError::InUse {
        pfn,
        holder: Holder::Allocated(Order::HUGE),
    };
    assert_eq!(removed, Err(in_use(users[5])));
    assert_eq!(limit(), 4);
    [1, 2, 3, 4].iter().for_each(|_| {
        take(&world);
    });
    [1, 2, 3].iter().for_each(|&at| free(&world, users[at]));
    let removed = manager.memory_offline(machine, Pfn(2 * HUGE), Pages(2 * HUGE));
    assert_eq!(removed, Ok(()));
    assert_eq!(limit(), 3, "62 blocks are left");
    assert_eq!(view(&world).managed, Pages(62 * HUGE));
    [0, 4, 5].iter().for_each(|&at| free(&world, users[at]));
    world.is_whole();
}

/// The memory of blocks in fronts (stacks of free blocks) is not given back. Memory that was given
/// back is allocated after other blocks of the same order, until it has been used. Block 1, whose
/// buddy is in use, is allocated before a block of the largest order is split.
#[test]
fn memory_that_was_given_back_is_allocated_last() {
    let world = World::of(Topology::flat(2), config(64));
    let (machine, pages) = (&world.machine, world.manager.pages());
    let fronted = held(&world, 1);
    free_all(&world, &fronted);
    let mut sweep = Sweep::default();
    let mut round = |most: u32| {
        let mut given = Vec::new();
        let done = pages.report_free(machine, &mut sweep, Pages(most), |pfn, order| {
            given.extend((0..order.pages().0 / HUGE).map(|at| pfn.0 / HUGE + at));
            true
        });
        assert_eq!(done.given.0 as usize, given.len() * 512);
        given
    };
    assert_eq!(round(64 * HUGE), []);
    assert_eq!(round(9 * HUGE), (1..10).collect::<Vec<u32>>());
    is_exact(&world, 0, 1);
    let (users, _) = exhaust(&world, Urgency::Reserve);
    let expected: Vec<u32> = (0..2).chain(10..64).chain(2..10).collect();
    assert_eq!(indexes(&users), expected);
    // They have been used now, so they are as good as all others.
    free_all(&world, &users);
    pages.drain_all_sync(machine);
    let users = take_some(&world, 12);
    assert_eq!(indexes(&users), (0..12).collect::<Vec<u32>>());
    free_all(&world, &users);
    world.is_whole();
    // All of them were in use since the last round.
    assert_eq!(round(64 * HUGE), []);
    assert_eq!(round(64 * HUGE).len(), 64);
}

/// While the memory of a block is given back, a full front (a CPU's stack of free blocks) passes the
/// buddy of the block to the zone. The two merge when the memory has been given back.
#[test]
fn a_buddy_that_is_freed_during_a_report_merges_later() {
    for is_given in [true, false] {
        let world = world();
        let (machine, pages) = (&world.machine, world.manager.pages());
        let held = held(&world, LIMIT + 1);
        assert_eq!(indexes(&held), (0..17).collect::<Vec<u32>>());
        // The only block on its own is the buddy of the last one that is held.
        let mut sweep = Sweep::default();
        let mut round = |report: &mut dyn FnMut(Pfn, Order) -> bool| {
            pages.report_free(machine, &mut sweep, Pages(1024), report)
        };
        round(&mut |_, _| panic!("no block is old"));
        let mut reported = Vec::new();
        round(&mut |pfn, order| {
            if reported.is_empty() {
                free_all(&world, &held[..LIMIT - 1]);
                free(&world, held[LIMIT]);
                free(&world, held[LIMIT - 1]);
            }
            reported.push((pfn, order));
            is_given
        });
        assert_eq!(reported, [(Pfn(17 * HUGE), Order::HUGE)]);
        is_exact(&world, 0, 1);
        world.is_whole();
        assert_eq!(view(&world).blocks[Order::MAX.index()], BLOCKS / 2);
    }
}

/// The zone was found below its high watermark. A front (a CPU's stack of free blocks) then passes
/// blocks to the zone, which is above the watermark now. So single pages fill the list as before,
/// and do not shorten it.
#[test]
fn huge_blocks_that_return_to_the_zone_end_its_shortage() {
    let world = World::of(Topology::flat(2), config(BLOCKS)).sized(256, 1024);
    world.depot.fill_up();
    let (machine, pages) = (&world.machine, world.manager.pages());
    let blocks = held(&world, LIMIT + 1);
    let small = world.held(500);
    let state = ListState {
        high: Pages(1024),
        ..ListState::default()
    };
    let seeded = pages.seed_lists(machine, 0, CpuId(0), &state);
    seeded.expect("there is a zone");
    pages.set_below_high(machine, 0).expect("there is a zone");
    free_all(&world, &blocks);
    let free_pages = || small.iter().for_each(|&pfn| world.free(pfn));
    let ((), _, events) = world.watch.during(free_pages);
    assert_eq!(holds(&events, Site::Spill), []);
    assert_eq!(world.listed(0), HUGE + 500);
    world.is_whole();
}

/// One of the blocks that a full front passes on was freed twice, and another CPU has allocated it
/// since then. So the hold of the zone lock for this block moves nothing. The first hold that moves a
/// block is the first one, and all later ones know that it has moved something.
#[test]
fn a_hold_that_moves_nothing_is_no_earlier_hold() {
    for nth in 1..4 {
        let most = 32 * HUGE;
        let world = World::of(Topology::flat(2), config(BLOCKS)).batched(1, most, most);
        let held = held(&world, LIMIT + 1);
        free_all(&world, &held[..LIMIT]);
        // The front gives the blocks that were freed last first.
        let twice = held[LIMIT - nth];
        world.machine.on(1);
        world.depot.let_the_next_free_be_late();
        free(&world, twice);
        assert_eq!(take(&world), twice);
        world.machine.on(0);
        let ((), _, events) = world.watch.during(|| free(&world, held[LIMIT]));
        let moves = |event: &Event| matches!(*event, Event::ZoneHold { blocks, .. } if blocks > 0);
        let events: Vec<Event> = events.into_iter().filter(moves).collect();
        assert_eq!(holds(&events, Site::Spill), [HUGE; LIMIT - 1]);
        let expected: Vec<bool> = (0..LIMIT - 1).map(|nth| nth > 0).collect();
        assert_eq!(further(&events, Site::Spill), expected, "{nth}");
        assert_eq!(world.manager.pages().double_frees(), 1);
        is_exact(&world, 1, 1);
        free(&world, twice);
        world.is_whole();
    }
}
