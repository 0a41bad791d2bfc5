//! Reclaim: moving used pages to swap, and dropping pages of files, so that their memory can be
//! allocated again.
//!
//! ```text
//! allocation finds every zone low ──wakes──> kswapd ─┐
//! allocation finds no block at all ──> direct ───────┴──> shrink ──> isolate, check, evict, free
//! ```
//!
//! [`Reclaim`] reclaims anonymous pages of enlisted address spaces (see
//! [`Memory::enlist`](crate::space::Memory::enlist)) and pages of enlisted files (see
//! [`Memory::enlist_file`](crate::space::Memory::enlist_file)). The lists that
//! [`Spaces::aging`](crate::space::Spaces::aging) sets up determine the order in which [`Reclaim`]
//! looks at pages. `scan` decides how many pages of each list to look at. `shrink` looks at these
//! pages, and `evict` removes from memory the pages that may leave. `shrink` has two callers:
//! `kswapd`, the thread of a node, and `direct`, an allocation. The page allocator calls
//! [`Reclaim`] as its [`Pressure`].
//!
//! Locks: this file takes none.

mod direct;
mod evict;
mod kswapd;
#[cfg(feature = "laws")]
pub(crate) mod laws;
mod scan;
mod shrink;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;

use self::kswapd::Kswapd;
pub use self::kswapd::Next;
use crate::machine::Machine;
use crate::page::{Layout, PageAllocator, Pressure, Request};
use crate::space::Memory;
use crate::space::lru::Kind;
use crate::units::{Nanos, NodeId, Pages};

/// The services that reclaim needs from the program that embeds the memory manager.
pub trait Embedder<M: Machine> {
    /// Calls `f` with the memory to reclaim from. If this memory is still being set up, or no
    /// longer exists, the embedder need not call `f`; reclaim then frees nothing.
    fn with_memory(&self, machine: &M, f: &mut dyn FnMut(Memory<'_, M>));

    /// Makes the thread of `node` call [`Reclaim::kswapd`] at once, even if the thread is waiting
    /// for the time that the last call returned, or is about to wait for it. May be called with
    /// locks of the embedder held, and must neither wait nor allocate.
    fn wake_kswapd(&self, machine: &M, node: NodeId);

    /// Makes an allocation wait for about `span`. If the allocating task is killed, or was killed
    /// before, returns `false` at once.
    fn pause(&self, machine: &M, span: Nanos) -> bool;
}

/// Reclaims used pages, for the page allocator. An embedder makes one for each memory manager.
pub struct Reclaim<M: Machine, E> {
    embedder: E,
    kswapds: Box<[Kswapd<M>]>,
}

impl<M: Machine, E: Embedder<M>> Reclaim<M, E> {
    /// Creates the reclaim of one memory manager. At first, the kswapd of every node of `layout` is
    /// asleep.
    #[must_use]
    pub fn new(machine: &M, layout: &Layout, embedder: E) -> Self {
        let nodes = 0..layout.nodes();
        Self {
            embedder,
            kswapds: nodes.map(|_| Kswapd::new(machine)).collect(),
        }
    }

    /// Returns the embedder.
    pub fn embedder(&self) -> &E {
        &self.embedder
    }

    /// Returns the number of pages of `node` that could be reclaimed: if no slot of swap is free,
    /// only those of files (Linux: `zone_reclaimable_pages`).
    pub fn reclaimable(&self, machine: &M, node: NodeId) -> u64 {
        let mut pages = 0;
        self.embedder.with_memory(machine, &mut |memory| {
            pages = reclaimable(memory, node);
        });
        pages
    }

    /// Returns the kswapd of `node`; `None` if the layout has no such node.
    fn kswapd_of(&self, node: NodeId) -> Option<&Kswapd<M>> {
        self.kswapds.get(node.index())
    }
}

fn reclaimable<M: Machine>(memory: Memory<'_, M>, node: NodeId) -> u64 {
    let lru = memory.spaces.lru();
    let of = |kind: Kind| lru.len(node, kind.inactive()) + lru.len(node, kind.active());
    match memory.spaces.swap().free() {
        0 => of(Kind::File),
        _ => of(Kind::File) + of(Kind::Anon),
    }
}

impl<M: Machine, E: Embedder<M>> Pressure<M> for Arc<Reclaim<M, E>>
where
    Reclaim<M, E>: Send + Sync,
{
    fn wake(&self, machine: &M, pages: &PageAllocator<M>, request: Request) {
        Reclaim::wake(self, machine, pages, request);
    }

    fn reclaim(&self, machine: &M, _: &PageAllocator<M>, request: Request) -> Option<Pages> {
        Reclaim::reclaim(self, machine, request)
    }

    fn reclaimable(&self, machine: &M, node: NodeId) -> u64 {
        Reclaim::reclaimable(self, machine, node)
    }
}

impl<M: Machine, E> fmt::Debug for Reclaim<M, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reclaim")
            .field("nodes", &self.kswapds.len())
            .finish_non_exhaustive()
    }
}
