//! What a zone shows of itself (Linux: `/proc/zoneinfo`, `/proc/buddyinfo`).

use super::layout::ZoneKind;
use super::mobility::Mobility;
use super::sizing::Sizes;
use super::watermark::Watermarks;
use super::zone::Zone;
use crate::machine::{LocalWord, Lock, Machine};
use crate::site::Site;
use crate::units::{NodeId, Order, Pages, count_in};
use crate::vmstat::counters::ZoneItem;

/// A snapshot of a zone for reports. Exact when no operation is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneView {
    /// The kind of the zone.
    pub kind: ZoneKind,
    /// The node whose memory the zone is.
    pub node: NodeId,
    /// The number of pages that are memory, holes not included.
    pub managed: Pages,
    /// The number of pages on the free lists.
    pub free: Pages,
    /// The number of free blocks of each order.
    pub blocks: [u32; Order::COUNT],
    /// The number of free blocks by the type of the page block they are in, then by order. All
    /// count as unmovable if pages are not grouped by mobility.
    pub blocks_by_mobility: [[u32; Order::COUNT]; Mobility::COUNT],
    /// The number of pages on all CPUs' lists.
    pub listed: Pages,
    /// The value of the counter of free pages, differentials included.
    pub counted_free: u64,
    /// The watermarks.
    pub watermarks: Watermarks,
    /// The sizes of each CPU's lists.
    pub sizes: Sizes,
}

impl<M: Machine> Zone<M> {
    /// The present state of the zone.
    pub(super) fn view(&self, machine: &M) -> ZoneView {
        let (free, blocks, blocks_by_mobility) = self.buddy.with(machine, Site::Control, |buddy| {
            let mut blocks = [0; Order::COUNT];
            Order::all().for_each(|order| blocks[order.index()] = buddy.blocks(order));
            let of = |mobility| {
                let mut blocks = [0; Order::COUNT];
                Order::all()
                    .for_each(|order| blocks[order.index()] = buddy.blocks_of(order, mobility));
                blocks
            };
            (buddy.free(), blocks, Mobility::ALL.map(of))
        });
        let listed: i64 = self.slots.iter().map(|slot| slot.count.read(machine)).sum();
        ZoneView {
            kind: self.kind,
            node: self.node,
            managed: self.managed,
            free,
            blocks,
            blocks_by_mobility,
            listed: Pages(count_in(listed)),
            counted_free: self
                .counters
                .snapshot(machine, ZoneItem::FreePages as usize),
            watermarks: self.watermarks(machine),
            sizes: self.sizes(machine),
        }
    }
}
