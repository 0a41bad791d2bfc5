//! Laws of the locks of `host`, and of its job queue (the deferred jobs of one CPU). A checker
//! calls each function once for each interleaving.
//!
//! The values that a lock protects are atomics with relaxed loads and stores, so the laws need no
//! unsafe code. An addition is lost if two threads hold the lock at once, or if the second holder
//! does not see the writes of the first.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use plimsoll_mm::machine::{Job, JobState};
use plimsoll_mm::units::Nanos;

use crate::biased::{Biased, Held, Seat, Seating, Sitter};
use crate::checker::thread::{self, JoinHandle};
use crate::checker::{self, AtomicBool, AtomicU32, Condvar, Mutex};
use crate::fifo::{Fifo, Place, Purpose};
use crate::job_queue::JobQueue;
use crate::raw::RawLock;
use crate::ticket::Ticket;

/// Adds 1 with a separate load and store, so an addition is lost if two threads do this at once.
fn add_one(sum: &AtomicU32) {
    let before = sum.load(Relaxed);
    sum.store(before + 1, Relaxed);
}

/// A bell that a thread rings after each release of a lock. Waiters of the lock do not spin: they
/// sleep until the bell rings. Otherwise a checker would let two spinning threads alternate
/// forever.
///
/// The bell also orders memory, which would hide an ordering that the lock lacks. So a waiter uses
/// the bell only after two attempts to acquire the lock.
struct Bell {
    rings: Mutex<u32>,
    rung: Condvar,
}

impl Default for Bell {
    fn default() -> Self {
        Self {
            rings: Mutex::new(0),
            rung: Condvar::new(),
        }
    }
}

impl Bell {
    fn ring(&self) {
        *self.rings.lock().expect("no thread panics inside") += 1;
        self.rung.notify_all();
    }

    fn heard(&self) -> u32 {
        *self.rings.lock().expect("no thread panics inside")
    }

    fn wait_for_more_than(&self, heard: u32) -> u32 {
        let mut rings = self.rings.lock().expect("no thread panics inside");
        while *rings == heard {
            rings = self.rung.wait(rings).expect("no thread panics inside");
        }
        *rings
    }

    /// Returns the function that a waiter of a lock calls after each attempt. From the third
    /// attempt on, the function waits until the bell rings, which happens after each release.
    fn relax(&self) -> impl FnMut(u32) {
        let mut heard = 0;
        move |looks| {
            heard = match looks {
                0 => 0,
                // If the lock is released after this reading of the bell, the bell rings after the
                // reading too. So the wait below ends.
                1 => self.heard(),
                _ => self.wait_for_more_than(heard),
            };
        }
    }
}

fn spawn<S: Send + Sync + 'static>(state: &Arc<S>, body: fn(&S)) -> JoinHandle<()> {
    let state = Arc::clone(state);
    thread::spawn(move || body(&state))
}

fn join(thread: JoinHandle<()>) {
    thread
        .join()
        .expect("a body that panics ends the whole model");
}

/// The payload of the panic by which a thread stops waiting for a lock.
struct GaveUp;

/// A lock, and the sum that it protects.
#[derive(Default)]
struct Guarded<L> {
    lock: L,
    bell: Bell,
    sum: AtomicU32,
    won: AtomicU32,
}

impl<L: RawLock> Guarded<L> {
    fn wait_and_add(&self) {
        let held = self.lock.acquire(self.bell.relax());
        add_one(&self.sum);
        drop(held);
        self.bell.ring();
    }

    fn try_and_add(&self) {
        let Some(held) = self.lock.try_acquire() else {
            return;
        };
        add_one(&self.sum);
        drop(held);
        self.won.fetch_add(1, Relaxed);
        self.bell.ring();
    }
}

/// Asserts that no two threads hold a lock at once. The main thread and `others` more threads each
/// acquire the lock `rounds` times.
pub(crate) fn holders_are_alone<L: RawLock + Send + Sync + 'static>(others: u32, rounds: u32) {
    let guarded = Arc::new((Guarded::<L>::default(), rounds));
    let body: fn(&(Guarded<L>, u32)) = |(guarded, rounds)| {
        (0..*rounds).for_each(|_| guarded.wait_and_add());
    };
    let threads: Vec<_> = (0..others).map(|_| spawn(&guarded, body)).collect();
    body(&guarded);
    threads.into_iter().for_each(join);
    let sum = guarded.0.sum.load(Relaxed);
    assert_eq!(sum, (others + 1) * rounds, "no holder's addition is lost");
}

/// The seats of the threads. A lock is biased to a seat if the thread on the seat owns it.
struct Seats;

impl Seating for Seats {
    fn seats() -> &'static [Seat] {
        checker::seats()
    }
}

/// A lock that one thread can own, and the sum that the lock protects.
struct Owned {
    lock: Biased<Seats>,
    sum: AtomicU32,
    won: AtomicU32,
}

impl Owned {
    fn new(after: Option<u32>) -> Self {
        Self {
            lock: Biased::new(after),
            sum: AtomicU32::new(0),
            won: AtomicU32::new(0),
        }
    }

    /// A lock whose owner is the calling thread. The thread notes in seat 0 which lock it holds.
    fn by_this_thread() -> Arc<Self> {
        let owned = Arc::new(Self::new(Some(0)));
        owned.try_on(0);
        assert_eq!(owned.won.load(Relaxed), 1, "the lock is free");
        owned
    }

    /// Tries the lock as the thread that uses `seat`, and adds 1 to the sum if it gets the lock.
    fn try_on(&self, seat: usize) {
        let me = Some(Sitter::new(&Seats::seats()[seat]));
        self.add_with(self.lock.try_local(me));
    }

    /// Tries the owner's fast path as the thread that uses `seat`, then `try_local`. Adds 1 to the
    /// sum if one of them gets the lock.
    fn try_quickly_on(&self, seat: usize) {
        let me = Some(Sitter::new(&Seats::seats()[seat]));
        let held = self.lock.try_quick(me);
        self.add_with(held.or_else(|| self.lock.try_local(me)));
    }

    fn add_with(&self, held: Option<Held<'_>>) {
        if held.is_some() {
            add_one(&self.sum);
            drop(held);
            self.won.fetch_add(1, Relaxed);
        }
    }

    /// Waits for the lock, as a thread without a seat does, but gives up after two attempts that
    /// find the lock held.
    fn drain(&self) {
        let give_up = |looks| {
            if looks >= 2 {
                // `resume_unwind` panics without printing a message.
                panic::resume_unwind(Box::new(GaveUp));
            }
        };
        let wait = AssertUnwindSafe(|| self.lock.acquire(None, give_up));
        self.add_with(panic::catch_unwind(wait).ok());
    }

    fn is_whole(&self) {
        let (sum, won) = (self.sum.load(Relaxed), self.won.load(Relaxed));
        assert_eq!(sum, won, "no holder's addition is lost");
        self.try_on(0);
        assert_eq!(self.won.load(Relaxed), won + 1, "all threads have let go");
    }
}

/// Asserts that the owner of a lock and a thread that waits for the lock never hold it at once.
pub(crate) fn an_owner_meets_a_drain() {
    let owned = Owned::by_this_thread();
    let drain = spawn(&owned, Owned::drain);
    owned.try_on(0);
    owned.try_quickly_on(0);
    join(drain);
    owned.is_whole();
}

/// Asserts that the owner of a lock and a thread that becomes its owner never both hold the lock.
pub(crate) fn an_owner_meets_another_thread() {
    let owned = Owned::by_this_thread();
    let other = spawn(&owned, |owned| owned.try_on(1));
    owned.try_on(0);
    owned.try_on(0);
    join(other);
    owned.is_whole();
}

/// Asserts that no two of three threads hold a lock at once: its owner, a thread that becomes its
/// owner, and a thread that waits for it.
pub(crate) fn an_owner_meets_both() {
    let owned = Owned::by_this_thread();
    let others = [
        spawn(&owned, |owned| owned.try_quickly_on(1)),
        spawn(&owned, Owned::drain),
    ];
    owned.try_on(0);
    owned.try_on(0);
    others.into_iter().for_each(join);
    owned.is_whole();
}

/// Asserts that only one thread at a time holds a lock that never gets an owner. The main thread
/// and `others` more threads try to acquire it.
pub(crate) fn a_lock_without_owners_has_one_holder(others: u32) {
    let owned = Arc::new(Owned::new(None));
    let threads: Vec<_> = (0..others)
        .map(|_| spawn(&owned, |owned| owned.try_quickly_on(1)))
        .collect();
    owned.drain();
    threads.into_iter().for_each(join);
    owned.is_whole();
}

/// Asserts that only one thread at a time holds a lock. One thread waits for the lock, and two
/// other threads only try to acquire it.
pub(crate) fn tries_are_alone_too<L: RawLock + Send + Sync + 'static>() {
    let guarded = Arc::new(Guarded::<L>::default());
    let threads = [(); 2].map(|()| spawn(&guarded, Guarded::try_and_add));
    guarded.wait_and_add();
    threads.into_iter().for_each(join);
    let (sum, won) = (guarded.sum.load(Relaxed), guarded.won.load(Relaxed));
    assert_eq!(sum, won + 1, "no holder's addition is lost");
    let free = guarded.lock.try_acquire();
    assert!(free.is_some(), "all threads have let go");
}

pub(crate) fn tickets_wrap() {
    let wrapping = Arc::new(Guarded {
        lock: Ticket {
            next: AtomicU32::new(u32::MAX),
            serving: AtomicU32::new(u32::MAX),
        },
        bell: Bell::default(),
        sum: AtomicU32::new(0),
        won: AtomicU32::new(0),
    });
    let threads = [(); 2].map(|()| spawn(&wrapping, Guarded::wait_and_add));
    threads.into_iter().for_each(join);
    wrapping.wait_and_add();
    assert_eq!(wrapping.sum.load(Relaxed), 3, "nothing is lost");
    assert_eq!(wrapping.lock.next.load(Relaxed), 2, "it has wrapped");
}

/// A ticket lock, and the number of the thread that it served last.
#[derive(Default)]
struct Queued {
    lock: Ticket,
    tickets: Bell,
    released: Bell,
    served: AtomicU32,
}

impl Queued {
    /// Waits for the lock, which is held when the thread arrives. Asserts that this thread is the
    /// `nth` to acquire it.
    fn queue(&self, nth: u32) {
        let mut relax = self.released.relax();
        let held = self.lock.acquire(|looks| {
            if looks == 0 {
                self.tickets.ring();
            }
            relax(looks);
        });
        assert_eq!(
            self.served.load(Relaxed),
            nth - 1,
            "the others came before it"
        );
        self.served.store(nth, Relaxed);
        drop(held);
        self.released.ring();
    }
}

/// Asserts that two threads are served in the order of their tickets. The main thread holds the
/// lock while they take the tickets.
pub(crate) fn tickets_are_served_in_order() {
    let queued = Arc::new(Queued::default());
    let held = queued.lock.acquire(|_| panic!("it is free"));
    let first = spawn(&queued, |queued| queued.queue(1));
    queued.tickets.wait_for_more_than(0);
    let second = spawn(&queued, |queued| queued.queue(2));
    queued.tickets.wait_for_more_than(1);
    drop(held);
    queued.released.ring();
    [first, second].into_iter().for_each(join);
    assert_eq!(queued.served.load(Relaxed), 2, "no thread is lost");
}

/// A FIFO of waiters, and a sum. A thread *passes* if it joins the queue, waits until it is first,
/// adds to the sum and leaves.
#[derive(Default)]
struct Behind {
    fifo: Fifo,
    sum: AtomicU32,
    killed: AtomicBool,
    joined: AtomicU32,
}

impl Behind {
    fn pass(&self) {
        let place = self.fifo.join(Purpose::Write);
        assert!(self.fifo.writer_waits(), "it does");
        place.wait();
        add_one(&self.sum);
    }

    /// Waits until this thread is first in the queue or is killed. If first, adds 1 to the sum.
    fn pass_unless_killed(&self) -> bool {
        let killed = || self.killed.load(Relaxed);
        let Some(place) = self.fifo.join_unless(Purpose::Read, killed) else {
            return false;
        };
        let is_first = place.wait_unless(killed);
        if is_first {
            add_one(&self.sum);
        }
        is_first
    }

    fn is_whole(&self) {
        assert!(self.fifo.is_empty(), "all have left");
        assert!(!self.fifo.writer_waits(), "writers have left as well");
        // This wait ends only if no waiter is left in the queue.
        self.fifo.join(Purpose::Read).wait();
    }
}

/// The main thread and `others` more threads wait in the queue. A thread that becomes first adds to
/// the sum. Asserts that only one thread at a time is first.
pub(crate) fn waiters_pass_alone(others: u32) {
    let behind = Arc::new(Behind::default());
    let threads: Vec<_> = (0..others).map(|_| spawn(&behind, Behind::pass)).collect();
    behind.pass();
    threads.into_iter().for_each(join);
    assert_eq!(behind.sum.load(Relaxed), others + 1, "no thread is lost");
    behind.is_whole();
}

/// Asserts that two threads become first in the queue in the order in which they joined it. The
/// main thread is first until both have been started.
pub(crate) fn waiters_pass_in_order() {
    let behind = Arc::new(Behind::default());
    let first = behind.fifo.join(Purpose::Read);
    let pass = |behind: &Behind, nth: u32| {
        while behind.joined.load(Acquire) != nth {
            thread::yield_now();
        }
        let place = behind.fifo.join(Purpose::Read);
        behind.joined.store(nth + 1, Release);
        place.wait();
        assert_eq!(behind.sum.load(Relaxed), nth, "the others were before it");
        behind.sum.store(nth + 1, Relaxed);
    };
    let second = Arc::clone(&behind);
    let second = thread::spawn(move || pass(&second, 0));
    let third = Arc::clone(&behind);
    let third = thread::spawn(move || pass(&third, 1));
    first.wait();
    drop(first);
    [second, third].into_iter().for_each(join);
    assert_eq!(behind.sum.load(Relaxed), 2, "no thread is lost");
    behind.is_whole();
}

/// Asserts that a killed waiter leaves the queue intact. The main thread is first in the queue and
/// leaves it. One of the two waiters behind it is killed while it waits, or becomes first before it
/// is killed. The other waiter becomes first.
pub(crate) fn a_killed_waiter_leaves_the_queue_whole() {
    let behind = Arc::new(Behind::default());
    let first: Place<'_> = behind.fifo.join(Purpose::Write);
    let mortal = spawn(&behind, |behind| {
        if behind.pass_unless_killed() {
            behind.joined.fetch_add(1, AcqRel);
        }
    });
    let patient = spawn(&behind, Behind::pass);
    behind.killed.store(true, Relaxed);
    drop(first);
    [mortal, patient].into_iter().for_each(join);
    let passed = 1 + behind.joined.load(Relaxed);
    assert_eq!(
        behind.sum.load(Relaxed),
        passed,
        "each waiter that passed was alone"
    );
    behind.is_whole();
}

/// A job queue, and the number of times that its job has started.
#[derive(Default)]
struct Desked {
    job_queue: JobQueue,
    starts: AtomicU32,
    /// A sum to which the job adds while it runs.
    sum: AtomicU32,
}

const JOB: Job = Job::VmstatUpdate;
const NOW: Nanos = Nanos(5);

impl Desked {
    fn work(&self) {
        while let Some(running) = self.job_queue.next(|| NOW) {
            assert!(running.job == JOB, "no other job was deferred");
            assert_ne!(self.job_queue.state(JOB), JobState::Dormant, "it runs");
            self.starts.fetch_add(1, AcqRel);
            add_one(&self.sum);
        }
    }

    fn wait_for(&self, starts: u32) {
        while self.starts.load(Acquire) < starts {
            thread::yield_now();
        }
    }
}

/// Asserts that a job starts as often as it was deferred. The job is deferred again after it has
/// started; then the queue is closed.
pub(crate) fn a_deferred_job_starts() {
    let desked = Arc::new(Desked::default());
    let worker = spawn(&desked, Desked::work);
    desked.job_queue.defer(JOB, NOW);
    desked.wait_for(1);
    desked.job_queue.defer(JOB, Nanos(0));
    desked.wait_for(2);
    desked.job_queue.close();
    join(worker);
    assert_eq!(
        desked.starts.load(Relaxed),
        2,
        "as often as it was deferred"
    );
    assert_eq!(desked.sum.load(Relaxed), 2);
    assert_eq!(desked.job_queue.state(JOB), JobState::Dormant);
}

/// Asserts that closing a job queue wakes its worker. A job that is not due yet stays pending.
pub(crate) fn a_job_queue_that_closes_ends_its_worker() {
    let desked = Arc::new(Desked::default());
    let worker = spawn(&desked, Desked::work);
    desked.job_queue.defer(JOB, Nanos(NOW.0 + 1));
    desked.job_queue.close();
    join(worker);
    assert_eq!(desked.starts.load(Relaxed), 0, "its time had not come");
    assert_eq!(desked.job_queue.state(JOB), JobState::Pending);
    desked.job_queue.cancel(JOB);
    desked.job_queue.defer(JOB, NOW);
    desked.job_queue.open();
    drop(desked.job_queue.next(|| NOW).expect("it is due"));
    assert_eq!(desked.job_queue.state(JOB), JobState::Dormant);
}
