//! A queue that threads pass one at a time, in the order they came.
//!
//! Whoever is first in it is the only one that may go on; leaving lets the next one be first. A
//! waiter sleeps until it is woken, or for a tick if it may be killed.
//!
//! The queue takes no memory: who waits may be on its way to give memory back. So there is room for
//! some only; others look once a tick whether they can join.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::sync::{self, AtomicU32, Mutex, MutexGuard, Thread};

/// How long a waiter that may be killed sleeps before it looks again: one tick.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How many are served in the order in which they came.
const WAITERS_MAX: usize = 16;

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
    /// In the order in which they came, from the first place on.
    queue: [Option<Waiter>; WAITERS_MAX],
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
        let place = self.join_unless(purpose, || false);
        place.expect("only who may be killed gives up")
    }

    /// The same, but gives up once `killed`, should the queue be full.
    pub(crate) fn join_unless(
        &self,
        purpose: Purpose,
        killed: impl Fn() -> bool,
    ) -> Option<Place<'_>> {
        // Ends when somebody in the queue has left. Those who wait for that come in any order.
        loop {
            if let Some(number) = self.waiters().add(purpose, self) {
                let turnstile = self;
                return Some(Place { turnstile, number });
            }
            if killed() {
                return None;
            }
            sync::sleep(LOOK_EVERY);
        }
    }

    fn leave(&self, number: u64) {
        let mut waiters = self.waiters();
        waiters.remove(number);
        self.publish(&waiters);
        if let Some(first) = waiters.first() {
            // For nothing if it was first before. One wake-up too many is looked through.
            first.thread.unpark();
        }
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        // Nothing inside panics halfway.
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Relaxed: written under the mutex, so each is current when it is released.
    fn publish(&self, waiters: &Waiters) {
        let all = || waiters.queue.iter().flatten();
        let writers = all().filter(|it| it.purpose == Purpose::Write).count();
        let sum = |many: usize| u32::try_from(many).expect("fewer threads than 2³²");
        self.waiting.store(sum(all().count()), Relaxed);
        self.writers.store(sum(writers), Relaxed);
    }
}

impl Waiters {
    fn first(&self) -> Option<&Waiter> {
        self.queue[0].as_ref()
    }

    /// Adds the calling thread, if there is room. Its number.
    fn add(&mut self, purpose: Purpose, turnstile: &Turnstile) -> Option<u64> {
        let free = self.queue.iter_mut().find(|place| place.is_none())?;
        let number = self.next;
        self.next += 1;
        *free = Some(Waiter {
            number,
            purpose,
            thread: sync::current(),
        });
        turnstile.publish(self);
        Some(number)
    }

    fn remove(&mut self, number: u64) {
        let is_it = |place: &Option<Waiter>| place.as_ref().is_some_and(|it| it.number == number);
        if let Some(at) = self.queue.iter().position(is_it) {
            self.queue[at] = None;
            self.queue[at..].rotate_left(1);
        }
    }
}

impl Place<'_> {
    /// Waits to be first.
    pub(crate) fn wait(&self) {
        // Ends when all before have left. Being woken for another reason only means a look more.
        while !self.is_first() {
            sync::park();
        }
    }

    /// The same, but gives up once `killed`. Returns whether it is first.
    pub(crate) fn wait_unless(&self, killed: impl Fn() -> bool) -> bool {
        while !self.is_first() {
            if killed() {
                return false;
            }
            sync::park_timeout(LOOK_EVERY);
        }
        true
    }

    fn is_first(&self) -> bool {
        let waiters = self.turnstile.waiters();
        waiters.first().is_some_and(|it| it.number == self.number)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.turnstile.leave(self.number);
    }
}
