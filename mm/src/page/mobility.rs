//! Migrate types: which allocations may share a block of pages.
//!
//! Pages that can be moved are kept apart from those that cannot, so that whole blocks can become
//! free again. Each block of 512 or 1024 pages (Linux: a pageblock) has a type; free lists and
//! page lists are kept by type.
//!
//! Locks: a block's type changes under the zone lock only and is read without it. A CPU that reads
//! a stale type puts a page on the wrong page list, which costs grouping, never correctness: the
//! type is read again under the zone lock when the page goes back to the zone.

use crate::machine::{Machine, Tags};
use crate::units::{Order, Pages};

/// Whether the kernel may move or reclaim the pages of an allocation, or of a block (Linux: `enum migratetype`).
///
/// The numbers are those that Linux prints in its trace events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mobility {
    /// They stay where they are: kernel memory (Linux: `MIGRATE_UNMOVABLE`).
    #[default]
    Unmovable = 0,
    /// They can be moved: user memory and page cache (Linux: `__GFP_MOVABLE`).
    Movable = 1,
    /// They stay, but can be freed: caches of the kernel (Linux: `__GFP_RECLAIMABLE`).
    Reclaimable = 2,
    /// A block kept for requests of several pages that cannot wait (Linux: `MIGRATE_HIGHATOMIC`).
    /// Blocks have this type, requests do not.
    HighAtomic = 3,
}

impl Mobility {
    /// How many there are.
    pub const COUNT: usize = 4;

    /// Every type, in the order of Linux's numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Unmovable,
        Self::Movable,
        Self::Reclaimable,
        Self::HighAtomic,
    ];

    /// The types a request may have, which page lists are kept for (Linux: `MIGRATE_PCPTYPES`).
    pub const OF_REQUESTS: [Self; 3] = [Self::Unmovable, Self::Movable, Self::Reclaimable];

    /// The type of Linux's number `index`, if there is one.
    #[must_use]
    pub const fn new(index: u8) -> Option<Self> {
        match index {
            0 => Some(Self::Unmovable),
            1 => Some(Self::Movable),
            2 => Some(Self::Reclaimable),
            3 => Some(Self::HighAtomic),
            _ => None,
        }
    }

    /// Its number, as an index.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The type whose page list holds free pages of a block of this type.
    #[inline]
    #[must_use]
    pub const fn listed(self) -> Self {
        match self {
            Self::HighAtomic => Self::Movable,
            other => other,
        }
    }

    /// Whether blocks of this type merge with blocks of another (Linux:
    /// `migratetype_is_mergeable`).
    pub(super) const fn merges(self) -> bool {
        !matches!(self, Self::HighAtomic)
    }

    /// The types from which a request of this type takes when its own lists are empty, best first
    /// (Linux: `fallbacks`).
    pub(super) const fn fallbacks(self) -> [Self; 2] {
        match self {
            Self::Unmovable | Self::HighAtomic => [Self::Reclaimable, Self::Movable],
            Self::Movable => [Self::Reclaimable, Self::Unmovable],
            Self::Reclaimable => [Self::Unmovable, Self::Movable],
        }
    }
}

/// Whether pages are grouped by mobility, and how large the blocks are that have one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Grouping {
    /// Pages are not grouped: one list per order (Linux: `page_group_by_mobility_disabled`).
    #[default]
    Off,
    /// In blocks of 512 pages: Linux with huge pages.
    Huge,
    /// In blocks of 1024 pages: Linux without huge pages.
    Largest,
}

impl Grouping {
    /// The size of a block that has one type, if pages are grouped (Linux: `pageblock_order`).
    #[must_use]
    pub const fn block(self) -> Option<Order> {
        match self {
            Self::Off => None,
            Self::Huge => Some(Order::HUGE),
            Self::Largest => Some(Order::MAX),
        }
    }
}

/// The type of each block of a zone.
#[derive(Debug)]
pub(super) struct BlockTypes<T> {
    /// One tag per block, or nothing if pages are not grouped.
    map: Option<T>,
    block: Order,
}

impl<T: Tags> BlockTypes<T> {
    /// Types of a zone of `spanned` pages: all movable, as when Linux has just booted.
    pub(super) fn new<M: Machine<Tags = T>>(
        machine: &M,
        spanned: Pages,
        grouping: Grouping,
    ) -> Self {
        Self::with(grouping, spanned, |blocks| machine.tags(blocks))
    }

    /// The same with `tags` to make room for as many blocks as the zone has.
    pub(super) fn with(grouping: Grouping, spanned: Pages, tags: impl FnOnce(Pages) -> T) -> Self {
        let block = grouping.block().unwrap_or(Order::MAX);
        let map = grouping.block().map(|block| {
            let blocks = Pages(spanned.0.div_ceil(block.pages().0));
            let map = tags(blocks);
            (0..blocks.0).for_each(|at| map.set(at, Mobility::Movable as u8));
            map
        });
        Self { map, block }
    }

    /// Whether pages are grouped.
    #[inline]
    pub(super) fn on(&self) -> bool {
        self.map.is_some()
    }

    /// The size of a block. If pages are not grouped it is the largest order, so that no free block
    /// is larger than it.
    #[inline]
    pub(super) fn block(&self) -> Order {
        self.block
    }

    /// The type as which a request of `mobility` is served.
    #[inline]
    pub(super) fn served_as(&self, mobility: Mobility) -> Mobility {
        if self.on() {
            mobility
        } else {
            Mobility::Unmovable
        }
    }

    /// The type of the block of `page`.
    #[inline]
    pub(super) fn of(&self, page: u32) -> Mobility {
        match &self.map {
            None => Mobility::Unmovable,
            Some(map) => Mobility::new(map.get(page >> self.block.get())).unwrap_or_default(),
        }
    }

    /// Gives a type to all blocks within the `1 << order` pages from `page` on. The caller holds
    /// the zone lock.
    pub(super) fn set(&self, page: u32, order: Order, mobility: Mobility) {
        if let Some(map) = &self.map {
            let first = page >> self.block.get();
            let blocks = (order.pages().0 >> self.block.get()).max(1);
            (first..first + blocks).for_each(|at| map.set(at, mobility as u8));
        }
    }
}

/// The tags of each page frame and each block of a zone, which are read without a lock.
#[derive(Debug)]
pub(super) struct Frames<'a, T> {
    pub(super) tags: &'a T,
    pub(super) types: &'a BlockTypes<T>,
}

impl<T> Clone for Frames<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Frames<'_, T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_preferences_are_those_of_linux() {
        for (number, mobility) in (0u8..).zip(Mobility::ALL) {
            assert_eq!(Mobility::new(number), Some(mobility));
            assert_eq!(mobility.index(), usize::from(number));
        }
        assert_eq!(Mobility::new(4), None);
        let prefers = |of: Mobility| of.fallbacks().map(Mobility::index);
        assert_eq!(prefers(Mobility::Unmovable), [2, 1]);
        assert_eq!(prefers(Mobility::Movable), [2, 0]);
        assert_eq!(prefers(Mobility::Reclaimable), [0, 1]);
        assert_eq!(Mobility::HighAtomic.listed(), Mobility::Movable);
    }
}
