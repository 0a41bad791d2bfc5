//! Tests the results of a walk over the entries of page tables, and of a look-up of a single page.
//! Also tests that an address space keeps no file or shared object after its end.

use crate::support;

use std::ops::Range;
use std::sync::Arc;

use plimsoll_mm::design::Design;
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::space::rss::RssKind;
use plimsoll_mm::space::{Access, END, MappingKind, Walked};
use plimsoll_mm::units::{CpuId, Order, Pfn, Vpn};
use support::world::{Sizes, What, World};

/// An entry of a page table without its frame: the first page, the order, the counter that counts
/// the page, and the kind of the page's mapping.
type Entry = (u64, Order, Option<RssKind>, Option<MappingKind>);

const ANON: Option<RssKind> = Some(RssKind::Anon);
const ONE: Order = Order::ZERO;
const HUGE: Order = Order::HUGE;

/// The first frame of the mapping whose backing is given frames.
const FRAMES: u32 = 9000;

/// Creates a world with a mapping of each kind. In each mapping of single pages some pages are
/// touched and some are not. Each mapping of huge pages consists of one huge page, which is
/// touched.
fn world() -> World {
    let world = World::new(Design::OURS, Sizes::AMPLE);
    let _entered = world.host.enter(CpuId(0));
    world.map_at(100, 10, What::Anonymous { huge: false });
    world.map_at(110, 10, What::File { offset: 3 });
    world.map_at(500, 20, What::Shared { offset: 0 });
    world.map_at(600, 5, What::Frames { first: FRAMES });
    world.map_at(1024, 512, What::Anonymous { huge: true });
    world.map_at(1536, 512, What::Reserved);
    let (space, memory) = (&world.space, world.memory());
    for (page, access) in [
        (100, Access::Write),
        (101, Access::Write),
        (109, Access::Write),
        (110, Access::Read),
        (119, Access::Write),
        (500, Access::Read),
        (511, Access::Read),
        (512, Access::Write),
        (519, Access::Read),
        (602, Access::Read),
        (1024 + 17, Access::Write),
        (1536 + 511, Access::Read),
    ] {
        let touched = space.fault(memory, Vpn(page), access);
        touched.expect("it is mapped, and there is memory");
    }
    assert_eq!(space.swap_out(memory, Vpn(101)..Vpn(102)), 1);
    world
}

/// The page-table entries of the address space that [`world`] creates, in ascending order.
const ENTRIES: [Entry; 12] = [
    (100, ONE, ANON, Some(MappingKind::Anonymous)),
    (101, ONE, Some(RssKind::Swap), Some(MappingKind::Anonymous)),
    (109, ONE, ANON, Some(MappingKind::Anonymous)),
    (
        110,
        ONE,
        Some(RssKind::File),
        Some(MappingKind::PrivateFile),
    ),
    (119, ONE, ANON, Some(MappingKind::PrivateFile)),
    (500, ONE, Some(RssKind::Shmem), Some(MappingKind::Shared)),
    (511, ONE, Some(RssKind::Shmem), Some(MappingKind::Shared)),
    (512, ONE, Some(RssKind::Shmem), Some(MappingKind::Shared)),
    (519, ONE, Some(RssKind::Shmem), Some(MappingKind::Shared)),
    (602, ONE, None, Some(MappingKind::Frames)),
    (1024, HUGE, ANON, Some(MappingKind::Anonymous)),
    (1536, HUGE, None, Some(MappingKind::Reserved)),
];

fn walk(world: &World, pages: Range<u64>) -> Vec<Walked> {
    let mut walked = Vec::new();
    let pages = Vpn(pages.start)..Vpn(pages.end);
    let collect = |entry| walked.push(entry);
    world.space.walk(&world.host, pages, collect);
    walked
}

fn without_frames(walked: &[Walked]) -> Vec<Entry> {
    let plain = |entry: &Walked| (entry.page.0, entry.order, entry.counted, entry.mapping);
    walked.iter().map(plain).collect()
}

#[test]
fn a_walk_sees_every_entry_with_the_mapping_around_it() {
    let world = world();
    let _entered = world.host.enter(CpuId(0));
    assert_eq!(without_frames(&walk(&world, 0..END.0)), ENTRIES);
    for (pages, seen) in [
        (100..101, 0..1),
        (101..110, 1..3),
        (102..500, 2..5),
        (511..513, 6..8),
        (520..602, 9..9),
        (602..1024, 9..10),
        // The walk returns a huge page as a whole, even if only one of its pages is in the range.
        (1100..1101, 10..11),
        (1535..1537, 10..12),
        (2048..4096, 12..12),
        (110..110, 0..0),
    ] {
        let walked = walk(&world, pages.clone());
        assert_eq!(without_frames(&walked), ENTRIES[seen], "{pages:?}");
    }
    world.end();
}

#[test]
fn a_page_has_the_frame_that_a_walk_sees() {
    let world = world();
    let _entered = world.host.enter(CpuId(0));
    let frame_of = |page| world.space.frame_of(&world.host, Vpn(page));
    let mut frames = Vec::new();
    for entry in walk(&world, 0..END.0) {
        let Some(first) = entry.frame else {
            assert_eq!(
                (entry.page, frame_of(101)),
                (Vpn(101), None),
                "it is in swap"
            );
            continue;
        };
        for nth in 0..entry.order.pages().0 {
            let page = entry.page.0 + u64::from(nth);
            assert_eq!(frame_of(page), Some(Pfn(first.0 + nth)), "page {page}");
            frames.push(first.0 + nth);
        }
    }
    assert_eq!(frame_of(602), Some(Pfn(FRAMES + 2)));
    let total = frames.len();
    frames.sort_unstable();
    frames.dedup();
    assert_eq!(frames.len(), total, "no two pages have the same frame");
    for page in [0, 99, 102, 499, 513, 601, 1023, 2048, END.0, u64::MAX] {
        assert_eq!(frame_of(page), None, "page {page}");
    }
    world.end();
}

#[test]
fn an_address_space_that_has_ended_keeps_no_object() {
    for reaping in Reaping::ALL {
        let design = Design {
            reaping,
            ..Design::OURS
        };
        let world = World::new(design, Sizes::AMPLE);
        let _entered = world.host.enter(CpuId(0));
        world.map_at(100, 10, What::File { offset: 0 });
        world.map_at(200, 10, What::Shared { offset: 0 });
        world.map_at(300, 10, What::Shared { offset: 7 });
        let kept = |world: &World| [&world.file, &world.shared].map(Arc::strong_count);
        assert_eq!(kept(&world), [2, 3]);
        let exited = world.space.exit(world.memory());
        exited.expect("no thread ended it before");
        assert_eq!(kept(&world), [1, 1], "{reaping:?}");
        world.assert_ended();
        assert_eq!(world.space.destroy(&world.host), Ok(()));
    }
}
