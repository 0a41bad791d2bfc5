//! What an allocation turns to when nothing more can be reclaimed (Linux: `__alloc_pages_may_oom`).
//!
//! Killing is not the page allocator's affair: it asks whoever was registered, and does as told. Not
//! everybody may ask. A large block is not worth a process, which would hardly give one back; and
//! who may use the reserves already has nothing better to come.
//!
//! Locks: none here.

use super::watermark::Urgency;
use super::zone::{Mark, Zone};
use super::{NoKill, PageAllocator, Request, ZoneKind};
use crate::machine::Machine;
use crate::oom::NodeSet;
use crate::units::Pfn;

/// log₂ of the largest blocks for which somebody may be killed (Linux: `PAGE_ALLOC_COSTLY_ORDER`).
const ORDER_MAX: usize = 3;

/// Gets memory back at a price, when reclaimers have nothing more: the OOM killer.
pub trait LastResort<M: Machine>: Send + Sync {
    /// An allocation from `pages` that may wait has failed: makes room, waits for it, or gives up. May
    /// be called on any CPU, by several at once, and must not allocate.
    ///
    /// Called again and again as long as it says [`Relief::Retry`]: whoever says so without end
    /// never lets the caller go.
    fn out_of_memory(&self, machine: &M, pages: &PageAllocator<M>, request: Request) -> Relief;
}

/// What an allocation is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    /// Try everything again: memory has come back, or will.
    Retry,
    /// Try everything again with the reserves of a victim: who asks is dying.
    Reserves,
    /// Nothing: this is its block.
    Allocated(Pfn),
    /// Fail.
    GiveUp(NoKill),
}

impl<M: Machine> PageAllocator<M> {
    /// A block if zones have plenty, above their high watermark, for whoever looks again before it does
    /// something worse. Drains every CPU's lists, asks no reclaimer, and tells no observer of a
    /// failure.
    pub fn alloc_if_plenty(&self, machine: &M, request: Request) -> Option<Pfn> {
        self.drain_again(machine);
        self.try_zones(machine, request, Mark::High)
    }

    /// Pages of memory on `nodes`.
    pub(crate) fn managed_on(&self, nodes: NodeSet) -> u64 {
        let on = |zone: &&Zone<M>| {
            let node = NodeSet::NONE.with(zone.node());
            nodes == NodeSet::ALL || node.is_some_and(|node| node.meets(nodes))
        };
        let zones = self.zones().iter().filter(on);
        zones.map(|zone| u64::from(zone.managed.0)).sum()
    }

    /// Asks the last resort, if there is one and the request is worth it.
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

/// Why nobody is killed for `request`, whoever there is.
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
