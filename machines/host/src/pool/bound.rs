//! A thread's handle on a pool, while the thread plays one CPU.

use std::fmt;

use plimsoll_mm::counter::CounterId;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::{AllocError, BulkError, FreeError, Local, PageAllocator, Request};
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

use super::Pool;
use crate::Host;
use crate::cpu::Entered;

/// The right of a thread to use a [`Pool`] as one of its CPUs. Each method is the method of the
/// same name of [`PageAllocator`], called with the pool's machine. Calls for single pages take less
/// time, because this handle has looked up the CPU's page lists in advance ([`Local`]).
///
/// The type is `!Send`, because the handle is valid only on the thread that entered the CPU. If a
/// thread enters several CPUs of a pool, it plays the CPU that it entered last. Its older `Bound`
/// values then use that CPU too, with one exception: single pages still come from the *front* (a
/// stack of free pages) of the CPU for which the value was made. The thread must drop the newest
/// value first.
///
/// A thread plays a CPU of one machine at a time. If it enters a second pool, most calls through
/// the `Bound` of the first pool have to ask the kernel for the CPU. That ends when the newer value
/// is dropped. Such a call is slower, and it uses the CPU that the kernel names, not the one that
/// the thread entered.
///
/// ```compile_fail
/// # let pool = plimsoll_host::pool::Pool::builder().build().unwrap();
/// let bound = pool.bind();
/// std::thread::scope(|scope| scope.spawn(move || bound.drain())); // another thread may not use it
/// ```
#[must_use = "the thread plays the CPU only while this lives"]
pub struct Bound<'p> {
    pool: &'p Pool,
    host: &'p Host,
    pages: &'p PageAllocator<Host>,
    local: Local<'p, Host>,
    _entered: Entered,
}

impl<'p> Bound<'p> {
    pub(super) fn new(pool: &'p Pool, entered: Entered) -> Self {
        Self {
            pool,
            host: pool.host(),
            pages: pool.pages(),
            local: pool.pages().local(pool.host(), pool.host().this_cpu()),
            _entered: entered,
        }
    }

    /// The pool that the thread uses.
    #[must_use]
    pub fn pool(&self) -> &'p Pool {
        self.pool
    }

    /// The CPU as which the thread acts in this pool. If the thread has entered another pool since,
    /// it is the CPU that the kernel names.
    #[must_use]
    pub fn cpu(&self) -> CpuId {
        self.host.this_cpu()
    }

    /// Allocates a block: [`PageAllocator::alloc`].
    ///
    /// # Errors
    /// [`AllocError`].
    #[inline]
    pub fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        self.local.alloc(self.host, request)
    }

    /// Frees a block: [`PageAllocator::free`].
    ///
    /// # Errors
    /// [`FreeError`]; nothing has changed then.
    #[inline]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.local.free(self.host, pfn, order)
    }

    /// Allocates single pages into `pfns`, and returns how many it allocated:
    /// [`PageAllocator::alloc_bulk`].
    #[inline]
    pub fn alloc_bulk(&self, request: Request, pfns: &mut [Pfn]) -> usize {
        self.pages.alloc_bulk(self.host, request, pfns)
    }

    /// Allocates single pages for all entries of `pfns`: [`PageAllocator::alloc_pages`].
    ///
    /// # Errors
    /// [`BulkError`], with the number of pages that the caller has got.
    #[inline]
    pub fn alloc_pages(&self, request: Request, pfns: &mut [Pfn]) -> Result<(), BulkError> {
        self.pages.alloc_pages(self.host, request, pfns)
    }

    /// Frees single pages: [`PageAllocator::free_pages`].
    ///
    /// # Errors
    /// [`FreeError`] for the first page that was not allocated as a single page. The pages before
    /// it are freed.
    #[inline]
    pub fn free_pages(&self, pfns: &[Pfn]) -> Result<(), FreeError> {
        self.pages.free_pages(self.host, pfns)
    }

    /// Splits an allocated block into single pages: [`PageAllocator::split`].
    ///
    /// # Errors
    /// [`FreeError`]; nothing has changed then.
    #[inline]
    pub fn split(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.pages.split(self.host, pfn, order)
    }

    /// Returns all pages on this CPU's lists to their zones: [`PageAllocator::drain_cpu`]. Returns
    /// the number of these pages.
    pub fn drain(&self) -> Pages {
        self.pages.drain_cpu(self.host, self.cpu())
    }

    /// Adds `delta` to a counter that [`Builder::counter`](crate::pool::Builder::counter) added to
    /// the pool.
    ///
    /// # Panics
    /// If the pool has no counter with this number. A [`CounterId`] is only a number: an id from
    /// another pool may be that of a different counter of this pool.
    #[inline]
    pub fn count(&self, counter: CounterId, delta: i64) {
        let counters = self.pool.counters();
        let counters = counters.expect("a `CounterId` comes from the counters of a pool");
        counters.add_growing(self.host, counter, delta);
    }
}

impl fmt::Debug for Bound<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound")
            .field("cpu", &self.cpu())
            .finish_non_exhaustive()
    }
}
