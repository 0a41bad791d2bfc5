//! Tests of sequences that are stopped just before a store.
//!
//! The kernel stops a sequence rarely, and qemu never does. So a test plays the kernel: it makes the
//! memory to which the sequence stores read-only. The handler of the signal that the store then
//! raises makes the memory writable. It lets the thread continue where the description of the
//! sequence says, as the kernel does.

#![expect(unsafe_code, reason = "a signal handler stops sequences")]

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU8, AtomicUsize};
use std::sync::{Mutex, PoisonError};

use memmap2::{MmapOptions, MmapRaw};
use plimsoll_mm::machine::Freed;

use super::super::stack::Stack;
use super::tests::{area_on, description};
use super::{Area, add, free, pop, pop_run, push, push_run};

/// The lock of the test that uses the handler of the signal, and the words below.
static ALONE: Mutex<()> = Mutex::new(());
/// The area of the sequence that is to be stopped.
static AREA: AtomicPtr<Area> = AtomicPtr::new(ptr::null_mut());
/// The address and the length of the memory that is read-only until the sequence is stopped.
static CLOSED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// The number of bytes from the instruction before which the sequence was stopped to the end of the
/// sequence. 0 if nothing was stopped, or if it was not inside the sequence.
static TO_THE_END: AtomicUsize = AtomicUsize::new(0);

/// Stops a thread that has tried to store to the read-only memory.
extern "C" fn stop(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    let [address, len] = CLOSED.each_ref().map(|word| word.load(Relaxed));
    let closed = ptr::with_exposed_provenance_mut(address);
    // SAFETY: the memory is mapped by the test that has installed this handler.
    if unsafe { libc::mprotect(closed, len, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
        std::process::abort();
    }
    // SAFETY: the kernel passes the registers of the thread, and nothing else uses them meanwhile.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    let next = &mut registers.gregs[libc::REG_RIP as usize];
    #[cfg(target_arch = "aarch64")]
    let next = &mut registers.pc;
    // SAFETY: the test keeps its area until it has removed this handler.
    let [first, end, again] = description(unsafe { &*AREA.load(Relaxed) });
    let at = usize::try_from(*next).unwrap_or(0);
    if (first..end).contains(&at) {
        TO_THE_END.store(end - at, Relaxed);
        *next = again.try_into().unwrap_or(0);
    }
}

/// Three pages of memory. The second one begins 64 bytes after the beginning of a stack. So the home,
/// the limit, the state and the first 12 entries of the stack are in the first page of memory.
struct Memory {
    map: MmapRaw,
    page: usize,
}

impl Memory {
    fn new() -> Self {
        // SAFETY: the call has no conditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).expect("pages have a size");
        let map = MmapOptions::new().len(3 * page).map_anon();
        let map = MmapRaw::from(map.expect("there is memory"));
        let memory = Self { map, page };
        let stack = memory.at::<Stack>(page - 64).cast_mut();
        // SAFETY: the memory is mapped and aligned, and is longer than a stack.
        unsafe { stack.write(Stack::new()) };
        memory
    }

    fn at<T>(&self, offset: usize) -> *const T {
        self.map.as_mut_ptr().wrapping_add(offset).cast()
    }

    fn stack(&self) -> &Stack {
        let stack = self.at(self.page - 64);
        // SAFETY: `new` has made the stack, which is only changed through atomics.
        unsafe { &*stack }
    }

    /// A word in the first page.
    fn word(&self) -> &AtomicI64 {
        let word = self.at(0);
        // SAFETY: the memory was zeroed by the kernel, is aligned, and does not overlap the stack.
        unsafe { &*word }
    }

    /// A tag in the first page.
    fn tag(&self) -> &AtomicU8 {
        let tag = self.at(8);
        // SAFETY: as for `word`.
        unsafe { &*tag }
    }

    /// Runs `uses`, whose sequence is stopped before its first store to the first page. Returns the
    /// result, and the number of bytes from there to the end of the sequence.
    fn stopped<R>(&self, area: &Area, uses: impl FnOnce() -> R) -> (R, usize) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        AREA.store(ptr::from_ref(area).cast_mut(), Relaxed);
        CLOSED[0].store(self.map.as_mut_ptr().expose_provenance(), Relaxed);
        CLOSED[1].store(self.page, Relaxed);
        TO_THE_END.store(0, Relaxed);
        // SAFETY: all bytes may be 0.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_flags = libc::SA_SIGINFO;
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = stop;
        action.sa_sigaction = handler as usize;
        // SAFETY: all bytes may be 0.
        let mut before: libc::sigaction = unsafe { mem::zeroed() };
        // SAFETY: the handler only uses what this function has stored.
        let installed =
            unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, &raw mut before) };
        assert_eq!(installed, 0);
        // SAFETY: the memory is mapped. The handler makes it writable again.
        let closed =
            unsafe { libc::mprotect(self.map.as_mut_ptr().cast(), self.page, libc::PROT_READ) };
        assert_eq!(closed, 0);
        let result = uses();
        // SAFETY: the kernel has written this action.
        let restored =
            unsafe { libc::sigaction(libc::SIGSEGV, &raw const before, ptr::null_mut()) };
        assert_eq!(restored, 0);
        (result, TO_THE_END.load(Relaxed))
    }
}

/// Returns whether the last `bytes` bytes of a sequence are a single store.
fn is_last(bytes: usize) -> bool {
    if cfg!(target_arch = "aarch64") {
        bytes == 4
    } else {
        // A store consists of the operation, the registers and in most cases an offset. Some registers
        // take one byte more.
        (2..=5).contains(&bytes)
    }
}

/// Makes a stack of 12 pages, with room for 20. The next entry is in the second page of memory.
fn with_12_pages(area: &Area) -> Memory {
    let memory = Memory::new();
    let stack = memory.stack();
    stack.home.store(0, Relaxed);
    stack.limit.store(20, Relaxed);
    assert!(push_run(area, stack, &[1; 12]));
    memory
}

/// Each sequence ends with the store that counts. If the sequence is stopped before this store, it
/// begins again, and has an effect once. If the end came later, a sequence that has stored could be
/// stopped and store again. If it came earlier, a thread could store a state that is outdated.
#[test]
fn a_sequence_that_is_stopped_before_its_last_store_begins_again() {
    let area = &area_on(0);
    let memory = with_12_pages(area);
    let stack = memory.stack();
    let (pushed, bytes) = memory.stopped(area, || push(area, stack, 13));
    assert!(is_last(bytes), "push: {bytes}");
    assert_eq!((pushed, stack.len()), (true, 13));
    let (popped, bytes) = memory.stopped(area, || pop(area, stack));
    assert!(is_last(bytes), "pop: {bytes}");
    assert_eq!((popped, stack.len()), (Some(13), 12));
    let (pushed, bytes) = memory.stopped(area, || push_run(area, stack, &[13, 14]));
    assert!(is_last(bytes), "push of a run: {bytes}");
    assert_eq!((pushed, stack.len()), (true, 14));
    let mut run = [0; 2];
    let (popped, bytes) = memory.stopped(area, || pop_run(area, stack, &mut run));
    assert!(is_last(bytes), "pop of a run: {bytes}");
    assert_eq!((popped, run, stack.len()), (2, [14, 13], 12));
    let (new, bytes) = memory.stopped(area, || add(area, &stack.home, memory.word(), 5));
    assert!(is_last(bytes), "addition: {bytes}");
    assert_eq!((new, memory.word().load(Relaxed)), (Some(5), 5));
}

/// A free that is stopped after the store of the tag must not begin again, because the tag is not the
/// old one any more. It returns the page to its caller. A free that is stopped earlier begins again.
#[test]
fn a_free_that_is_stopped_begins_again_until_it_has_changed_the_tag() {
    let area = &area_on(0);
    let memory = with_12_pages(area);
    let (stack, first, tag) = (memory.stack(), &AtomicU8::new(7), memory.tag());
    let (freed, bytes) = memory.stopped(area, || free(area, stack, 13, first, [7, 9]));
    assert!(is_last(bytes), "the store of the state: {bytes}");
    assert_eq!((freed, first.load(Relaxed)), (Freed::Tagged, 9));
    assert_eq!(stack.len(), 12, "the page is not in the stack");

    tag.store(7, Relaxed);
    let (freed, bytes) = memory.stopped(area, || free(area, stack, 13, tag, [7, 9]));
    // The store of the state follows at once. Another instruction between the two stores could be the
    // one that notes that the tag was changed, and would come too late.
    let is_next_to_last = if cfg!(target_arch = "aarch64") {
        bytes == 8
    } else {
        (5..=9).contains(&bytes)
    };
    assert!(is_next_to_last, "the store of the tag: {bytes}");
    assert_eq!((freed, tag.load(Relaxed)), (Freed::Pushed, 9));
    assert_eq!(stack.len(), 13);

    // The next entry of the stack is in the first page of memory.
    assert_eq!(pop_run(area, stack, &mut [0; 10]), 10);
    let early = &AtomicU8::new(7);
    let (freed, bytes) = memory.stopped(area, || free(area, stack, 14, early, [7, 9]));
    assert!(bytes > 9, "the store of the page: {bytes}");
    assert_eq!((freed, early.load(Relaxed)), (Freed::Pushed, 9));
    assert_eq!(stack.len(), 4);

    // The stack is full, so only the tag is changed.
    stack.limit.store(4, Relaxed);
    tag.store(7, Relaxed);
    let (freed, bytes) = memory.stopped(area, || free(area, stack, 15, tag, [7, 9]));
    assert!(is_last(bytes), "a free to a full stack: {bytes}");
    assert_eq!((freed, tag.load(Relaxed)), (Freed::Tagged, 9));
}
