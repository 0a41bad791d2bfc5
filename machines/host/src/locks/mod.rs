//! The locks of the host: [`TicketLock`], which serves waiters in the order in which they came;
//! [`OwnerLock`], which is a flag; and [`SharedLock`], which readers share.
//!
//! The first two are a raw lock (`ticket`, `flag`) around a value (`guarded`). An acquisition of a
//! raw lock (`raw`) returns a guard that releases the lock when it is dropped, so a closure that
//! panics releases the lock too.
//!
//! The raw locks and the queue in front of a [`SharedLock`] (`fifo`) take atomics and threads
//! from `sync` only, so that the model checkers can run these files over their own atomics.
//!
//! Lock classes that sleep use the same ticket locks: after a bounded number of looks a waiter
//! yields its CPU, which is all that sleeping would gain here. A thread that waits for a
//! [`SharedLock`] may wait for long, so it does sleep.

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

/// Waits once for a busy lock, after `looks` looks at it: spins at first, later lets other threads
/// run. If there are more threads than CPUs, the holder may be one of those threads.
pub(crate) fn spin_then_yield(looks: u32) {
    if looks < SPINS_MAX {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
