//! Planning where to place free blocks of given orders and types in an empty zone.
//!
//! Two free blocks must not be buddies of each other, because the allocator would have merged them.
//! So at most one of two buddies is free, and the other buddy is at least partly in use. The pages
//! of that other buddy that are not in use may form smaller free blocks; the plan packs these as
//! densely as possible.
//!
//! Locks: none; the caller owns all pages of the zone.

use alloc::vec::Vec;
use core::array;

use super::mobility::Mobility;
use crate::units::Order;

/// The number of free blocks, indexed by the type of the page block around them, then by order.
pub type FreeBlocks = [[u32; Order::COUNT]; Mobility::COUNT];

/// A block of a [`Plan`], either free or in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) page: u32,
    pub(super) order: Order,
    pub(super) mobility: Mobility,
}

/// A zone cut into free and used blocks.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) free: Vec<Piece>,
    pub(super) in_use: Vec<Piece>,
}

/// Memory that is not planned yet, neither as free nor as in use.
struct Uncut {
    /// The order of a page block; all pages of a page block have one type.
    block: Order,
    /// The blocks of the largest order that the plan has not used yet. Each is given by its first
    /// page. The last one on the list is cut up next.
    whole: Vec<u32>,
    /// The page blocks that remain when another page block was cut out of the same block of the
    /// largest order. They have no type yet. Each is given by its first page. At least a part of
    /// each must stay in use.
    halves: Vec<u32>,
    /// The blocks that remain of page blocks from which free blocks were cut out. They are indexed
    /// by the type of their page block, then by their own order, and each is given by its first
    /// page. At least a part of each must stay in use.
    open: [[Vec<u32>; Order::COUNT]; Mobility::COUNT],
}

/// Plans which blocks of a zone are free and which are in use, so that the zone has the free blocks
/// that `wanted` counts. `whole` holds the first pages of the zone's blocks of the largest order;
/// the free blocks are cut out of those that come first. `block` is the order of a page block.
/// Returns `None` if the free blocks do not fit.
pub(super) fn plan(whole: &[u32], block: Order, wanted: &FreeBlocks) -> Option<Plan> {
    let mut uncut = Uncut {
        block,
        whole: whole.iter().rev().copied().collect(),
        halves: Vec::new(),
        open: array::from_fn(|_| array::from_fn(|_| Vec::new())),
    };
    let mut plan = Plan::default();
    for order in Order::all().rev() {
        for mobility in Mobility::ALL {
            for _ in 0..wanted[mobility.index()][order.index()] {
                let page = uncut.cut(order, mobility)?;
                plan.free.push(Piece {
                    page,
                    order,
                    mobility,
                });
            }
        }
    }
    uncut.keep(&mut plan.in_use);
    Some(plan)
}

impl Uncut {
    /// Cuts out a block that will be free, and returns its first page.
    fn cut(&mut self, order: Order, mobility: Mobility) -> Option<u32> {
        if order == Order::MAX {
            return self.whole.pop();
        }
        if order == self.block {
            let page = self.whole.pop()?;
            self.halves.push(page + order.pages().0);
            return Some(page);
        }
        let open = &mut self.open[mobility.index()];
        let larger = (order.index() + 1..Order::COUNT).find(|&at| !open[at].is_empty());
        let (page, mut at) = match larger.and_then(|at| Some((open[at].pop()?, at))) {
            Some(found) => found,
            None => (self.open_block()?, self.block.index()),
        };
        let open = &mut self.open[mobility.index()];
        while at > order.index() {
            at -= 1;
            open[at].push(page + (1 << at));
        }
        Some(page)
    }

    /// Takes a page block that will be cut into smaller free blocks, and returns its first page.
    /// The caller must leave a part of this page block in use.
    fn open_block(&mut self) -> Option<u32> {
        if let Some(half) = self.halves.pop() {
            return Some(half);
        }
        let page = self.whole.pop()?;
        if self.block < Order::MAX {
            self.halves.push(page + self.block.pages().0);
        }
        Some(page)
    }

    /// Plans all remaining blocks as in use.
    fn keep(self, in_use: &mut Vec<Piece>) {
        let piece = |page, order, mobility| Piece {
            page,
            order,
            mobility,
        };
        let movable = Mobility::Movable;
        in_use.extend(self.whole.iter().map(|&at| piece(at, Order::MAX, movable)));
        in_use.extend(self.halves.iter().map(|&at| piece(at, self.block, movable)));
        for (mobility, open) in Mobility::ALL.into_iter().zip(&self.open) {
            for (order, pages) in Order::all().zip(open) {
                in_use.extend(pages.iter().map(|&at| piece(at, order, mobility)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    /// Checks that every page is in exactly one piece (block) of the plan, that no two free pieces
    /// would merge, and that every page block has one type.
    fn check(whole: &[u32], block: Order, wanted: &FreeBlocks, plan: &Plan) {
        let mut pages = BTreeSet::new();
        for piece in plan.free.iter().chain(&plan.in_use) {
            for page in piece.page..piece.page + piece.order.pages().0 {
                assert!(pages.insert(page), "page {page} is in one piece");
            }
        }
        assert_eq!(pages.len(), whole.len() * 1024, "no page is lost");
        let free: BTreeSet<_> = plan
            .free
            .iter()
            .map(|piece| (piece.page, piece.order))
            .collect();
        for &(page, order) in &free {
            let buddy = (page ^ order.pages().0, order);
            assert!(order == Order::MAX || !free.contains(&buddy), "no buddies");
        }
        for mobility in Mobility::ALL {
            for order in Order::all() {
                let is = |piece: &&Piece| piece.order == order && piece.mobility == mobility;
                let count = plan.free.iter().filter(is).count();
                assert_eq!(count, wanted[mobility.index()][order.index()] as usize);
            }
        }
        let mut types = alloc::collections::BTreeMap::new();
        for piece in &plan.free {
            let mobility = *types
                .entry(piece.page >> block.get())
                .or_insert(piece.mobility);
            assert_eq!(mobility, piece.mobility, "a block has one type");
        }
    }

    proptest! {
        #[test]
        fn what_is_wanted_is_free_and_nothing_merges(
            counts in prop::array::uniform4(prop::array::uniform11(0u32..4)),
            huge in any::<bool>(),
        ) {
            let block = if huge { Order::HUGE } else { Order::MAX };
            let whole: Vec<u32> = (0..64).map(|at| at * 1024).collect();
            // At most three blocks of each of the 11 orders and 4 types are wanted. Together they
            // have fewer pages than 4 * 3 * 2 blocks of the largest order. The plan may need a few
            // more of these, because a part of some blocks has to stay in use.
            let plan = plan(&whole, block, &counts).expect("64 blocks are enough");
            check(&whole, block, &counts, &plan);
        }
    }

    #[test]
    fn small_blocks_lie_in_the_other_half_of_larger_ones() {
        // One block of each order from 0 to 9, and one page in use, make up exactly one whole
        // block.
        let mut wanted = [[0; Order::COUNT]; Mobility::COUNT];
        wanted[0][..10].fill(1);
        let plan = plan(&[0], Order::MAX, &wanted).expect("they fit");
        assert_eq!(plan.in_use.len(), 1);
        assert_eq!(plan.in_use[0].order, Order::ZERO);
        wanted[0][0] = 2;
        assert!(super::plan(&[0], Order::MAX, &wanted).is_none());
    }
}
