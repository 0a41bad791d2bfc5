//! A global allocator that tests can make fail. It also counts the requests of code that must not
//! request memory, and notes each use of the heap during which a lock of the machine is held.
//! Settings and counts are separate for each thread.
#![expect(unsafe_code, reason = "a global allocator is unsafe to be one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Once;

use plimsoll_mm::site::LockClass;

thread_local! {
    /// The number of allocations that still succeed; `None` if all do.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    /// The number of allocations that were refused.
    static REFUSED: Cell<u64> = const { Cell::new(0) };
    /// The number of requests for heap memory since [`asked_by`] was called; `None` outside of a
    /// call of [`asked_by`].
    static ASKED: Cell<Option<u64>> = const { Cell::new(None) };
    /// The classes of the locks that this thread holds, a bit for each.
    static HELD: Cell<u32> = const { Cell::new(0) };
    /// For the uses of the heap while locks were held: the classes of these locks (a bit for each
    /// class), and the number of uses.
    static USED: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
    /// True if the first forbidden use of the heap panics, so that a backtrace shows where it is.
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator, with its uses recorded.
pub(crate) struct Watched;

#[global_allocator]
static WATCHED: Watched = Watched;

/// The classes of locks under which the heap may be used, a bit for each: locks that are taken
/// before all others, and whose waiters sleep. Linux also allocates under `mmap_lock`.
const ALLOWED: u32 = 1 << LockClass::Mmap as u32;

/// Runs `f`. While `f` runs, this thread's allocation number `nth` (counted from 0) and all its
/// later allocations fail. Returns the result of `f` and the number of allocations that were
/// refused.
pub(crate) fn failing_from<R>(nth: u64, f: impl FnOnce() -> R) -> (R, u64) {
    REFUSED.set(0);
    LEFT.set(Some(nth));
    let result = f();
    LEFT.set(None);
    (result, REFUSED.get())
}

/// Runs `f`, and returns the number of its requests for memory from the heap. `f` frees memory, so
/// it must make no request: a heap can wait until memory is freed, and `f` would then wait for
/// itself. The requests succeed nevertheless, so that `f` ends.
pub(crate) fn asked_by(f: impl FnOnce()) -> u64 {
    ASKED.set(Some(0));
    f();
    ASKED.take().unwrap_or(0)
}

/// Sets a panic hook that lets a panicking thread allocate the memory for its message.
fn let_panics_speak() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let speak = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |why| {
            LEFT.set(None);
            ASKED.set(None);
            HELD.set(0);
            speak(why);
        }));
    });
}

/// Runs `f` with memory, even inside [`failing_from`], [`asked_by`] or [`holding`]: for the test's
/// own allocations.
pub(crate) fn with_memory<R>(f: impl FnOnce() -> R) -> R {
    let (left, asked, held) = (LEFT.take(), ASKED.take(), HELD.take());
    let result = f();
    LEFT.set(left);
    ASKED.set(asked);
    HELD.set(held);
    result
}

/// Runs `f` while a lock of `class` counts as held.
pub(crate) fn holding<R>(class: LockClass, f: impl FnOnce() -> R) -> R {
    let before = HELD.get();
    HELD.set(before | 1 << class as u32);
    let result = f();
    HELD.set(before);
    result
}

/// Clears the record of uses of the heap by a thread that held a lock.
pub(crate) fn forget_uses() {
    USED.set((0, 0));
}

/// Returns the classes of locks under which the heap was used, and the number of such uses.
pub(crate) fn uses_under_locks() -> (Vec<LockClass>, u64) {
    let (classes, uses) = USED.get();
    let used = |class: &LockClass| classes & 1 << *class as u32 != 0;
    (LockClass::ALL.into_iter().filter(used).collect(), uses)
}

/// If the environment variable `PLIMSOLL_HEAP_PANICS` is set, makes this thread panic at its next
/// use of the heap under a lock, or inside [`asked_by`].
pub(crate) fn panic_if_forbidden() {
    let_panics_speak();
    PANICS.set(std::env::var_os("PLIMSOLL_HEAP_PANICS").is_some());
}

fn note() {
    let held = HELD.get() & !ALLOWED;
    if held != 0 {
        let (classes, uses) = USED.get();
        USED.set((classes | held, uses + 1));
        if PANICS.take() {
            panic!("the heap is used under locks {held:#x}");
        }
    }
}

fn may() -> bool {
    note();
    if let Some(asked) = ASKED.get()
        && !std::thread::panicking()
    {
        ASKED.set(Some(asked + 1));
        if PANICS.take() {
            panic!("the heap is asked for memory by code that frees memory");
        }
    }
    match LEFT.get() {
        None => true,
        // A panicking thread may allocate, because the message of a panic is formatted before the
        // panic hook runs.
        Some(_) if std::thread::panicking() => true,
        Some(0) => {
            REFUSED.set(REFUSED.get() + 1);
            false
        }
        Some(left) => {
            LEFT.set(Some(left - 1));
            true
        }
    }
}

// SAFETY: every block comes from `System` or is null, which any allocator may return.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !may() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract of `alloc`, which is also the contract of
        // `System.alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note();
        // SAFETY: the block came from `System`, by `alloc` or `realloc` here.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !may() {
            return std::ptr::null_mut();
        }
        // SAFETY: the block came from `System`, as in `dealloc`; if null is returned, the block is
        // unchanged.
        unsafe { System.realloc(block, layout, size) }
    }
}
