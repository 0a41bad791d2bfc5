//! A queue that threads pass one at a time, in the order in which they came.
//!
//! Only the first thread in the queue may go on; when it leaves, the next one is first. A waiter
//! sleeps until it is woken, or for a tick if it may be killed.
//!
//! The queue takes no memory, because a waiter may be on its way to give memory back. So its length is
//! limited; further threads look once a tick whether they can join.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::sync::{self, AtomicU32, Mutex, MutexGuard, Thread};

/// How long a waiter that may be killed sleeps before it looks again: one tick.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Waiters that are served in the order in which they came, at most.
const WAITERS_MAX: usize = 16;

/// The access that a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

/// A queue of waiters.
#[derive(Default)]
pub(crate) struct Fifo {
    waiters: Mutex<Waiters>,
    /// The number of waiters, and below it of those that wait to write: copies to read without the mutex.
    waiting: AtomicU32,
    writers: AtomicU32,
}

#[derive(Default)]
struct Waiters {
    /// In the order in which they came, from the first place on.
    queue: [Option<Waiter>; WAITERS_MAX],
    /// The number of the next thread that comes.
    next: u64,
}

struct Waiter {
    number: u64,
    purpose: Purpose,
    thread: Thread,
}

/// A place in the queue; given up when dropped.
pub(crate) struct Place<'a> {
    fifo: &'a Fifo,
    number: u64,
}

impl Fifo {
    /// Whether no thread waits. The answer may be outdated at once: a thread that comes meanwhile comes at the
    /// same moment as the caller.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: nothing is read because of it; the lock behind orders.
        self.waiting.load(Relaxed) == 0
    }

    /// Whether a thread waits to write.
    #[inline]
    pub(crate) fn writer_waits(&self) -> bool {
        // Relaxed: a hint.
        self.writers.load(Relaxed) > 0
    }

    /// Joins the queue.
    pub(crate) fn join(&self, purpose: Purpose) -> Place<'_> {
        let place = self.join_unless(purpose, || false);
        place.expect("only a thread that may be killed gives up")
    }

    /// Joins the queue, or gives up once `killed` if the queue is full.
    pub(crate) fn join_unless(
        &self,
        purpose: Purpose,
        killed: impl Fn() -> bool,
    ) -> Option<Place<'_>> {
        // Ends when a waiter has left the queue. Threads that wait for that join in any order.
        loop {
            if let Some(number) = self.waiters().add(purpose, self) {
                let fifo = self;
                return Some(Place { fifo, number });
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
        let writers = all()
            .filter(|waiter| waiter.purpose == Purpose::Write)
            .count();
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
    fn add(&mut self, purpose: Purpose, fifo: &Fifo) -> Option<u64> {
        let free = self.queue.iter_mut().find(|place| place.is_none())?;
        let number = self.next;
        self.next += 1;
        *free = Some(Waiter {
            number,
            purpose,
            thread: sync::current(),
        });
        fifo.publish(self);
        Some(number)
    }

    fn remove(&mut self, number: u64) {
        let is_it =
            |place: &Option<Waiter>| place.as_ref().is_some_and(|waiter| waiter.number == number);
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

    /// Waits to be first, or gives up once `killed`. Returns whether it is first.
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
        let waiters = self.fifo.waiters();
        waiters
            .first()
            .is_some_and(|waiter| waiter.number == self.number)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.fifo.leave(self.number);
    }
}
