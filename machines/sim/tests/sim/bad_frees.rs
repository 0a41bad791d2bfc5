//! The page allocator refuses an invalid free, returns the reason, and changes nothing.

use crate::support;

use plimsoll_mm::design::Design;
use plimsoll_mm::page::{Config, FreeError, Layout, PageAllocator, ZoneKind, ZoneLayout, ZoneView};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{NodeId, Order, Pages, Pfn};
use plimsoll_mm::vmstat::counters::ZoneItem;
use plimsoll_sim::Sim;
use support::Small;
use support::small::{any, order, profile};

/// Returns what a test can observe of the allocator: a view of each zone, and the counts of free
/// and of anonymous pages.
fn state(sim: &Sim, pages: &PageAllocator<Sim>) -> (Vec<ZoneView>, u64, u64) {
    let counted = |item| pages.counted(sim, item);
    (
        pages.view(sim),
        counted(ZoneItem::FreePages),
        counted(ZoneItem::Anon),
    )
}

/// Tries to free a block that must not be freed: with `free` and, if the block is a single page,
/// also with `free_pages`. Checks that each call returns `why` and changes nothing.
fn refused(sim: &Sim, pages: &PageAllocator<Sim>, pfn: Pfn, order: Order, why: FreeError) {
    let before = state(sim, pages);
    assert_eq!(pages.free(sim, pfn, order), Err(why));
    assert_eq!(state(sim, pages), before, "nothing changed");
    if order == Order::ZERO {
        assert_eq!(pages.free_pages(sim, &[pfn]), Err(why));
        assert_eq!(state(sim, pages), before, "nothing changed");
    }
}

fn flat() -> Small {
    Small::flat(2, 4096, Design::OURS)
}

#[test]
fn a_block_of_any_order_is_freed_once() {
    flat().on(0, |sim, mm| {
        let pages = mm.pages();
        for of in Order::all() {
            let pfn = pages.alloc(sim, any(of)).expect("there is a block");
            pages.free(sim, pfn, of).expect("it was handed out");
            // Before the drain, the freed block is on a page list, if there is a list for its
            // order. Otherwise it is already merged with its buddies.
            refused(sim, pages, pfn, of, FreeError::NotAllocated(pfn));
            pages.drain_all_sync(sim);
            refused(sim, pages, pfn, of, FreeError::NotAllocated(pfn));
        }
    });
}

#[test]
fn a_page_inside_a_block_is_not_freed_with_any_order() {
    flat().on(0, |sim, mm| {
        let pages = mm.pages();
        for of in Order::all().skip(1) {
            let pfn = pages.alloc(sim, any(of)).expect("there is a block");
            for offset in [1, of.pages().0 / 2, of.pages().0 - 1] {
                let inside = pfn.plus(Pages(offset));
                for with in [Order::ZERO, order(1), of] {
                    refused(sim, pages, inside, with, FreeError::NotAllocated(inside));
                }
            }
            pages.free(sim, pfn, of).expect("it was handed out");
        }
    });
}

#[test]
fn a_block_is_freed_with_the_order_it_was_handed_out_with() {
    flat().on(0, |sim, mm| {
        let pages = mm.pages();
        for allocated in Order::all() {
            let pfn = pages.alloc(sim, any(allocated)).expect("there is a block");
            for freed in Order::all().filter(|&freed| freed != allocated) {
                let why = FreeError::WrongOrder {
                    pfn,
                    allocated,
                    freed,
                };
                refused(sim, pages, pfn, freed, why);
            }
            pages.free(sim, pfn, allocated).expect("it was handed out");
        }
    });
}

/// Creates a machine with one zone of 1500 pages that starts at frame 2048 and has two holes.
fn holed() -> Small {
    let zone = ZoneLayout {
        kind: ZoneKind::Normal,
        node: NodeId(0),
        start: Pfn(2048),
        spanned: Pages(1500),
        holes: vec![2100..2200, 3000..3001],
    };
    Small::new(
        &profile(Topology::flat(1), 1000),
        Config::new(Layout::of([zone])),
    )
}

#[test]
fn frames_outside_all_zones_and_in_holes_are_not_freed() {
    holed().on(0, |sim, mm| {
        let pages = mm.pages();
        for frame in [0, 2047, 2048 + 1500, 4096, u32::MAX].map(Pfn) {
            refused(
                sim,
                pages,
                frame,
                Order::ZERO,
                FreeError::OutsideZones(frame),
            );
            refused(
                sim,
                pages,
                frame,
                Order::MAX,
                FreeError::OutsideZones(frame),
            );
        }
        for frame in [2100, 2150, 2199, 3000].map(Pfn) {
            refused(
                sim,
                pages,
                frame,
                Order::ZERO,
                FreeError::NotAllocated(frame),
            );
            refused(sim, pages, frame, order(3), FreeError::NotAllocated(frame));
        }
    });
}

#[test]
fn memory_that_was_never_touched_is_not_freed() {
    holed().on(0, |sim, mm| {
        for (frame, of) in [(2048, 10), (2048, 0), (2052, 2), (3547, 0)] {
            let why = FreeError::NotAllocated(Pfn(frame));
            refused(sim, mm.pages(), Pfn(frame), order(of), why);
        }
    });
}

/// `free_pages` is the documented exception to the rule that a refused call changes nothing: it
/// frees the pages before the invalid page, but neither the invalid page nor the pages after it.
#[test]
fn a_row_with_a_bad_page_is_taken_back_up_to_it() {
    for bad_at in [0, 1, 31, 40, 80] {
        for which in 0..4 {
            flat().on(0, move |sim, mm| {
                row_with_a_bad_page(sim, mm.pages(), bad_at, which);
            });
        }
    }
}

fn row_with_a_bad_page(sim: &Sim, pages: &PageAllocator<Sim>, bad_at: usize, which: usize) {
    let take = |_| {
        pages
            .alloc(sim, any(Order::ZERO))
            .expect("there is a block")
    };
    let held: Vec<Pfn> = (0..80).map(take).collect();
    let (gone, pair) = (
        take(80),
        pages.alloc(sim, any(order(1))).expect("there is a block"),
    );
    pages
        .free(sim, gone, Order::ZERO)
        .expect("it was handed out");
    let (outside, inside) = (Pfn(9999), pair.plus(Pages(1)));
    let (allocated, freed) = (order(1), Order::ZERO);
    let (bad, why) = [
        (outside, FreeError::OutsideZones(outside)),
        (gone, FreeError::NotAllocated(gone)),
        (inside, FreeError::NotAllocated(inside)),
        (
            pair,
            FreeError::WrongOrder {
                pfn: pair,
                allocated,
                freed,
            },
        ),
    ][which];
    let mut row = held.clone();
    row.insert(bad_at, bad);
    let free_or_listed = || {
        let view = &pages.view(sim)[0];
        view.free + view.listed
    };
    let before = free_or_listed();
    assert_eq!(pages.free_pages(sim, &row), Err(why));
    let back = u32::try_from(bad_at).expect("small");
    assert_eq!(free_or_listed() - before, Pages(back));
    for &pfn in &held[bad_at..] {
        pages.free(sim, pfn, Order::ZERO).expect("still handed out");
    }
    pages.free(sim, pair, allocated).expect("it was handed out");
    pages.drain_all_sync(sim);
    let view = &pages.view(sim)[0];
    assert_eq!(
        (view.free.0, view.counted_free, view.blocks[10]),
        (4096, 4096, 4)
    );
}

#[test]
fn a_page_that_is_twice_in_a_row_is_taken_back_once() {
    flat().on(0, |sim, mm| {
        let pages = mm.pages();
        let pfn = pages
            .alloc(sim, any(Order::ZERO))
            .expect("there is a block");
        let twice = pages.free_pages(sim, &[pfn, pfn]);
        assert_eq!(twice, Err(FreeError::NotAllocated(pfn)));
        pages.drain_all_sync(sim);
        let view = &pages.view(sim)[0];
        assert_eq!((view.free.0, view.counted_free), (4096, 4096));
    });
}

#[test]
fn a_refusal_is_told_in_words() {
    let pfn = Pfn(0x2a);
    let (allocated, freed) = (order(1), order(3));
    let told = [
        FreeError::OutsideZones(pfn),
        FreeError::NotAllocated(pfn),
        FreeError::WrongOrder {
            pfn,
            allocated,
            freed,
        },
    ]
    .map(|error| error.to_string());
    assert_eq!(told[0], "page 0x2a is in no zone");
    assert_eq!(told[1], "page 0x2a is not the first of an allocated block");
    assert_eq!(
        told[2],
        "page 0x2a was allocated with order 1 but freed or split with order 3"
    );
}
