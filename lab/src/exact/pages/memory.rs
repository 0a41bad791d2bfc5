//! Zones laid out like the kernel's, and the memory in them that is in use since before the recording.

use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::{FreeBlocks, Layout, Mobility, PageAllocator, ZoneKind, ZoneLayout};
use plimsoll_mm::units::{NodeId, Order, Pages, Pfn};

use super::lists::MOVABLE;

/// Pages of the largest blocks.
const BLOCK: u64 = 1 << 10;

/// One zone to lay out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) kind: ZoneKind,
    pub(crate) node: NodeId,
    pub(crate) managed: u64,
}

/// The zones side by side, each as large as what the kernel manages of it.
pub(crate) fn layout(areas: &[Area]) -> Layout {
    let block = Order::MAX.pages().0;
    let mut start = 0;
    let layouts: Vec<ZoneLayout> = areas
        .iter()
        .map(|area| {
            let managed = u32::try_from(area.managed).unwrap_or(u32::MAX - block);
            let spanned = managed.next_multiple_of(block);
            let mut holes = Vec::new();
            if spanned > managed {
                holes.push(start + managed..start + spanned);
            }
            let layout = ZoneLayout {
                kind: area.kind,
                node: area.node,
                start: Pfn(start),
                spanned: Pages(spanned),
                holes,
            };
            start += spanned;
            layout
        })
        .collect();
    Layout::of(layouts).lazily()
}

/// Blocks of one zone that are in use since before the recording.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    by_order: [Vec<Pfn>; Order::COUNT],
}

impl Stock {
    /// Leaves `free` pages of the fresh zone `zone` free; the others are in use.
    pub(crate) fn beside<M: Machine>(
        pages: &PageAllocator<M>,
        machine: &M,
        zone: u32,
        free: u64,
    ) -> Self {
        let in_use = (0..free / BLOCK + 1).find_map(|less| {
            // Beside free blocks something must be in use: a zone that is nearly all free has a
            // little less.
            let free = free_blocks(free - less * BLOCK);
            pages.seed_free(machine, zone, &free).ok()
        });
        let mut stock = Self::default();
        for block in in_use.unwrap_or_default() {
            stock.put(block.order, block.pfn);
        }
        stock
    }

    /// Adds a block that is in use.
    pub(crate) fn put(&mut self, order: Order, pfn: Pfn) {
        self.by_order[order.index()].push(pfn);
    }

    /// Takes a block of `order`, or `None` if no memory is left that is in use.
    pub(crate) fn take<M: Machine>(
        &mut self,
        pages: &PageAllocator<M>,
        machine: &M,
        order: Order,
    ) -> Option<Pfn> {
        let wanted = order.index();
        let found = (wanted..Order::COUNT).find(|&at| !self.by_order[at].is_empty())?;
        let block = self.by_order[found].pop()?;
        for at in (wanted..found).rev() {
            let half = order_of(u8::try_from(at).ok()?);
            pages.split_to(machine, block, half.up()?, half).ok()?;
            self.by_order[at].push(Pfn(block.0 + half.pages().0));
        }
        Some(block)
    }
}

/// `free` pages in blocks as large as possible.
fn free_blocks(free: u64) -> FreeBlocks {
    let mut blocks: FreeBlocks = [[0; Order::COUNT]; Mobility::COUNT];
    let movable = &mut blocks[usize::from(MOVABLE)];
    for (order, count) in movable.iter_mut().enumerate() {
        let bit = free >> order & 1;
        *count = u32::try_from(bit).unwrap_or(0);
    }
    movable[Order::COUNT - 1] = u32::try_from(free >> 10).unwrap_or(u32::MAX);
    blocks
}

/// The order of that number; the largest for larger ones.
pub(crate) fn order_of(order: u8) -> Order {
    Order::new(order).unwrap_or(Order::MAX)
}

/// The migrate type of Linux' number; movable for reserved blocks.
pub(crate) fn mobility_of(mobility: u8) -> Mobility {
    Mobility::new(mobility).unwrap_or(Mobility::Movable)
}

/// The kind of a zone that Linux calls `name`.
pub(crate) fn kind_of(name: &str) -> ZoneKind {
    let known = ZoneKind::ALL.into_iter().find(|kind| kind.name() == name);
    known.unwrap_or(ZoneKind::Normal)
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::page::Config;
    use plimsoll_mm::topology::Topology;

    use super::super::machine::Stepwise;
    use super::*;

    /// Pages that are free beside the stock in a fresh zone of `managed` pages, of which `free` are wanted, and
    /// pages of the stock.
    fn beside(managed: u64, free: u64) -> (u32, u32) {
        let machine = Stepwise::new(Topology::flat(1));
        let area = Area {
            kind: ZoneKind::Normal,
            node: NodeId(0),
            managed,
        };
        let config = Config::new(layout(&[area]));
        let pages = PageAllocator::new(&machine, config).expect("a sound zone");
        let mut stock = Stock::beside(&pages, &machine, 0, free);
        let left = pages.view(&machine)[0].free.0;
        let taken = std::iter::from_fn(|| stock.take(&pages, &machine, Order::ZERO));
        (left, u32::try_from(taken.count()).expect("a small zone"))
    }

    #[test]
    fn what_is_not_free_is_in_use() {
        assert_eq!(beside(1 << 14, 5000), (5000, (1 << 14) - 5000));
    }

    #[test]
    fn a_zone_that_is_nearly_all_free_has_a_little_less() {
        // Its last block of the largest order has a hole, so that the free pages do not fit in.
        assert_eq!(beside(3000, 2997), (2997 - 1024, 3 + 1024));
        assert_eq!(beside(3000, 3000), (3000 - 1024, 1024));
    }
}
