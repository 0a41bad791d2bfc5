//! The locks of the host: [`TicketLock`] first come, first served; [`OwnerLock`] a flag;
//! [`SharedLock`], which readers share.
//!
//! The first two are a raw lock around a value (`guarded`). A raw lock knows how to wait and how to be
//! released by dropping what its acquisition returned, so a panic in a closure releases it.
//!
//! Sleeping classes use the same ticket locks: after a bounded spin a waiter yields its CPU, which
//! is all that sleeping would buy here. Who waits for a [`SharedLock`], perhaps for long, sleeps.

mod flag;
mod guarded;
mod shared;
mod ticket;
mod turnstile;

pub use flag::OwnerLock;
pub use shared::SharedLock;
pub use ticket::TicketLock;

/// A lock without a value.
pub(crate) trait RawLock: Default {
    /// What releases the lock when dropped.
    type Held<'a>
    where
        Self: 'a;

    /// Waits for the lock. `relax` is called before each further look at a lock that was busy,
    /// with the number of looks so far; never for a lock that was free.
    fn acquire(&self, relax: impl FnMut(u32)) -> Self::Held<'_>;

    /// Takes the lock if it is free.
    fn try_acquire(&self) -> Option<Self::Held<'_>>;
}

/// Looks at a busy lock before its waiter starts to yield: about two microseconds, more than a
/// short hold and far less than a time slice.
const SPINS_MAX: u32 = 200;

/// How the host waits: spins first, then lets other threads run. With more threads than CPUs
/// the holder may be one of those.
pub(crate) fn spin_then_yield(looks: u32) {
    if looks < SPINS_MAX {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
