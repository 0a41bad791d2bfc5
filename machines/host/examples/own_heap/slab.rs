//! The process's heap: small blocks in pages of one size each, large ones as blocks of pages, all of
//! them from a Plimsoll arena.
//!
//! A page of small blocks begins with a header; the free blocks of a page are a list through the blocks
//! themselves. Pages with free blocks are a list for each size. Its lock is never held while pages are
//! taken or given back: taking one may wait until somebody has died.
#![expect(
    unsafe_code,
    reason = "a global allocator hands out memory by raw pointers"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
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
/// Blocks of up to 8 pages are waited for, as in Linux: most programs cannot do without.
const TOO_SMALL_TO_FAIL: Order = Order::new(3).expect("8 pages are an order");
/// For ten seconds or more.
const TRIES: u32 = 10_000;
/// Sizes of small blocks: 16 bytes to 1 KiB.
const SIZES: usize = 7;
const SMALLEST: usize = 16;

/// What pages come from.
pub(crate) struct Source {
    pub(crate) arena: &'static Arena,
    pub(crate) host: &'static Host,
    pub(crate) pages: &'static PageAllocator<Host>,
}

/// See the file's header. Before it is started the system's allocator serves.
pub(crate) struct OwnHeap {
    source: OnceLock<Source>,
    sizes: [Size; SIZES],
    /// Pages that blocks are in.
    used: AtomicU64,
    /// Requests there was no page for.
    refused: AtomicU64,
}

/// All pages of blocks of one size that have some free.
struct Size {
    locked: AtomicBool,
    first: UnsafeCell<*mut Header>,
}

// SAFETY: `first` and the pages behind it are touched by the holder of `locked` only.
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

/// A free block.
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
        }
    }

    /// From now on memory comes from `source`.
    pub(crate) fn start(&self, source: Source) {
        let started = self.source.set(source);
        assert!(started.is_ok(), "a process has one heap");
    }

    /// Pages that blocks are in.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Requests there was no page for.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}

impl Source {
    /// The frame that `block` is in, if it is one of the arena.
    fn frame(&self, block: *mut u8) -> Option<Pfn> {
        let first = self.arena.page(Pfn(0)).addr().get();
        let frame = block.addr().checked_sub(first)? / PAGE;
        let frame = u32::try_from(frame).ok()?;
        (frame < self.arena.pages().0).then_some(Pfn(frame))
    }

    fn take(&self, order: Order) -> Option<NonNull<u8>> {
        // What cannot be moved: nobody knows who points to it.
        let request = Request::new(order).of_mobility(Mobility::Unmovable);
        let tries = if order <= TOO_SMALL_TO_FAIL { TRIES } else { 1 };
        for _ in 0..tries {
            match self.pages.alloc(self.host, request) {
                Ok(pfn) => return Some(self.arena.page(pfn)),
                // Who is to die must not wait for its own death.
                Err(AllocError::OutOfMemory(tried)) if tried.no_kill == NoKill::Dying => break,
                Err(_) => {}
            }
            // Those who could be killed were, and are leaving still.
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

/// The order of the block of pages for `bytes`, or `None` if there is none so large.
fn order_of(bytes: usize) -> Option<Order> {
    let pages = bytes.div_ceil(PAGE).next_power_of_two();
    Order::new(u8::try_from(pages.ilog2()).ok()?)
}

/// Which of the sizes serves, if one does. Blocks are aligned to their size.
fn size_of_block(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(SMALLEST);
    let size = (bytes.next_power_of_two() / SMALLEST).ilog2() as usize;
    (size < SIZES).then_some(size)
}

impl Size {
    fn with<R>(&self, f: impl FnOnce(&mut *mut Header) -> R) -> R {
        // Acquire pairs with the Release below.
        while self.locked.swap(true, Acquire) {
            std::thread::yield_now();
        }
        // SAFETY: `locked` was taken, so nobody else has a reference until it is cleared below.
        let result = f(unsafe { &mut *self.first.get() });
        self.locked.store(false, Release);
        result
    }

    /// A block of a page that has a free one.
    fn take(&self) -> Option<NonNull<u8>> {
        self.with(|first| {
            let page = *first;
            if page.is_null() {
                return None;
            }
            // SAFETY: pages of the list are live and belong to the holder of the lock.
            let header = unsafe { &mut *page };
            let block = header.free;
            // SAFETY: a page of the list has a free block.
            header.free = unsafe { (*block).next };
            header.used += 1;
            let is_full = header.free.is_null();
            if is_full {
                unlink(first, page);
            }
            NonNull::new(block.cast())
        })
    }

    /// Adds a new page with free blocks.
    fn add(&self, page: *mut Header) {
        self.with(|first| link(first, page));
    }

    /// Takes a block back; the page, if that has become empty and others have free blocks.
    fn give(&self, page: *mut Header, block: *mut Free) -> Option<*mut Header> {
        self.with(|first| {
            // SAFETY: the page is live while one of its blocks is, and belongs to the lock's holder.
            let header = unsafe { &mut *page };
            let was_full = header.free.is_null();
            // SAFETY: the caller gives the block up, so it is this page's to write to.
            unsafe { block.write(Free { next: header.free }) };
            header.free = block;
            header.used -= 1;
            let is_empty = header.used == 0;
            // A page that was full is in no list yet.
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

/// The header at `page`, if there is one.
///
/// # Safety
/// The caller holds the lock of a list that `page` is in or comes to, has no other reference to the
/// header, and drops this one before it makes another.
unsafe fn header<'h>(page: *mut Header) -> Option<&'h mut Header> {
    // SAFETY: pages of a list are live, and belong to the holder of its lock; the rest the caller says.
    unsafe { page.as_mut() }
}

fn link(first: &mut *mut Header, page: *mut Header) {
    // SAFETY: the holder of the lock has both pages; each reference is used up in its statement.
    if let Some(next) = unsafe { header(*first) } {
        next.prev = page;
    }
    // SAFETY: as above.
    if let Some(header) = unsafe { header(page) } {
        (header.next, header.prev) = (*first, ptr::null_mut());
    }
    *first = page;
}

fn unlink(first: &mut *mut Header, page: *mut Header) {
    let null = ptr::null_mut();
    // SAFETY: the holder of the lock has the page; the reference is used up in this statement.
    let links = unsafe { header(page) }.map(|header| {
        let (next, prev) = (&mut header.next, &mut header.prev);
        (mem::replace(next, null), mem::replace(prev, null))
    });
    let (next, prev) = links.unwrap_or((null, null));
    // SAFETY: as above, of its neighbour.
    if let Some(next) = unsafe { header(next) } {
        next.prev = prev;
    }
    // SAFETY: as above.
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
            // With no lock held. Somebody may be faster: then there is a page more.
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
        // SAFETY: the page of a small block begins with its header, whose size does not change.
        debug_assert_eq!(unsafe { (*page).size }, size);
        if let Some(page) = self.sizes[size].give(page, block.cast()) {
            source.give(page.cast(), Order::ZERO);
            self.used.fetch_sub(1, Relaxed);
        }
    }
}

/// Makes a fresh page one of free blocks.
fn fill(page: *mut Header, size: usize) {
    let bytes = SMALLEST << size;
    let mut free = ptr::null_mut();
    let firsts = (size_of::<Header>().next_multiple_of(bytes)..PAGE).step_by(bytes);
    for at in firsts.rev() {
        let block = page.cast::<u8>().wrapping_add(at).cast::<Free>();
        // SAFETY: inside a page that was just taken, so it is nobody else's.
        unsafe { block.write(Free { next: free }) };
        free = block;
    }
    let (next, prev) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: as above; blocks begin behind the header.
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

// SAFETY: a block is inside frames that the allocator handed out to this heap, large and aligned
// enough, and nobody else's until it comes back; it comes back to where it was taken from, which its
// address tells. Nothing here unwinds: what is expected holds unless a block is freed twice.
unsafe impl GlobalAlloc for OwnHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(source) = self.source.get() else {
            // SAFETY: the same contract.
            return unsafe { System.alloc(layout) };
        };
        match size_of_block(layout) {
            Some(size) => self.take_small(source, size),
            None => self.take_large(source, layout.size().max(layout.align())),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let source = self.source.get();
        let Some(source) = source.filter(|source| source.frame(block).is_some()) else {
            // SAFETY: it is from before the start, so it is the system's.
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
