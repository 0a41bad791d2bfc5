//! The allocators that the bench measures: the interface, and Plimsoll's own page allocator.

use std::hint::black_box;

use plimsoll_host::cpu::Entered;
use plimsoll_host::fronts::Fronts;
use plimsoll_host::{Host, OwnerLocks};
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::{Config, Layout, LayoutError, Local, PageAllocator, Request};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pfn};

use super::{CPUS, FRAMES};
use crate::error::Error;

/// The order of a huge block, which has 512 frames.
pub const HUGE: u8 = 9;

/// An allocator of page frames, as a measured program calls it.
///
/// The allocator identifies a block by a number of its choice, such as a frame number or an
/// address. `ORDER` is the binary logarithm of the number of frames in the block: 0 or [`HUGE`].
pub trait Frames: Send + Sync {
    /// True if the allocator has blocks of order [`HUGE`].
    const HAS_HUGE: bool = true;

    /// True if one thread can free for good what another thread has allocated.
    const PASSES: bool = true;

    /// The name of the allocator in the tables.
    fn name(&self) -> String;

    /// Prepares the calling thread for the measurement, in which it has the index `thread` (0 or
    /// 1). With Plimsoll, the thread plays a CPU of a machine until the returned value is dropped.
    fn enter(&self, _thread: usize) -> Option<Entered> {
        None
    }

    /// Allocates a block. The timed loops inline this function.
    fn alloc<const ORDER: u8>(&self) -> Option<usize>;

    /// Frees a block that was allocated with the same `ORDER`.
    fn free<const ORDER: u8>(&self, block: usize);

    /// Makes the allocator move free frames from its caches (of CPUs or of threads) to its common
    /// pool, if the allocator can do so.
    fn settle(&self) {}

    /// The loop of [`Subject::pairs`]. Some allocators have a handle for each thread, which a
    /// program would get once, before the loop. Such an allocator overrides this method, `take_of`
    /// and `give_of`.
    fn pairs_of<const ORDER: u8>(&self, times: usize) {
        pairs(
            times,
            || self.alloc::<ORDER>(),
            |block| self.free::<ORDER>(block),
        );
    }

    /// The loop of [`Subject::take`].
    fn take_of<const ORDER: u8>(&self, blocks: &mut [usize]) -> usize {
        take(blocks, || self.alloc::<ORDER>())
    }

    /// The loop of [`Subject::give`] for blocks of the order `ORDER`.
    fn give_of<const ORDER: u8>(&self, blocks: &[usize]) {
        give(blocks, |block| self.free::<ORDER>(block));
    }
}

/// The loops that the bench times, for any allocator. The compiler builds each loop separately for
/// each allocator. So a call of the allocator is as fast as in a program that chose its allocator
/// at compile time.
pub trait Subject: Send + Sync {
    /// See [`Frames::name`].
    fn name(&self) -> String;
    /// See [`Frames::enter`].
    fn enter(&self, thread: usize) -> Option<Entered>;
    /// See [`Frames::settle`].
    fn settle(&self);
    /// Returns whether the allocator has blocks of `size`.
    fn has(&self, size: Size) -> bool;
    /// See [`Frames::PASSES`].
    fn passes(&self) -> bool;
    /// Allocates a block and frees it, `times` times.
    fn pairs(&self, size: Size, times: usize);
    /// Fills `blocks` with newly allocated blocks. Returns the number of allocations that failed.
    /// The entry of a failed allocation becomes [`NO_BLOCK`].
    fn take(&self, size: Size, blocks: &mut [usize]) -> usize;
    /// Frees `blocks` in their order, except entries that are [`NO_BLOCK`].
    fn give(&self, size: Size, blocks: &[usize]);
}

/// The size of the blocks that a loop allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// One frame.
    Page,
    /// 512 frames.
    Huge,
}

/// The entry of a block that could not be allocated.
pub const NO_BLOCK: usize = usize::MAX;

impl<F: Frames> Subject for F {
    fn name(&self) -> String {
        Frames::name(self)
    }

    fn enter(&self, thread: usize) -> Option<Entered> {
        Frames::enter(self, thread)
    }

    fn settle(&self) {
        Frames::settle(self);
    }

    fn has(&self, size: Size) -> bool {
        F::HAS_HUGE || size == Size::Page
    }

    fn passes(&self) -> bool {
        F::PASSES
    }

    fn pairs(&self, size: Size, times: usize) {
        match size {
            Size::Page => self.pairs_of::<0>(times),
            Size::Huge => self.pairs_of::<HUGE>(times),
        }
    }

    fn take(&self, size: Size, blocks: &mut [usize]) -> usize {
        match size {
            Size::Page => self.take_of::<0>(blocks),
            Size::Huge => self.take_of::<HUGE>(blocks),
        }
    }

    fn give(&self, size: Size, blocks: &[usize]) {
        match size {
            Size::Page => self.give_of::<0>(blocks),
            Size::Huge => self.give_of::<HUGE>(blocks),
        }
    }
}

pub(super) fn pairs(times: usize, alloc: impl Fn() -> Option<usize>, free: impl Fn(usize)) {
    for _ in 0..times {
        // Without `black_box`, the compiler could merge the allocation with the freeing.
        if let Some(block) = black_box(alloc()) {
            free(block);
        }
    }
}

pub(super) fn take(blocks: &mut [usize], alloc: impl Fn() -> Option<usize>) -> usize {
    let mut failed = 0;
    for block in blocks {
        *block = alloc().unwrap_or_else(|| {
            failed += 1;
            NO_BLOCK
        });
    }
    failed
}

pub(super) fn give(blocks: &[usize], free: impl Fn(usize)) {
    for &block in blocks {
        if block != NO_BLOCK {
            free(block);
        }
    }
}

/// Plimsoll's page allocator with one zone. It keeps the same statistics as in ordinary use.
pub(super) struct Plimsoll {
    name: &'static str,
    host: Host,
    manager: Manager<Host>,
}

impl Plimsoll {
    pub(super) fn new(name: &'static str, design: Design, fronts: Fronts) -> Result<Self, Error> {
        let host = Host::with_fronts(Topology::flat(CPUS), fronts, OwnerLocks::Exchanged);
        let config = Config {
            design,
            ..Config::new(Layout::arena(FRAMES).with_bitmaps())
        };
        let invalid = |why: LayoutError| Error::Invalid(why.to_string());
        let manager = Manager::new(&host, config).map_err(invalid)?;
        Ok(Self {
            name,
            host,
            manager,
        })
    }

    fn pages(&self) -> &PageAllocator<Host> {
        self.manager.pages()
    }

    fn here(&self) -> Here<'_> {
        Here {
            host: &self.host,
            local: self.pages().local(&self.host, self.host.this_cpu()),
        }
    }
}

/// The handle that a thread keeps while it allocates and frees: the machine, and the page lists of
/// the thread's CPU.
struct Here<'a> {
    host: &'a Host,
    local: Local<'a, Host>,
}

impl Here<'_> {
    #[inline(always)]
    fn alloc<const ORDER: u8>(&self) -> Option<usize> {
        let request = const { Request::new(order(ORDER)) };
        let pfn = self.local.alloc(self.host, request).ok()?;
        Some(pfn.0 as usize)
    }

    #[inline(always)]
    fn free<const ORDER: u8>(&self, block: usize) {
        let pfn = Pfn(frame(block));
        let freed = self.local.free(self.host, pfn, const { order(ORDER) });
        freed.expect("the block was allocated");
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the numbers of Plimsoll and the floors are frame numbers, which fit 32 bits"
)]
pub(super) const fn frame(block: usize) -> u32 {
    block as u32
}

const fn order(order: u8) -> Order {
    Order::new(order).expect("both sizes of the bench are orders")
}

impl Frames for Plimsoll {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn enter(&self, thread: usize) -> Option<Entered> {
        Some(self.host.enter(cpu_of(thread)))
    }

    fn alloc<const ORDER: u8>(&self) -> Option<usize> {
        self.here().alloc::<ORDER>()
    }

    fn free<const ORDER: u8>(&self, block: usize) {
        self.here().free::<ORDER>(block);
    }

    fn pairs_of<const ORDER: u8>(&self, times: usize) {
        let here = self.here();
        pairs(
            times,
            || here.alloc::<ORDER>(),
            |block| here.free::<ORDER>(block),
        );
    }

    fn take_of<const ORDER: u8>(&self, blocks: &mut [usize]) -> usize {
        let here = self.here();
        take(blocks, || here.alloc::<ORDER>())
    }

    fn give_of<const ORDER: u8>(&self, blocks: &[usize]) {
        let here = self.here();
        give(blocks, |block| here.free::<ORDER>(block));
    }

    fn settle(&self) {
        self.pages().drain_all_sync(&self.host);
        // Add the counts that CPUs keep for themselves to the free-page counter, because watermark
        // checks read that counter.
        for thread in 0..CPUS {
            let _entered = self.host.enter(CpuId(thread));
            self.manager.refresh(&self.host);
        }
    }
}

pub(super) fn cpu_of(thread: usize) -> CpuId {
    CpuId(u32::try_from(thread).expect("the bench has two threads"))
}
