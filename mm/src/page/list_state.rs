//! The state of one CPU's page lists, in the form in which callers read and set it.

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
    /// The type of the page block around it, or of the list it is on.
    pub mobility: Mobility,
}

/// The state of one CPU's lists in one zone (Linux: `struct per_cpu_pages`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListState {
    /// The number of pages at which frees spill, as tuned so far.
    pub high: Pages,
    /// The next refill of single pages doubles the batch this many times.
    pub alloc_factor: u32,
    /// The number of pages freed in a row, halved by each allocation.
    pub free_count: Pages,
    /// True if the last free was of order 1 to 3.
    pub freed_high_order: bool,
    /// The blocks on the lists, list by list. Each list goes from the coldest block, which is given
    /// back first, to the hottest, which is handed out first.
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
