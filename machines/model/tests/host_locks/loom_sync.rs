//! The module that locks of `host` name atomics and threads through, on loom.
//!
//! Loom's own `unpark` also lets a thread go on that waits for a mutex, so parking is made of its mutex and
//! condition here. What sleeps for a time may be woken at any time.

use std::sync::Arc;
use std::time::Duration;

pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32};
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread;

loom::thread_local! {
    static ME: Thread = Thread::default();
}

/// A thread that may be woken.
#[derive(Clone, Default)]
pub(crate) struct Thread(Arc<Waker>);

#[derive(Default)]
struct Waker {
    is_woken: Mutex<bool>,
    changed: Changed,
}

/// Loom's condition has no default.
struct Changed(Condvar);

impl Default for Changed {
    fn default() -> Self {
        Self(Condvar::new())
    }
}

impl Thread {
    pub(crate) fn unpark(&self) {
        *self.0.is_woken.lock().expect("nobody panics inside") = true;
        self.0.changed.0.notify_one();
    }
}

pub(crate) fn current() -> Thread {
    ME.with(Clone::clone)
}

pub(crate) fn park() {
    let Thread(me) = current();
    let mut is_woken = me.is_woken.lock().expect("nobody panics inside");
    while !*is_woken {
        is_woken = me.changed.0.wait(is_woken).expect("nobody panics inside");
    }
    *is_woken = false;
}

pub(crate) fn park_timeout(_: Duration) {
    thread::yield_now();
}

pub(crate) fn sleep(_: Duration) {
    thread::yield_now();
}
