//! Page tags, stored only where somebody has written one.
//!
//! A chunk of 1024 tags exists from the first write that differs from what fresh tags read as, so
//! a machine with a terabyte of memory needs a word per 4 MiB until its blocks are split.

use std::cell::{Cell, OnceCell};
use std::fmt;

use plimsoll_mm::machine::Tags;
use plimsoll_mm::units::Pages;

/// Pages of one chunk: a block of the largest order.
const CHUNK: usize = 1024;

/// Tags of one block, once somebody has written one.
type Chunk = Box<[Cell<u8>; CHUNK]>;

/// One byte per page frame.
pub struct SimTags {
    chunks: Box<[OnceCell<Chunk>]>,
}

impl SimTags {
    pub(crate) fn new(pages: Pages) -> Self {
        let chunks = pages.index().div_ceil(CHUNK);
        Self {
            chunks: (0..chunks).map(|_| OnceCell::new()).collect(),
        }
    }

    #[inline]
    fn fresh(offset: usize) -> u8 {
        if offset == 0 { Self::FRESH_HEAD } else { 0 }
    }
}

impl Tags for SimTags {
    #[inline]
    fn get(&self, page: u32) -> u8 {
        let (chunk, offset) = (page as usize / CHUNK, page as usize % CHUNK);
        self.chunks[chunk]
            .get()
            .map_or(Self::fresh(offset), |tags| tags[offset].get())
    }

    #[inline]
    fn set(&self, page: u32, tag: u8) {
        let (chunk, offset) = (page as usize / CHUNK, page as usize % CHUNK);
        let cell = &self.chunks[chunk];
        if cell.get().is_none() && tag == Self::fresh(offset) {
            return;
        }
        let tags = cell.get_or_init(|| {
            let tags = Box::new([const { Cell::new(0) }; CHUNK]);
            tags[0].set(Self::FRESH_HEAD);
            tags
        });
        tags[offset].set(tag);
    }

    #[inline]
    fn replace(&self, page: u32, old: u8, new: u8) -> Result<(), u8> {
        let found = self.get(page);
        if found != old {
            return Err(found);
        }
        self.set(page, new);
        Ok(())
    }
}

impl fmt::Debug for SimTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stored = self
            .chunks
            .iter()
            .filter(|chunk| chunk.get().is_some())
            .count();
        f.debug_struct("SimTags")
            .field("stored_chunks", &stored)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_tags_read_as_free_blocks_of_the_largest_order() {
        let tags = SimTags::new(Pages(4096));
        assert_eq!(
            (tags.get(0), tags.get(1), tags.get(2048)),
            (SimTags::FRESH_HEAD, 0, 0x1a)
        );
        tags.set(1024, SimTags::FRESH_HEAD);
        assert!(tags.chunks[1].get().is_none());
        assert_eq!(tags.replace(1030, 1, 2), Err(0));
        assert_eq!(tags.replace(1030, 0, 2), Ok(()));
        assert_eq!(
            (tags.get(1024), tags.get(1029), tags.get(1030)),
            (SimTags::FRESH_HEAD, 0, 2)
        );
    }
}
