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

use super::biased::{Biased, Seating, Sitter};
use super::raw::RawLock;
use super::ticket::Ticket;

/// A raw lock that has at most one holder at a time. Its release happens before the next
/// acquisition.
///
/// # Safety
/// An implementation must guarantee that there is at most one holder at a time, and that each
/// release happens before the next acquisition. [`Guarded`] relies on both guarantees.
pub(crate) unsafe trait Excludes {}

// SAFETY: tickets are unique until 2³² waiters exist, and only the thread whose ticket is being
// served holds the lock. The Release store to `serving` pairs with the Acquire load that reads the
// stored value.
unsafe impl Excludes for Ticket {}
// SAFETY: a thread can hold the lock in two ways. It can set `TAKEN` by an exchange, which succeeds
// for one thread at a time. Or it can be the owner: it stores the lock's address in its own seat
// and then reads a state without `TAKEN`. A barrier follows the exchange, so at least one of two
// such threads sees the other: the owner then leaves at once, or the other thread waits or gives
// up. The owner changes only while `TAKEN` is set and no owner is inside, and no two threads have
// the same seat (`seats.rs`). The Release stores of `Held::drop` pair with the Acquire accesses in
// `sit`, `take` and `is_inside`.
unsafe impl<P: Seating> Excludes for Biased<P> {}

/// A raw lock, and a value that only the lock's holder can access.
#[derive(Default)]
pub(crate) struct Guarded<L, T> {
    raw: L,
    value: UnsafeCell<T>,
}

// SAFETY: threads access the value one after the other, each after the previous one has released
// the lock. So sharing `Guarded` only sends the `T` from thread to thread.
unsafe impl<L: Excludes + Sync, T: Send> Sync for Guarded<L, T> {}

impl<L: Excludes + RawLock, T> Guarded<L, T> {
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
}

impl<P: Seating, T> Guarded<Biased<P>, T> {
    /// Runs `f` if the lock is free; otherwise returns `None`. `me` is the calling thread's seat,
    /// where it notes which lock it holds.
    #[inline(always)]
    pub(crate) fn try_local<R>(
        &self,
        me: Option<Sitter<'_>>,
        f: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        let held = self.raw.try_local(me)?;
        Some(self.run(held, f))
    }

    /// Runs `f` if [`Biased::try_quick`] acquires the lock; otherwise returns `None`.
    #[inline(always)]
    pub(crate) fn try_quick<R>(
        &self,
        me: Option<Sitter<'_>>,
        f: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        let held = self.raw.try_quick(me)?;
        Some(self.run(held, f))
    }

    /// Acquires the lock and runs `f`. `me` is the calling thread's seat, in which the thread notes
    /// which lock it holds. Calls `relax` after each attempt that finds the lock held.
    pub(crate) fn with_seat<R>(
        &self,
        me: Option<Sitter<'_>>,
        relax: impl FnMut(u32),
        f: impl FnOnce(&mut T) -> R,
    ) -> R {
        let held = self.raw.acquire(me, relax);
        self.run(held, f)
    }
}

impl<L: Excludes, T> Guarded<L, T> {
    pub(crate) fn new(raw: L, value: T) -> Self {
        Self {
            raw,
            value: UnsafeCell::new(value),
        }
    }

    /// Runs `f` on the value and drops `_held` afterwards, even if `f` panics. `_held` must be a
    /// guard of `self.raw`.
    #[inline(always)]
    fn run<H, R>(&self, _held: H, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: `_held` lives until `f` has returned. All callers of this function got `_held`
        // from `self.raw`, which has at most one holder at a time because `L: Excludes`. So this is
        // the only reference to the value.
        let value = unsafe { &mut *self.value.get() };
        f(value)
    }
}
