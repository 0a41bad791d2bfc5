//! A queue that threads pass one at a time, in the order in which they came.
//!
//! Only the first thread in the queue may go on; when it leaves, the next one is first. A waiter
//! sleeps until it is woken, or for a tick if it may be killed.
//!
//! The queue allocates no memory, because a waiter may be about to give memory back. So its length
//! is limited; a thread that finds it full looks once a tick whether it can join.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::sync::{self, AtomicU32, Mutex, MutexGuard, Thread};

/// The time that a waiter which may be killed sleeps before it looks again: one tick.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The most waiters that are served in the order in which they came.
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
    /// The number of waiters: a copy that can be read without the mutex.
    waiting: AtomicU32,
    /// The number of waiters that wait to write: a copy that can be read without the mutex.
    writers: AtomicU32,
}

#[derive(Default)]
struct Waiters {
    /// The waiters in the order in which they came; empty places are at the end.
    queue: [Option<Waiter>; WAITERS_MAX],
    /// The number that the next thread gets which joins the queue.
    next: u64,
}

struct Waiter {
    number: u64,
    purpose: Purpose,
    thread: Thread,
}

/// A thread's place in the queue. When it is dropped, the thread leaves the queue.
pub(crate) struct Place<'a> {
    fifo: &'a Fifo,
    number: u64,
}

impl Fifo {
    /// Returns whether no thread waits. The answer may be outdated at once; a thread that joins
    /// meanwhile counts as coming at the same moment as the caller.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: the caller reads no other memory because of the answer; the lock that it takes
        // next orders.
        self.waiting.load(Relaxed) == 0
    }

    /// Returns whether a thread waits to write.
    #[inline]
    pub(crate) fn writer_waits(&self) -> bool {
        // Relaxed: the answer is only a hint.
        self.writers.load(Relaxed) > 0
    }

    /// Joins the queue.
    pub(crate) fn join(&self, purpose: Purpose) -> Place<'_> {
        let place = self.join_unless(purpose, || false);
        place.expect("only a thread that may be killed gives up")
    }

    /// Joins the queue. If the queue is full, waits for room, and gives up with `None` once
    /// `killed` returns true.
    pub(crate) fn join_unless(
        &self,
        purpose: Purpose,
        killed: impl Fn() -> bool,
    ) -> Option<Place<'_>> {
        // The loop ends when a waiter has left the queue. Several threads that wait for room join
        // in any order.
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
            // If this thread was first already, it is woken needlessly, looks, and sleeps again.
            first.thread.unpark();
        }
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        // A poisoned mutex is used as it is, because no code panics halfway through a change.
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the copies of the two numbers.
    ///
    /// Relaxed: they are written under the mutex, so they are current when the mutex is released.
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

    /// Adds the calling thread and returns its number; `None` if there is no room.
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
        // The loop ends when all earlier threads have left. A wake-up for another reason only costs
        // one more look.
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
