//! A snapshot of a zone for reports (Linux: `/proc/zoneinfo`, `/proc/buddyinfo`).

use super::layout::ZoneKind;
use super::mobility::Mobility;
use super::sizing::Sizes;
use super::watermark::Watermarks;
use super::zone::Zone;
use crate::machine::{Lock, Machine};
use crate::site::Site;
use crate::units::{NodeId, Order, Pages};
use crate::vmstat::counters::ZoneItem;

/// A snapshot of a zone for reports. It is exact if no operation is in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneView {
    /// The kind of the zone.
    pub kind: ZoneKind,
    /// The node that this zone belongs to.
    pub node: NodeId,
    /// The number of pages of memory in the zone, without holes.
    pub managed: Pages,
    /// The number of free pages, which are on the free lists or in bitmaps.
    pub free: Pages,
    /// The number of free blocks of each order.
    pub blocks: [u32; Order::COUNT],
    /// The number of free blocks by the type of the page block around them, then by order. If pages
    /// are not grouped by mobility, all blocks count as unmovable.
    pub blocks_by_mobility: [[u32; Order::COUNT]; Mobility::COUNT],
    /// The number of pages on all CPUs' lists.
    pub listed: Pages,
    /// The value of the free-page counter, differentials included.
    pub counted_free: u64,
    /// The zone's min, low and high watermarks, in pages.
    pub watermarks: Watermarks,
    /// The batch of each CPU's lists and the bounds of their `high`, in pages.
    pub sizes: Sizes,
}

impl<M: Machine> Zone<M> {
    /// A snapshot of the zone's current state.
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
        let cpus = machine.topology().ids();
        let listed = cpus.map(|cpu| self.listed(machine, cpu)).sum();
        ZoneView {
            kind: self.kind,
            node: self.node,
            managed: self.managed(),
            free,
            blocks,
            blocks_by_mobility,
            listed: Pages(listed),
            counted_free: self
                .counters
                .snapshot(machine, ZoneItem::FreePages as usize),
            watermarks: self.watermarks(machine),
            sizes: self.sizes(machine),
        }
    }
}
