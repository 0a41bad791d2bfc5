//! Tests of page lists that own blocks, in which several CPUs use the pages of one block: frees on
//! other CPUs, blocks that are taken from other CPUs, and drains that another CPU interrupts.

use std::sync::Arc;

use plimsoll_mm::page::owned::Owning;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{Grouping, ListState, Mobility, Request, TypedBlock};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

use crate::owning::{BLOCK, ONE, PAGES, World, block_of};
use crate::watch::count;

/// A request that fails at once if neither this CPU nor the zone has a page.
const AT_ONCE: Request = ONE.urgent(Urgency::NoWait);

/// In the form that was proposed for Linux, a CPU locks the owner's lists once for each run of pages
/// that it frees, and not once for each page.
#[test]
fn pages_of_one_owner_are_freed_under_one_lock() {
    let world = World::new(Owning::Rfc).sized(4096, 4096);
    let held = world.take(0, 10);
    let before = world.listed(0);
    let ((), locks, _) = world.watch.during(|| world.free(1, &held));
    assert_eq!(count(&locks, LockClass::Pcp, Site::PcpFree), 1);
    assert_eq!(world.listed(0), before + 10);
    world.is_whole();
}

/// CPU 1 frees a page to its owner, CPU 0. Just before CPU 1 locks the lists of CPU 0, that CPU goes
/// offline and loses its blocks. The page must not go to its lists.
#[test]
fn a_page_does_not_go_to_an_owner_that_goes_offline_meanwhile() {
    let world = Arc::new(World::new(Owning::Rfc));
    let held = world.take(0, 10);
    let other = Arc::clone(&world);
    world
        .watch
        .before((LockClass::Pcp, Site::PcpFree), 0, move || {
            other.machine.on(0);
            other.manager.cpu_going(&other.machine, CpuId(0));
            other.machine.on(2);
            other.manager.cpu_dead(&other.machine, CpuId(0));
            other.machine.on(1);
        });
    world.free(1, &held);
    assert!(world.watch.is_done());
    assert_eq!([0, 1].map(|cpu| world.listed(cpu)), [0, 10]);
    world.is_whole();
}

/// Owned blocks do not serve requests for a block of their own size or more. So such a request takes
/// no block from another CPU.
#[test]
fn a_request_for_a_huge_block_robs_no_cpu() {
    let world = World::new(Owning::Inbox);
    let held = world.take(1, BLOCK);
    world.free(3, &held);
    world.close();
    let huge = Request::new(Order::HUGE).urgent(Urgency::NoWait);
    assert_eq!(world.alloc(0, huge), None);
    assert_eq!([0, 1].map(|cpu| world.listed(cpu)), [0, BLOCK]);
    world.is_whole();
}

/// Only a block of the type that a request asks for is taken from another CPU, be all pages of the
/// block free or only some.
#[test]
fn a_block_is_robbed_only_if_it_has_the_type_of_the_request() {
    for count in [BLOCK, BLOCK - 100] {
        let world = World::with(Owning::Inbox, PAGES, Grouping::Huge);
        let of = |cpu, mobility| whole_block(&world, cpu, ONE.of_mobility(mobility));
        let (movable, others) = of(1, Mobility::Movable);
        let (unmovable, more) = of(2, Mobility::Unmovable);
        for pfns in [&movable, &unmovable] {
            world.free(3, &pfns[..count as usize]);
        }
        assert_eq!([1, 2].map(|cpu| world.listed(cpu)), [count, count]);
        world.close();
        let got = world.alloc(0, AT_ONCE).expect("CPU 2 has pages");
        assert_eq!(block_of(got), block_of(unmovable[0]));
        assert_eq!(
            [0, 1, 2].map(|cpu| world.listed(cpu)),
            [count - 1, count, 0]
        );
        for pfns in [movable, unmovable] {
            world.free(0, &pfns[count as usize..]);
        }
        for pfns in [others, more, vec![got]] {
            world.free(0, &pfns);
        }
        world.is_whole();
    }
}

/// Allocates pages on `cpu`, among them all pages of a block that the CPU owns. Returns the pages of
/// this block and the other pages. The lists of `cpu` are empty then.
fn whole_block(world: &World, cpu: u32, request: Request) -> (Vec<Pfn>, Vec<Pfn>) {
    let pages: Vec<Pfn> = (0..3 * BLOCK)
        .filter_map(|_| world.alloc(cpu, request))
        .collect();
    world.drain(cpu);
    let of = |block| pages.iter().filter(|&&pfn| block_of(pfn) == block).count();
    let whole = pages.iter().map(|&pfn| block_of(pfn));
    let whole = whole.max_by_key(|&block| of(block)).expect("many pages");
    assert_eq!(of(whole), BLOCK as usize);
    pages.into_iter().partition(|&pfn| block_of(pfn) == whole)
}

/// CPU 0 has taken the free pages of a block from CPU 1, but then finds its own lists locked by
/// another CPU. The pages go to the zone, so none is lost.
#[test]
fn a_robbed_block_goes_to_the_zone_if_the_lists_are_locked() {
    let world = Arc::new(World::new(Owning::Inbox));
    let held = world.take(1, BLOCK);
    world.free(3, &held[..300]);
    world.close();
    let other = Arc::clone(&world);
    let robbing = (LockClass::Pcp, Site::Drain);
    world
        .watch
        .before(robbing, 0, move || other.watch.refuse(1));
    let before = world.view().free;
    assert_eq!(world.alloc(0, AT_ONCE), None);
    assert!(world.watch.is_done());
    assert_eq!(world.view().free, before + Pages(300));
    world.free(3, &held[300..]);
    world.is_whole();
}

/// A drain of CPU 0 has returned a part of the pages when CPU 0 frees a page. Its lists are too
/// long, so CPU 0 returns a batch, and then finds the lists locked by the drain. The drain returns
/// all other pages, so nothing is left to be returned for CPU 0.
#[test]
fn a_drain_returns_what_a_free_could_not_return() {
    let world = Arc::new(World::new(Owning::None).sized(252, 252));
    let held = world.take(0, 1000);
    world.drain(0);
    let block = |&pfn: &Pfn| TypedBlock {
        pfn,
        order: Order::ZERO,
        mobility: Mobility::Unmovable,
    };
    let state = ListState {
        high: Pages(252),
        alloc_factor: 0,
        free_count: Pages(189),
        freed_high_order: false,
        blocks: held[1..].iter().map(block).collect(),
    };
    let pages = world.manager.pages();
    let seeded = pages.seed_lists(&world.machine, 0, CpuId(0), &state);
    seeded.expect("there is room");
    let (other, page) = (Arc::clone(&world), held[0]);
    world
        .watch
        .before((LockClass::Pcp, Site::Drain), 2, move || {
            let again = Arc::clone(&other);
            let spilling = (LockClass::Zone, Site::Spill);
            other
                .watch
                .before(spilling, 0, move || again.watch.refuse(1));
            other.free(0, &[page]);
            other.machine.on(1);
        });
    world.machine.on(1);
    world.drain(0);
    assert!(world.watch.is_done());
    assert_eq!(world.listed(0), 0);
    let held = world.take(0, 20);
    world.free(0, &held);
    let listed = world.listed(0);
    assert_eq!(pages.decay_lists(&world.machine, 0, CpuId(0)), Ok(Pages(0)));
    assert_eq!(world.listed(0), listed);
    world.is_whole();
}
