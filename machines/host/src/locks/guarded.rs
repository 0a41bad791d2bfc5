//! A value that only the holder of its lock can reach. The only unsafe code of the locks.
//!
//! Invariant: a `&mut` to the value exists only between an acquisition of the raw lock and the
//! drop of what the acquisition returned, and a raw lock has one holder at a time.
#![expect(
    unsafe_code,
    reason = "a lock hands out `&mut` to a value that threads share"
)]

use std::cell::UnsafeCell;

use super::flag::Flag;
use super::raw::RawLock;
use super::ticket::Ticket;

/// A raw lock that has at most one holder at a time, whose release happens before the next
/// acquisition.
///
/// # Safety
/// An implementation must have both properties, because [`Guarded`] relies on them.
pub(crate) unsafe trait Excludes: RawLock {}

// SAFETY: tickets are unique until 2³² waiters exist, and only the ticket being served holds;
// the releasing store of `serving` pairs with the acquiring load that sees it.
unsafe impl Excludes for Ticket {}
// SAFETY: only the swap that turned the flag from clear to set holds; the releasing store that
// clears it pairs with the next such swap.
unsafe impl Excludes for Flag {}

/// A value behind a raw lock.
#[derive(Default)]
pub(crate) struct Guarded<L, T> {
    raw: L,
    value: UnsafeCell<T>,
}

// SAFETY: threads reach the value one after the other, each after the one before let go of it,
// so sharing `Guarded` only sends the `T` from thread to thread.
unsafe impl<L: Excludes + Sync, T: Send> Sync for Guarded<L, T> {}

impl<L: Excludes, T> Guarded<L, T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            raw: L::default(),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock, and runs `f`. Calls `relax` after each look at a busy lock.
    #[inline]
    pub(crate) fn with<R>(&self, relax: impl FnMut(u32), f: impl FnOnce(&mut T) -> R) -> R {
        let held = self.raw.acquire(relax);
        self.run(held, f)
    }

    /// Runs `f` if the lock is free.
    #[inline]
    pub(crate) fn try_with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        let held = self.raw.try_acquire()?;
        Some(self.run(held, f))
    }

    /// Runs `f` on the value and drops `_held` after it, also when `f` panics.
    fn run<'a, R>(&'a self, _held: L::Held<'a>, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: `_held` lives until `f` has returned, and `L: Excludes` has one holder at a
        // time, so this is the only reference to the value. Both callers pass the acquisition of
        // `self.raw`.
        let value = unsafe { &mut *self.value.get() };
        f(value)
    }
}
