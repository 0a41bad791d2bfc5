//! Up to 64 blocks in transit between a page list and the zone.
//!
//! Pages that are neighbours in the zone tend to be freed together. On the way to the zone, they
//! are joined into blocks before the zone lock is taken. On the way from the zone, blocks are split
//! after the lock is released. So a block costs one operation under the lock instead of one per
//! page. The zone's free lists are the same as if pages were moved one by one.
//!
//! Locks: none; the code that holds the blocks owns their pages.

use super::tag;
use crate::machine::Tags;
use crate::site::sort_comparisons;
use crate::units::{Order, count_of};

/// The maximum number of blocks in the array. It is larger than the maximum batch that
/// [`sizing::batch`](super::sizing::batch) computes, which is 63 pages.
pub(super) const CAPACITY: usize = 64;

/// Blocks that are moving between a page list and the zone. Each entry is a block's first page and
/// its order.
pub(super) struct Blocks {
    items: [(u32, Order); CAPACITY],
    len: usize,
}

impl Blocks {
    pub(super) const fn new() -> Self {
        Self {
            items: [(0, Order::ZERO); CAPACITY],
            len: 0,
        }
    }

    pub(super) const fn is_full(&self) -> bool {
        self.len == CAPACITY
    }

    pub(super) fn push(&mut self, page: u32, order: Order) {
        self.items[self.len] = (page, order);
        self.len += 1;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Order)> + '_ {
        self.items[..self.len].iter().copied()
    }

    /// The number of blocks in the array.
    pub(super) fn len(&self) -> u32 {
        count_of(self.len)
    }

    /// Joins buddies that are both in the array, as far as possible. A page that is no longer the
    /// first of a block is tagged as a tail. Returns the number of comparisons that sorting the
    /// blocks takes ([`Work::Compare`](crate::site::Work::Compare)).
    pub(super) fn join(&mut self, tags: &impl Tags) -> u32 {
        let items = &mut self.items[..self.len];
        let in_order = items.is_sorted();
        if !in_order {
            items.sort_unstable();
        }
        let comparisons = sort_comparisons(self.len(), in_order);
        let mut joined = 0;
        for next in 0..self.len {
            let (mut page, mut order) = self.items[next];
            // The blocks are in ascending order. If this block's buddy lies below this block and is
            // in the array, the buddy is the entry before. If the buddy lies above, the outer
            // loop comes to it later and joins the two then.
            while let Some(up) = order.up()
                && joined > 0
                && self.items[joined - 1] == (page ^ order.pages().0, order)
            {
                joined -= 1;
                tags.set(page, tag::TAIL);
                (page, order) = (self.items[joined].0, up);
            }
            self.items[joined] = (page, order);
            joined += 1;
        }
        self.len = joined;
        comparisons
    }
}

#[cfg(test)]
mod tests {
    use super::super::buddy_tests::TestTags;
    use super::*;
    use alloc::vec::Vec;

    fn joined(pages: &[(u32, u8)]) -> Vec<(u32, u8)> {
        let tags = TestTags::new(1024);
        let mut blocks = Blocks::new();
        for &(page, order) in pages {
            blocks.push(page, Order::new(order).expect("small"));
        }
        let total = |blocks: &Blocks| blocks.iter().map(|(_, order)| order.pages().0).sum::<u32>();
        let before = total(&blocks);
        blocks.join(&tags);
        assert_eq!(total(&blocks), before, "no page is lost");
        blocks
            .iter()
            .map(|(page, order)| (page, order.get()))
            .collect()
    }

    #[test]
    fn buddies_join_as_far_as_they_are_all_here() {
        assert_eq!(joined(&[(3, 0), (0, 0), (2, 0), (1, 0)]), [(0, 2)]);
        assert_eq!(joined(&[(1, 0), (2, 0)]), [(1, 0), (2, 0)]);
        assert_eq!(joined(&[(8, 3), (4, 2), (0, 2)]), [(0, 4)]);
        assert_eq!(joined(&[(0, 0), (2, 1)]), [(0, 0), (2, 1)]);
        assert_eq!(joined(&[(512, 9), (0, 9)]), [(0, 10)]);
    }
}
