//! Tests of fronts for huge blocks (each CPU's stack of free huge blocks): frees that are errors, and
//! CPUs and requests that cannot use the front.

use plimsoll_mm::page::{Config, FreeError, Layout, ZoneKind};
use plimsoll_mm::site::Site;
use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};

use crate::front_direct::{holds, view};
use crate::front_huge::{BLOCK, HUGE, LIMIT, RUN};
use crate::front_huge::{config, free, free_all, held, indexes, is_exact, take, take_some, world};
use crate::fronts::World;
use crate::heap;

/// A free with the wrong order, of a page inside a block, or of a free block is an error. Nothing
/// changes, whether the front (the CPU's stack of free blocks) is empty, partly full or full.
#[test]
fn wrong_frees_of_huge_blocks_change_nothing() {
    for fill in [0, 5, LIMIT] {
        let world = world();
        let held = held(&world, LIMIT + 1);
        let (user, others) = held.split_first().expect("there are blocks");
        free_all(&world, &others[..fill]);
        let (machine, pages) = (&world.machine, world.manager.pages());
        let local = pages.local(machine, CpuId(0));
        let both = |pfn: Pfn, order: Order, expected: FreeError| {
            let before = (view(&world), world.listed(0));
            let freed = [
                pages.free(machine, pfn, order),
                local.free(machine, pfn, order),
            ];
            assert_eq!(freed, [Err(expected); 2], "{pfn:?}, {order:?}, {fill}");
            assert_eq!((view(&world), world.listed(0)), before);
        };
        for freed in Order::all().filter(|order| *order != Order::HUGE) {
            let allocated = Order::HUGE;
            let wrong = FreeError::WrongOrder {
                pfn: *user,
                allocated,
                freed,
            };
            both(*user, freed, wrong);
        }
        for order in [Order::ZERO, Order::HUGE] {
            for offset in [1, 256, 511] {
                let inside = user.plus(Pages(offset));
                both(inside, order, FreeError::NotAllocated(inside));
            }
            for &other in &others[..fill] {
                both(other, order, FreeError::NotAllocated(other));
            }
        }
        // If the front was full, its blocks are in the zone after this free.
        assert_eq!(local.free(machine, *user, Order::HUGE), Ok(()));
        for &pfn in held[..=fill].iter() {
            both(pfn, Order::HUGE, FreeError::NotAllocated(pfn));
        }
        is_exact(
            &world,
            LIMIT - fill,
            if fill == LIMIT { 1 } else { fill + 1 },
        );
        assert_eq!(take(&world), *user);
        free(&world, *user);
        free_all(&world, &others[fill..]);
        world.is_whole();
        assert_eq!(pages.double_frees(), 0);
    }
}

/// Two frees of a block have raced, so it is twice in a front (a CPU's stack of free blocks). It is
/// allocated once, and moves to the list or to the zone once.
#[test]
fn a_block_that_was_freed_twice_appears_once() {
    // Frees all blocks but the last, and one of the first ones twice.
    let twice = |first: usize, which: usize, all: usize| {
        let world = world();
        let held = held(&world, all + 1);
        free_all(&world, &held[..first]);
        world.depot.let_the_next_free_be_late();
        free(&world, held[which]);
        free_all(&world, &held[first..all]);
        (world, held)
    };
    let (world, held) = twice(2, 0, 3);
    let users = take_some(&world, 3);
    assert_eq!(users, [held[2], held[0], held[1]]);
    assert!(!held.contains(&take(&world)), "the second entry is invalid");
    assert_eq!(world.manager.pages().double_frees(), 1);
    is_exact(&world, 5, RUN - 1);

    let (world, _) = twice(2, 0, 3);
    let pages = world.manager.pages();
    let drained = pages.drain_cpu(&world.machine, CpuId(0));
    assert_eq!((drained, pages.double_frees()), (Pages(3 * HUGE), 1));
    is_exact(&world, 1, 0);

    // The front is full. The run that it passes to the zone has both entries of the block.
    for which in [0, 4] {
        let (world, held) = twice(5, which, LIMIT - 1);
        let pages = world.manager.pages();
        let ((), _, events) = world.watch.during(|| free(&world, held[LIMIT - 1]));
        assert_eq!(holds(&events, Site::Spill), [15 * HUGE]);
        assert_eq!(pages.double_frees(), 1);
        pages.drain_all_sync(&world.machine);
        world.is_whole();
        assert_eq!(pages.double_frees(), 1);
    }
}

/// A block was freed twice. The store of its tag by the second free takes effect after the block
/// has reached the zone. The block is then free in the zone, and in the front (the stack of free
/// blocks) of CPU 1. A zone that gives the block drops it, and gives another one.
#[test]
fn a_block_that_the_zone_gives_is_dropped_if_it_is_on_a_front() {
    for passes_list in [false, true] {
        let world = world();
        let mut users = held(&world, 6);
        let twice = users.remove(3);
        free(&world, twice);
        let pages = world.manager.pages();
        pages.drain_all_sync(&world.machine);
        world.machine.on(1);
        world.depot.let_the_next_free_be_late();
        free(&world, twice);
        world.machine.on(0);
        if passes_list {
            world.watch.refuse(3);
        }
        users.extend(take_some(&world, 1));
        world.watch.refuse(0);
        users.extend(take_some(&world, 15));
        assert!(!users.contains(&twice), "{passes_list}");
        assert_eq!(pages.double_frees(), 1);
        world.machine.on(1);
        assert_eq!(take(&world), twice);
        users.push(twice);
        world.machine.on(0);
        pages.drain_all_sync(&world.machine);
        is_exact(&world, users.len(), 0);
        free_all(&world, &users);
        world.is_whole();
    }
}

/// The same block is in the fronts (the stacks of free blocks) of two CPUs, which pass it on to the
/// zone one after the other.
#[test]
fn a_block_in_the_fronts_of_two_cpus_goes_to_the_zone_once() {
    let world = world();
    let held = held(&world, 2 * LIMIT + 1);
    let (here, there) = held.split_at(LIMIT + 1);
    free_all(&world, &here[..LIMIT]);
    world.machine.on(1);
    free_all(&world, &there[..LIMIT - 1]);
    world.depot.let_the_next_free_be_late();
    free(&world, here[10]);
    let ((), _, events) = world.watch.during(|| free(&world, there[LIMIT - 1]));
    assert_eq!(holds(&events, Site::Spill), [16 * HUGE]);
    world.machine.on(0);
    let ((), _, events) = world.watch.during(|| free(&world, here[LIMIT]));
    assert_eq!(holds(&events, Site::Spill), [15 * HUGE]);
    assert_eq!(world.manager.pages().double_frees(), 1);
    is_exact(&world, 0, 2);
    world.is_whole();
}

/// Another thread takes the front (the stack of free blocks) away from a CPU that refills it, or that
/// passes blocks on to the zone. The blocks that cannot be pushed go to the list, in their order.
#[test]
fn blocks_that_lose_their_front_go_to_the_list() {
    let world = world();
    world.depot.limit_pushes(Some(4));
    let mut users = vec![take(&world)];
    is_exact(&world, 1, RUN - 1);
    world.depot.limit_pushes(None);
    users.extend(take_some(&world, RUN - 1));
    let expected: Vec<u32> = (0..1).chain(8..12).chain(1..8).collect();
    assert_eq!(indexes(&users), expected);
    world.manager.pages().drain_all_sync(&world.machine);
    users.extend(take_some(&world, LIMIT + 1 - RUN));
    world.manager.pages().drain_all_sync(&world.machine);

    free_all(&world, &users[..LIMIT]);
    world.depot.limit_pushes(Some(0));
    let ((), _, events) = world.watch.during(|| free(&world, users[LIMIT]));
    assert_eq!(holds(&events, Site::Spill), [16 * HUGE]);
    is_exact(&world, 0, 1);
    world.depot.limit_pushes(None);
    let next = take(&world);
    assert_eq!(next, users[LIMIT]);
    free(&world, next);
    world.is_whole();
}

/// The allocator for CPU 0 is called on CPU 1. It uses the front (the stack of free blocks) of CPU
/// 1, and returns the same errors.
#[test]
fn an_allocator_for_another_cpu_uses_the_front_of_this_cpu() {
    let world = world();
    let held = held(&world, 3);
    free_all(&world, &held);
    let (machine, pages) = (&world.machine, world.manager.pages());
    let local = pages.local(machine, CpuId(0));
    machine.on(1);
    let pfn = local.alloc(machine, BLOCK).expect("most blocks are free");
    assert!(!held.contains(&pfn));
    let listed = || [0, 1].map(|cpu| world.listed(cpu) / HUGE);
    assert_eq!(listed(), [3, 11]);
    let freed = || local.free(machine, pfn, Order::HUGE);
    assert_eq!(freed(), Ok(()));
    assert_eq!(listed(), [3, 12]);
    assert_eq!(freed(), Err(FreeError::NotAllocated(pfn)));
    assert_eq!(local.alloc(machine, BLOCK), Ok(pfn));
    machine.on(0);
    assert_eq!(freed(), Ok(()), "on its own CPU, too");
    assert_eq!(listed(), [4, 11]);
    assert_eq!(local.alloc(machine, BLOCK), Ok(pfn));
    assert_eq!(local.alloc(machine, BLOCK), Ok(held[2]));
    free_all(&world, &[pfn, held[2]]);
    world.is_whole();
}

/// A drain empties a front (a CPU's stack of free blocks), and the page list has no room for two of
/// its eight blocks. They go to the zone, and the drain counts all their pages as moved.
#[test]
fn a_drain_counts_huge_blocks_for_which_the_list_has_no_room() {
    let world = World::of(Topology::flat(2), config(64));
    let held = held(&world, 8);
    // Without CPU 1, the front may have eight blocks instead of four. The heap has no memory for a
    // list of so many.
    heap::failing_from(0, || {
        world.machine.on(1);
        world.manager.cpu_going(&world.machine, CpuId(1));
        world.machine.on(0);
        world.manager.cpu_dead(&world.machine, CpuId(1));
    });
    free_all(&world, &held);
    is_exact(&world, 0, 8);
    let drain = || world.manager.pages().drain_cpu(&world.machine, CpuId(0));
    let (drained, _, events) = world.watch.during(drain);
    assert_eq!(drained, Pages(8 * HUGE));
    assert_eq!(holds(&events, Site::FreeDirect), [HUGE; 2]);
    world.is_whole();
}

/// A front (a CPU's stack of free blocks) has blocks of one zone. It must not serve requests for
/// another node or for memory with lower addresses.
#[test]
fn a_front_serves_only_requests_for_its_zone() {
    let place = |core| CpuPlace {
        core,
        llc: core,
        node: NodeId(core),
        socket: core,
    };
    let layout = Layout::of_nodes(&[512 << 20, 512 << 20]).with_bitmaps();
    let topology = Topology::new(vec![place(0), place(1)]);
    let world = World::of(topology, Config::new(layout));
    let (machine, pages) = (&world.machine, world.manager.pages());
    let held = held(&world, 5);
    let local = pages.local(machine, CpuId(0));
    let free_here = |pfn: Pfn| {
        let freed = local.free(machine, pfn, Order::HUGE);
        freed.expect("it is allocated");
    };
    held.iter().for_each(|&pfn| free_here(pfn));
    let far = local.alloc(machine, BLOCK.from_node(NodeId(1)));
    let far = far.expect("node 1 has memory");
    assert_eq!(pages.node_of(far), Some(NodeId(1)));
    let low = local.alloc(machine, BLOCK.of_class(ZoneKind::Dma));
    let low = low.expect("there is memory below 16 MiB");
    assert!(low.0 < 4096, "{low:?}");
    let ((), locks, _) = world.watch.during(|| {
        let near = local.alloc(machine, BLOCK).expect("there are blocks");
        assert_eq!(near, held[4]);
        free_here(near);
    });
    assert_eq!(locks, []);
    free_all(&world, &[far, low]);
}
