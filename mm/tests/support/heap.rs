//! A global allocator that can be told to fail, and that remembers who used it while a lock of the
//! machine was held. Both are told and asked for each thread alone.
#![expect(unsafe_code, reason = "a global allocator is unsafe to be one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Once;

use plimsoll_mm::site::LockClass;

thread_local! {
    /// Allocations that still succeed; `None` is all of them.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    /// Allocations that were refused.
    static REFUSED: Cell<u64> = const { Cell::new(0) };
    /// Locks that are held, a bit each by class.
    static HELD: Cell<u32> = const { Cell::new(0) };
    /// Locks that were held during some use, and how many uses there were.
    static USED: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
    /// Whether the first use under a lock is to panic, so that a backtrace tells where it is.
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator, watched.
pub(crate) struct Watched;

#[global_allocator]
static WATCHED: Watched = Watched;

/// The locks under which the heap may be used, a bit each: those that sleep and are outermost, as in
/// Linux, where `mmap_lock` is held over allocations as well.
const ALLOWED: u32 = 1 << LockClass::Mmap as u32;

/// Runs `f`; from the allocation number `nth` on, counted from 0, this thread gets no memory. How many
/// were refused.
pub(crate) fn failing_from<R>(nth: u64, f: impl FnOnce() -> R) -> (R, u64) {
    REFUSED.set(0);
    LEFT.set(Some(nth));
    let result = f();
    LEFT.set(None);
    (result, REFUSED.get())
}

/// Lets who panics say why, with memory.
fn let_panics_speak() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let speak = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |why| {
            LEFT.set(None);
            HELD.set(0);
            speak(why);
        }));
    });
}

/// Runs `f` with memory to be had, whatever it is inside of: for what belongs to the test.
pub(crate) fn with_memory<R>(f: impl FnOnce() -> R) -> R {
    let (left, held) = (LEFT.take(), HELD.take());
    let result = f();
    LEFT.set(left);
    HELD.set(held);
    result
}

/// Runs `f` with `class` noted as held.
pub(crate) fn holding<R>(class: LockClass, f: impl FnOnce() -> R) -> R {
    let before = HELD.get();
    HELD.set(before | 1 << class as u32);
    let result = f();
    HELD.set(before);
    result
}

/// Forgets uses under locks.
pub(crate) fn forget_uses() {
    USED.set((0, 0));
}

/// The classes of locks under which the heap was used, and how often it was.
pub(crate) fn uses_under_locks() -> (Vec<LockClass>, u64) {
    let (classes, uses) = USED.get();
    let used = |class: &LockClass| classes & 1 << *class as u32 != 0;
    (LockClass::ALL.into_iter().filter(used).collect(), uses)
}

/// From now on the first use of the heap under a lock panics on this thread.
pub(crate) fn panic_under_locks() {
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
    match LEFT.get() {
        None => true,
        // What a panic says is written before the hook is called.
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

// SAFETY: every block is one of `System`'s, or null, which any allocator may return.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !may() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller keeps the contract, which is the same.
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
        // SAFETY: as above; on null the block stays as it is.
        unsafe { System.realloc(block, layout, size) }
    }
}
