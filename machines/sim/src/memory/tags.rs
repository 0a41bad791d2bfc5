//! Page tags: one byte for each page, which says for example whether the page is free. The bytes
//! are stored only where a block was split.
//!
//! Initially only one byte is stored for a whole block of 1024 pages: the tag of its first page. As
//! soon as another page of the block gets a tag other than its initial one, the block gets a byte
//! for each page. So a terabyte of memory needs only nine bytes (a pointer and a tag) for each
//! block of 4 MiB until the block is split. Allocating a whole block does not change this.
//!
//! An access to a tag takes no virtual time. But in strict mode each access waits until no other
//! CPU has an earlier clock. So another CPU can run between the release of a zone lock and a later
//! write of a tag.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::rc::Weak;

use plimsoll_mm::machine::Tags;
use plimsoll_mm::units::Pages;

use crate::engine::state::Inner;

/// The number of pages in a block of the largest order. The tags of one such block are stored
/// together, in one [`Chunk`].
const CHUNK: usize = 1024;

/// The tags of the pages of one block of 1024 pages.
type Chunk = Box<[Cell<u8>; CHUNK]>;

/// The tags of a zone: one byte per page frame, which says for example whether the page is free.
pub struct SimTags {
    chunks: Box<[OnceCell<Chunk>]>,
    /// For each block whose pages have no tags of their own yet: the tag of its first page.
    heads: Box<[Cell<u8>]>,
    /// The machine if it runs in strict mode, in which each access waits until no other CPU has an
    /// earlier clock; otherwise `None`. The reference is weak, because handlers of the machine may
    /// own the tags.
    strict: Option<Weak<Inner>>,
}

impl SimTags {
    /// Creates the tags of `pages` pages. If `strict` is a machine, each access waits until no
    /// other CPU of the machine has an earlier clock.
    pub(crate) fn new(pages: Pages, strict: Option<Weak<Inner>>) -> Self {
        let chunks = pages.index().div_ceil(CHUNK);
        Self {
            chunks: (0..chunks).map(|_| OnceCell::new()).collect(),
            heads: vec![Cell::new(Self::FRESH_HEAD); chunks].into(),
            strict,
        }
    }

    /// In strict mode, waits until no other CPU has an earlier clock. Every access to a tag calls
    /// this function first.
    #[inline(always)]
    fn reach(&self) {
        if let Some(machine) = &self.strict {
            wait_for_turn(machine);
        }
    }

    /// The stored tag of `page`; `None` if only the tag of the first page of its block is stored.
    #[inline(always)]
    fn stored(&self, page: u32) -> Option<&Cell<u8>> {
        let page = page as usize;
        let chunk = self.chunks[page / CHUNK].get()?;
        Some(&chunk[page % CHUNK])
    }

    #[inline(always)]
    fn put(&self, page: u32, tag: u8) {
        match self.stored(page) {
            Some(stored) => stored.set(tag),
            None => self.set_unsplit(page as usize, tag),
        }
    }

    fn get_unsplit(&self, page: usize) -> u8 {
        match page % CHUNK {
            0 => self.heads[page / CHUNK].get(),
            _ => 0,
        }
    }

    #[cold]
    fn set_unsplit(&self, page: usize, tag: u8) {
        let (chunk, offset) = (page / CHUNK, page % CHUNK);
        if offset == 0 {
            self.heads[chunk].set(tag);
        } else if tag != 0 {
            let tags = self.chunks[chunk].get_or_init(|| Box::new([const { Cell::new(0) }; CHUNK]));
            tags[0].set(self.heads[chunk].get());
            tags[offset].set(tag);
        }
    }
}

impl Tags for SimTags {
    #[inline]
    fn get(&self, page: u32) -> u8 {
        self.reach();
        match self.stored(page) {
            Some(tag) => tag.get(),
            None => self.get_unsplit(page as usize),
        }
    }

    #[inline]
    fn set(&self, page: u32, tag: u8) {
        self.reach();
        self.put(page, tag);
    }

    #[inline]
    fn replace(&self, page: u32, old: u8, new: u8) -> Result<(), u8> {
        // The CPU does not wait for other CPUs between this read and the write, so the exchange is
        // atomic.
        let found = self.get(page);
        if found != old {
            return Err(found);
        }
        self.put(page, new);
        Ok(())
    }
}

#[cold]
fn wait_for_turn(machine: &Weak<Inner>) {
    if let Some(machine) = machine.upgrade() {
        machine.order();
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
        let tags = SimTags::new(Pages(4096), None);
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
