//! A queue that threads pass one at a time, in the order they came.
//!
//! Whoever is first in it is the only one that may go on; leaving lets the next one be first. A
//! waiter sleeps until it is woken, or for a tick if it may be killed.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;

/// How long a waiter that may be killed sleeps before it looks again: one tick.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What somebody waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

/// See the file's header.
#[derive(Default)]
pub(crate) struct Turnstile {
    waiters: Mutex<Waiters>,
    /// How many are in the queue, and how many of them to write: copies for who only looks.
    waiting: AtomicU32,
    writers: AtomicU32,
}

#[derive(Default)]
struct Waiters {
    queue: VecDeque<Waiter>,
    /// The number of the next to come.
    next: u64,
}

struct Waiter {
    number: u64,
    purpose: Purpose,
    thread: Thread,
}

/// A place in the queue; given up when dropped.
pub(crate) struct Place<'a> {
    turnstile: &'a Turnstile,
    number: u64,
}

impl Turnstile {
    /// Whether nobody waits. Stale at once: who comes meanwhile comes together with the caller.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: nothing is read because of it; the lock behind orders.
        self.waiting.load(Relaxed) == 0
    }

    /// Whether somebody waits to write.
    #[inline]
    pub(crate) fn writer_waits(&self) -> bool {
        // Relaxed: a hint.
        self.writers.load(Relaxed) > 0
    }

    /// Queues.
    pub(crate) fn join(&self, purpose: Purpose) -> Place<'_> {
        let mut waiters = self.waiters.lock();
        let number = waiters.next;
        waiters.next += 1;
        waiters.queue.push_back(Waiter {
            number,
            purpose,
            thread: thread::current(),
        });
        self.publish(&waiters);
        Place {
            turnstile: self,
            number,
        }
    }

    fn leave(&self, number: u64) {
        let mut waiters = self.waiters.lock();
        waiters.queue.retain(|it| it.number != number);
        self.publish(&waiters);
        if let Some(first) = waiters.queue.front() {
            // For nothing if it was first before. One wake-up too many is looked through.
            first.thread.unpark();
        }
    }

    /// Relaxed: written under the mutex, so each is current when it is released.
    fn publish(&self, waiters: &Waiters) {
        let to_write = |it: &&Waiter| it.purpose == Purpose::Write;
        let writers = waiters.queue.iter().filter(to_write).count();
        let sum = |many: usize| u32::try_from(many).expect("fewer threads than 2³²");
        self.waiting.store(sum(waiters.queue.len()), Relaxed);
        self.writers.store(sum(writers), Relaxed);
    }
}

impl Place<'_> {
    /// Waits to be first.
    pub(crate) fn wait(&self) {
        // Ends when all before have left. Being woken for another reason only means a look more.
        while !self.is_first() {
            thread::park();
        }
    }

    /// The same, but gives up once `killed`. Returns whether it is first.
    pub(crate) fn wait_unless(&self, killed: impl Fn() -> bool) -> bool {
        while !self.is_first() {
            if killed() {
                return false;
            }
            thread::park_timeout(LOOK_EVERY);
        }
        true
    }

    fn is_first(&self) -> bool {
        let waiters = self.turnstile.waiters.lock();
        let first = waiters.queue.front();
        first.is_some_and(|it| it.number == self.number)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.turnstile.leave(self.number);
    }
}
