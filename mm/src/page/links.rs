//! The links of the free lists, 4 bytes per page.
//!
//! Two buddies are never both free at order 0, because they would have been merged. So at most one
//! page of each pair is the first of a free block, and one link record serves the pair. Blocks of
//! the largest order have records of their own, so that memory that was never split needs no
//! records for pairs.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::units::{Order, Pages};

/// Stands for no page.
pub(super) const NONE: u32 = u32::MAX;

const BLOCK_PAGES: u32 = Order::MAX.pages().0;
const PAIRS: usize = (BLOCK_PAGES / 2) as usize;

/// The time at which the link records of a block are allocated.
///
/// A managed page has 5 bytes of records: a tag of one byte, and half of the 8 bytes of links that
/// its pair of pages shares. The links of 4 MiB blocks and the pointers to the links inside them are
/// another 16 bytes per 1024 pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metadata {
    /// All at once when the zone is made, so that no memory is allocated later.
    #[default]
    Eager,
    /// When a block is first split, for machines with more simulated than real memory.
    WhenSplit,
}

/// The neighbours of a free block on its list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) prev: u32,
    pub(super) next: u32,
}

const UNLINKED: Link = Link {
    prev: NONE,
    next: NONE,
};

/// The link records of all blocks of a zone.
#[derive(Debug)]
pub(super) struct Links {
    largest: Vec<Link>,
    split: Vec<Option<Box<[Link; PAIRS]>>>,
}

impl Links {
    pub(super) fn new(pages: Pages, metadata: Metadata) -> Self {
        let blocks = pages.0.div_ceil(BLOCK_PAGES) as usize;
        let mut split = Vec::new();
        split.resize_with(blocks, || match metadata {
            Metadata::Eager => Some(Box::new([UNLINKED; PAIRS])),
            Metadata::WhenSplit => None,
        });
        Self {
            largest: vec![UNLINKED; blocks],
            split,
        }
    }

    /// The record of the free block of `order` at `page`.
    #[inline]
    pub(super) fn of(&mut self, page: u32, order: Order) -> &mut Link {
        let block = (page / BLOCK_PAGES) as usize;
        if order == Order::MAX {
            &mut self.largest[block]
        } else {
            let pairs = self.split[block].get_or_insert_with(|| Box::new([UNLINKED; PAIRS]));
            &mut pairs[(page % BLOCK_PAGES / 2) as usize]
        }
    }
}
