//! Migrate types: which allocations may share a block of pages.
//!
//! Pages that can be moved are kept apart from those that cannot, so that whole blocks can become
//! free again. Each block of 512 or 1024 pages (Linux: a pageblock) has a type. There are separate
//! free lists and page lists for each type.
//!
//! Locks: a block's type is changed only under the zone lock and is read without it. A CPU that
//! reads a stale type puts a page on the wrong page list. That makes grouping worse but is never
//! incorrect: the type is read again under the zone lock when the page returns to the zone.

use crate::machine::{Machine, Tags};
use crate::units::{Order, Pages};

/// The type of an allocation or a page block: whether the kernel may move or reclaim its pages
/// (Linux: `enum migratetype`).
///
/// The discriminants are the numbers that Linux prints in its trace events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mobility {
    /// The pages cannot be moved: kernel memory (Linux: `MIGRATE_UNMOVABLE`).
    #[default]
    Unmovable = 0,
    /// The pages can be moved: user memory and page cache (Linux: `__GFP_MOVABLE`).
    Movable = 1,
    /// The pages cannot be moved but can be freed: kernel caches (Linux: `__GFP_RECLAIMABLE`).
    Reclaimable = 2,
    /// A block kept for atomic requests of several pages (Linux: `MIGRATE_HIGHATOMIC`). Only blocks
    /// have this type, never requests.
    HighAtomic = 3,
}

impl Mobility {
    /// The number of mobility types.
    pub const COUNT: usize = 4;

    /// All types, in the order of Linux's numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Unmovable,
        Self::Movable,
        Self::Reclaimable,
        Self::HighAtomic,
    ];

    /// The types that a request may have. There are page lists only for these types (Linux:
    /// `MIGRATE_PCPTYPES`).
    pub(super) const OF_REQUESTS: [Self; 3] = [Self::Unmovable, Self::Movable, Self::Reclaimable];

    /// Returns the type with the number `index` in Linux, or `None` if there is none.
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

    /// The type's number in Linux, for use as an index.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the type of the page list to which pages go when they are freed from a block of this
    /// type.
    #[inline]
    #[must_use]
    pub const fn listed(self) -> Self {
        match self {
            Self::HighAtomic => Self::Movable,
            other => other,
        }
    }

    /// Returns whether blocks of this type may merge with blocks of another type (Linux:
    /// `migratetype_is_mergeable`).
    pub(super) const fn merges(self) -> bool {
        !matches!(self, Self::HighAtomic)
    }

    /// The types from which a request of this type takes blocks when its own lists are empty, in
    /// order of preference (Linux: `fallbacks`).
    pub(super) const fn fallbacks(self) -> [Self; 2] {
        match self {
            Self::Unmovable | Self::HighAtomic => [Self::Reclaimable, Self::Movable],
            Self::Movable => [Self::Reclaimable, Self::Unmovable],
            Self::Reclaimable => [Self::Unmovable, Self::Movable],
        }
    }
}

/// Whether pages are grouped by mobility, and the size of a page block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Grouping {
    /// Pages are not grouped: one list per order (Linux: `page_group_by_mobility_disabled`).
    #[default]
    Off,
    /// Pages are grouped in blocks of 512, as in Linux with huge pages.
    Huge,
    /// Pages are grouped in blocks of 1024, as in Linux without huge pages.
    Largest,
}

impl Grouping {
    /// The order of a page block, or `None` if pages are not grouped (Linux: `pageblock_order`).
    #[must_use]
    pub const fn block(self) -> Option<Order> {
        match self {
            Self::Off => None,
            Self::Huge => Some(Order::HUGE),
            Self::Largest => Some(Order::MAX),
        }
    }
}

/// The types of a zone's page blocks.
#[derive(Debug)]
pub(super) struct BlockTypes<T> {
    /// The type of each page block, stored as a tag of one byte. `None` if pages are not grouped.
    map: Option<T>,
    block: Order,
}

impl<T: Tags> BlockTypes<T> {
    /// Creates the migrate types of the page blocks in a zone of `spanned` pages. The type of every
    /// page block is movable, as in Linux after boot.
    pub(super) fn new<M: Machine<Tags = T>>(
        machine: &M,
        spanned: Pages,
        grouping: Grouping,
    ) -> Self {
        Self::with(grouping, spanned, |blocks| machine.tags(blocks))
    }

    /// Creates the types as [`BlockTypes::new`] does, with a function `tags` that allocates the
    /// given number of tags.
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

    /// Returns whether pages are grouped by mobility.
    #[inline]
    pub(super) fn on(&self) -> bool {
        self.map.is_some()
    }

    /// The order of a page block. If pages are not grouped, this is the largest order, so that no
    /// free block is larger than a page block.
    #[inline]
    pub(super) fn block(&self) -> Order {
        self.block
    }

    /// The type by which the zone serves a request of type `mobility`: `mobility` itself, or
    /// unmovable if pages are not grouped.
    #[inline]
    pub(super) fn served_as(&self, mobility: Mobility) -> Mobility {
        if self.on() {
            mobility
        } else {
            Mobility::Unmovable
        }
    }

    /// The type of the page block around `page`.
    #[inline]
    pub(super) fn of(&self, page: u32) -> Mobility {
        match &self.map {
            None => Mobility::Unmovable,
            Some(map) => Mobility::new(map.get(page >> self.block.get())).unwrap_or_default(),
        }
    }

    /// Sets the type of all page blocks in the block of `order` at `page`. If that block is smaller
    /// than a page block, sets the type of the page block around it. The caller holds the zone
    /// lock.
    pub(super) fn set(&self, page: u32, order: Order, mobility: Mobility) {
        if let Some(map) = &self.map {
            let first = page >> self.block.get();
            let blocks = (order.pages().0 >> self.block.get()).max(1);
            (first..first + blocks).for_each(|at| map.set(at, mobility as u8));
        }
    }
}

/// The tags of a zone's page frames and the types of its page blocks, which are read without a
/// lock.
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
