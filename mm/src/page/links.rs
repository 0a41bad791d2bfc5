//! The links of the free lists: the previous and the next free block of each free block. The links
//! take 4 bytes per page.
//!
//! Two buddies are never both free at order 0, because they would have been merged. So of each pair
//! of pages at most one is the first page of a free block, and one link record serves the pair.
//! Blocks of the largest order have records of their own, so memory that was never split needs no
//! records for pairs.
//!
//! A zone with bitmaps (`buddy/bitmaps.rs`) links only huge and larger blocks. It has one record
//! for each huge block, and no records for pairs.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::units::{Order, Pages};

/// The page number that means "no page" in a link and at the end of a list.
pub(super) const NONE: u32 = u32::MAX;

const BLOCK_PAGES: u32 = Order::MAX.pages().0;
const PAIRS: usize = (BLOCK_PAGES / 2) as usize;

/// When the memory for the link records of a block is allocated.
///
/// Each managed page takes 5 bytes: a tag of one byte, and 4 bytes as half of the link record that
/// it shares with its buddy. In addition, each block of 4 MiB (1024 pages) takes 16 bytes: its own
/// link record, and a pointer to the link records of the pages inside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metadata {
    /// All memory for link records is allocated when the zone is created or grows, and none later.
    #[default]
    Eager,
    /// The memory for link records is allocated when a block is first split. This is for simulated
    /// machines with more memory than the host.
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

/// The link records of the smaller free blocks inside one block of the largest order: one record
/// for each pair of pages.
pub(super) type PairLinks = Box<[Link; PAIRS]>;

/// The link records of all blocks of a zone.
#[derive(Debug)]
pub(super) struct Links {
    largest: Vec<Link>,
    split: Vec<Option<PairLinks>>,
    /// If the zone keeps free pages in bitmaps, the link records of all huge blocks; otherwise
    /// empty.
    huge: Vec<Link>,
}

/// Allocates the link records for the smaller blocks inside a block of the largest order, before
/// this block is added to a zone. Returns `None` if the memory cannot be allocated.
pub(super) fn pair_links() -> Option<PairLinks> {
    let mut pairs = Vec::new();
    pairs.try_reserve_exact(PAIRS).ok()?;
    pairs.resize(PAIRS, UNLINKED);
    pairs.into_boxed_slice().try_into().ok()
}

impl Links {
    /// Creates the link records of a zone of `pages` pages. A block of the largest order without
    /// memory, for which `absent` is true, gets no records for pairs.
    pub(super) fn new(pages: Pages, metadata: Metadata, absent: &[bool]) -> Self {
        let blocks = pages.0.div_ceil(BLOCK_PAGES) as usize;
        let mut split = Vec::new();
        let mut at = 0;
        split.resize_with(blocks, || {
            let is_absent = absent.get(at).copied().unwrap_or_default();
            at += 1;
            match metadata {
                Metadata::Eager if !is_absent => Some(Box::new([UNLINKED; PAIRS])),
                Metadata::Eager | Metadata::WhenSplit => None,
            }
        });
        Self {
            largest: vec![UNLINKED; blocks],
            split,
            huge: Vec::new(),
        }
    }

    /// Creates the link records of a zone of `pages` pages that keeps free pages in bitmaps.
    pub(super) fn of_huge_blocks(pages: Pages) -> Self {
        Self {
            largest: Vec::new(),
            split: Vec::new(),
            huge: vec![UNLINKED; pages.0.div_ceil(Order::HUGE.pages().0) as usize],
        }
    }

    /// Exchanges the link records of a block of the largest order, given by its index, for those in
    /// `records`. No part of the block may be on a free list. Does nothing in a zone that keeps
    /// free pages in bitmaps.
    pub(super) fn exchange(&mut self, block: usize, records: &mut Option<PairLinks>) {
        if let Some(own) = self.split.get_mut(block) {
            core::mem::swap(own, records);
        }
    }

    /// The link record of the free block of `order` at `page`.
    #[inline]
    pub(super) fn of(&mut self, page: u32, order: Order) -> &mut Link {
        if !self.huge.is_empty() {
            return &mut self.huge[(page / Order::HUGE.pages().0) as usize];
        }
        let block = (page / BLOCK_PAGES) as usize;
        if order == Order::MAX {
            &mut self.largest[block]
        } else {
            let pairs = self.split[block].get_or_insert_with(|| Box::new([UNLINKED; PAIRS]));
            &mut pairs[(page % BLOCK_PAGES / 2) as usize]
        }
    }
}
