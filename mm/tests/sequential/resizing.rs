//! Tests of zones that grow and shrink while other CPUs use their memory.

use std::sync::Arc;

use plimsoll_mm::Manager;
use plimsoll_mm::page::watermark::{Urgency, Watermarks};
use plimsoll_mm::page::{Config, Holder, Layout, Request, ResizeError, ZoneView};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{Order, Pages, Pfn};

use crate::machine::Plain;
use crate::watch::{Watch, count};

/// The number of pages of a block, by which zones grow and shrink.
const BLOCK: u32 = Order::MAX.pages().0;
const PAGES: Pages = Pages(8 * BLOCK);
/// The range that the tests remove: blocks 2 to 4.
const FIRST: Pfn = Pfn(2 * BLOCK);
const RANGE: Pages = Pages(3 * BLOCK);
/// The lock under which a removal checks a block, and takes it.
const CHECK: (LockClass, Site) = (LockClass::Zone, Site::Control);

struct World {
    machine: Plain,
    watch: Arc<Watch>,
    manager: Manager<Plain>,
}

impl World {
    fn new(pages: Pages) -> Arc<Self> {
        let watch = Arc::<Watch>::default();
        let machine = Plain::new(Topology::flat(2)).watched(&watch);
        let manager = Manager::new(&machine, Config::new(Layout::arena(pages)));
        Arc::new(Self {
            manager: manager.expect("a layout"),
            machine,
            watch,
        })
    }

    fn view(&self) -> ZoneView {
        self.manager.pages().view(&self.machine).remove(0)
    }

    /// Sets watermarks of which the zone must keep the high one.
    fn keeping(self: Arc<Self>, high: u32) -> Arc<Self> {
        let marks = Watermarks {
            high: Pages(high),
            ..self.view().watermarks
        };
        let (pages, sizes) = (self.manager.pages(), self.view().sizes);
        let seeded = pages.seed_sizes(&self.machine, 0, marks, sizes);
        seeded.expect("these sizes are possible");
        self
    }

    /// Allocates all blocks of the largest order, and frees those for which `stays` is true.
    fn take_blocks(&self, stays: impl Fn(u32) -> bool) -> Vec<Pfn> {
        let block = Request::new(Order::MAX).urgent(Urgency::Reserve);
        let pages = self.manager.pages();
        let all: Vec<Pfn> = std::iter::from_fn(|| pages.alloc(&self.machine, block).ok()).collect();
        let (free, held) = all.into_iter().partition(|pfn| stays(pfn.0 / BLOCK));
        self.free(free);
        held
    }

    fn free(&self, blocks: Vec<Pfn>) {
        for pfn in blocks {
            let freed = self.manager.pages().free(&self.machine, pfn, Order::MAX);
            freed.expect("it is allocated");
        }
    }

    /// Asserts that all pages are in the zone, in whole blocks.
    fn is_whole(&self) {
        let zone = self.view();
        assert_eq!((zone.managed, zone.free), (PAGES, PAGES));
        assert_eq!(zone.counted_free, u64::from(PAGES.0));
        assert_eq!(zone.blocks[Order::MAX.index()], 8);
    }
}

/// A removal has checked three blocks and taken the first when another CPU allocates the second.
/// The removal fails, and the first block is a part of the zone again.
#[test]
fn a_removal_that_fails_half_way_loses_no_block() {
    let world = World::new(PAGES);
    let other = Arc::clone(&world);
    let taken = Arc::<std::sync::Mutex<Vec<Pfn>>>::default();
    let blocks = Arc::clone(&taken);
    world.watch.before(CHECK, 4, move || {
        *blocks.lock().expect("one thread") = other.take_blocks(|block| block != 3);
    });
    let removed = world.manager.memory_offline(&world.machine, FIRST, RANGE);
    let in_use = ResizeError::InUse {
        pfn: Pfn(3 * BLOCK),
        holder: Holder::Allocated(Order::MAX),
    };
    assert_eq!(removed, Err(in_use));
    assert!(world.watch.is_done());
    assert_eq!(
        (world.view().managed, world.view().free),
        (PAGES, PAGES - Pages(BLOCK))
    );
    world.free(std::mem::take(&mut taken.lock().expect("one thread")));
    world.is_whole();
}

/// A removal has checked three blocks and taken the first. Then another CPU allocates so many other
/// blocks that the zone needs the free pages of the range. The error counts the block that the
/// removal had already taken.
#[test]
fn a_removal_that_fails_half_way_reports_all_free_pages() {
    let world = World::new(PAGES).keeping(1500);
    let other = Arc::clone(&world);
    let taken = Arc::<std::sync::Mutex<Vec<Pfn>>>::default();
    let blocks = Arc::clone(&taken);
    world.watch.before(CHECK, 4, move || {
        *blocks.lock().expect("one thread") = other.take_blocks(|block| block == 3 || block == 4);
    });
    let removed = world.manager.memory_offline(&world.machine, FIRST, RANGE);
    let needed = ResizeError::Needed {
        free: RANGE,
        keeps: Pages(1500),
    };
    assert_eq!(removed, Err(needed));
    assert!(world.watch.is_done());
    assert_eq!((world.view().managed, world.view().free), (PAGES, RANGE));
    world.free(std::mem::take(&mut taken.lock().expect("one thread")));
    world.is_whole();
}

/// A zone keeps as many free pages as its high watermark, also if a single block is removed.
#[test]
fn a_block_that_the_zone_needs_stays() {
    let world = World::new(PAGES).keeping(1500);
    let held = world.take_blocks(|block| block == 3 || block == 4);
    let remove = || {
        world
            .manager
            .memory_offline(&world.machine, Pfn(3 * BLOCK), Pages(BLOCK))
    };
    let needed = ResizeError::Needed {
        free: Pages(2 * BLOCK),
        keeps: Pages(1500),
    };
    assert_eq!(remove(), Err(needed));
    world.free(held);
    assert_eq!(remove(), Ok(()));
}

/// A removal that is bound to fail takes no block from other CPUs, not even for a moment: it takes
/// the zone lock only once for each block that it checks.
#[test]
fn a_removal_that_cannot_succeed_takes_no_block() {
    let world = World::new(PAGES);
    let held = world.take_blocks(|block| block != 3);
    let remove = || world.manager.memory_offline(&world.machine, FIRST, RANGE);
    let (removed, locks, _) = world.watch.during(remove);
    assert!(
        matches!(removed, Err(ResizeError::InUse { .. })),
        "{removed:?}"
    );
    assert_eq!(count(&locks, CHECK.0, CHECK.1), 2);
    world.free(held);

    let world = World::new(PAGES).keeping(6 * BLOCK);
    let remove = || world.manager.memory_offline(&world.machine, FIRST, RANGE);
    let (removed, locks, _) = world.watch.during(remove);
    let needed = ResizeError::Needed {
        free: PAGES,
        keeps: Pages(6 * BLOCK),
    };
    assert_eq!(removed, Err(needed));
    assert_eq!(count(&locks, CHECK.0, CHECK.1), 3);
    world.is_whole();
}

/// The watermarks of a zone and the sizes of its page lists follow from its memory, also after a
/// block was removed or added.
#[test]
fn the_sizes_of_a_zone_follow_its_memory() {
    let world = World::new(PAGES);
    let sizes_of = |world: &World| (world.view().watermarks, world.view().sizes);
    let [large, small] = [PAGES, PAGES - Pages(BLOCK)].map(|pages| sizes_of(&World::new(pages)));
    assert_ne!(large, small);
    let (machine, manager) = (&world.machine, &world.manager);
    let removed = manager.memory_offline(machine, FIRST, Pages(BLOCK));
    removed.expect("all pages are free");
    assert_eq!(sizes_of(&world), small);
    let added = manager.memory_online(machine, FIRST, Pages(BLOCK));
    added.expect("it has no memory");
    assert_eq!(sizes_of(&world), large);
    world.is_whole();
}
