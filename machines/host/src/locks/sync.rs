//! The atomics, barriers, mutexes and threads for the raw locks, the FIFO of waiters and the job
//! queue.
//!
//! The files of these locks and queues import such primitives only from this module. So the model
//! checkers can run the same files with primitives of their own
//! (`machines/model/tests/host_locks_*.rs`).

pub(crate) use std::sync::atomic::{AtomicU32, AtomicUsize};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::{Thread, current, park, park_timeout, sleep};

pub(crate) use super::barrier::{heavy_barrier, light_barrier};
