//! The locks of the host: [`TicketLock`], which serves waiters in the order of arrival;
//! [`OwnerLock`], which one thread takes often; and [`SharedLock`], which readers share.
//!
//! The first two are a raw lock (`ticket`, `biased`) around a value (`guarded`). Acquiring a raw
//! lock returns a guard that releases the lock when it is dropped. So the lock is also released if
//! the critical section, which a caller passes as a closure, panics.
//!
//! The raw locks and the queue in front of a [`SharedLock`] (`fifo`) take atomics and threads only
//! from `sync`. So the model checkers can run these files with their own atomics.
//!
//! Some lock classes are mutexes in Linux, where waiters sleep. They use [`TicketLock`] too: after
//! a bounded number of attempts a waiter yields its CPU, and sleeping would gain nothing beyond
//! that. A thread that waits for a [`SharedLock`] may wait for a long time, so it does sleep.

mod barrier;
mod biased;
mod fifo;
mod guarded;
mod owner;
mod queued;
mod raw;
mod seats;
mod shared;
pub(crate) mod sync;
mod ticket;

use crate::Host;

pub use owner::OwnerLock;
pub use queued::TicketLock;
pub use shared::SharedLock;

pub(crate) use barrier::are_available as barriers_are_available;
pub(crate) use barrier::{heavy_barrier, light_barrier};
pub(crate) use biased::{Seat, Sitter};
pub(crate) use seats::{mine, seat_of, sit_down, stand_up_in_child};

/// The number of attempts to acquire a lock before a waiter starts to yield. These attempts take
/// about two microseconds, which is longer than most critical sections and far shorter than a time
/// slice.
const SPINS_MAX: u32 = 200;

/// Pauses a thread that waits for a lock, before its next attempt. The last `looks` attempts have
/// found the lock held. Early pauses spin. Later pauses let other threads run: if there are more
/// threads than CPUs, the holder of the lock may be waiting for this CPU.
pub(crate) fn spin_then_yield(looks: u32) {
    if looks < SPINS_MAX {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Pauses a thread that waits for a lock, before its next attempt. The last `looks` attempts have
/// found the lock held. Early pauses spin. Later pauses let other threads run. Aborts the process
/// if it is the child of a fork, in which the holder of the lock may not exist.
pub(crate) fn spin_or_leave(machine: &Host, looks: u32) {
    if looks == SPINS_MAX {
        machine.abort_in_child();
    }
    spin_then_yield(looks);
}
