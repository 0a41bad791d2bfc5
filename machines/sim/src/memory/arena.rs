//! A list that grows and never moves its items.
//!
//! Chunk `k` holds `64 << k` items, so one `ilog2` finds the chunk of an index. A `&T` stays valid
//! while items are added. Items are never removed; a user that wants to reuse them keeps a separate
//! list of free ones.

use std::cell::{Cell, OnceCell};

const FIRST_BITS: u32 = 6;
const CHUNKS: usize = 20;

/// A list that grows and never moves its items.
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

    /// Returns the number of items in the arena.
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

    /// The item with index `id`.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> &T {
        let (chunk, offset) = place(id);
        &self.chunks[chunk]
            .get()
            .expect("only indices that `push` returned are asked for")[offset]
    }
}

/// Returns the number of the chunk that contains the item with index `id`, and the item's offset in
/// this chunk.
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
