//! The module that provides atomics and threads to the locks of `host` when they run under loom.
//!
//! Loom's own `unpark` also resumes a thread that waits for a mutex. So this module implements
//! parking with loom's mutex and condition variable. A thread that sleeps with a time limit may be
//! woken at any moment.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use loom::sync::atomic::fence;
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicUsize};
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread;

loom::thread_local! {
    static ME: Thread = Thread::default();
}

/// A handle on a thread, with which another thread can wake it.
#[derive(Clone, Default)]
pub(crate) struct Thread(Arc<Waker>);

#[derive(Default)]
struct Waker {
    is_woken: Mutex<bool>,
    changed: Changed,
}

/// A condition variable that implements `Default`, which loom's does not.
struct Changed(Condvar);

impl Default for Changed {
    fn default() -> Self {
        Self(Condvar::new())
    }
}

impl Thread {
    pub(crate) fn unpark(&self) {
        *self.0.is_woken.lock().expect("no thread panics inside") = true;
        self.0.changed.0.notify_one();
    }
}

pub(crate) fn current() -> Thread {
    ME.with(Clone::clone)
}

pub(crate) fn park() {
    let Thread(me) = current();
    let mut is_woken = me.is_woken.lock().expect("no thread panics inside");
    while !*is_woken {
        is_woken = me
            .changed
            .0
            .wait(is_woken)
            .expect("no thread panics inside");
    }
    *is_woken = false;
}

pub(crate) fn park_timeout(_: Duration) {
    thread::yield_now();
}

pub(crate) fn sleep(_: Duration) {
    thread::yield_now();
}

/// Stands for `membarrier`, which issues a full barrier on all CPUs that run threads of the
/// process. Here the calling thread's barrier is enough, because `light_barrier` is a full barrier
/// too.
pub(crate) fn heavy_barrier() {
    fence(SeqCst);
}

pub(crate) fn light_barrier() {
    fence(SeqCst);
}
