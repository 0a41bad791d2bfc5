//! Tests of the limits of fronts (the CPUs' stacks of free pages), and of the requests that a front
//! may serve.

use plimsoll_mm::design::Design;
use plimsoll_mm::event::{Changed, Event};
use plimsoll_mm::machine::{Job, JobState, Machine};
use plimsoll_mm::page::owned::Owning;
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::{Config, FreeError, Grouping, Layout, Mobility, ZoneKind};
use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};

use crate::fronts::{ONE, World};
use crate::machine::Plain;

/// The number of pages of the zone: 16 MiB.
const PAGES: Pages = Pages(4096);

fn arena() -> Config<Plain> {
    Config::new(Layout::arena(PAGES))
}

fn world() -> World {
    World::of(Topology::flat(2), arena())
}

/// A CPU's lists may hold an eighth of the zone, divided by the number of CPUs. Its front (its stack
/// of free pages) may hold an eighth of that. The front of a CPU that is offline gets no room.
#[test]
fn only_the_front_of_an_online_cpu_has_room() {
    let world = world();
    let limits = || [0, 1].map(|cpu| world.depot.limit_of(cpu));
    assert_eq!(limits(), [32, 32]);
    world.machine.on(1);
    world.manager.cpu_going(&world.machine, CpuId(1));
    world.machine.on(0);
    world.manager.cpu_dead(&world.machine, CpuId(1));
    assert_eq!(limits(), [64, 0]);
    world.manager.cpu_online(&world.machine, CpuId(1));
    assert_eq!(limits(), [32, 32]);
}

/// If a test or a replay sets the sizes of the lists, the fronts (the CPUs' stacks of free pages)
/// get the limits that belong to these sizes.
#[test]
fn sizes_that_are_set_for_a_zone_also_set_the_limits() {
    let world = world();
    let (machine, pages) = (&world.machine, world.manager.pages());
    let zone = pages.view(machine).remove(0);
    for (high_max, limit) in [(800, 100), (160, 20), (8, 2), (0, 0)] {
        let sizes = Sizes {
            high_min: Pages(0),
            high_max: Pages(high_max),
            ..zone.sizes
        };
        let seeded = pages.seed_sizes(machine, 0, zone.watermarks, sizes);
        seeded.expect("lists can have these sizes");
        let limits = [0, 1].map(|cpu| world.depot.limit_of(cpu));
        assert_eq!(limits, [limit; 2], "{high_max}");
    }
}

/// Blocks have owners, so a freed page goes to the owner of its block and not to the front (the
/// stack of free pages) of the CPU that frees it.
#[test]
fn there_are_no_fronts_if_cpus_own_blocks() {
    for owning in [Owning::Rfc, Owning::Inbox] {
        let mut config = arena();
        config.design = Design {
            owning,
            ..Design::OURS
        };
        let world = World::of(Topology::flat(2), config);
        assert_eq!(world.depot.limit_of(0), 0);
        world.machine.on(1);
        let pfn = world.take();
        world.machine.on(0);
        world.free(pfn);
        assert_eq!(world.listed(0), 0);
        world.is_whole();
    }
}

/// Pages are grouped by mobility, so a freed movable page must not serve an unmovable request, even
/// if it was freed last.
#[test]
fn there_are_no_fronts_if_pages_are_grouped() {
    let mut config = arena();
    config.grouping = Grouping::Huge;
    let world = World::of(Topology::flat(2), config);
    assert_eq!(world.depot.limit_of(0), 0);
    let movable = ONE.of_mobility(Mobility::Movable);
    let pages = world.manager.pages();
    let pfn = pages.alloc(&world.machine, movable).expect("all is free");
    world.free(pfn);
    let other = world.take();
    assert_ne!(other, pfn);
    assert_eq!(pages.block_type(other), Some(Mobility::Unmovable));
    assert_eq!(pages.alloc(&world.machine, movable), Ok(pfn));
    [pfn, other].into_iter().for_each(|pfn| world.free(pfn));
    world.is_whole();
}

/// Puts 112 pages on the list of CPU 0, and leaves 32 pages in its front (its stack of free pages).
fn filled() -> (World, Vec<Pfn>) {
    let world = world().sized(256, 256);
    let held = world.held(144);
    held.iter().for_each(|&pfn| world.free(pfn));
    assert_eq!(world.listed(0), 144);
    (world, held)
}

/// An empty front (a CPU's stack of free pages) takes half of its limit from the page list, so that
/// it has room for pages that are freed next.
#[test]
fn a_refill_of_a_front_takes_half_of_its_limit() {
    let (world, _) = filled();
    let locks_of = |count| {
        let take = || (0..count).map(|_| world.take()).last();
        world.watch.during(take).1.len()
    };
    assert_eq!(locks_of(32), 0, "the front was full");
    assert_eq!(locks_of(48), 3, "16 pages each time");
}

/// Of three CPUs, each has a front (a stack of free pages) for 21 pages. Half of that, rounded down,
/// is the number of pages that move between the front and the page list.
#[test]
fn a_run_has_half_of_an_odd_limit_rounded_down() {
    let world = World::of(Topology::flat(3), arena()).sized(256, 256);
    assert_eq!(world.depot.limit_of(0), 21);
    let held = world.held(32);
    let frees = |pages: &[Pfn]| {
        let free = || pages.iter().for_each(|&pfn| world.free(pfn));
        world.watch.during(free).1.len()
    };
    assert_eq!(frees(&held[..21]), 0, "the front is full now");
    assert_eq!(frees(&held[21..22]), 1, "10 pages go to the list");
    assert_eq!(
        frees(&held[22..31]),
        0,
        "the front has 12 pages, and room for 9"
    );
    assert_eq!(frees(&held[31..]), 1);
    let takes = |count| {
        let take = || (0..count).map(|_| world.take()).last();
        world.watch.during(take).1.len()
    };
    assert_eq!(takes(12), 0, "these pages were in the front");
    assert_eq!(takes(10), 1, "10 pages come from the list");
    assert_eq!(takes(1), 1);
}

/// A CPU frees pages, other threads use its front (its stack of free pages), and the CPU gets the
/// front back. The page that was freed last is still allocated first, and no list is locked.
#[test]
fn a_front_that_comes_back_is_used_before_the_list() {
    let (world, held) = filled();
    world.depot.take_fronts_away();
    let (pfn, locks, _) = world.watch.during(|| world.take());
    assert_eq!((pfn, locks.len()), (held[143], 0));
    world.depot.take_fronts_away();
    let ((), locks, _) = world.watch.during(|| world.free(pfn));
    assert_eq!(locks.len(), 0, "a free gets the front back, too");
    assert_eq!(world.take(), pfn);
}

/// The allocator that was made for CPU 0 is called on CPU 1. It must not take the pages of CPU 0,
/// because CPU 1 cannot use the front (the stack of free pages) of CPU 0.
#[test]
fn an_allocator_for_another_cpu_leaves_the_list_of_that_cpu_alone() {
    let (world, held) = filled();
    let users: Vec<Pfn> = (0..32).map(|_| world.take()).collect();
    assert!(users.iter().all(|pfn| held.contains(pfn)));
    assert_eq!((world.listed(0), world.listed(1)), (112, 0));
    let local = world.manager.pages().local(&world.machine, CpuId(0));
    world.machine.on(1);
    local
        .alloc(&world.machine, ONE)
        .expect("most pages are free");
    assert_eq!(world.listed(0), 112);
    assert!(world.listed(1) > 0, "the list of CPU 1 was refilled");
}

/// The periodic work leaves a front (a stack of free pages) alone that was used since the last time.
/// It runs again then, because the front has pages that may have to go back to the zone later. The
/// next time it moves the pages of the unused front to the list, and stops.
#[test]
fn the_periodic_work_goes_on_until_the_front_is_empty() {
    let world = world().sized(256, 256);
    let held = world.held(5);
    let refresh = || world.manager.refresh(&world.machine);
    while refresh() == Changed::Yes {}
    held.iter().for_each(|&pfn| world.free(pfn));
    assert_eq!(refresh(), Changed::Yes);
    let (pfn, locks, _) = world.watch.during(|| world.take());
    assert_eq!((pfn, locks.len()), (held[4], 0), "it is still in the front");
    world.free(pfn);
    assert_eq!(refresh(), Changed::Yes, "the front was used");
    assert_eq!(refresh(), Changed::No, "the front is empty");
    let (pfn, locks, _) = world.watch.during(|| world.take());
    assert_eq!((pfn, locks.len()), (held[4], 1), "it was on the list");
    world.free(pfn);
    world.is_whole();
}

/// The shepherd, which restarts the periodic work of CPUs, counts the pages of a CPU's front (its
/// stack of free pages) together with those of the CPU's lists.
#[test]
fn the_shepherd_counts_the_pages_of_a_front() {
    for (high_min, is_kicked) in [(143, true), (144, false)] {
        let world = world().sized(high_min, 256);
        let held = world.held(144);
        let (machine, manager) = (&world.machine, &world.manager);
        manager.start(machine);
        while machine.take_job().is_some() {}
        for cpu in [1, 0] {
            machine.on(cpu);
            while manager.refresh(machine) == Changed::Yes {}
        }
        held.iter().for_each(|&pfn| world.free(pfn));
        assert_eq!(world.listed(0), 144, "32 pages are in the front");
        assert!(!manager.is_dirty(machine, CpuId(0)));
        let watch = || manager.run(machine, Job::Shepherd);
        let ((), _, events) = world.watch.during(watch);
        let kick = Event::Kick { cpu: CpuId(0) };
        assert_eq!(events.contains(&kick), is_kicked, "{high_min}");
        let state = machine.job_state(CpuId(0), Job::VmstatUpdate);
        assert_eq!(state != JobState::Dormant, is_kicked);
    }
}

/// A front (a CPU's stack of free pages) has pages of one zone. It must not serve requests for
/// another node or for memory with lower addresses.
#[test]
fn a_front_serves_only_requests_for_its_zone() {
    let place = |core| CpuPlace {
        core,
        llc: core,
        node: NodeId(core),
        socket: core,
    };
    let layout = Layout::of_nodes(&[64 << 20, 64 << 20]);
    let topology = Topology::new(vec![place(0), place(1)]);
    let world = World::of(topology, Config::new(layout));
    let (machine, pages) = (&world.machine, world.manager.pages());
    let held = world.held(20);
    held.iter().for_each(|&pfn| world.free(pfn));
    let local = pages.local(machine, CpuId(0));
    let far = local.alloc(machine, ONE.from_node(NodeId(1)));
    let far = far.expect("node 1 has memory");
    assert_eq!(pages.node_of(far), Some(NodeId(1)));
    let low = local.alloc(machine, ONE.of_class(ZoneKind::Dma));
    let low = low.expect("there is memory below 16 MiB");
    assert!(low.0 < 4096, "{low:?}");
    let near = local.alloc(machine, ONE).expect("there are pages");
    assert_eq!(near, held[19]);
    for pfn in [far, low, near] {
        local
            .free(machine, pfn, Order::ZERO)
            .expect("it is allocated");
    }
}

/// A free with the wrong order is an error, and the page stays allocated.
#[test]
fn a_front_takes_no_page_that_is_freed_with_another_order() {
    let world = world();
    let pfn = world.take();
    let local = world.manager.pages().local(&world.machine, CpuId(0));
    let freed = Order::new(1).expect("small");
    let wrong = FreeError::WrongOrder {
        pfn,
        allocated: Order::ZERO,
        freed,
    };
    assert_eq!(local.free(&world.machine, pfn, freed), Err(wrong));
    assert_eq!(local.free(&world.machine, pfn, Order::ZERO), Ok(()));
    world.is_whole();
}
