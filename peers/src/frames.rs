//! Page-frame allocators of other projects, with which this program compares Plimsoll's.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use bitmap_allocator::{BitAlloc, BitAlloc1M};
use buddy_system_allocator::LockedFrameAllocator;
use frame_alloc::{
    CpuId, DepotAllocator, PageSize, PhysicalAllocator, Provenance, RegionInit,
    SummaryBuddyAllocator,
};
use plimsoll_lab::bench::page::{FRAMES, Frames};

const PAGE: PageSize = PageSize::from_log2(12);

/// `frame-alloc`: a lock-free buddy allocator behind per-CPU magazines and a shared depot.
pub struct Depot {
    frames: DepotAllocator<SummaryBuddyAllocator<11, Exposed>, ThisCpu, 2>,
    /// Owns the memory of the frames. `frames` has only the address of this memory.
    _pool: Pool,
}

std::thread_local! {
    static CPU: Cell<usize> = const { Cell::new(0) };
}

/// Tells the allocator the CPU of the calling thread. In this program, the CPU's number is the
/// number of the thread.
struct ThisCpu;

impl CpuId for ThisCpu {
    #[inline(always)]
    fn current_cpu() -> usize {
        CPU.get()
    }
}

/// The memory that an allocator manages.
struct Pool {
    base: NonNull<u8>,
    layout: Layout,
}

impl Pool {
    fn new() -> Self {
        let layout = Layout::from_size_align((FRAMES.0 as usize) << 12, 4 << 20);
        let layout = layout.expect("512 MiB is a layout");
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).expect("512 MiB of address space");
        base.expose_provenance();
        Self { base, layout }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with this layout, and only this function frees it.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

// SAFETY: the pool is plain memory. Only the allocator that manages it hands out its frames, each
// to one thread at a time.
unsafe impl Send for Pool {}
// SAFETY: the pool is plain memory. Only the allocator that manages it hands out its frames, each
// to one thread at a time.
unsafe impl Sync for Pool {}

struct Exposed;

// SAFETY: the pool is one live allocation whose provenance was exposed in `Pool::new`.
unsafe impl Provenance for Exposed {
    unsafe fn create(phys: usize) -> NonNull<u8> {
        let pointer = std::ptr::with_exposed_provenance_mut(phys);
        NonNull::new(pointer).expect("no frame is at address 0")
    }

    unsafe fn destroy<T>(pointer: NonNull<T>) -> usize {
        pointer.as_ptr().expose_provenance()
    }
}

impl Depot {
    pub fn new() -> Self {
        let (frames, pool) = (
            DepotAllocator::new(PAGE, SummaryBuddyAllocator::new(PAGE)),
            Pool::new(),
        );
        let base = pool.base.as_ptr().expose_provenance();
        // SAFETY: the pool is aligned, and no other code uses it yet.
        unsafe { frames.init_region(base, pool.layout.size()) };
        Self {
            frames,
            _pool: pool,
        }
    }
}

fn count(order: u8) -> NonZeroUsize {
    NonZeroUsize::MIN.saturating_mul(NonZeroUsize::new(1 << order).expect("a power of two"))
}

impl Frames for Depot {
    fn name(&self) -> String {
        "frame-alloc, depot".to_owned()
    }

    fn enter(&self, thread: usize) -> Option<plimsoll_lab::bench::page::Entered> {
        CPU.set(thread);
        None
    }

    #[inline(always)]
    fn alloc<const ORDER: u8>(&self) -> Option<usize> {
        self.frames.allocate_physical(PAGE, count(ORDER)).ok()
    }

    #[inline(always)]
    fn free<const ORDER: u8>(&self, block: usize) {
        // SAFETY: the block was allocated with this count, and is freed once.
        unsafe { self.frames.deallocate_physical(PAGE, count(ORDER), block) }
    }

    fn settle(&self) {
        self.frames.flush();
    }
}

/// `buddy_system_allocator`: a buddy allocator that keeps free frame numbers in sets, behind a
/// spinlock.
pub struct Buddy(LockedFrameAllocator<18>);

impl Buddy {
    pub fn new() -> Self {
        let frames = LockedFrameAllocator::new();
        frames.lock().add_frame(0, FRAMES.0 as usize);
        Self(frames)
    }
}

impl Frames for Buddy {
    fn name(&self) -> String {
        "buddy_system_allocator".to_owned()
    }

    #[inline(always)]
    fn alloc<const ORDER: u8>(&self) -> Option<usize> {
        self.0.lock().alloc(1 << ORDER)
    }

    #[inline(always)]
    fn free<const ORDER: u8>(&self, block: usize) {
        self.0.lock().dealloc(block, 1 << ORDER);
    }
}

/// `bitmap-allocator`: a tree of bitmaps, which this program puts behind a spinlock.
pub struct Bitmap(spin::Mutex<Box<BitAlloc1M>>);

impl Bitmap {
    pub fn new() -> Self {
        let mut bits = Box::<BitAlloc1M>::default();
        bits.insert(0..FRAMES.0 as usize);
        Self(spin::Mutex::new(bits))
    }
}

impl Frames for Bitmap {
    fn name(&self) -> String {
        "bitmap-allocator".to_owned()
    }

    #[inline(always)]
    fn alloc<const ORDER: u8>(&self) -> Option<usize> {
        let mut bits = self.0.lock();
        match ORDER {
            0 => bits.alloc(),
            _ => bits.alloc_contiguous(None, 1 << ORDER, ORDER as usize),
        }
    }

    #[inline(always)]
    fn free<const ORDER: u8>(&self, block: usize) {
        let mut bits = self.0.lock();
        let freed = match ORDER {
            0 => bits.dealloc(block),
            _ => bits.dealloc_contiguous(block, 1 << ORDER),
        };
        assert!(freed, "the block was allocated");
    }
}
