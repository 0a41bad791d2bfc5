//! The stack of free pages of a front, and the rule of which threads may use it.
//!
//! A stack has a *home*: the number of a user. With restartable sequences the users are the real
//! CPUs; otherwise they are the threads that play CPUs. A push or a pop reads the home, and then
//! reads and changes the stack by plain loads and stores. It changes the stack only if the home is
//! the user's own number.
//!
//! Any thread that holds the stack's lock can change the home, and so stop the user. It stores
//! [`NOBODY`] in the home and then makes sure that the user is not between its load of the home and
//! its last store: it *quiesces* the user. How it does this depends on the kind of users:
//!
//! * **Real CPUs.** The steps of a push or a pop are a restartable sequence, whose last step is the
//!   only store that matters. The kernel starts the sequence again if the thread is preempted,
//!   migrated or interrupted by a signal, and also if another thread asks for it (`membarrier`).
//!   So after that call, the sequence either was complete or loads the home again.
//! * **Threads.** The thread notes in its [seat](Seat) that it is inside the stack. The other
//!   thread makes the kernel issue a barrier on all CPUs that run this process, and then waits
//!   until the seat says that the thread is not inside this stack.
//!
//! If the home is [`NOBODY`], the first thread that wants to use the stack sets the home.

use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, STACK_CAPACITY};
use super::sync::{Seat, Sitter, light_barrier, try_lock};

/// The value of a stack's home (the number of the stack's user) while no thread may use the stack.
pub(crate) const NOBODY: u32 = u32::MAX - 1;

/// Each push or pop adds this number to [`Stack::state`], which counts these operations in the bits
/// from bit 16 on.
pub(crate) const OPERATION: u64 = 1 << 16;
/// The bits of [`Stack::state`] that hold the number of pages.
const PAGES: u64 = OPERATION - 1;

/// A stack of page numbers.
///
/// The assembly of `rseq/` uses the offsets of the first four fields.
#[repr(C, align(64))]
pub(crate) struct Stack {
    /// The user of the stack: the index of a real CPU or of a thread, or [`NOBODY`].
    pub(crate) home: AtomicU32,
    /// A push fails if the stack has this many pages or more.
    pub(crate) limit: AtomicU32,
    /// The number of pages in the low 16 bits, and the count of pushes and pops in the other bits.
    pub(crate) state: AtomicU64,
    pub(crate) pages: [AtomicU32; STACK_CAPACITY],
    /// The state when [`Stack::is_idle`] was last called.
    seen: AtomicU64,
    lock: Mutex<Strangers>,
}

/// The calls of [`Stack::admit`] by strangers: threads that are not the stack's user.
#[derive(Default)]
struct Strangers {
    /// The number of calls of [`Stack::admit`] by other threads since the stack's user last used
    /// the stack.
    calls: u32,
    /// The value of [`Stack::state`] at the last call of [`Stack::admit`] by a thread that is not
    /// the stack's user.
    state: u64,
}

impl Stack {
    pub(crate) fn new() -> Self {
        Self {
            home: AtomicU32::new(NOBODY),
            limit: AtomicU32::new(0),
            state: AtomicU64::new(0),
            pages: [(); STACK_CAPACITY].map(|()| AtomicU32::new(0)),
            seen: AtomicU64::new(0),
            lock: Mutex::new(Strangers::default()),
        }
    }

    /// The number of pages in a stack with this state.
    #[inline(always)]
    fn depth(state: u64) -> usize {
        // The cast loses nothing, because the mask leaves only 16 bits.
        (state & PAGES) as usize
    }

    /// The number of pages.
    pub(crate) fn len(&self) -> u32 {
        // Relaxed is enough: the number may be outdated. A push that happened before this call is
        // visible in any case.
        u32::try_from(self.state.load(Relaxed) & PAGES).unwrap_or(u32::MAX)
    }

    /// Returns whether no thread has pushed or popped since the last call of this function.
    pub(crate) fn is_idle(&self) -> bool {
        // Relaxed is enough: the answer only decides when the stack is emptied. If two threads call
        // this function at once, one of the answers may be wrong.
        let state = self.state.load(Relaxed);
        self.seen.load(Relaxed) == state || {
            self.seen.store(state, Relaxed);
            false
        }
    }

    /// Returns whether the calling thread, which `me` identifies, is the stack's user. The answer
    /// may be outdated at once.
    #[inline(always)]
    pub(crate) fn is_home(&self, me: Sitter<'_>) -> bool {
        // Relaxed is enough: a push or a pop loads `home` again.
        self.home.load(Relaxed) == me.number()
    }

    /// Pops a page for the calling thread, which `me` identifies.
    #[inline(always)]
    pub(crate) fn pop_at(&self, me: Sitter<'_>) -> Option<u32> {
        self.sit(me, || {
            // Relaxed is enough from here on: only this thread uses the stack. The load of `home`,
            // which names this thread as the user, has made the stores of earlier users visible.
            let state = self.state.load(Relaxed);
            let top = Self::depth(state).checked_sub(1)?;
            let page = self.pages.get(top)?.load(Relaxed);
            let after = state.wrapping_add(OPERATION).wrapping_sub(1);
            self.state.store(after, Relaxed);
            Some(page)
        })
    }

    /// Pushes a page for the calling thread, which `me` identifies.
    #[inline(always)]
    pub(crate) fn push_at(&self, me: Sitter<'_>, page: u32) -> bool {
        let pushed = self.sit(me, || {
            // Relaxed is enough from here on: only this thread uses the stack, and the load of the
            // stack's home has made the stores of earlier users visible.
            let state = self.state.load(Relaxed);
            let depth = Self::depth(state);
            if depth >= self.limit.load(Relaxed) as usize {
                return None;
            }
            self.pages.get(depth)?.store(page, Relaxed);
            let after = state.wrapping_add(OPERATION).wrapping_add(1);
            self.state.store(after, Relaxed);
            Some(())
        });
        pushed.is_some()
    }

    /// Pops up to `pages.len()` pages for the calling thread, which `me` identifies. The page that
    /// was pushed last comes first in `pages`. Returns the number of pages.
    pub(crate) fn pop_run_at(&self, me: Sitter<'_>, pages: &mut [u32]) -> usize {
        let popped = self.sit(me, || {
            // Relaxed is enough for these accesses, for the reasons given in `pop_at`.
            let state = self.state.load(Relaxed);
            let (len, after) = self.top(state, pages);
            if len > 0 {
                self.state.store(after, Relaxed);
            }
            Some(len)
        });
        popped.unwrap_or(0)
    }

    /// Pushes all of `pages` in their order for the calling thread, which `me` identifies. Returns
    /// `false`, without having pushed any, if the stack has no room for all of them.
    pub(crate) fn push_run_at(&self, me: Sitter<'_>, pages: &[u32]) -> bool {
        let pushed = self.sit(me, || {
            // Relaxed is enough for these accesses, for the reasons given in `push_at`.
            let state = self.state.load(Relaxed);
            let from = Self::depth(state);
            let until = from + pages.len();
            if until > self.limit.load(Relaxed) as usize {
                return None;
            }
            for (place, page) in self.pages.get(from..until)?.iter().zip(pages) {
                place.store(*page, Relaxed);
            }
            let after = state.wrapping_add(OPERATION) + pages.len() as u64;
            self.state.store(after, Relaxed);
            Some(())
        });
        pushed.is_some()
    }

    /// Pops up to `pages.len()` pages for a thread that runs on the real CPU that `cpu` returns. The
    /// page that was pushed last comes first in `pages`. Returns the number of pages.
    ///
    /// The pages are copied first. They are popped by a single restartable sequence, `commit`,
    /// which gets the state that the stack had and the state that it gets. The sequence stores the
    /// new state only if the thread runs on the stack's home and the state is still the old one.
    /// Because the state counts all pushes and pops, the copied pages are then still the topmost.
    pub(crate) fn pop_run_on(
        &self,
        cpu: impl Fn() -> Option<u32>,
        pages: &mut [u32],
        commit: impl Fn(u64, u64) -> bool,
    ) -> usize {
        // The loop ends: `commit` fails only if another thread has used the stack in the meantime,
        // or if the thread does not run on the stack's home any more. So each turn asks for the CPU
        // again: the kernel may have moved the thread.
        while let Some(cpu) = cpu() {
            // Acquire pairs with the Release in `admit`. So this thread sees the pages that other
            // users have pushed.
            if self.home.load(Acquire) != cpu {
                return 0;
            }
            // Relaxed is enough for this load and those of the pages: if another thread on this CPU
            // uses the stack in the meantime, `commit` fails.
            let state = self.state.load(Relaxed);
            let (len, after) = self.top(state, pages);
            if len == 0 || commit(state, after) {
                return len;
            }
        }
        0
    }

    /// Copies the topmost pages of a stack with this state to `pages`, the page that was pushed
    /// last first. Returns their number, and the state after they have been popped.
    fn top(&self, state: u64, pages: &mut [u32]) -> (usize, u64) {
        let depth = Self::depth(state);
        let len = pages.len().min(depth);
        let topmost = self.pages[depth - len..depth].iter().rev();
        // Relaxed is enough: either only the caller uses the stack, or `commit` fails if another
        // thread has changed it.
        let copied = pages.iter_mut().zip(topmost);
        copied.for_each(|(to, page)| *to = page.load(Relaxed));
        (len, state.wrapping_add(OPERATION) - len as u64)
    }

    /// Runs `f` if the calling thread, which `me` identifies, is the stack's user, and neither
    /// holds a lock nor uses a stack already.
    #[inline(always)]
    fn sit<R>(&self, me: Sitter<'_>, f: impl FnOnce() -> Option<R>) -> Option<R> {
        let holding = me.holding();
        // Relaxed is enough: only this thread writes the word.
        if holding.load(Relaxed) != 0 {
            return None;
        }
        // Release pairs with the Acquire in `Seat::holds`. Suppose that this thread used another
        // stack before, and that a second thread waits until this thread has left the other stack.
        // The second thread may miss the 0 that this thread stored when it left, and read this
        // address instead. It must nevertheless see the writes to the other stack.
        holding.store(self.address(), Release);
        light_barrier();
        // Acquire pairs with the Release in `admit`. So this thread sees the writes of earlier
        // users of the stack, and of the last thread that emptied the stack. The barrier above and
        // the one that `quiesce` issues make sure that either this load sees `NOBODY`, or
        // `wait_outside` sees in `holding` that this thread uses the stack.
        let done = if self.home.load(Acquire) == me.number() {
            f()
        } else {
            None
        };
        // Release pairs with the Acquire in `Seat::holds`: a thread that waits for this thread sees
        // what `f` did.
        holding.store(0, Release);
        done
    }

    /// Waits until the thread with this seat (where the thread notes the stack that it uses) is not
    /// inside the stack. The caller has stored [`NOBODY`] in the stack's home and then issued a
    /// barrier. Calls `relax` while the thread is inside.
    pub(crate) fn wait_outside(&self, seat: &Seat, mut relax: impl FnMut(u32)) {
        let mut looks = 0;
        while seat.holds(self.address()) {
            relax(looks);
            looks = looks.saturating_add(1);
        }
    }

    /// Returns whether the user `me` may use the stack from now on. If the stack has another user,
    /// counts the calls of this function since that user last used the stack. At `patience` calls,
    /// stops that user: calls `quiesce` with the user's number. Never waits for the lock.
    pub(crate) fn admit(&self, me: u32, patience: u32, quiesce: impl FnOnce(u32)) -> bool {
        // Relaxed is enough for this and the next load: a push or a pop loads `home` again.
        if self.home.load(Relaxed) == me {
            return true;
        }
        let Some(mut strangers) = try_lock(&self.lock) else {
            return false;
        };
        let home = self.home.load(Relaxed);
        if home != NOBODY && home != me {
            // Relaxed is enough: the state only tells whether the user still uses the stack.
            let state = self.state.load(Relaxed);
            if strangers.state != state {
                *strangers = Strangers { calls: 0, state };
            }
            strangers.calls = strangers.calls.saturating_add(1);
            if strangers.calls < patience {
                return false;
            }
            self.stop(quiesce);
        }
        *strangers = Strangers::default();
        // Release pairs with the Acquire load of `home` by the new user. So the new user sees what
        // this thread saw after it had stopped the previous user.
        self.home.store(me, Release);
        true
    }

    /// Makes the user of the stack (a real CPU or a thread), if there is one, stop using the stack.
    /// The caller holds the lock.
    fn stop(&self, quiesce: impl FnOnce(u32)) {
        // Relaxed is enough: `quiesce` issues a barrier on the CPU of the stack's user.
        let home = self.home.load(Relaxed);
        if home != NOBODY {
            self.home.store(NOBODY, Relaxed);
            quiesce(home);
        }
    }

    /// Stops the stack's user by a call of `quiesce` with the user's number. Then passes all pages
    /// to `f` in one or more runs. The pages that were pushed last come first. Does nothing if the
    /// stack has no pages.
    pub(crate) fn empty(&self, quiesce: impl FnOnce(u32), mut f: impl FnMut(&[u32])) {
        let _strangers = locked(&self.lock);
        if self.len() == 0 {
            return;
        }
        self.stop(quiesce);
        let mut run = [0; 64];
        // Relaxed is enough: no other thread changes the stack while this thread holds the lock and
        // the stack's home (its user) is `NOBODY`.
        let mut state = self.state.load(Relaxed);
        while Self::depth(state) > 0 {
            let depth = Self::depth(state);
            let from = depth.saturating_sub(run.len());
            let pages = self.pages[from..depth].iter().rev();
            let len = run
                .iter_mut()
                .zip(pages)
                .map(|(to, page)| *to = page.load(Relaxed))
                .count();
            state = state.wrapping_add(OPERATION) - len as u64;
            // The pages leave the stack before `f` gets them. So if `f` panics, no page is both in
            // the stack and elsewhere.
            self.state.store(state, Relaxed);
            f(&run[..len]);
        }
    }

    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }
}

/// Locks a mutex, even if a thread has panicked while it held the mutex: the guarded counts are
/// only hints.
fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
