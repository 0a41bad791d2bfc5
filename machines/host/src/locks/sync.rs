//! What raw locks, the turnstile and the desk of jobs are made of. They name it through this module, so that
//! the model checkers run the same files over their own (`machines/model/tests/host_locks_*.rs`).

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::{Thread, current, park, park_timeout, sleep};
