//! A value that only the holder of its lock can access. This file has the only unsafe code of the
//! locks.
//!
//! Invariant: a `&mut` to the value exists only while a guard of the raw lock exists, and a raw
//! lock has at most one holder at a time.
#![expect(
    unsafe_code,
    reason = "a lock hands out `&mut` to a value that threads share"
)]

use std::cell::UnsafeCell;

use super::flag::Flag;
use super::raw::RawLock;
use super::ticket::Ticket;

/// A raw lock that has at most one holder at a time. Its release happens before the next
/// acquisition.
///
/// # Safety
/// An implementation must guarantee that there is at most one holder at a time, and that each
/// release happens before the next acquisition. [`Guarded`] relies on both guarantees.
pub(crate) unsafe trait Excludes: RawLock {}

// SAFETY: tickets are unique until 2³² waiters exist, and only the thread whose ticket is being
// served holds the lock. The Release store to `serving` pairs with the Acquire load that reads the
// stored value.
unsafe impl Excludes for Ticket {}
// SAFETY: only the thread whose swap changed the flag from clear to set holds the lock. The Release
// store that clears the flag pairs with the next such swap.
unsafe impl Excludes for Flag {}

/// A value behind a raw lock.
#[derive(Default)]
pub(crate) struct Guarded<L, T> {
    raw: L,
    value: UnsafeCell<T>,
}

// SAFETY: threads access the value one after the other, each after the previous one has released
// the lock. So sharing `Guarded` only sends the `T` from thread to thread.
unsafe impl<L: Excludes + Sync, T: Send> Sync for Guarded<L, T> {}

impl<L: Excludes, T> Guarded<L, T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            raw: L::default(),
            value: UnsafeCell::new(value),
        }
    }

    /// Acquires the lock and runs `f`. Calls `relax` after each attempt that finds the lock held.
    #[inline]
    pub(crate) fn with<R>(&self, relax: impl FnMut(u32), f: impl FnOnce(&mut T) -> R) -> R {
        let held = self.raw.acquire(relax);
        self.run(held, f)
    }

    /// Runs `f` if the lock is free; otherwise returns `None`.
    #[inline]
    pub(crate) fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let held = self.raw.try_acquire()?;
        Some(self.run(held, f))
    }

    /// Runs `f` on the value and drops `_held` afterwards, even if `f` panics.
    fn run<'a, R>(&'a self, _held: L::Held<'a>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: `_held` lives until `f` has returned. Both callers of this function got `_held`
        // from `self.raw`, which has at most one holder at a time because `L: Excludes`. So this is
        // the only reference to the value.
        let value = unsafe { &mut *self.value.get() };
        f(value)
    }
}
