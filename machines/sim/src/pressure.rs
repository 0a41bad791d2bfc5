//! Reclaim for simulated machines. A reclaim is stored on the thread of its machine, so the
//! embedder that it calls need not be `Send`.

use std::rc::Rc;

use plimsoll_mm::page::{PageAllocator, Pressure, Request};
use plimsoll_mm::reclaim::{Embedder, Reclaim};
use plimsoll_mm::units::{NodeId, Pages};

use crate::Sim;
use crate::kept::Kept;

struct Reclaims<E>(Kept<Rc<Reclaim<Sim, E>>>);

/// Returns `reclaim` as the object that a page allocator calls when memory is short.
///
/// The reclaim and its embedder live as long as the page allocator. If a value that the embedder
/// uses keeps the allocator alive, the embedder must hold only a weak reference to it. Otherwise
/// neither would ever be dropped.
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
