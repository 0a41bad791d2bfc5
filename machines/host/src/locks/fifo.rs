//! A queue that admits one thread at a time, in the order of arrival.
//!
//! Only the first thread in the queue may proceed; when it leaves, the next one is first. A waiter
//! sleeps until it is woken. A waiter that may be killed also wakes once a tick.
//!
//! The queue allocates no memory, because a waiter may be about to free memory. So its length is
//! limited; a thread that finds it full checks once a tick whether there is room.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::sync::{self, AtomicU32, Mutex, MutexGuard, Thread};

/// The time for which a waiter that may be killed sleeps between two checks: one tick.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The largest number of waiters in the queue. Further threads wait until there is room, and then
/// join in arbitrary order.
const WAITERS_MAX: usize = 16;

/// The kind of access to a lock for which a queued thread waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

/// A queue of waiting threads, which admits them one at a time in the order of their arrival.
#[derive(Default)]
pub(crate) struct Fifo {
    waiters: Mutex<Waiters>,
    /// The number of entries in `waiters`, copied here so that it can be read without the mutex.
    waiting: AtomicU32,
    /// The number of entries in `waiters` whose threads wait to write, copied here so that it can
    /// be read without the mutex.
    writers: AtomicU32,
}

#[derive(Default)]
struct Waiters {
    /// The waiters in order of arrival; free entries are at the end.
    queue: [Option<Waiter>; WAITERS_MAX],
    /// The number for the next thread that joins the queue.
    next: u64,
}

struct Waiter {
    number: u64,
    purpose: Purpose,
    thread: Thread,
}

/// A thread's entry in the queue. Dropping it makes the thread leave the queue.
pub(crate) struct Place<'a> {
    fifo: &'a Fifo,
    number: u64,
}

impl Fifo {
    /// Returns whether no thread waits in the queue. A thread may join right after this check, and
    /// the caller may then get the lock before that thread. That is fair: the two count as having
    /// arrived together.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed is enough: the answer does not make the caller read other memory. The lock that
        // the caller acquires next provides the ordering.
        self.waiting.load(Relaxed) == 0
    }

    /// Returns whether a thread waits to write.
    #[inline]
    pub(crate) fn writer_waits(&self) -> bool {
        // Relaxed: the answer is only a hint.
        self.writers.load(Relaxed) > 0
    }

    /// Joins the queue. Returns the calling thread's place in it.
    pub(crate) fn join(&self, purpose: Purpose) -> Place<'_> {
        let place = self.join_unless(purpose, || false);
        place.expect("only a thread that may be killed gives up")
    }

    /// Joins the queue. If the queue is full, waits for room. Returns `None` once `killed` returns
    /// true.
    pub(crate) fn join_unless(
        &self,
        purpose: Purpose,
        killed: impl Fn() -> bool,
    ) -> Option<Place<'_>> {
        // The loop ends when a waiter has left the queue, which makes room. If several threads wait
        // for room, they join in arbitrary order.
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
            // If the woken thread was already first, the wakeup is spurious. Every loop in which
            // that thread sleeps then checks its condition again.
            first.thread.unpark();
        }
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        // A poisoned mutex is used anyway, because no code panics in the middle of a change.
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates `waiting` and `writers`, which can be read without the mutex.
    ///
    /// Relaxed is enough: both numbers are written under the mutex, so they are current when the
    /// mutex is released.
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

    /// Adds the calling thread to the queue. Returns the thread's number, which grows in the order
    /// of arrival, or `None` if there is no room.
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
    /// Waits until this thread is first in the queue.
    pub(crate) fn wait(&self) {
        // The loop ends when all earlier threads have left. A spurious wakeup costs only one more
        // check.
        while !self.is_first() {
            sync::park();
        }
    }

    /// Waits until this thread is first in the queue or `killed` returns true. Returns whether the
    /// thread is first.
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
