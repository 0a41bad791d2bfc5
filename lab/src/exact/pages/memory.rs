//! Zones that are laid out as in the kernel, and blocks in these zones that have been in use since
//! before the recording.

use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::{FreeBlocks, Layout, Mobility, PageAllocator, ZoneKind, ZoneLayout};
use plimsoll_mm::units::{NodeId, Order, Pages, Pfn};

use super::lists::MOVABLE;

/// The number of pages in a block of the largest order, which is 10.
const BLOCK: u64 = 1 << 10;

/// A zone to lay out, with the number of pages that the kernel manages in this zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) kind: ZoneKind,
    pub(crate) node: NodeId,
    pub(crate) managed: u64,
}

/// Lays out the zones one after another. Each zone has the number of pages that the kernel manages
/// in it. A hole fills the rest of the zone's last block of the largest order.
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

/// The blocks of a zone that the replay assumes to be in use when the recording begins, so that
/// recorded frees can return them.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    by_order: [Vec<Pfn>; Order::COUNT],
}

impl Stock {
    /// Takes pages of the fresh zone `zone` into use until `free` pages are free. If `free` is
    /// nearly the whole zone, fewer than `free` pages stay free. Returns the pages that are in use,
    /// as blocks.
    pub(crate) fn beside<M: Machine>(
        pages: &PageAllocator<M>,
        machine: &M,
        zone: u32,
        free: u64,
    ) -> Self {
        let in_use = (0..free / BLOCK + 1).find_map(|less| {
            // Two free neighbours would merge, so each free block needs a neighbour that is in
            // use. If too few pages are in use for this, leave more blocks of the largest order in
            // use than `free` asks for.
            let free = free_blocks(free - less * BLOCK);
            pages.seed_free(machine, zone, &free).ok()
        });
        let mut stock = Self::default();
        for block in in_use.unwrap_or_default() {
            stock.put(block.order, block.pfn);
        }
        stock
    }

    /// Adds a block to this set of blocks in use, so that a recorded free can return it later.
    pub(crate) fn put(&mut self, order: Order, pfn: Pfn) {
        self.by_order[order.index()].push(pfn);
    }

    /// Takes a block of `order` from this set of blocks in use, split off a larger block if
    /// necessary. Returns `None` if no block of the set is large enough.
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

/// Divides `free` pages into movable blocks that are as large as possible.
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

/// Returns the [`Order`] `order`, or the largest order if `order` is too large.
pub(crate) fn order_of(order: u8) -> Order {
    Order::new(order).unwrap_or(Order::MAX)
}

/// The mobility for the value `mobility` of Linux's `enum migratetype`. Returns `Movable` for a
/// type that Plimsoll does not have (CMA, ISOLATE).
pub(crate) fn mobility_of(mobility: u8) -> Mobility {
    Mobility::new(mobility).unwrap_or(Mobility::Movable)
}

/// The kind of the zone that Linux calls `name`. Returns [`ZoneKind::Normal`] for an unknown name.
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

    /// Makes a zone of `managed` pages of which `free` should be free, and counts all other pages
    /// as in use. Returns how many pages are really free, and how many count as in use.
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
        // The 3,000 pages end inside a block of the largest order, and a hole fills the rest of
        // this block. The hole leaves too little room for the free pages that the test asks for, so
        // 1,024 pages fewer are free.
        assert_eq!(beside(3000, 2997), (2997 - 1024, 3 + 1024));
        assert_eq!(beside(3000, 3000), (3000 - 1024, 1024));
    }
}
