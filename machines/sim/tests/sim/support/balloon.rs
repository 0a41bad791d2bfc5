//! A notifier for the OOM code. It frees pages before a process is killed.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{PageAllocator, Reclaimer, Request};
use plimsoll_mm::units::{Order, Pages, Pfn};
use plimsoll_sim::Sim;

/// The most pages that a balloon frees in one call.
const AT_ONCE: u32 = 64;

/// The pages that the balloon holds and can free.
#[derive(Clone, Default)]
pub(crate) struct Balloon(Arc<Mutex<Vec<Pfn>>>);

impl Balloon {
    /// Allocates `pages` more pages, which must be free.
    pub(crate) fn inflate(&self, sim: &Sim, from: &PageAllocator<Sim>, pages: u32) {
        let request = Request::new(Order::ZERO).urgent(Urgency::NoWait);
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.extend((0..pages).map(|_| from.alloc(sim, request).expect("there is memory")));
    }

    /// Returns the number of pages that the balloon holds.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Reclaimer<Sim> for Balloon {
    fn name(&self) -> &'static str {
        "balloon"
    }

    fn reclaim(&self, sim: &Sim, pages: &PageAllocator<Sim>, _wanted: Pages) -> Pages {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let given = u32::try_from(held.len().min(AT_ONCE as usize)).expect("`AT_ONCE` at most");
        for _ in 0..given {
            let page = held.pop().expect("it holds so many");
            pages.free(sim, page, Order::ZERO).expect("it was taken");
        }
        Pages(given)
    }
}
