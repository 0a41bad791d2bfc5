//! `Cache`: a stand-in for a page cache. It holds blocks of pages that it frees when memory is
//! short.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_mm::page::{PageAllocator, Reclaimer};
use plimsoll_mm::units::{Order, Pages, Pfn};
use plimsoll_sim::Sim;

use super::small::any;

/// A cache of blocks that it frees on request. All clones are the same cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cache(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    blocks: Mutex<Vec<(Pfn, Order)>>,
    /// The number of times that the cache was asked for pages.
    calls: AtomicU32,
}

impl Cache {
    pub(crate) fn push(&self, pfn: Pfn, order: Order) {
        self.blocks().push((pfn, order));
    }

    /// Allocates `blocks` blocks of `order` for the cache. Panics if too few are free.
    pub(crate) fn fill(&self, sim: &Sim, from: &PageAllocator<Sim>, order: Order, blocks: u32) {
        for _ in 0..blocks {
            let pfn = from.alloc(sim, any(order)).expect("there is memory");
            self.push(pfn, order);
        }
    }

    /// Removes all blocks without freeing them, because the test frees them in another way.
    pub(crate) fn forget(&self) {
        self.blocks().clear();
    }

    /// Returns the number of blocks.
    pub(crate) fn len(&self) -> usize {
        self.blocks().len()
    }

    /// Returns how often the cache was asked for pages.
    pub(crate) fn calls(&self) -> u32 {
        self.0.calls.load(Ordering::Relaxed)
    }

    fn blocks(&self) -> MutexGuard<'_, Vec<(Pfn, Order)>> {
        self.0.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reclaimer<Sim> for Cache {
    fn name(&self) -> &'static str {
        "cache of the test"
    }

    fn reclaim(&self, sim: &Sim, pages: &PageAllocator<Sim>, wanted: Pages) -> Pages {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        let mut freed = Pages::ZERO;
        while freed < wanted {
            // The cache's lock is released before the block is freed, because another task may run
            // during the free.
            let block = self.blocks().pop();
            let Some((pfn, order)) = block else { break };
            pages.free(sim, pfn, order).expect("the cache had it");
            freed += order.pages();
        }
        freed
    }
}
