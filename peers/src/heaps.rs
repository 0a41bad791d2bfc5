//! General-purpose allocators. The benchmark asks them for blocks that are aligned to their size.

use std::alloc::{GlobalAlloc, Layout};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use plimsoll_lab::bench::page::{FRAMES, Frames};

const fn layout(order: u8) -> Layout {
    let bytes = 4096 << order;
    match Layout::from_size_align(bytes, bytes) {
        Ok(layout) => layout,
        Err(_) => panic!("both sizes of the bench are layouts"),
    }
}

/// An allocator with the interface of Rust's global allocator.
pub struct Heap<A> {
    name: &'static str,
    heap: A,
}

impl<A> Heap<A> {
    pub fn new(name: &'static str, heap: A) -> Self {
        Self { name, heap }
    }
}

impl<A: GlobalAlloc + Send + Sync> Frames for Heap<A> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    #[inline(always)]
    fn alloc<const ORDER: u8>(&self) -> Option<usize> {
        // SAFETY: the layout is not empty.
        let block = unsafe { self.heap.alloc(const { layout(ORDER) }) };
        NonNull::new(block).map(|block| block.as_ptr().expose_provenance())
    }

    #[inline(always)]
    fn free<const ORDER: u8>(&self, block: usize) {
        let block = std::ptr::with_exposed_provenance_mut(block);
        // SAFETY: the block was allocated with this layout, and is freed once.
        unsafe { self.heap.dealloc(block, const { layout(ORDER) }) }
    }
}

fn pool() -> &'static mut [MaybeUninit<u8>] {
    // The pool is twice as large as all frames of the benchmark. A block is aligned to its size. So
    // if an allocator keeps a record beside each block, a block of one frame takes nearly two
    // frames.
    let bytes = (FRAMES.0 as usize) << 13;
    Box::leak(Box::new_uninit_slice(bytes))
}

/// `rlsf`: two-level segregated fit, which this program puts behind a spinlock.
pub struct Tlsf(spin::Mutex<rlsf::Tlsf<'static, u32, u32, 28, 32>>);

impl Tlsf {
    pub fn new() -> Self {
        let mut heap = rlsf::Tlsf::new();
        let _inserted = heap.insert_free_block(pool());
        Self(spin::Mutex::new(heap))
    }
}

impl Frames for Tlsf {
    const HAS_HUGE: bool = false;

    fn name(&self) -> String {
        "rlsf".to_owned()
    }

    #[inline(always)]
    fn alloc<const ORDER: u8>(&self) -> Option<usize> {
        let block = self.0.lock().allocate(const { layout(ORDER) })?;
        Some(block.as_ptr().expose_provenance())
    }

    #[inline(always)]
    fn free<const ORDER: u8>(&self, block: usize) {
        let block = NonNull::new(std::ptr::with_exposed_provenance_mut(block));
        let block = block.expect("no block is at address 0");
        // SAFETY: the block was allocated with this alignment, and is freed once.
        unsafe { self.0.lock().deallocate(block, layout(ORDER).align()) }
    }
}

/// `talc`, which this program puts behind a spinlock.
pub struct Talc(talc::TalcLock<spin::Mutex<()>, talc::source::Manual>);

impl Talc {
    pub fn new() -> Self {
        let heap = talc::TalcLock::new(talc::source::Manual);
        let pool = pool();
        // SAFETY: the pool lives for ever and is used by this heap alone.
        let claimed = unsafe { heap.lock().claim(pool.as_mut_ptr().cast(), pool.len()) };
        claimed.expect("the pool is larger than talc's own records");
        Self(heap)
    }
}

impl Frames for Talc {
    const HAS_HUGE: bool = false;

    fn name(&self) -> String {
        "talc".to_owned()
    }

    #[inline(always)]
    fn alloc<const ORDER: u8>(&self) -> Option<usize> {
        // SAFETY: the layout is not empty.
        let block = unsafe { self.0.alloc(const { layout(ORDER) }) };
        NonNull::new(block).map(|block| block.as_ptr().expose_provenance())
    }

    #[inline(always)]
    fn free<const ORDER: u8>(&self, block: usize) {
        let block = std::ptr::with_exposed_provenance_mut(block);
        // SAFETY: the block was allocated with this layout, and is freed once.
        unsafe { self.0.dealloc(block, const { layout(ORDER) }) }
    }
}
