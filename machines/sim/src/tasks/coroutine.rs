//! Stackful coroutines that can be suspended from any depth of calls.
//!
//! Only the scheduler loop resumes a [`Fiber`], and only code that runs on the fiber suspends it.
//!
//! This is the only file of the crate with unsafe code. The crate corosensei passes the handle that
//! suspends a coroutine only to the coroutine's entry function. But here every machine operation
//! that waits needs the handle, so a stored pointer leads to it. There are no locks, because a
//! machine runs on one host thread.
//!
//! The file also has [`prefetch`], because the host's instruction for it is unsafe to call.

#![expect(
    unsafe_code,
    reason = "the way out of a coroutine is reached through a stored pointer"
)]

use std::cell::{Cell, RefCell};
use std::ptr;

use corosensei::stack::{Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::tasks::stacks::Lease;

/// The number of different offsets at which stacks start. Because of the offsets, the most used
/// ends of stacks do not all share the same cache sets.
const COLOURS: usize = 32;
const COLOUR_BYTES: usize = 64;

/// A coroutine, and the handle that suspends it.
pub(crate) struct Fiber {
    coroutine: RefCell<Coroutine<(), (), (), Coloured>>,
    /// The handle that suspends the coroutine. The coroutine stores the handle when it is first
    /// resumed. Null before that, and after the coroutine has ended.
    exit: Cell<*const Yielder<(), ()>>,
}

impl Fiber {
    /// Creates a coroutine that runs `body` on a stack of `stack_bytes`; `colour` selects the
    /// offset at which the stack starts. `body` must first call [`Fiber::enter`] on this fiber.
    pub(crate) fn new(
        stack_bytes: usize,
        colour: usize,
        body: impl FnOnce(&Yielder<(), ()>) + 'static,
    ) -> Self {
        let stack = Coloured::new(stack_bytes, colour);
        let coroutine = Coroutine::with_stack(stack, move |exit: &Yielder<(), ()>, ()| body(exit));
        Self {
            coroutine: RefCell::new(coroutine),
            exit: Cell::new(ptr::null()),
        }
    }

    /// Stores the handle that suspends the coroutine. Must be called from inside the coroutine.
    pub(crate) fn enter(&self, exit: &Yielder<(), ()>) {
        self.exit.set(exit);
    }

    /// Runs the coroutine until it suspends or ends.
    #[inline(always)]
    pub(crate) fn resume(&self) {
        match self.coroutine.borrow_mut().resume(()) {
            CoroutineResult::Yield(()) => {}
            CoroutineResult::Return(()) => self.exit.set(ptr::null()),
        }
    }

    /// Suspends the coroutine, from inside it, until it is resumed.
    #[inline(always)]
    pub(crate) fn suspend(&self) {
        let exit = self.exit.get();
        assert!(!exit.is_null(), "only an entered fiber suspends");
        // The scheduler loop borrows the coroutine only while the coroutine runs, and never runs
        // two coroutines at once.
        assert!(
            self.coroutine.try_borrow().is_err(),
            "a fiber suspends itself only"
        );
        // SAFETY: `exit` lives on the coroutine's stack from `enter` until the coroutine ends, when
        // it is set to null. The two assertions above establish that this call is after `enter` and
        // before the end.
        let exit = unsafe { &*exit };
        exit.suspend(());
    }

    /// Ends the coroutine where it is suspended, and drops everything on its stack.
    pub(crate) fn end(&self) {
        self.coroutine.borrow_mut().force_unwind();
        self.exit.set(ptr::null());
    }
}

/// Prefetches the cache line at `at`, which will be read soon, into the host's caches. Never
/// faults: `at` may even be an address without memory.
#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is a hint, which reads nothing that the program can see.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// A stack whose first frame is shifted by a few cache lines.
struct Coloured {
    stack: Lease,
    base: StackPointer,
}

impl Coloured {
    fn new(bytes: usize, colour: usize) -> Self {
        let stack = Lease::take(bytes);
        let base = stack.base().get() - colour % COLOURS * COLOUR_BYTES;
        let base = StackPointer::new(base).expect("a stack is not at address zero");
        Self { stack, base }
    }
}

// SAFETY: the memory and the guard page are those of `DefaultStack`, which has at least 16 KiB. The
// lease keeps them mapped, and gives them to no other task before it is dropped. The base moves
// down by at most 1984 bytes, in steps that keep its alignment.
unsafe impl Stack for Coloured {
    #[inline]
    fn base(&self) -> StackPointer {
        self.base
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        self.stack.limit()
    }

    #[cfg(windows)]
    fn teb_fields(&self) -> corosensei::stack::StackTebFields {
        self.stack.teb_fields()
    }

    #[cfg(windows)]
    fn update_teb_fields(&mut self, stack_limit: usize, guaranteed_stack_bytes: usize) {
        self.stack
            .update_teb_fields(stack_limit, guaranteed_stack_bytes);
    }
}

const _: () = assert!(COLOUR_BYTES.is_multiple_of(corosensei::stack::STACK_ALIGNMENT));
