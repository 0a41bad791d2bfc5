//! The last step of an allocation, when reclaimers cannot free any more memory (Linux:
//! `__alloc_pages_may_oom`).
//!
//! The page allocator kills no process itself: it calls the registered [`LastResort`] and acts on
//! the result. The page allocator does not call the last resort for every request. For example,
//! killing a process would hardly free a large block, so no process is killed for a large request.
//! A request that may already use the reserves would gain nothing from a kill either.
//!
//! Locks: none are taken here.

use super::watermark::Urgency;
use super::zone::{Mark, Zone};
use super::{NoKill, PageAllocator, Request, ZoneKind};
use crate::machine::Machine;
use crate::topology::NodeSet;
use crate::units::Pfn;

/// The largest order of an allocation for which the OOM killer kills a process (Linux:
/// `PAGE_ALLOC_COSTLY_ORDER`).
pub(super) const ORDER_MAX: usize = 3;

/// Frees memory by drastic means when reclaimers free nothing more: the OOM killer.
pub trait LastResort<M: Machine>: Send + Sync {
    /// Called when an allocation from the page allocator `pages` has found no block, if that
    /// allocation may wait. Frees memory, waits until memory is freed, or gives up. May be called
    /// on any CPU and on several at once. Must not allocate.
    ///
    /// As long as the result is [`Relief::Retry`] and the allocation still finds no block, the
    /// allocation calls this method again. An implementation that always returns `Retry` may
    /// therefore block the caller forever.
    fn out_of_memory(&self, machine: &M, pages: &PageAllocator<M>, request: Request) -> Relief;
}

/// The next step of an allocation that has called its [`LastResort`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    /// The allocation tries everything again: memory has been freed or will be freed soon.
    Retry,
    /// The allocation tries everything again with [`Urgency::Victim`], because the allocating task
    /// is itself dying.
    Reserves,
    /// Return this block.
    Allocated(Pfn),
    /// The allocation fails for this reason.
    GiveUp(NoKill),
}

impl<M: Machine> PageAllocator<M> {
    /// Allocates a block from a zone that stays above its high watermark, for a [`LastResort`] that
    /// tries once more before it kills a process. Drains every CPU's lists first, calls no
    /// reclaimer, and emits no event on failure.
    pub fn alloc_if_plenty(&self, machine: &M, request: Request) -> Option<Pfn> {
        self.drain_again(machine);
        self.try_zones(machine, request, Mark::High)
    }

    /// The number of managed pages on `nodes`.
    pub(crate) fn managed_on(&self, nodes: NodeSet) -> u64 {
        let on = |zone: &&Zone<M>| {
            let node = NodeSet::NONE.with(zone.node());
            nodes == NodeSet::ALL || node.is_some_and(|node| node.meets(nodes))
        };
        let zones = self.zones().iter().filter(on);
        zones.map(|zone| u64::from(zone.managed().0)).sum()
    }

    /// Calls the [`LastResort`], if there is one and `request` may lead to a kill.
    pub(super) fn last_resort(&self, machine: &M, request: Request) -> Relief {
        let Some(last_resort) = &self.last_resort else {
            return Relief::GiveUp(NoKill::NotAsked);
        };
        match unworthy(request) {
            Some(no_kill) => Relief::GiveUp(no_kill),
            None => last_resort.out_of_memory(machine, self, request),
        }
    }
}

/// The reason why no process may ever be killed for `request`, or `None` if a process may be
/// killed.
fn unworthy(request: Request) -> Option<NoKill> {
    match request.urgency {
        Urgency::Victim | Urgency::Reserve => Some(NoKill::Dying),
        Urgency::Atomic | Urgency::NoWait => Some(NoKill::NotAsked),
        Urgency::Normal | Urgency::High if request.order.index() > ORDER_MAX => {
            Some(NoKill::Costly)
        }
        Urgency::Normal | Urgency::High if request.class < ZoneKind::Normal => {
            Some(NoKill::LowZone)
        }
        Urgency::Normal | Urgency::High => None,
    }
}
