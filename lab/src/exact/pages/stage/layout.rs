//! The zones of the recorded computer, side by side and filled as far as they were.

use plimsoll_mm::page::{FreeBlocks, Layout, Mobility, ZoneKind, ZoneLayout};
use plimsoll_mm::units::{NodeId, Order, Pages, Pfn};

use super::super::lists::MOVABLE;
use super::super::zoneinfo::ZoneInfo;

pub(super) fn kind(name: &str) -> ZoneKind {
    let known = ZoneKind::ALL.into_iter().find(|kind| kind.name() == name);
    known.unwrap_or(ZoneKind::Normal)
}

/// Pages of the largest blocks.
pub(super) const BLOCK: u64 = 1 << 10;

/// The zones side by side, each as large as what the kernel manages of it.
pub(super) fn layout(zones: &[ZoneInfo]) -> Layout {
    let block = Order::MAX.pages().0;
    let mut start = 0;
    let layouts: Vec<ZoneLayout> = zones
        .iter()
        .map(|zone| {
            let managed = u32::try_from(zone.managed).unwrap_or(u32::MAX - block);
            let spanned = managed.next_multiple_of(block);
            let mut holes = Vec::new();
            if spanned > managed {
                holes.push(start + managed..start + spanned);
            }
            let layout = ZoneLayout {
                kind: kind(&zone.name),
                node: NodeId(0),
                start: Pfn(start),
                spanned: Pages(spanned),
                holes,
            };
            start += spanned;
            layout
        })
        .collect();
    Layout::of(layouts)
}

/// `free` pages in blocks as large as possible.
pub(super) fn free_blocks(free: u64) -> FreeBlocks {
    let mut blocks: FreeBlocks = [[0; Order::COUNT]; Mobility::COUNT];
    let movable = &mut blocks[usize::from(MOVABLE)];
    for (order, count) in movable.iter_mut().enumerate() {
        let bit = free >> order & 1;
        *count = u32::try_from(bit).unwrap_or(0);
    }
    movable[Order::COUNT - 1] = u32::try_from(free >> 10).unwrap_or(u32::MAX);
    blocks
}
