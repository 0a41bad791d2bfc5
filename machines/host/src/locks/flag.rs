//! A flag that one CPU acquires often and other CPUs seldom.
//!
//! The owner never waits: if the flag is set, the owner takes its slow path. Other CPUs need the
//! flag only to drain or inspect lists. So they wait without a queue, and are served in no
//! particular order.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::raw::RawLock;
use super::sync::AtomicBool;

/// A flag that is set while the lock is held.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Flag(AtomicBool);

/// The guard of a set flag, which clears the flag when it is dropped.
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
            // Relaxed is enough: this load only decides when to try again, and the swap in
            // `try_acquire` provides the ordering. The loop ends when the holder releases the flag.
            // An owner that acquires the flag in quick succession can overtake this waiter, but
            // after each release the flag is free for a moment.
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
        // Release pairs with the Acquire in `try_acquire`: the next holder sees the writes of this
        // holder.
        self.0.0.store(false, Release);
    }
}
