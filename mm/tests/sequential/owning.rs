//! Tests of page lists that own blocks: where the pages of a block go, and when the owner of a
//! block changes.

use std::sync::Arc;

use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::page::owned::Owning;
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::watermark::{Urgency, Watermarks};
use plimsoll_mm::page::{Config, Grouping, Layout, Request, ZoneView};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

use crate::machine::Plain;
use crate::watch::Watch;

const CPUS: u32 = 4;
/// The number of pages of the zone: 1 GiB, so that a batch has 63 pages.
pub(super) const PAGES: Pages = Pages(1 << 18);
/// The number of pages of a block that a CPU owns.
pub(super) const BLOCK: u32 = Order::HUGE.pages().0;
pub(super) const ONE: Request = Request::new(Order::ZERO);

/// A machine whose CPUs own blocks, with a manager of one zone.
pub(super) struct World {
    pub(super) machine: Plain,
    pub(super) watch: Arc<Watch>,
    pub(super) manager: Manager<Plain>,
}

impl World {
    pub(super) fn new(owning: Owning) -> Self {
        Self::with(owning, PAGES, Grouping::Off)
    }

    pub(super) fn with(owning: Owning, pages: Pages, grouping: Grouping) -> Self {
        let watch = Arc::<Watch>::default();
        let machine = Plain::new(Topology::flat(CPUS)).watched(&watch);
        let mut config = Config::new(Layout::arena(pages));
        config.grouping = grouping;
        config.design = Design {
            owning,
            ..Design::OURS
        };
        let manager = Manager::new(&machine, config).expect("a layout");
        Self {
            machine,
            watch,
            manager,
        }
    }

    /// Sets the sizes of the page lists; a batch has 63 pages.
    pub(super) fn sized(self, high_min: u32, high_max: u32) -> Self {
        self.set_sizes(high_min, high_max, self.view().watermarks);
        self
    }

    pub(super) fn set_sizes(&self, high_min: u32, high_max: u32, marks: Watermarks) {
        let sizes = Sizes {
            batch: Pages(63),
            high_min: Pages(high_min),
            high_max: Pages(high_max),
        };
        let pages = self.manager.pages();
        let seeded = pages.seed_sizes(&self.machine, 0, marks, sizes);
        seeded.expect("lists can have these sizes");
    }

    pub(super) fn view(&self) -> ZoneView {
        self.manager.pages().view(&self.machine).remove(0)
    }

    pub(super) fn listed(&self, cpu: u32) -> u32 {
        self.manager.pages().listed(&self.machine, CpuId(cpu)).0
    }

    pub(super) fn alloc(&self, cpu: u32, request: Request) -> Option<Pfn> {
        self.machine.on(cpu);
        self.manager.pages().alloc(&self.machine, request).ok()
    }

    /// Allocates `count` single pages on `cpu`.
    pub(super) fn take(&self, cpu: u32, count: u32) -> Vec<Pfn> {
        let one = |_| self.alloc(cpu, ONE).expect("most pages are free");
        (0..count).map(one).collect()
    }

    /// Frees single pages on `cpu`, many in one call.
    pub(super) fn free(&self, cpu: u32, pfns: &[Pfn]) {
        self.machine.on(cpu);
        let freed = self.manager.pages().free_pages(&self.machine, pfns);
        freed.expect("they are allocated");
    }

    pub(super) fn drain(&self, cpu: u32) {
        self.manager.pages().drain_cpu(&self.machine, CpuId(cpu));
    }

    /// Sets a watermark above the number of free pages, so that the zone gives no pages to any CPU.
    pub(super) fn close(&self) {
        let pages = self.manager.pages();
        let all = u64::from(PAGES.0) * 4;
        let closed = pages.set_tunable(&self.machine, Knob::MinFree, all);
        closed.expect("in bounds");
    }

    /// Asserts that all pages return to the zone and merge.
    pub(super) fn is_whole(&self) {
        self.manager.pages().drain_all_sync(&self.machine);
        let zone = self.view();
        assert_eq!((zone.free, zone.listed), (zone.managed, Pages(0)));
        assert_eq!(zone.counted_free, u64::from(zone.managed.0));
        assert_eq!(zone.blocks[Order::MAX.index()], zone.managed.0 / 1024);
    }
}

/// Returns the block around a page.
pub(super) fn block_of(pfn: Pfn) -> u32 {
    pfn.0 / BLOCK
}

#[test]
fn pages_freed_elsewhere_serve_their_owner_without_the_zone() {
    let world = World::new(Owning::Inbox);
    let held = world.take(0, 300);
    let home = block_of(held[0]);
    assert!(held.iter().all(|&pfn| block_of(pfn) == home));
    let before = world.view().free;
    assert_eq!(before, PAGES - Pages(BLOCK));
    world.free(1, &held[..299]);
    assert_eq!((world.listed(0), world.listed(1)), (BLOCK - 1, 0));

    let again = world.take(0, BLOCK - 1);
    assert!(again.iter().all(|&pfn| block_of(pfn) == home));
    assert_eq!(world.view().free, before, "the zone gave no further block");
    world.free(2, &again);
    world.free(3, &held[299..]);
    world.is_whole();
}

#[test]
fn fragments_that_went_to_the_zone_are_recovered_before_a_block_is_claimed() {
    let world = World::new(Owning::Inbox);
    let held = world.take(0, 200);
    world.drain(0);
    assert_eq!(world.view().free, PAGES - Pages(200));
    let more = world.take(0, 10);
    assert!(more.iter().all(|&pfn| block_of(pfn) == block_of(held[0])));
    world.free(0, &held);
    world.free(0, &more);
    world.is_whole();
}

/// All pages of a block are in the zone again, and the block's owner still remembers that the zone
/// has fragments of the block. When the owner next takes pages from the zone, it claims one whole
/// block, and takes no fragments in addition.
#[test]
fn a_block_that_is_whole_again_in_the_zone_is_not_recovered_as_a_fragment() {
    let world = World::new(Owning::Inbox);
    let held = world.take(0, 200);
    world.drain(0);
    world.free(0, &held);
    world.drain(0);
    assert_eq!(world.view().free, PAGES);
    let held = world.take(0, 1);
    assert_eq!(world.view().free, PAGES - Pages(BLOCK));
    world.free(0, &held);
    world.is_whole();
}

/// Decay (the periodic work that returns a CPU's free pages to the zone) takes the pages of the
/// CPU's inbox into account, and returns whole blocks first.
#[test]
fn decay_returns_whole_blocks_and_keeps_fragments() {
    let world = World::new(Owning::Inbox);
    let held = world.take(0, 4 * BLOCK);
    let (part, rest) = held.split_at(100);
    world.free(1, rest);
    let decay = || {
        let pages = world.manager.pages();
        pages
            .decay_lists(&world.machine, 0, CpuId(0))
            .expect("a zone")
    };
    let listed = world.listed(0);
    let moved: u32 = (0..20).map(|_| decay().0).sum();
    let zone = world.view();
    assert_eq!(listed - world.listed(0), moved);
    assert!(
        world.listed(0) <= zone.sizes.high_min.0.max(BLOCK),
        "{}",
        world.listed(0)
    );
    // Only the block that has pages in use may have been split.
    let free = zone.free.0;
    assert_eq!(PAGES.0 - free, world.listed(0) + 100);
    world.free(0, part);
    world.is_whole();
}

/// If the zone gives nothing, a CPU takes a block from another CPU and becomes the owner of that
/// block. The block must have at least 63 free pages (a batch).
#[test]
fn a_block_is_robbed_from_a_cpu_that_has_a_batch_of_pages() {
    let world = World::new(Owning::Inbox);
    let few = world.take(1, BLOCK - 20);
    let many = world.take(2, BLOCK - 200);
    world.close();
    let got = world
        .alloc(0, ONE.urgent(Urgency::Normal))
        .expect("CPU 2 has pages");
    assert_eq!(
        block_of(got),
        block_of(many[0]),
        "CPU 1 has less than a batch"
    );
    let [thief, poor, victim] = [0, 1, 2].map(|cpu| world.listed(cpu));
    assert_eq!((thief + victim, poor), (199, 20));
    assert!(victim < 63, "only pages on the page lists stay");

    // CPU 0 is now the owner of the block: pages of the block that other CPUs free return to CPU 0.
    world.free(3, &many);
    world.free(2, &[got]);
    let listed = [0, 2, 3].map(|cpu| world.listed(cpu));
    assert_eq!(listed, [BLOCK - victim, victim, 0]);
    world.free(0, &few);
    world.is_whole();
}

#[test]
fn pages_in_an_inbox_can_be_robbed_too() {
    let world = World::new(Owning::Inbox);
    let held = world.take(1, BLOCK);
    world.free(3, &held[..BLOCK as usize - 1]);
    world.close();
    let got = world.alloc(0, ONE).expect("CPU 1 has pages in its inbox");
    assert_eq!(block_of(got), block_of(held[0]));
    assert_eq!([0, 1].map(|cpu| world.listed(cpu)), [BLOCK - 2, 0]);
    world.free(0, &[got, held[BLOCK as usize - 1]]);
    world.is_whole();
}

/// A CPU can take a block from the CPU that owns it even if all pages of the block are free. The
/// block then changes its owner, too.
#[test]
fn a_whole_block_can_be_robbed() {
    let world = World::new(Owning::Inbox);
    let held = world.take(1, BLOCK);
    world.free(3, &held);
    assert_eq!(world.listed(1), BLOCK, "they are in the inbox");
    world.close();
    let got = world.take(0, 2);
    assert!(got.iter().all(|&pfn| block_of(pfn) == block_of(held[0])));
    assert_eq!([0, 1].map(|cpu| world.listed(cpu)), [BLOCK - 2, 0]);
    world.free(3, &got);
    assert_eq!([0, 1, 3].map(|cpu| world.listed(cpu)), [BLOCK, 0, 0]);
    world.is_whole();
}

/// A CPU that needs pages robs only blocks that have a free piece of the requested order.
#[test]
fn a_block_is_robbed_only_if_it_can_serve_the_request() {
    let world = World::new(Owning::Inbox);
    let odd = world.take(1, BLOCK);
    let single = |pfn: &&Pfn| pfn.0 % 2 == 1;
    let freed: Vec<Pfn> = odd.iter().filter(single).copied().collect();
    let kept: Vec<Pfn> = odd.iter().filter(|pfn| !single(pfn)).copied().collect();
    world.free(3, &freed);
    let other = world.take(2, BLOCK - 200);
    world.close();
    let order = Order::new(2).expect("at most 10");
    let got = world
        .alloc(0, Request::new(order))
        .expect("CPU 2 has such a block");
    assert_eq!(block_of(got), block_of(other[0]));
    assert_eq!(world.listed(1), BLOCK / 2, "CPU 1 keeps its pages");
    let given = world.manager.pages().free(&world.machine, got, order);
    given.expect("it is allocated");
    world.free(0, &kept);
    world.free(0, &other);
    world.is_whole();
}

/// When a CPU goes offline, its blocks lose their owner, however many blocks there are. A page of
/// these blocks then goes to the CPU that frees the page.
#[test]
fn no_page_goes_to_a_cpu_that_is_offline() {
    for owning in [Owning::Rfc, Owning::Inbox] {
        let world = World::new(owning);
        let held = world.take(1, 130 * BLOCK);
        world.machine.on(0);
        world.manager.cpu_going(&world.machine, CpuId(1));
        world.manager.cpu_dead(&world.machine, CpuId(1));
        for pfns in held.chunks(BLOCK as usize) {
            world.free(0, pfns);
            assert_eq!(world.listed(1), 0);
        }
        world.is_whole();
    }
}

/// While the zone is short of pages, CPUs claim no whole blocks from it.
#[test]
fn a_cpu_claims_no_block_that_the_zone_cannot_spare() {
    let world = World::new(Owning::Inbox);
    let low = world.view().watermarks.low;
    let mut held = Vec::new();
    while world.view().free.0 > low.0 + 1200 {
        held.extend(world.alloc(3, Request::new(Order::MAX)));
    }
    let free = world.view().free.0;
    let mut pages = Vec::new();
    while world.view().free.0 > low.0 {
        let before = world.view().free.0;
        pages.extend(world.take(0, 1));
        let taken = before - world.view().free.0;
        assert!(before - taken >= low.0 || taken < BLOCK, "{before} {taken}");
    }
    assert!(free > world.view().free.0);
    world.free(0, &pages);
    for pfn in held {
        let freed = world.manager.pages().free(&world.machine, pfn, Order::MAX);
        freed.expect("it is allocated");
    }
    world.is_whole();
}

/// The inbox of a CPU has the pages of this CPU's blocks that other CPUs have freed. If this CPU
/// never empties its inbox, the other CPUs empty it, and return whole blocks to the zone.
#[test]
fn an_inbox_that_its_owner_does_not_open_stays_short() {
    let world = World::new(Owning::Inbox);
    let held = world.take(1, 40 * BLOCK);
    for pfns in held.chunks(64) {
        world.free(0, pfns);
    }
    let most = world.view().sizes.high_max.0 + 65 * 64 + BLOCK;
    assert!(world.listed(1) <= most, "{} pages, {most}", world.listed(1));
    assert_eq!(world.listed(0), 0);
    world.is_whole();
}

/// Whole blocks may leave the zone, and come back, while CPUs own blocks.
#[test]
fn memory_goes_and_comes_back_while_cpus_own_blocks() {
    let world = World::new(Owning::Inbox);
    let held = world.take(1, 3 * BLOCK);
    world.free(0, &held);
    world.drain(1);
    let (first, pages) = (Pfn(held[0].0 & !1023), Pages(1024));
    let manager = &world.manager;
    world.free(2, &world.take(1, 10));
    manager
        .memory_offline(&world.machine, first, pages)
        .expect("its pages are free");
    assert_eq!(world.view().managed, PAGES - pages);
    let held = world.take(1, 2 * BLOCK);
    manager
        .memory_online(&world.machine, first, pages)
        .expect("it is a hole");
    world.free(2, &held);
    let held = world.take(3, 4 * BLOCK);
    world.free(1, &held);
    world.is_whole();
}
