//! Tests of what moves between the zone and page lists that own blocks: which pages a refill takes,
//! which pages a decay or a spill returns, and how many.

use plimsoll_mm::event::{Changed, Event};
use plimsoll_mm::machine::Job;
use plimsoll_mm::page::owned::Owning;
use plimsoll_mm::page::watermark::Watermarks;
use plimsoll_mm::page::{Grouping, ListState, Mobility, Request};
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

use crate::owning::{BLOCK, ONE, PAGES, World, block_of};

fn inbox() -> World {
    World::new(Owning::Inbox)
}

/// The number of pages that `take` takes from the zone.
fn taken<R>(world: &World, take: impl FnOnce() -> R) -> u32 {
    let before = world.view().free;
    take();
    before.0 - world.view().free.0
}

/// Sets the tuning state of the lists of CPU 0 so that a refill takes one batch, 63 pages.
fn calm(world: &World) {
    let state = ListState {
        high: Pages(0),
        alloc_factor: 0,
        free_count: Pages(0),
        freed_high_order: false,
        blocks: Vec::new(),
    };
    let pages = world.manager.pages();
    let seeded = pages.seed_lists(&world.machine, 0, CpuId(0), &state);
    seeded.expect("there is a zone");
}

/// Allocates a block on CPU 0, and frees every second page of it on CPU 1.
fn every_second(world: &World) -> Vec<Pfn> {
    let held = world.take(0, BLOCK);
    let (odd, even) = held
        .into_iter()
        .partition::<Vec<_>, _>(|pfn| pfn.0 % 2 == 1);
    world.free(1, &odd);
    assert_eq!(world.listed(0), BLOCK / 2);
    even
}

/// Sets the low and the high watermark to `below` pages less than the zone has free.
fn set_marks(world: &World, below: u32) {
    let low = world.view().free - Pages(below);
    let marks = Watermarks {
        min: low - Pages(1),
        low,
        high: low,
    };
    let sizes = world.view().sizes;
    world.set_sizes(sizes.high_min.0, sizes.high_max.0, marks);
}

/// Whole blocks stay on the owner's lists as long as these have at most `high` pages. This is so
/// even if the lists have a fixed size and were never tuned.
#[test]
fn whole_blocks_stay_while_the_lists_are_short() {
    for (high_min, high_max) in [(4096, 4096), (4096, 8192)] {
        let world = inbox().sized(high_min, high_max);
        let held = world.take(0, 3 * BLOCK);
        world.free(1, &held);
        assert_eq!(taken(&world, || world.take(0, 1)), 0);
        assert_eq!(world.listed(0), 3 * BLOCK - 1);
        assert_eq!(
            world.view().free,
            PAGES - Pages(3 * BLOCK),
            "no block went back"
        );
    }
}

/// Other CPUs have freed far more pages than the owner's lists may have. When the owner opens its
/// inbox, it returns whole blocks to the zone.
#[test]
fn a_refill_from_the_inbox_leaves_the_lists_short() {
    let world = inbox().sized(BLOCK, 8192);
    let held = world.take(0, 7 * BLOCK);
    world.drain(0);
    calm(&world);
    world.free(1, &held);
    assert_eq!(world.listed(0), 7 * BLOCK, "all pages wait in the inbox");
    let pfn = world.take(0, 1)[0];
    assert_eq!(world.listed(0), BLOCK - 1);
    world.free(0, &[pfn]);
    world.is_whole();
}

/// A decay returns only the pages that exceed `high`, here 4 single pages of a block.
#[test]
fn a_decay_returns_no_more_pages_than_are_in_excess() {
    let world = inbox().sized(252, 252);
    let held = every_second(&world);
    let moved = world
        .manager
        .pages()
        .decay_lists(&world.machine, 0, CpuId(0));
    assert_eq!((moved, world.listed(0)), (Ok(Pages(4)), 252));
    world.free(0, &held);
    world.is_whole();
}

/// CPU 0 has taken a block from CPU 2, and CPU 2 still has a few pages of that block on its lists.
/// When CPU 2 has too many pages, it sends them to CPU 0 and not to the zone.
#[test]
fn a_spill_sends_pages_to_the_owner_of_their_block() {
    let world = inbox();
    let own = world.take(2, BLOCK);
    let robbed = world.take(2, BLOCK - 200);
    world.close();
    let got = world.alloc(0, ONE).expect("CPU 2 has pages");
    assert_eq!(block_of(got), block_of(robbed[0]));
    let (thief, few) = (world.listed(0), world.listed(2));
    assert!(
        (1..63).contains(&few) && thief + few == 199,
        "{thief} {few}"
    );
    let open = world
        .manager
        .pages()
        .set_tunable(&world.machine, Knob::MinFree, 0);
    open.expect("the default");
    let world = world.sized(252, 252);
    own.chunks(50).take(6).for_each(|pfns| world.free(2, pfns));
    assert_eq!(world.listed(0), 199, "the pages of its block");
    world.free(2, &own[300..]);
    world.free(0, &robbed);
    world.free(0, &[got]);
    world.is_whole();
}

/// Blocks of at least the size that a CPU owns go from the lists to the zone as they are.
#[test]
fn huge_blocks_are_no_part_of_an_owned_block() {
    let world = inbox().sized(252, 252);
    let huge = Request::new(Order::HUGE);
    let held: Vec<Pfn> = (0..3).filter_map(|_| world.alloc(0, huge)).collect();
    assert_eq!(held.len(), 3);
    for pfn in held {
        world.machine.on(0);
        let freed = world.manager.pages().free(&world.machine, pfn, Order::HUGE);
        freed.expect("it is allocated");
    }
    assert!(world.listed(0) <= BLOCK, "{}", world.listed(0));
    world.is_whole();
}

/// A refill takes back fragments of the CPU's blocks, but moves at most a batch of pages in one hold
/// of the zone lock.
#[test]
fn a_recovery_of_fragments_moves_at_most_a_batch() {
    let world = inbox();
    let held = every_second(&world);
    world.drain(0);
    calm(&world);
    let (count, _, events) = world.watch.during(|| taken(&world, || world.take(0, 1)));
    assert_eq!(count, 63);
    let most = events.iter().filter_map(|event| match event {
        Event::ZoneHold { pages, .. } => Some(pages.0),
        _ => None,
    });
    assert_eq!(most.max(), Some(63));
    world.free(1, &held);
}

/// CPU 0 remembers that the zone has fragments of a block, but CPU 1 has become the owner of the
/// block. CPU 0 leaves the fragments to CPU 1.
#[test]
fn fragments_of_a_block_that_another_cpu_owns_are_not_recovered() {
    let world = inbox();
    let held = world.take(0, 200);
    world.drain(0);
    world.free(0, &held);
    world.drain(0);
    let other = world.take(1, 100);
    assert_eq!(
        block_of(other[0]),
        block_of(held[0]),
        "the zone had it whole"
    );
    world.drain(1);
    let mut pfns = Vec::new();
    assert_eq!(
        taken(&world, || pfns = world.take(0, 1)),
        BLOCK,
        "a block of its own"
    );
    assert_ne!(block_of(pfns[0]), block_of(other[0]));
    world.free(0, &pfns);
    world.free(1, &other);
    world.is_whole();
}

/// Fragments of an unmovable block do not serve a movable request, so they stay in the zone.
#[test]
fn fragments_of_another_type_are_not_recovered() {
    let world = World::with(Owning::Inbox, PAGES, Grouping::Huge);
    let held = world.take(0, 200);
    world.drain(0);
    calm(&world);
    assert_eq!(world.view().free, PAGES - Pages(200));
    let movable = ONE.of_mobility(Mobility::Movable);
    let claimed = taken(&world, || world.alloc(0, movable));
    assert_eq!(claimed, BLOCK, "a block is claimed, and nothing else");
    world.free(0, &held);
}

/// While the zone is close to its low watermark, a refill takes only the pages that it needs: it
/// claims no block, and takes back no fragments that do not serve the request.
#[test]
fn a_refill_takes_no_more_than_it_needs_from_a_zone_that_is_short() {
    let pair = Request::new(Order::new(1).expect("small"));
    for (request, needed) in [(ONE, 63), (pair, 62)] {
        let world = inbox();
        let held = every_second(&world);
        world.drain(0);
        calm(&world);
        set_marks(&world, 300);
        assert_eq!(
            taken(&world, || world.alloc(0, request)),
            needed,
            "{request:?}"
        );
        world.free(1, &held);
    }
    // The zone could spare a block, but it was found below its high watermark.
    let world = inbox();
    let hinted = world.manager.pages().set_below_high(&world.machine, 0);
    hinted.expect("there is a zone");
    assert_eq!(taken(&world, || world.take(0, 1)), 63);
}

/// CPU 1 takes pages of CPU 0's block from the zone. The block stays with CPU 0: a page of it that
/// CPU 2 frees goes to CPU 0.
#[test]
fn a_cpu_that_takes_single_pages_does_not_become_the_owner_of_an_owned_block() {
    let world = inbox();
    let held = every_second(&world);
    world.drain(0);
    let hinted = world.manager.pages().set_below_high(&world.machine, 0);
    hinted.expect("there is a zone");
    let pfns = world.take(1, 1);
    assert_eq!(block_of(pfns[0]), block_of(held[0]));
    let before = [0, 1].map(|cpu| world.listed(cpu));
    world.free(2, &pfns);
    assert_eq!(
        [0, 1].map(|cpu| world.listed(cpu)),
        [before[0] + 1, before[1]]
    );
}

/// A whole block that has gone back to the zone has no owner. A CPU that then takes single pages of
/// it from the zone becomes its owner.
#[test]
fn a_whole_block_in_the_zone_has_no_owner() {
    let world = inbox();
    let held = world.take(0, BLOCK);
    world.free(1, &held);
    world.drain(0);
    assert_eq!(world.view().free, PAGES);
    let hinted = world.manager.pages().set_below_high(&world.machine, 0);
    hinted.expect("there is a zone");
    let pfns = world.take(1, 1);
    assert_eq!(block_of(pfns[0]), block_of(held[0]));
    let before = world.listed(1);
    world.free(2, &pfns);
    assert_eq!([0, 1].map(|cpu| world.listed(cpu)), [0, before + 1]);
    world.is_whole();
}

/// A CPU keeps a bitmap for each of its blocks of which it has free pages. A drain that returns all
/// pages of a block frees the place of the bitmap, so the CPU does not run out of places.
#[test]
fn a_block_without_free_pages_takes_no_room() {
    let world = World::with(Owning::Inbox, Pages(1 << 16), Grouping::Off);
    for _ in 0..80 {
        world.take(0, BLOCK - 1);
        world.drain(0);
    }
    assert!(
        taken(&world, || world.take(0, 2)) >= BLOCK,
        "a block is claimed"
    );
}

/// The lists of a CPU get more memory while the CPU has whole blocks. No block is lost.
#[test]
fn lists_that_get_longer_keep_their_whole_blocks() {
    let world = inbox().sized(4096, 4096);
    let held = world.take(0, 3 * BLOCK);
    world.drain(0);
    world.free(1, &held);
    let one = world.take(0, 1);
    let before = world.listed(0);
    assert_eq!(before, 3 * BLOCK - 1);
    let world = world.sized(20_000, 20_000);
    assert_eq!(world.listed(0), before);
    let mut more = Vec::new();
    let from_zone = taken(&world, || more = world.take(0, 2 * BLOCK));
    assert_eq!(from_zone, 0, "two blocks were whole");
    world.free(0, &more);
    world.free(0, &one);
    world.is_whole();
}

/// The shepherd, which restarts the periodic work of CPUs, restarts it for a CPU for which other
/// CPUs have freed a page.
#[test]
fn the_shepherd_restarts_the_work_of_a_cpu_that_has_mail() {
    let world = inbox();
    let held = world.take(1, BLOCK);
    world.drain(1);
    let (machine, manager) = (&world.machine, &world.manager);
    machine.on(0);
    manager.start(machine);
    while machine.take_job().is_some() {}
    for cpu in [1, 0] {
        machine.on(cpu);
        while manager.refresh(machine) == Changed::Yes {}
    }
    let kicked = || {
        machine.on(0);
        let (_, _, events) = world.watch.during(|| manager.run(machine, Job::Shepherd));
        events.contains(&Event::Kick { cpu: CpuId(1) })
    };
    assert!(!kicked());
    world.free(0, &held[..1]);
    assert!(!manager.is_dirty(machine, CpuId(1)));
    assert!(kicked());
}
