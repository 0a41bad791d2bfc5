//! The locks of the host: [`TicketLock`] first come, first served; [`OwnerLock`] a flag;
//! [`SharedLock`], which readers share.
//!
//! The first two are a raw lock (`ticket`, `flag`) around a value (`guarded`). A raw lock (`raw`) knows how
//! to wait and how to be released by dropping what its acquisition returned, so a panic in a closure
//! releases it.
//!
//! The raw locks and the queue in front of a [`SharedLock`] (`fifo`) name atomics and threads through
//! `sync` only, so that the model checkers run the same files over their own atomics.
//!
//! Sleeping classes use the same ticket locks: after a bounded spin a waiter yields its CPU, which
//! is all that sleeping would buy here. A thread that waits for a [`SharedLock`], perhaps for long, sleeps.

mod fifo;
mod flag;
mod guarded;
mod owner;
mod queued;
mod raw;
mod shared;
pub(crate) mod sync;
mod ticket;

pub use owner::OwnerLock;
pub use queued::TicketLock;
pub use shared::SharedLock;

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
