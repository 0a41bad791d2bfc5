//! The seats of this process. A seat is the place where a thread notes which biased lock (a lock
//! that it takes by plain stores) it holds. A thread that plays a CPU gets a seat, and keeps it
//! until the thread ends.

use std::cell::{Cell, OnceCell};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::barrier;
use super::biased::{Seat, Seating, Sitter};

/// The number of seats. In a seat a thread notes which lock it holds. Threads beyond this number
/// have no seat, and take every lock by an atomic exchange.
const SEATS: usize = 1024;

/// The table of this process's seats. A biased lock (a lock that one thread takes by plain stores)
/// names its owner by the owner's seat in this table.
pub(crate) struct Threads;

impl Seating for Threads {
    fn seats() -> &'static [Seat] {
        static ALL: OnceLock<Box<[Seat]>> = OnceLock::new();
        ALL.get_or_init(|| (0..SEATS).map(Seat::new).collect())
    }
}

/// The indices of the seats (places where a thread notes which lock it holds) that no thread has.
/// `None` before the first thread gets a seat.
static FREE: Mutex<Option<Vec<usize>>> = Mutex::new(None);

thread_local! {
    static MINE: Cell<Option<Sitter<'static>>> = const { Cell::new(None) };
    static LEASE: OnceCell<Option<Lease>> = const { OnceCell::new() };
}

/// The seat of the calling thread (where it notes which lock it holds), if it has one.
#[inline(always)]
pub(crate) fn mine() -> Option<Sitter<'static>> {
    MINE.get()
}

/// Returns the seat with this number. In a seat, a thread notes which lock it holds.
pub(crate) fn seat_of(number: u32) -> &'static Seat {
    Threads::seat_of(number)
}

/// Takes the calling thread's seat away. The calling thread is the first thread in the child of a
/// fork, where only async-signal-safe code is allowed. A store to the thread-local `MINE` is safe,
/// because `MINE` needs neither initialization nor a destructor.
pub(crate) fn stand_up_in_child() {
    MINE.set(None);
}

/// Gives the calling thread a seat, with which it can become the owner of locks. Does nothing if
/// the thread has a seat, all seats are taken, or the kernel has no `membarrier`.
pub(crate) fn sit_down() {
    if MINE.get().is_some() || !barrier::are_available() {
        return;
    }
    // The access fails if the thread is ending. The thread then remains without a seat.
    let _ = LEASE.try_with(|lease| lease.get_or_init(Lease::new).is_some());
}

/// The right of a thread to its seat, which ends with the thread.
struct Lease(usize);

impl Lease {
    fn new() -> Option<Self> {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let index = free
            .get_or_insert_with(|| (0..SEATS).rev().collect())
            .pop()?;
        // The index was in `FREE`, so no other thread uses the seat. The last thread that used it
        // put the index there; the mutex makes the writes of that thread visible to this one.
        MINE.set(Some(Sitter::new(&Threads::seats()[index])));
        Some(Self(index))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The thread no longer uses the seat after this line. A lock that is biased to the seat
        // (owned by the seat's thread) stays biased, so the next thread that gets the seat owns
        // that lock.
        MINE.set(None);
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(free) = &mut *free {
            // There is room, because the index came from this vector.
            free.push(self.0);
        }
    }
}
