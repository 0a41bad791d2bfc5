//! Reclaim for simulated machines. The reclaim is stored on the thread of its machine, so its
//! embedder need not be `Send`.

use std::rc::Rc;

use plimsoll_mm::page::{PageAllocator, Pressure, Request};
use plimsoll_mm::reclaim::{Embedder, Reclaim};
use plimsoll_mm::units::{NodeId, Pages};

use crate::Sim;
use crate::kept::Kept;

struct Reclaims<E>(Kept<Rc<Reclaim<Sim, E>>>);

/// Returns `reclaim` as the object that a page allocator calls when memory is short.
///
/// The reclaim lives as long as the page allocator. If its embedder could keep the allocator alive,
/// it must refer to it weakly.
///
/// # Panics
/// If the page allocator calls it on another thread.
pub fn pressure<E: Embedder<Sim> + 'static>(
    reclaim: &Rc<Reclaim<Sim, E>>,
) -> Box<dyn Pressure<Sim>> {
    Box::new(Reclaims(Kept::new(Rc::clone(reclaim))))
}

impl<E: Embedder<Sim> + 'static> Pressure<Sim> for Reclaims<E> {
    fn wake(&self, sim: &Sim, pages: &PageAllocator<Sim>, request: Request) {
        self.0.get().wake(sim, pages, request);
    }

    fn reclaim(&self, sim: &Sim, _: &PageAllocator<Sim>, request: Request) -> Pages {
        self.0.get().reclaim(sim, request)
    }

    fn reclaimable(&self, sim: &Sim, node: NodeId) -> u64 {
        self.0.get().reclaimable(sim, node)
    }
}
