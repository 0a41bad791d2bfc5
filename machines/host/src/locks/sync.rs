//! The atomics, mutexes and threads for the raw locks, the FIFO of waiters and the job queue.
//!
//! These files import them only from this module. So the model checkers can run the same files with
//! their own primitives (`machines/model/tests/host_locks_*.rs`).

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::{Thread, current, park, park_timeout, sleep};
