//! The heap of the process. Small blocks are in pages that hold blocks of one size; large blocks
//! are whole blocks of pages. All pages come from a Plimsoll arena.
//!
//! A page of small blocks begins with a header. Each free block of the page holds a link to the
//! next one. For each size of blocks, the pages that have free blocks form a list with a lock. The
//! lock is never held while pages are allocated or freed, because allocating a page may wait until
//! a tenant has died.
#![expect(
    unsafe_code,
    reason = "a global allocator hands out memory by raw pointers"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use plimsoll_host::Host;
use plimsoll_host::arena::Arena;
use plimsoll_mm::page::{AllocError, Mobility, NoKill, PageAllocator, Request};
use plimsoll_mm::units::{Order, Pages, Pfn};

const PAGE: usize = 4096;
/// The largest block of pages for which the heap waits until there is memory: 8 pages, as in Linux.
/// Most programs cannot continue without such a block.
const TOO_SMALL_TO_FAIL: Order = Order::new(3).expect("8 pages are an order");
/// The number of attempts to allocate a block of at most [`TOO_SMALL_TO_FAIL`]. The pauses between
/// the attempts add up to at least ten seconds.
const TRIES: u32 = 10_000;
/// The number of sizes of small blocks. The sizes are the powers of two from 16 bytes to 1 KiB.
const SIZES: usize = 7;
const SMALLEST: usize = 16;

/// The page allocator from which the heap takes its pages, with its machine and its memory.
pub(crate) struct Source {
    pub(crate) arena: &'static Arena,
    pub(crate) host: &'static Host,
    pub(crate) pages: &'static PageAllocator<Host>,
}

/// The heap; the comment at the top of this file describes it. Before [`OwnHeap::start`], memory
/// comes from the system's allocator.
pub(crate) struct OwnHeap {
    source: OnceLock<Source>,
    sizes: [Size; SIZES],
    /// The number of pages that the heap uses.
    used: AtomicU64,
    /// The number of requests that were refused for lack of pages.
    refused: AtomicU64,
    /// The number of requests for memory by threads that were reaping or ending an address space.
    /// This number must stay 0.
    asked: AtomicU64,
}

/// The pages with blocks of one size. The list that begins at `first` has only pages with a free
/// block.
struct Size {
    locked: AtomicBool,
    first: UnsafeCell<*mut Header>,
}

// SAFETY: only the holder of `locked` accesses `first` and the pages linked from it.
unsafe impl Sync for Size {}

/// The beginning of a page of small blocks.
#[repr(C, align(64))]
struct Header {
    next: *mut Self,
    prev: *mut Self,
    free: *mut Free,
    used: usize,
    size: usize,
}

/// A free block, which holds the link to the next free block of its page.
struct Free {
    next: *mut Self,
}

impl OwnHeap {
    pub(crate) const fn new() -> Self {
        Self {
            source: OnceLock::new(),
            sizes: [const {
                Size {
                    locked: AtomicBool::new(false),
                    first: UnsafeCell::new(ptr::null_mut()),
                }
            }; SIZES],
            used: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            asked: AtomicU64::new(0),
        }
    }

    /// Makes the heap take all memory from `source` from now on.
    pub(crate) fn start(&self, source: Source) {
        let started = self.source.set(source);
        assert!(started.is_ok(), "a process has one heap");
    }

    /// Returns the number of pages that the heap uses.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Returns the number of requests that were refused for lack of pages.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Returns the number of requests by threads that were reaping or ending an address space.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }
}

thread_local! {
    /// True while this thread reaps or ends an address space.
    static FREES: Cell<bool> = const { Cell::new(false) };
}

/// Runs `free`, which reaps or ends an address space. The heap counts the requests that `free`
/// makes ([`OwnHeap::asked`]). There must be no such request: the heap would let the thread wait
/// for memory that only this thread frees.
pub(crate) fn freeing<R>(free: impl FnOnce() -> R) -> R {
    FREES.set(true);
    let result = free();
    FREES.set(false);
    result
}

impl Source {
    /// Returns the frame that contains `block`; `None` if the block is not in the arena.
    fn frame(&self, block: *mut u8) -> Option<Pfn> {
        let first = self.arena.page(Pfn(0)).addr().get();
        let frame = block.addr().checked_sub(first)? / PAGE;
        let frame = u32::try_from(frame).ok()?;
        (frame < self.arena.pages().0).then_some(Pfn(frame))
    }

    fn take(&self, order: Order) -> Option<NonNull<u8>> {
        // The pages cannot be moved, because nothing records which pointers refer to them.
        let request = Request::new(order).of_mobility(Mobility::Unmovable);
        let tries = if order <= TOO_SMALL_TO_FAIL { TRIES } else { 1 };
        for _ in 0..tries {
            match self.pages.alloc(self.host, request) {
                Ok(pfn) => return Some(self.arena.page(pfn)),
                // A thread whose own tenant must die must not wait for that tenant's death.
                Err(AllocError::OutOfMemory(tried)) if tried.no_kill == NoKill::Dying => break,
                Err(_) => {}
            }
            // Every tenant that may be killed has been killed and is still exiting, so the thread
            // waits.
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    fn give(&self, block: *mut u8, order: Order) {
        let pfn = self.frame(block).expect("it came from the arena");
        let given = self.pages.free(self.host, pfn, order);
        given.expect("it was handed out with this order");
    }
}

/// Returns the order of the smallest block of pages that holds `bytes` bytes; `None` if no block is
/// large enough.
fn order_of(bytes: usize) -> Option<Order> {
    let pages = bytes.div_ceil(PAGE).next_power_of_two();
    Order::new(u8::try_from(pages.ilog2()).ok()?)
}

/// Returns the index of the smallest block size that is enough for `layout`; `None` if no size of
/// small blocks is enough. Each block is aligned to its size.
fn size_of_block(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(SMALLEST);
    let size = (bytes.next_power_of_two() / SMALLEST).ilog2() as usize;
    (size < SIZES).then_some(size)
}

impl Size {
    fn with<R>(&self, f: impl FnOnce(&mut *mut Header) -> R) -> R {
        // Acquire pairs with the Release store below, so this thread sees the last holder's
        // changes.
        while self.locked.swap(true, Acquire) {
            std::thread::yield_now();
        }
        // SAFETY: this thread has set `locked`. Until it clears `locked` below, no other thread has
        // a reference to `first`.
        let result = f(unsafe { &mut *self.first.get() });
        self.locked.store(false, Release);
        result
    }

    /// Takes a free block from a page on the list; `None` if the list is empty.
    fn take(&self) -> Option<NonNull<u8>> {
        self.with(|first| {
            let page = *first;
            if page.is_null() {
                return None;
            }
            // SAFETY: pages on the list are live, and the holder of the lock owns them.
            let header = unsafe { &mut *page };
            let block = header.free;
            // SAFETY: a page on the list has a free block.
            header.free = unsafe { (*block).next };
            header.used += 1;
            let is_full = header.free.is_null();
            if is_full {
                unlink(first, page);
            }
            NonNull::new(block.cast())
        })
    }

    /// Adds a new page of free blocks to the list.
    fn add(&self, page: *mut Header) {
        self.with(|first| link(first, page));
    }

    /// Frees a block. Returns the page of the block if the page is now empty and other pages of
    /// this size have free blocks.
    fn give(&self, page: *mut Header, block: *mut Free) -> Option<*mut Header> {
        self.with(|first| {
            // SAFETY: the page is live as long as one of its blocks is allocated, and the holder of
            // the lock owns the page.
            let header = unsafe { &mut *page };
            let was_full = header.free.is_null();
            // SAFETY: the caller frees the block, so its memory belongs to the page again.
            unsafe { block.write(Free { next: header.free }) };
            header.free = block;
            header.used -= 1;
            let is_empty = header.used == 0;
            // A page that was full is not on the list, so its links do not tell whether other pages
            // have free blocks. Such a page is kept, even if it is now empty.
            let alone = was_full || header.next.is_null() && header.prev.is_null();
            if was_full {
                link(first, page);
            }
            let goes = is_empty && !alone;
            if goes {
                unlink(first, page);
            }
            goes.then_some(page)
        })
    }
}

/// Returns the header at `page`, or `None` if `page` is null.
///
/// # Safety
/// The caller holds the lock of the list that `page` is on or is being added to. The caller has no
/// other reference to the header, and drops the returned one before it creates another.
unsafe fn header<'h>(page: *mut Header) -> Option<&'h mut Header> {
    // SAFETY: pages on a list are live, and the holder of its lock owns them. The caller guarantees
    // that there is no other reference to the header.
    unsafe { page.as_mut() }
}

fn link(first: &mut *mut Header, page: *mut Header) {
    // SAFETY: the holder of the lock owns both pages, and no reference is used after its statement.
    if let Some(next) = unsafe { header(*first) } {
        next.prev = page;
    }
    // SAFETY: the holder of the lock owns the page, and the reference is not used after this
    // statement.
    if let Some(header) = unsafe { header(page) } {
        (header.next, header.prev) = (*first, ptr::null_mut());
    }
    *first = page;
}

fn unlink(first: &mut *mut Header, page: *mut Header) {
    let null = ptr::null_mut();
    // SAFETY: the holder of the lock owns the page, and the reference ends with this statement.
    let links = unsafe { header(page) }.map(|header| {
        let (next, prev) = (&mut header.next, &mut header.prev);
        (mem::replace(next, null), mem::replace(prev, null))
    });
    let (next, prev) = links.unwrap_or((null, null));
    // SAFETY: the neighbour is on the list too, and the reference is not used after this statement.
    if let Some(next) = unsafe { header(next) } {
        next.prev = prev;
    }
    // SAFETY: the neighbour is on the list too, and the reference is not used after this statement.
    match unsafe { header(prev) } {
        Some(prev) => prev.next = next,
        None => *first = next,
    }
}

impl OwnHeap {
    fn take_small(&self, source: &Source, size: usize) -> *mut u8 {
        loop {
            if let Some(block) = self.sizes[size].take() {
                return block.as_ptr();
            }
            // No lock is held here, so another thread may add a page at the same time. Then there
            // is one page more than needed.
            let Some(page) = source.take(Order::ZERO) else {
                self.refused.fetch_add(1, Relaxed);
                return ptr::null_mut();
            };
            self.used.fetch_add(1, Relaxed);
            let page = page.as_ptr().cast();
            fill(page, size);
            self.sizes[size].add(page);
        }
    }

    fn take_large(&self, source: &Source, bytes: usize) -> *mut u8 {
        let block = order_of(bytes).and_then(|order| Some((source.take(order)?, order.pages())));
        let Some((block, Pages(pages))) = block else {
            self.refused.fetch_add(1, Relaxed);
            return ptr::null_mut();
        };
        self.used.fetch_add(u64::from(pages), Relaxed);
        block.as_ptr()
    }

    fn give_small(&self, source: &Source, block: *mut u8, size: usize) {
        let page = block.map_addr(|at| at & !(PAGE - 1)).cast::<Header>();
        // SAFETY: the page of a small block begins with its header, whose field `size` does not
        // change.
        debug_assert_eq!(unsafe { (*page).size }, size);
        if let Some(page) = self.sizes[size].give(page, block.cast()) {
            source.give(page.cast(), Order::ZERO);
            self.used.fetch_sub(1, Relaxed);
        }
    }
}

/// Turns a newly allocated page into a page of free blocks.
fn fill(page: *mut Header, size: usize) {
    let bytes = SMALLEST << size;
    let mut free = ptr::null_mut();
    let firsts = (size_of::<Header>().next_multiple_of(bytes)..PAGE).step_by(bytes);
    for at in firsts.rev() {
        let block = page.cast::<u8>().wrapping_add(at).cast::<Free>();
        // SAFETY: the block is inside a page that was just allocated, so no other thread uses it.
        unsafe { block.write(Free { next: free }) };
        free = block;
    }
    let (next, prev) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the page was just allocated, so no other thread uses it; its blocks begin after the
    // header.
    unsafe {
        page.write(Header {
            next,
            prev,
            free,
            used: 0,
            size,
        });
    }
}

// SAFETY: a block is inside frames that the page allocator gave to this heap, and is large enough
// and aligned. A user owns its block until the user frees it. The block then returns to its origin,
// this heap or `System`, which `dealloc` finds by the address. Nothing here unwinds: no `expect`
// fails unless a block is freed twice.
unsafe impl GlobalAlloc for OwnHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(source) = self.source.get() else {
            // SAFETY: the caller's guarantees are those that `System` needs.
            return unsafe { System.alloc(layout) };
        };
        if FREES.get() {
            self.asked.fetch_add(1, Relaxed);
        }
        match size_of_block(layout) {
            Some(size) => self.take_small(source, size),
            None => self.take_large(source, layout.size().max(layout.align())),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let source = self.source.get();
        let Some(source) = source.filter(|source| source.frame(block).is_some()) else {
            // SAFETY: the block was allocated before [`OwnHeap::start`], so it came from `System`.
            return unsafe { System.dealloc(block, layout) };
        };
        match size_of_block(layout) {
            Some(size) => self.give_small(source, block, size),
            None => {
                let bytes = layout.size().max(layout.align());
                let order = order_of(bytes).expect("it was handed out");
                source.give(block, order);
                self.used.fetch_sub(u64::from(order.pages().0), Relaxed);
            }
        }
    }
}
