//! Page tags, stored only where a block was split.
//!
//! The tag of each 1024th page has a byte of its own; the other 1023 exist from the first write
//! that differs from what fresh tags read as. So a terabyte of memory needs nine bytes per 4 MiB
//! until its blocks are split, even if whole blocks are handed out.

use std::cell::{Cell, OnceCell};
use std::fmt;

use plimsoll_mm::machine::Tags;
use plimsoll_mm::units::Pages;

/// Pages of one chunk: a block of the largest order.
const CHUNK: usize = 1024;

/// Tags inside one block; the first is unused.
type Chunk = Box<[Cell<u8>; CHUNK]>;

/// One byte per page frame.
pub struct SimTags {
    heads: Box<[Cell<u8>]>,
    chunks: Box<[OnceCell<Chunk>]>,
}

impl SimTags {
    pub(crate) fn new(pages: Pages) -> Self {
        let chunks = pages.index().div_ceil(CHUNK);
        Self {
            heads: vec![Cell::new(Self::FRESH_HEAD); chunks].into(),
            chunks: (0..chunks).map(|_| OnceCell::new()).collect(),
        }
    }
}

impl Tags for SimTags {
    #[inline]
    fn get(&self, page: u32) -> u8 {
        let (chunk, offset) = (page as usize / CHUNK, page as usize % CHUNK);
        if offset == 0 {
            return self.heads[chunk].get();
        }
        self.chunks[chunk]
            .get()
            .map_or(0, |tags| tags[offset].get())
    }

    #[inline]
    fn set(&self, page: u32, tag: u8) {
        let (chunk, offset) = (page as usize / CHUNK, page as usize % CHUNK);
        if offset == 0 {
            return self.heads[chunk].set(tag);
        }
        let cell = &self.chunks[chunk];
        if cell.get().is_none() && tag == 0 {
            return;
        }
        cell.get_or_init(|| Box::new([const { Cell::new(0) }; CHUNK]))[offset].set(tag);
    }

    #[inline]
    fn replace(&self, page: u32, old: u8, new: u8) -> Result<(), u8> {
        let (chunk, offset) = (page as usize / CHUNK, page as usize % CHUNK);
        match self.chunks[chunk].get() {
            // Nearly always: one look-up for both steps.
            Some(tags) if offset != 0 => exchange(&tags[offset], old, new),
            None if offset != 0 && old == 0 => {
                self.set(page, new);
                Ok(())
            }
            None if offset != 0 => Err(0),
            _ => exchange(&self.heads[chunk], old, new),
        }
    }
}

#[inline]
fn exchange(tag: &Cell<u8>, old: u8, new: u8) -> Result<(), u8> {
    let found = tag.get();
    if found != old {
        return Err(found);
    }
    tag.set(new);
    Ok(())
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
        tags.set(1024, 0x3a);
        assert!(
            tags.chunks[1].get().is_none(),
            "a whole block needs no chunk"
        );
        tags.set(1024, SimTags::FRESH_HEAD);
        assert_eq!(tags.replace(1030, 1, 2), Err(0));
        assert_eq!(tags.replace(1030, 0, 2), Ok(()));
        assert_eq!(
            (tags.get(1024), tags.get(1029), tags.get(1030)),
            (SimTags::FRESH_HEAD, 0, 2)
        );
    }
}
