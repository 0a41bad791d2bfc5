//! The atomics, the mutex, the seats and the barrier of `stack.rs`, and the size of a stack.
//!
//! That file imports such primitives only from this module. So the model checkers can run it with
//! primitives of their own, and with a small stack (`machines/model/tests/host_fronts_*.rs`).

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) use crate::locks::{Seat, Sitter, light_barrier};

/// The number of pages that a stack can hold: 4 KiB of page numbers.
pub(crate) const STACK_CAPACITY: usize = 1024;

/// Locks a mutex if no thread holds it.
pub(crate) fn try_lock<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    use std::sync::TryLockError;
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
