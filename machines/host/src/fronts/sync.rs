//! The atomics, the mutex, the seats (where threads note which stack they use) and the barrier of
//! `stack.rs` and `homes.rs`, and two numbers: the size of a stack, and [`STRANGE_MAX`].
//!
//! Those files import such primitives only from this module. So the model checkers can run them
//! with primitives of their own and with small numbers (`machines/model/tests/host_fronts_*.rs`).

pub(crate) use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use crate::locks::{Seat, Sitter, light_barrier};

/// The number of pages that a stack can hold: 4 KiB of page numbers.
pub(crate) const STACK_CAPACITY: usize = 1024;

/// If threads other than the stack's user call `Stack::admit` this many times in a row, the last
/// caller becomes the user. Each use of the stack by its user resets the count. The same limit
/// applies to the home of a CPU's counters, the real CPU whose threads may add to these counters
/// (`homes.rs`): the home moves after that many additions by threads on other real CPUs.
pub(crate) const STRANGE_MAX: u32 = 1024;

/// Locks a mutex if no thread holds it.
pub(crate) fn try_lock<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    use std::sync::TryLockError;
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
