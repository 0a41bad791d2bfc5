//! Memory for the upper levels of a counter tree: its items and roots.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::error::InitError;
use crate::machine::{LINE_WORDS, Line, Machine};
use core::sync::atomic::Ordering::Relaxed;

/// Cache lines for the items (the upper levels of the tree) of one group of counters. When the
/// group is destroyed, the caller gets the lines back and can use them for another group.
pub struct Items<M: Machine>(Box<[M::Line]>);

impl<M: Machine> Items<M> {
    /// Allocates `lines` cache lines of zeros.
    ///
    /// # Errors
    /// [`InitError::OutOfMemory`] if there is not enough memory.
    pub fn new(machine: &M, lines: usize) -> Result<Self, InitError> {
        let mut all = Vec::new();
        all.try_reserve_exact(lines)
            .map_err(|_| InitError::OutOfMemory)?;
        all.extend((0..lines).map(|_| machine.line()));
        Ok(Self(all.into()))
    }

    /// Returns the number of cache lines in this [`Items`].
    #[must_use]
    pub fn lines(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of bytes that the cache lines occupy.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Returns the cache line with this index.
    #[inline]
    pub(super) fn line(&self, index: usize) -> &M::Line {
        &self.0[index]
    }

    /// Sets all words of the cache lines to 0.
    pub(super) fn clear(&self, machine: &M) {
        for line in &self.0 {
            for word in 0..LINE_WORDS {
                line.store(machine, word, 0, Relaxed);
            }
        }
    }
}

impl<M: Machine> fmt::Debug for Items<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Items").field(&self.0.len()).finish()
    }
}
