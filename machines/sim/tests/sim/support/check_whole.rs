//! Promise: no page is lost, counts are exact when no operation is in progress, and free pages are
//! merged into the largest possible blocks.
//!
//! The model of merging is simple. A free block exists if all its pages are free, and the pages of
//! the next larger block around it are not all free.

use plimsoll_mm::page::{Layout, PageAllocator, ZoneLayout, ZoneView};
use plimsoll_mm::units::{Order, Pages};
use plimsoll_sim::Sim;

use super::check_owners::{self, Owners};

/// Drains all page lists and checks every zone. No operation may be in progress.
pub(crate) fn check(sim: &Sim, pages: &PageAllocator<Sim>, layout: &Layout, owners: &Owners) {
    for (zone, view) in layout.zones.iter().zip(pages.view(sim)) {
        let owned = owners.owned(zone);
        let sum = view.free.0 + view.listed.0 + owned;
        assert_eq!(
            sum, view.managed.0,
            "free, listed and {owned} owned pages are all: {view:?}"
        );
        assert_eq!(
            view.counted_free,
            u64::from(view.free.0),
            "the counter is exact: {view:?}"
        );
        is_sane(&view);
    }
    pages.drain_all_sync(sim);
    for (zone, view) in layout.zones.iter().zip(pages.view(sim)) {
        assert_eq!(
            view.listed,
            Pages::ZERO,
            "a drain leaves nothing on the lists"
        );
        assert_eq!(view.free.0 + owners.owned(zone), view.managed.0);
        assert_eq!(
            view.counted_free,
            u64::from(view.free.0),
            "the counter is exact: {view:?}"
        );
        assert_eq!(
            view.blocks,
            merged(zone, owners),
            "free blocks are as large as they can be"
        );
    }
}

/// Checks that the watermarks are in ascending order, and so are the bounds of `high` (the length
/// up to which lists keep pages). Checks that `high_min` is at least four batches.
fn is_sane(view: &ZoneView) {
    let ZoneView {
        sizes,
        watermarks: marks,
        ..
    } = view;
    assert!(sizes.batch >= Pages(1), "{view:?}");
    assert!(sizes.high_min >= Pages(4 * sizes.batch.0), "{view:?}");
    assert!(sizes.high_max >= sizes.high_min, "{view:?}");
    assert!(
        marks.min <= marks.low && marks.low <= marks.high,
        "{view:?}"
    );
}

/// Returns the number of free blocks of each order in `zone` if all pages without an owner are
/// merged.
pub(crate) fn merged(zone: &ZoneLayout, owners: &Owners) -> [u32; Order::COUNT] {
    let is_free = |page: u32| check_owners::holds(zone, page) && !owners.has(page);
    let mut blocks = [0; Order::COUNT];
    let mut page = zone.start.0;
    while page < zone.span().end {
        let fits = |order: &Order| {
            let block = page..page + order.pages().0;
            (page - zone.start.0).is_multiple_of(order.pages().0) && block.into_iter().all(is_free)
        };
        match Order::all().rev().find(fits) {
            Some(order) => {
                blocks[order.index()] += 1;
                page += order.pages().0;
            }
            None => page += 1,
        }
    }
    blocks
}
