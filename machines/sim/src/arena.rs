//! A list that grows and never moves what it holds.
//!
//! Chunk `k` holds `64 << k` items, so an index finds its chunk with one `ilog2`, and a `&T` stays
//! good while others are added. Items are never removed; who wants to reuse them keeps a list.

use std::cell::{Cell, OnceCell};

const FIRST_BITS: u32 = 6;
const CHUNKS: usize = 20;

/// See the file's header.
pub(crate) struct Arena<T> {
    chunks: [OnceCell<Box<[T]>>; CHUNKS],
    len: Cell<u32>,
}

impl<T: Default> Arena<T> {
    pub(crate) fn new() -> Self {
        Self {
            chunks: [const { OnceCell::new() }; CHUNKS],
            len: Cell::new(0),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u32 {
        self.len.get()
    }

    /// Adds a default item and returns its index.
    pub(crate) fn push(&self) -> u32 {
        let id = self.len.get();
        let (chunk, _) = place(id);
        self.chunks[chunk].get_or_init(|| {
            (0..1_usize << (FIRST_BITS as usize + chunk))
                .map(|_| T::default())
                .collect()
        });
        self.len.set(id + 1);
        id
    }

    /// The item `id`.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> &T {
        let (chunk, offset) = place(id);
        &self.chunks[chunk]
            .get()
            .expect("only indices that `push` returned are asked for")[offset]
    }
}

/// Chunk and place in it.
#[inline]
const fn place(id: u32) -> (usize, usize) {
    let index = id + (1 << FIRST_BITS);
    let chunk = index.ilog2() - FIRST_BITS;
    (
        chunk as usize,
        (index - (1 << (FIRST_BITS + chunk))) as usize,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_its_own_place() {
        let arena = Arena::<Cell<u32>>::new();
        for id in 0..1000 {
            assert_eq!(arena.push(), id);
            arena.get(id).set(id + 1);
        }
        assert!((0..arena.len()).all(|id| arena.get(id).get() == id + 1));
    }
}
