//! A flag that one CPU takes often and others seldom.
//!
//! The owner never waits, so there is no queue: a busy flag sends it on its slow path. Others
//! wait without order; they are rare (drains, looking on).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::raw::RawLock;
use super::sync::AtomicBool;

/// A flag that is set while the lock is held.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Flag(AtomicBool);

/// A set flag; cleared when dropped.
pub(crate) struct Set<'a>(&'a Flag);

impl RawLock for Flag {
    type Held<'a> = Set<'a>;

    #[inline]
    fn acquire(&self, mut relax: impl FnMut(u32)) -> Set<'_> {
        let mut looks = 0;
        loop {
            if let Some(set) = self.try_acquire() {
                return set;
            }
            // Relaxed: only decides when to try again; the swap in `try_acquire` orders. Ends
            // when the holder lets go; an owner that takes it again and again can overtake, but
            // it leaves a gap at each release.
            while self.0.load(Relaxed) {
                relax(looks);
                looks = looks.saturating_add(1);
            }
        }
    }

    #[inline]
    fn try_acquire(&self) -> Option<Set<'_>> {
        // Acquire pairs with the Release in `Set::drop`.
        if self.0.swap(true, Acquire) {
            None
        } else {
            Some(Set(self))
        }
    }
}

impl Drop for Set<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire in `try_acquire`: the next holder sees our writes.
        self.0.0.store(false, Release);
    }
}
