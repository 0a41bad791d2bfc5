//! Nodes: two arrays of sixteen fields, four cache lines in all.
//!
//! A leaf has up to fifteen entries: where each begins, and its length with its id. Its last value
//! links it to its neighbours. An inner node has up to sixteen children: a key from which on each is
//! responsible, and its number with the largest gap in it. Unused keys are [`NO_KEY`], so that a
//! search needs no count.
//!
//! The gap of an entry is the free space right before it; that of a leaf's first entry reaches back
//! into the leaf before. The gap of a node is the largest of those below.

use alloc::boxed::Box;
use core::array;

use crate::machine::{Field, Machine, Once};

/// Children of an inner node.
pub(super) const FAN: usize = 16;
/// Entries of a leaf.
pub(super) const LEAF_MAX: usize = FAN - 1;
/// The value of a leaf that links it.
const LINKS: usize = LEAF_MAX;
/// What an unused key holds; larger than any address.
pub(super) const NO_KEY: u64 = u64::MAX;
/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// Bits of an entry's value for its id; the length is above.
pub(super) const ID_BITS: u32 = 24;

/// See the file's header.
#[repr(align(64))]
pub(super) struct Node<M: Machine> {
    pub(super) keys: [M::Field; FAN],
    pub(super) vals: [M::Field; FAN],
}

impl<M: Machine> Node<M> {
    fn new(machine: &M) -> Self {
        Self {
            keys: array::from_fn(|_| machine.field(NO_KEY)),
            vals: array::from_fn(|_| machine.field(0)),
        }
    }

    /// How many keys are at most `key`.
    #[inline]
    pub(super) fn rank(&self, key: u64) -> usize {
        // Counted, not searched: without a branch that depends on the keys.
        self.keys
            .iter()
            .map(|at| usize::from(at.get() <= key))
            .sum()
    }

    /// How many keys are used.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.rank(NO_KEY - 1)
    }

    /// The child responsible for `key`.
    #[inline]
    pub(super) fn route(&self, key: u64) -> usize {
        // The first key is 0; a reader that meets a change may see none at all.
        self.rank(key).saturating_sub(1)
    }

    #[inline]
    pub(super) fn key(&self, at: usize) -> u64 {
        self.keys[at].get()
    }

    /// Entry `at` of a leaf: where it begins, where it ends, its id.
    #[inline]
    pub(super) fn entry(&self, at: usize) -> (u64, u64, u32) {
        let (start, value) = (self.keys[at].get(), self.vals[at].get());
        (
            start,
            start.wrapping_add(value >> ID_BITS),
            low(value & ((1 << ID_BITS) - 1)),
        )
    }

    pub(super) fn set_entry(&self, at: usize, (start, end, id): (u64, u64, u32)) {
        self.keys[at].set(start);
        self.vals[at].set((end - start) << ID_BITS | u64::from(id));
    }

    /// Child `at` of an inner node.
    #[inline]
    pub(super) fn child(&self, at: usize) -> u32 {
        low(self.vals[at].get())
    }

    /// The largest gap in child `at`, at most [`GAP_MAX`].
    #[inline]
    pub(super) fn gap(&self, at: usize) -> u64 {
        self.vals[at].get() >> 32
    }

    pub(super) fn set_child(&self, at: usize, child: u32, gap: u64) {
        self.vals[at].set(gap.min(GAP_MAX) << 32 | u64::from(child));
    }

    /// The largest gap in any child.
    pub(super) fn widest(&self) -> u64 {
        (0..self.count()).map(|at| self.gap(at)).max().unwrap_or(0)
    }

    /// The leaves before and after a leaf.
    #[inline]
    pub(super) fn links(&self) -> (u32, u32) {
        let links = self.vals[LINKS].get();
        (low(links >> 32), low(links))
    }

    pub(super) fn set_links(&self, before: u32, after: u32) {
        self.vals[LINKS].set(u64::from(before) << 32 | u64::from(after));
    }

    /// Makes room at `at`, moving `count - at` keys and values up.
    pub(super) fn open(&self, at: usize, count: usize) {
        for to in (at + 1..=count).rev() {
            self.copy(to - 1, to);
        }
    }

    /// Closes the place `at` of `count`.
    pub(super) fn close(&self, at: usize, count: usize) {
        for from in at + 1..count {
            self.copy(from, from - 1);
        }
        self.keys[count - 1].set(NO_KEY);
    }

    /// Moves places `from..count` to the end of `other`, which has `used`.
    pub(super) fn give(&self, from: usize, count: usize, other: &Self, used: usize) {
        for at in from..count {
            other.keys[used + at - from].set(self.keys[at].get());
            other.vals[used + at - from].set(self.vals[at].get());
            self.keys[at].set(NO_KEY);
        }
    }

    fn copy(&self, from: usize, to: usize) {
        self.vals[to].set(self.vals[from].get());
        self.keys[to].set(self.keys[from].get());
    }

    /// As it was made.
    pub(super) fn clear(&self) {
        self.keys.iter().for_each(|key| key.set(NO_KEY));
    }
}

/// The largest gap that is kept exactly; what is wider reads as this.
pub(super) const GAP_MAX: u64 = u32::MAX as u64;

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
const fn low(value: u64) -> u32 {
    value as u32
}

/// Chunks: one of 16 nodes, one of 32 and so on, none of which ever moves.
const CHUNKS: usize = 24;
const FIRST_BITS: u32 = 4;

/// All nodes of a tree, by number. They are added and never given back to the allocator while
/// the tree lives, so a reader that follows an outdated number finds a node, if not the right one.
pub(super) struct Nodes<M: Machine>([M::Once<Box<[Node<M>]>>; CHUNKS]);

impl<M: Machine> Nodes<M> {
    pub(super) fn new(machine: &M) -> Self {
        Self(array::from_fn(|_| machine.once()))
    }

    /// Node `id`, if it was ever made.
    #[inline]
    pub(super) fn get(&self, id: u32) -> Option<&Node<M>> {
        let index = id.checked_add(1 << FIRST_BITS)?;
        let top = index.ilog2();
        let chunk = self.0.get((top - FIRST_BITS) as usize)?.get()?;
        chunk.get((index ^ 1 << top) as usize)
    }

    /// Makes sure that node `id` exists; those before it do.
    pub(super) fn make(&self, machine: &M, id: u32) -> Result<(), super::NoMemory> {
        if self.get(id).is_some() {
            return Ok(());
        }
        let top = (id + (1 << FIRST_BITS)).ilog2();
        let chunk = self
            .0
            .get((top - FIRST_BITS) as usize)
            .ok_or(super::NoMemory)?;
        let len = 1_usize << top;
        let mut nodes = alloc::vec::Vec::new();
        nodes.try_reserve_exact(len).map_err(|_| super::NoMemory)?;
        nodes.extend((0..len).map(|_| Node::new(machine)));
        // One writer at a time: nobody else makes it.
        chunk.set(nodes.into()).map_err(|_| super::NoMemory)
    }
}
