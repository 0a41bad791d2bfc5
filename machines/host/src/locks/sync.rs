//! The atomics, mutexes and threads of the raw locks, of the FIFO of waiters and of the job queue.
//!
//! These files take them from this module only, so that the model checkers can run the same files
//! over their own primitives (`machines/model/tests/host_locks_*.rs`).

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::{Thread, current, park, park_timeout, sleep};
