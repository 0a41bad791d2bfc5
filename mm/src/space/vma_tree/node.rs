//! Nodes of the tree of mappings. A node has two arrays of fields, keys and values, in eight cache
//! lines.
//!
//! A leaf has up to [`SLOTS`] entries. The key of an entry is the start of a mapping. The value of
//! an entry is the mapping's length and id. The last value of a leaf links it to its neighbours. An
//! inner node has up to [`SLOTS`] children. The key of a child is the first key for which the child
//! is responsible. The value of a child is its id and the largest gap in the child. Keys are in
//! order. Unused keys, and the last key, hold [`NO_KEY`], so no search needs the number of used
//! keys.
//!
//! The gap of an entry is the free space directly before it. The gap of a leaf's first entry begins
//! in the previous leaf. The gap of a node is the largest gap below it.

use core::array;

use super::Vma;
use crate::machine::{Field, Machine};
use crate::units::Vpn;

/// The largest number of entries of a leaf, or of children of an inner node.
pub(super) const SLOTS: usize = GROUPS * GROUP - 1;
/// The number of groups of keys. A search compares the last keys of groups first, and then the keys
/// of one group.
const GROUPS: usize = 4;
const GROUP: usize = 8;
/// The index of the value that links a leaf to its neighbours.
const LINKS: usize = SLOTS;
/// The value of an unused key; it is larger than any page number.
pub(super) const NO_KEY: u64 = u64::MAX;
/// The first key of every inner node. Because it is 0, the first child is responsible for all keys
/// below the second child's key.
pub(super) const FIRST_KEY: u64 = 0;
/// The id that stands for "no node". No node has this id.
pub(super) const NONE: u32 = u32::MAX;
/// The largest gap that is recorded exactly; larger gaps are recorded as this value.
pub(super) const GAP_MAX: u64 = u32::MAX as u64;

/// The number of low bits of an entry's value that hold the id; the bits above hold the length.
pub(super) const ID_BITS: u32 = 24;

/// A leaf, which holds mappings, or an inner node, which holds child nodes.
#[repr(align(64))]
pub(super) struct Node<M: Machine> {
    keys: [M::Field; SLOTS + 1],
    vals: [M::Field; SLOTS + 1],
}

/// An entry of a node: the key (a page number), and the value that is stored for this key.
pub(super) type Entry = (u64, u64);

impl<M: Machine> Node<M> {
    pub(super) fn new(machine: &M) -> Self {
        Self {
            keys: array::from_fn(|_| machine.field(NO_KEY)),
            vals: array::from_fn(|_| machine.field(0)),
        }
    }

    /// Returns the number of keys that are at most `key`, which must be below [`NO_KEY`].
    ///
    /// The function compares all keys instead of searching for `key`, so no branch depends on the
    /// values of keys.
    #[inline]
    pub(super) fn rank(&self, key: u64) -> usize {
        let upto = |slot: usize| usize::from(self.keys[slot].get() <= key);
        let first = GROUP * (upto(GROUP - 1) + upto(2 * GROUP - 1) + upto(3 * GROUP - 1));
        // The last key of the group is not compared. It is larger than `key`, or it is the last key
        // of the node, which is unused.
        first + (0..GROUP - 1).map(|nth| upto(first + nth)).sum::<usize>()
    }

    /// Returns the number of keys in use.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.rank(NO_KEY - 1)
    }

    /// Returns the slot of the child responsible for `key`.
    #[inline]
    pub(super) fn route(&self, key: u64) -> usize {
        // The rank of `key` is the number of keys that are at most `key`. It is at least 1, because
        // the first key is 0. A reader that overlaps a change may find no such key. For such a
        // reader any child is right, because the reader will read again.
        self.rank(key).wrapping_sub(1) & SLOTS
    }

    #[inline]
    pub(super) fn key(&self, slot: usize) -> u64 {
        self.keys[slot].get()
    }

    pub(super) fn set_key(&self, slot: usize, key: u64) {
        self.keys[slot].set(key);
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.key(SLOTS - 1) != NO_KEY
    }

    #[inline]
    pub(super) fn is_used(&self, slot: usize) -> bool {
        self.key(slot) != NO_KEY
    }

    /// Returns the mapping in `slot` of a leaf.
    #[inline]
    pub(super) fn vma(&self, slot: usize) -> Vma {
        vma((self.keys[slot].get(), self.vals[slot].get()))
    }

    /// Returns the mapping in `slot` of a leaf, if the slot is used.
    #[inline]
    pub(super) fn vma_if_used(&self, slot: usize) -> Option<Vma> {
        self.is_used(slot).then(|| self.vma(slot))
    }

    /// Returns the last mapping of a leaf.
    #[inline]
    pub(super) fn last_vma(&self) -> Option<Vma> {
        Some(self.vma(self.count().checked_sub(1)?))
    }

    #[inline]
    pub(super) fn set(&self, slot: usize, (key, value): Entry) {
        self.vals[slot].set(value);
        self.keys[slot].set(key);
    }

    /// Returns the child in `slot` of an inner node, and the recorded size of the largest gap in
    /// that child, which is at most [`GAP_MAX`].
    #[inline]
    pub(super) fn child(&self, slot: usize) -> (u32, u64) {
        let value = self.vals[slot].get();
        (low(value), value >> 32)
    }

    pub(super) fn set_child(&self, slot: usize, child: u32, gap: u64) {
        self.vals[slot].set(child_value(child, gap));
    }

    /// Returns the used slots in ascending order of keys.
    #[inline]
    fn slots(&self) -> impl Iterator<Item = Entry> {
        let all = self.keys.iter().zip(&self.vals);
        all.map(|(key, val)| (key.get(), val.get()))
            .take_while(|&(key, _)| key != NO_KEY)
    }

    /// Returns the mappings of a leaf.
    pub(super) fn vmas(&self) -> impl Iterator<Item = Vma> {
        self.slots().map(vma)
    }

    /// Returns the size of the largest gap (free space between mappings) in any child.
    pub(super) fn widest_child(&self) -> u64 {
        self.slots().map(|(_, value)| value).max().unwrap_or(0) >> 32
    }

    /// Returns the first child at or after `slot` that has a gap of at least `gap` pages between
    /// mappings.
    #[inline]
    pub(super) fn first_wide(&self, slot: usize, gap: u64) -> Option<usize> {
        (slot..SLOTS)
            .take_while(|&slot| self.is_used(slot))
            .find(|&slot| self.child(slot).1 >= gap)
    }

    /// Returns the last child before `slot` that has a gap of at least `gap` pages between
    /// mappings.
    #[inline]
    pub(super) fn last_wide(&self, slot: usize, gap: u64) -> Option<usize> {
        (0..slot.min(SLOTS))
            .rev()
            .find(|&slot| self.child(slot).1 >= gap)
    }

    /// Returns the size of the largest gap before an entry of a leaf. `end` is the end of the
    /// mapping before the leaf's first mapping.
    pub(super) fn widest_entry(&self, mut end: u64) -> u64 {
        let mut widest = 0;
        for (start, value) in self.slots() {
            widest = widest.max(start - end);
            end = start + (value >> ID_BITS);
        }
        widest
    }

    /// Returns the ids of the leaf before this leaf and of the leaf after it.
    #[inline]
    pub(super) fn links(&self) -> (u32, u32) {
        let links = self.vals[LINKS].get();
        (low(links >> 32), low(links))
    }

    pub(super) fn set_links(&self, before: u32, after: u32) {
        self.vals[LINKS].set(u64::from(before) << 32 | u64::from(after));
    }

    /// Puts `new` into `slot`, and moves the entries at and after that slot up by one. The node
    /// must not be full.
    #[inline]
    pub(super) fn open(&self, slot: usize, new: Entry) {
        debug_assert!(!self.is_full(), "there is room for one more");
        let (mut slot, mut moved) = (slot, new);
        // The loop ends before the last slot, which is unused. It handles two slots at a time, so
        // that no value is copied from one register to another.
        while slot < SLOTS {
            let first = self.swap(slot, moved);
            if first.0 == NO_KEY {
                return;
            }
            moved = self.swap(slot + 1, first);
            if moved.0 == NO_KEY {
                return;
            }
            slot += 2;
        }
    }

    #[inline]
    fn swap(&self, slot: usize, new: Entry) -> Entry {
        let old = (self.keys[slot].get(), self.vals[slot].get());
        self.set(slot, new);
        old
    }

    /// Removes the entry in `slot`, and moves the entries after it down by one.
    #[inline]
    pub(super) fn close(&self, slot: usize) {
        // The loop ends at the last key, which is unused.
        for slot in slot..SLOTS {
            let next = self.keys[slot + 1].get();
            if next == NO_KEY {
                self.keys[slot].set(NO_KEY);
                return;
            }
            self.set(slot, (next, self.vals[slot + 1].get()));
        }
    }

    /// Moves the entries at and after slot `from` to the end of `other`, which has room for them.
    pub(super) fn give(&self, from: usize, other: &Self) {
        let used = other.count();
        for slot in from..self.count() {
            let moved = (self.keys[slot].get(), self.vals[slot].get());
            other.set(used + slot - from, moved);
        }
        self.keys[from..].iter().for_each(|key| key.set(NO_KEY));
    }
}

/// Returns the key and value of a mapping in a leaf.
#[inline]
pub(super) fn slot(vma: Vma) -> Entry {
    let value = (vma.end.0 - vma.start.0) << ID_BITS | u64::from(vma.id);
    (vma.start.0, value)
}

#[inline]
fn vma((start, value): Entry) -> Vma {
    Vma {
        start: Vpn(start),
        // A reader that overlaps a change may combine the start of one mapping with the length of
        // another, so the sum may wrap.
        end: Vpn(start.wrapping_add(value >> ID_BITS)),
        id: low(value & u64::from(Vma::ID_MAX)),
    }
}

/// Returns the value that an inner node stores for a child: the id of the child, and the largest
/// gap between mappings below it.
pub(super) fn child_value(child: u32, gap: u64) -> u64 {
    gap.min(GAP_MAX) << 32 | u64::from(child)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
pub(super) const fn low(value: u64) -> u32 {
    value as u32
}

const _: () = assert!((SLOTS + 1).is_power_of_two(), "SLOTS is a mask of slots");
