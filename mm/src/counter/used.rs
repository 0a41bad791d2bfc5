//! The record of the cells (leaves) and items (inner nodes) of a counter tree that have ever been
//! used. It has one bit for each cell, followed by one bit for each item.
//!
//! A bit is set before its cell or item holds anything, and is never cleared.
//!
//! This record needs no lock.

use core::sync::atomic::Ordering::Relaxed;

use super::items::Items;
use crate::machine::{LINE_WORDS, Line, Machine};

/// The number of bits in a cache line.
const LINE_BITS: usize = LINE_WORDS * 64;

/// Returns the number of cache lines that hold `bits` bits.
pub(super) const fn lines(bits: usize) -> usize {
    bits.div_ceil(LINE_BITS)
}

/// The set of the cells (leaves of one CPU each) and items (inner nodes) that were ever used. A
/// tree stores this set in its first cache lines.
pub(super) struct Used<'a, M: Machine>(pub(super) &'a Items<M>);

// Relaxed is enough: a CPU marks its cell before it adds to the cell. So a reader that has learnt
// of the addition by other means, such as a lock, finds the mark too.
impl<'a, M: Machine> Used<'a, M> {
    #[inline]
    fn word_of(&self, bit: usize) -> (&'a M::Line, usize, i64) {
        (
            self.0.line(bit / LINE_BITS),
            bit % LINE_BITS / 64,
            1 << (bit % 64),
        )
    }

    #[inline]
    pub(super) fn has(&self, machine: &M, bit: usize) -> bool {
        let (line, word, mask) = self.word_of(bit);
        line.load(machine, word, Relaxed) & mask != 0
    }

    /// Sets a bit. Returns true if the bit was clear before.
    pub(super) fn mark(&self, machine: &M, bit: usize) -> bool {
        let (line, word, mask) = self.word_of(bit);
        let mut seen = line.load(machine, word, Relaxed);
        // The loop ends: an exchange fails only if another of the word's 64 bits was set in the
        // meantime.
        while seen & mask == 0 {
            match line.compare_exchange(machine, word, seen, seen | mask, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Returns the indices of the CPUs that have ever added to a counter, in ascending order.
    pub(super) fn cpus(self, machine: &'a M, cpus: usize) -> impl Iterator<Item = usize> + 'a {
        (0..cpus.div_ceil(64)).flat_map(move |nth| {
            let set = ones(self.cpus_of(machine, nth, cpus));
            set.map(move |bit| nth * 64 + bit)
        })
    }

    /// Returns a word with one bit for each of the 64 CPUs whose indices start at `64 * nth`. The
    /// bit is 1 if the CPU has ever added. The machine has `cpus` CPUs in total.
    #[inline]
    pub(super) fn cpus_of(&self, machine: &M, nth: usize, cpus: usize) -> u64 {
        let (line, word, _) = self.word_of(nth * 64);
        // The bits of the CPUs may end inside this word. The bits of items (inner nodes) follow.
        // Mask them out.
        line.load(machine, word, Relaxed).cast_unsigned() & first_ones(cpus - nth * 64)
    }
}

/// Returns a word with the lowest `count` bits set, or with all 64 set if `count` is larger.
pub(super) const fn first_ones(count: usize) -> u64 {
    if count >= 64 {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

/// Returns the positions of the bits of `bits` that are set, in ascending order.
#[inline]
pub(super) fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let lowest = bits.trailing_zeros();
        bits &= bits.checked_sub(1)?;
        Some(lowest as usize)
    })
}
