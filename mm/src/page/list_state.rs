//! The state of one CPU's page lists, in the form in which callers read it and set it.

use alloc::vec::Vec;

use super::mobility::Mobility;
use crate::units::{Order, Pages, Pfn};

/// A block with its mobility: either a block in use, or one on a CPU's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypedBlock {
    /// The block's first frame.
    pub pfn: Pfn,
    /// The block's order.
    pub order: Order,
    /// The type of the page block around this block or, for a block on a list, the type of the
    /// list.
    pub mobility: Mobility,
}

/// The state of one CPU's lists in one zone (Linux: `struct per_cpu_pages`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListState {
    /// If a free leaves at least this number of pages on the lists, it returns pages to the zone.
    /// Tuning changes this number.
    pub high: Pages,
    /// The next refill of single pages takes at most `batch << alloc_factor` pages.
    pub alloc_factor: u32,
    /// The number of pages freed in a row. Each allocation halves this number.
    pub free_count: Pages,
    /// True if the last free was of order 1 to 3.
    pub freed_high_order: bool,
    /// The blocks on the lists, list by list. Each list starts with its coldest block, which is
    /// returned to the zone first, and ends with its hottest, which is allocated first.
    pub blocks: Vec<TypedBlock>,
}

impl ListState {
    /// The number of pages on all lists.
    #[must_use]
    pub fn count(&self) -> Pages {
        let pages = |block: &TypedBlock| block.order.pages();
        self.blocks
            .iter()
            .map(pages)
            .fold(Pages::ZERO, |a, b| a + b)
    }
}
