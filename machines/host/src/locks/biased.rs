//! A lock that one thread can take without an atomic read-modify-write instruction.
//!
//! A thread that plays a CPU has a [`Seat`]. If such a thread has taken the lock several times in a
//! row, the lock is *biased* to its seat: from then on the thread, the *owner*, takes the lock by
//! two plain stores. Other threads take the lock by an atomic exchange. If the lock is biased, they
//! then issue a barrier on all CPUs that run threads of this process. Then they wait until the
//! owner has left.
//!
//! Why at most one thread holds the lock: the owner stores the lock's address in its seat and then
//! reads the lock's state. Another thread changes the state and then reads the seat. With a full
//! barrier between each thread's two steps, at least one of the two threads sees the store of the
//! other. The barrier of the other thread acts on the owner's CPU too, so the owner needs only a
//! compiler barrier ([`light_barrier`]).
//!
//! A thread that only tries the lock, but is not its owner, ends the bias. Each such end makes the
//! next bias [`BIAS_GROWTH`] times harder to get. So threads that alternate soon use the lock
//! without a bias. A thread that waits for the lock leaves the bias to the owner.

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::sync::{AtomicU32, AtomicUsize, heavy_barrier, light_barrier};

/// The bit of a lock's state that is set while a thread holds the lock. It is not set if the thread
/// took the lock as its owner, by plain stores.
const TAKEN: usize = 1;
/// The state of a lock that never gets an owner (a thread that takes it by plain stores), while no
/// thread holds it.
const NEVER: usize = 0;
/// The state of a free lock that has no owner now but can get one. An owner is a thread that takes
/// the lock by plain stores.
const UNOWNED: usize = 2;
/// The token of the first seat, the place where a thread notes which lock it holds. A token is the
/// number that stands for a seat in the state of a lock. The tokens of further seats follow in
/// steps of 2.
const FIRST: usize = 4;

/// When a lock's bias ends, the lock multiplies its `wanted` by this factor. A lock becomes biased
/// to a thread, which then takes the lock by plain stores, when the thread has taken it `wanted`
/// times in a row.
const BIAS_GROWTH: u32 = 16;

/// The place where a thread notes which biased lock (a lock that it takes by plain stores) it
/// holds. No other thread writes to a seat.
#[repr(align(128))]
pub(crate) struct Seat {
    /// The address of the lock that the thread holds as its owner, or of the stack of free pages
    /// that the thread is using as its owner. 0 if there is neither.
    holding: AtomicUsize,
    /// The state of a lock that is biased to this seat (the seat's thread takes it by plain
    /// stores), while no other thread holds the lock.
    token: usize,
}

impl Seat {
    /// The seat with the index `index` in the table of seats.
    pub(crate) fn new(index: usize) -> Self {
        Self {
            holding: AtomicUsize::new(0),
            token: FIRST + 2 * index,
        }
    }

    /// Returns whether the thread of this seat is inside the lock or the stack at `address`.
    pub(crate) fn holds(&self, address: usize) -> bool {
        // Acquire pairs with the Release stores of `holding`: if the seat's thread is no longer
        // inside, the caller sees what that thread wrote while it was inside.
        self.holding.load(Acquire) == address
    }
}

/// The right of the calling thread to use a seat, in which a thread notes which lock it holds. No
/// two threads use one seat at the same time.
#[derive(Clone, Copy)]
pub(crate) struct Sitter<'a> {
    seat: &'a Seat,
    /// Makes the type `!Send`: the right belongs to the thread that created the value.
    _not_send: PhantomData<*const ()>,
}

impl<'a> Sitter<'a> {
    /// Gives the calling thread the right to use `seat`. The caller must make sure that no other
    /// thread uses the seat until this thread no longer uses any copy of the result.
    pub(crate) fn new(seat: &'a Seat) -> Self {
        Self {
            seat,
            _not_send: PhantomData,
        }
    }

    /// Returns the number of the thread's seat. No other seat of the same table has this number.
    #[inline(always)]
    pub(crate) fn number(self) -> u32 {
        number_of(self.seat.token)
    }

    /// The word in which the thread notes the lock that it holds or the stack that it is using. The
    /// thread is the owner of this lock or stack.
    #[inline(always)]
    pub(crate) fn holding(self) -> &'a AtomicUsize {
        &self.seat.holding
    }
}

/// The number of the seat with this token.
#[expect(clippy::cast_possible_truncation, reason = "there are few seats")]
#[inline(always)]
const fn number_of(token: usize) -> u32 {
    token as u32
}

/// Finds seats by their numbers. A seat is the place where a thread notes which biased lock (a lock
/// that the thread takes by plain stores) it holds.
pub(crate) trait Seating {
    /// All seats, each at the index with which it was created.
    fn seats() -> &'static [Seat];

    /// The seat with the number `number` ([`Sitter::number`]).
    fn seat_of(number: u32) -> &'static Seat {
        &Self::seats()[(number as usize - FIRST) / 2]
    }
}

/// A lock that a thread can come to own. The owner, which has a seat in the table `P`, takes the
/// lock by plain stores.
#[repr(align(128))]
pub(crate) struct Biased<P> {
    /// The token of the owner's seat (the place where a thread notes which lock it holds),
    /// [`UNOWNED`] or [`NEVER`]. While the lock is held, [`TAKEN`] is added, unless the holder took
    /// the lock as its owner.
    state: AtomicUsize,
    /// The token (number) of the seat of the thread that was the last to take the lock while the
    /// lock had no owner. Only the thread that has set [`TAKEN`] changes this word.
    last: AtomicUsize,
    /// The number of times in a row that the thread of `last` has taken the lock while the lock had
    /// no owner. Only the thread that has set [`TAKEN`] changes this word.
    in_a_row: AtomicU32,
    /// The number of times in a row that a thread must take the lock before the lock is biased to
    /// the thread. Only the thread that has set [`TAKEN`] changes this word.
    wanted: AtomicU32,
    seating: PhantomData<fn() -> P>,
}

impl<P: Seating> Biased<P> {
    /// Creates an unlocked lock. When a thread with a seat has taken the lock `after` times in a
    /// row, it becomes the lock's owner, and then takes the lock by plain stores. If `after` is
    /// `None`, no thread becomes the owner.
    pub(crate) fn new(after: Option<u32>) -> Self {
        let state = if after.is_some() { UNOWNED } else { NEVER };
        Self {
            state: AtomicUsize::new(state),
            last: AtomicUsize::new(0),
            in_a_row: AtomicU32::new(0),
            wanted: AtomicU32::new(after.unwrap_or(u32::MAX)),
            seating: PhantomData,
        }
    }
}

/// The guard of the lock's holder, which releases the lock when it is dropped.
pub(crate) struct Held<'a> {
    /// The word that the release changes. If the lock's owner holds the lock, this is the field
    /// `holding` of the owner's [`Seat`]. Otherwise, it is the state of the lock, in which the
    /// holder has set [`TAKEN`].
    word: &'a AtomicUsize,
    /// The value that the release stores in `word`.
    after: usize,
}

impl<'a> Held<'a> {
    fn taken(state: &'a AtomicUsize, after: usize) -> Self {
        Self { word: state, after }
    }
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release pairs with the Acquire load in `Seat::holds`, or with the Acquire
        // accesses of the state in `sit` and `take`. So the next holder sees the writes of this
        // holder.
        self.word.store(self.after, Release);
    }
}

impl<P: Seating> Biased<P> {
    /// Acquires the lock if it is free, for a thread that takes it often. `me` is the thread's
    /// seat, if it has one. Returns `None` if another thread, or this thread, holds the lock.
    #[inline(always)]
    pub(crate) fn try_local<'a>(&'a self, me: Option<Sitter<'a>>) -> Option<Held<'a>> {
        match me {
            Some(me) => match self.sit(me) {
                None => self.try_seldom(me),
                held => held,
            },
            None => match self.take()? {
                free @ (NEVER | UNOWNED) => Some(Held::taken(&self.state, free)),
                owner => self.end_bias(owner),
            },
        }
    }

    /// Acquires the lock if the thread is its owner, or if the lock is free and never gets an
    /// owner. Otherwise returns `None`, and the caller should use [`Biased::try_local`].
    #[inline(always)]
    pub(crate) fn try_quick<'a>(&'a self, me: Option<Sitter<'a>>) -> Option<Held<'a>> {
        if let Some(held) = me.and_then(|me| self.sit(me)) {
            return Some(held);
        }
        // Relaxed is enough: the exchange in `take` loads the state again.
        if self.state.load(Relaxed) != NEVER {
            return None;
        }
        let free = self.take()?;
        Some(Held::taken(&self.state, free))
    }

    /// Acquires the lock, and waits while another thread holds it. Calls `relax` after each attempt
    /// that finds the lock held.
    pub(crate) fn acquire<'a>(
        &'a self,
        me: Option<Sitter<'a>>,
        mut relax: impl FnMut(u32),
    ) -> Held<'a> {
        if let Some(held) = me.and_then(|me| self.sit(me)) {
            return held;
        }
        let mut looks = 0;
        let owner = loop {
            if let Some(owner) = self.take() {
                break owner;
            }
            // Relaxed is enough: this load only decides when to try again, and `take` provides the
            // ordering. The loop ends when the holder releases the lock. A thread that takes the
            // lock in quick succession can overtake this waiter, but after each release the lock
            // is free for a moment.
            while self.state.load(Relaxed) & TAKEN != 0 {
                relax(looks);
                looks = looks.saturating_add(1);
            }
        };
        // From here on, a panic of `relax` drops `held`, which releases the lock.
        let held = Held::taken(&self.state, owner);
        if owner >= FIRST {
            heavy_barrier();
            // The loop ends when the owner leaves. The owner cannot take the lock again before this
            // thread releases it.
            while self.is_inside(owner) {
                relax(looks);
                looks = looks.saturating_add(1);
            }
        }
        held
    }

    /// Acquires the lock as its owner. Returns `None` if the thread is not the owner, already holds
    /// a lock as owner, or finds that another thread has taken the lock.
    #[inline(always)]
    fn sit<'a>(&'a self, Sitter { seat, .. }: Sitter<'a>) -> Option<Held<'a>> {
        // Relaxed is enough for both loads: the state is loaded again below, and only this thread
        // writes `holding`.
        if self.state.load(Relaxed) != seat.token || seat.holding.load(Relaxed) != 0 {
            return None;
        }
        // Release pairs with the Acquire in `Seat::holds`. Suppose that this thread held another
        // lock before, and that a second thread waits for the other lock. The second thread may
        // miss the 0 that the release stored, and read this address instead. It must nevertheless
        // see the writes under the other lock.
        seat.holding.store(self.address(), Release);
        light_barrier();
        // Acquire pairs with the Release in `Held::drop` of the last thread that set `TAKEN`. The
        // barrier above and the one after `take` make sure that either this load sees the state
        // that `take` stored, or `is_inside` sees the address.
        if self.state.load(Acquire) == seat.token {
            Some(Held {
                word: &seat.holding,
                after: 0,
            })
        } else {
            seat.holding.store(0, Release);
            None
        }
    }

    /// Sets [`TAKEN`] and returns the previous state. Returns `None` if `TAKEN` is already set, or
    /// if the state has just changed. After the call, an owner may still hold the lock.
    #[inline]
    fn take(&self) -> Option<usize> {
        // The Acquire of the exchange pairs with the Release in `Held::drop`. This load can be
        // Relaxed, because the exchange fails if the state has changed.
        let state = self.state.load(Relaxed);
        if state & TAKEN != 0 {
            return None;
        }
        self.state
            .compare_exchange(state, state | TAKEN, Acquire, Relaxed)
            .ok()
    }

    /// Tries to take the lock for a thread that is not the lock's owner, or could not take the lock
    /// as the owner.
    #[cold]
    #[inline(never)]
    fn try_seldom<'a>(&'a self, me: Sitter<'a>) -> Option<Held<'a>> {
        let token = me.seat.token;
        match self.take()? {
            NEVER => Some(Held::taken(&self.state, NEVER)),
            UNOWNED => Some(Held::taken(&self.state, self.owner_after(token))),
            owner if owner == token => {
                let held = Held::taken(&self.state, owner);
                // This thread is the owner, but `sit` failed. Usually, the reason is that the
                // thread already holds a lock as its owner. If that lock is this one, this attempt
                // must fail too.
                (!self.is_inside(owner)).then_some(held)
            }
            owner => self.end_bias(owner),
        }
    }

    /// Ends the lock's bias to `owner`, on behalf of a thread that has set [`TAKEN`]. If the owner
    /// holds the lock, the owner keeps the bias, and the result is `None`.
    #[cold]
    #[inline(never)]
    fn end_bias(&self, owner: usize) -> Option<Held<'_>> {
        let kept = Held::taken(&self.state, owner);
        heavy_barrier();
        if self.is_inside(owner) {
            return None;
        }
        std::mem::forget(kept);
        let wanted = self.wanted.load(Relaxed);
        self.wanted
            .store(wanted.saturating_mul(BIAS_GROWTH), Relaxed);
        Some(Held::taken(&self.state, UNOWNED))
    }

    /// Counts an acquisition by the thread whose seat has this token, while the lock has no owner.
    /// Returns the token if the thread is to become the owner, otherwise [`UNOWNED`].
    fn owner_after(&self, token: usize) -> usize {
        let in_a_row = if self.last.load(Relaxed) == token {
            self.in_a_row.load(Relaxed).saturating_add(1)
        } else {
            1
        };
        self.last.store(token, Relaxed);
        self.in_a_row.store(in_a_row, Relaxed);
        if in_a_row < self.wanted.load(Relaxed) {
            return UNOWNED;
        }
        self.in_a_row.store(0, Relaxed);
        token
    }

    /// Returns whether the thread with the token `owner` holds this lock as its owner. The caller
    /// has set [`TAKEN`].
    fn is_inside(&self, owner: usize) -> bool {
        let seat = &P::seats()[(owner - FIRST) / 2];
        seat.holds(self.address())
    }

    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }
}
