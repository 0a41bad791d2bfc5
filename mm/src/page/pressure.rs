//! The slow path of an allocation in an allocator that can reclaim used pages (Linux:
//! `__alloc_pages_slowpath`).
//!
//! ```text
//! wake kswapd ──> zones at the min mark ──> reclaim ──> zones ──> drain ──> zones ──> again, or OOM
//! ```
//!
//! The page allocator does not know which pages are used for what. It calls the registered
//! [`Pressure`], and decides from the result whether to try again.
//!
//! Locks: none are taken here.

use core::ops::Range;

use super::alloc::RECLAIM_ROUNDS_MAX;
use super::kept::Kept;
use super::last_resort::ORDER_MAX;
use super::settings::Settings;
use super::watermark::{self, Urgency};
use super::zone::{Mark, Zone};
use super::{PageAllocator, Request, Tried, ZoneKind};
use crate::machine::Machine;
use crate::units::{NodeId, Order, Pages, Pfn};

/// Reclaims used pages, for allocations that find no block. [`Reclaim`](crate::reclaim::Reclaim)
/// does this for the pages of address spaces.
pub trait Pressure<M: Machine>: Send + Sync {
    /// Wakes the kswapd of each node that needs it. Called when an allocation has found that every
    /// zone would fall below its low watermark, and again before each round of reclaim. May be
    /// called on any CPU, with locks of the embedder held, and must neither wait nor allocate.
    fn wake(&self, machine: &M, pages: &PageAllocator<M>, request: Request);

    /// Reclaims about 32 used pages for an allocation that may wait. Returns the number of pages
    /// that were freed, or `None` if none were freed because the allocating task was killed while
    /// it waited. If the task was killed, the allocation tries the zones again, as if pages had
    /// been freed (Linux: `try_to_free_pages` returns 1). Must not allocate.
    fn reclaim(&self, machine: &M, pages: &PageAllocator<M>, request: Request) -> Option<Pages>;

    /// Returns the number of used pages of a node that could be reclaimed.
    fn reclaimable(&self, machine: &M, node: NodeId) -> u64;
}

impl<M: Machine> PageAllocator<M> {
    /// Wakes kswapd for a request that no zone can serve at its low watermark. A request with
    /// [`Urgency::NoWait`] wakes no kswapd, because its caller may hold one of the manager's locks.
    pub(super) fn note_shortage(&self, machine: &M, request: Request) {
        if let Some(pressure) = &self.pressure
            && request.urgency != Urgency::NoWait
        {
            pressure.wake(machine, self, request);
        }
    }

    /// Reclaims, drains the page lists and asks the zones again, until a zone gives a block. Gives
    /// up after more than [`RECLAIM_ROUNDS_MAX`] rounds in a row without progress, or when even all
    /// reclaimable pages together would not be enough (Linux: `should_reclaim_retry`). Before it
    /// gives up, it first unreserves the blocks kept for atomic requests, one after the other. If
    /// the request is for a block of an order above [`ORDER_MAX`], no round counts as progress.
    pub(super) fn alloc_under_pressure(
        &self,
        machine: &M,
        pressure: &dyn Pressure<M>,
        request: Request,
        tried: &mut Tried,
    ) -> Option<Pfn> {
        let attempt = || self.try_zones(machine, request, Mark::Min);
        let mut fruitless = 0;
        loop {
            pressure.wake(machine, self, request);
            if let Some(pfn) = attempt() {
                return Some(pfn);
            }
            let got = pressure.reclaim(machine, self, request);
            tried.reclaimed += got.unwrap_or(Pages::ZERO);
            let given = self.reclaim(machine, request.order, tried);
            let has_progress = given > Pages::ZERO || got.is_none_or(|got| got > Pages::ZERO);
            if has_progress {
                if let Some(pfn) = attempt() {
                    return Some(pfn);
                }
                self.give_kept(machine, request, Kept::Few);
                tried.drained += self.drain_again(machine);
                if let Some(pfn) = attempt() {
                    return Some(pfn);
                }
            }
            if has_progress && request.order.index() <= ORDER_MAX {
                fruitless = 0;
            } else {
                fruitless += 1;
            }
            let retries =
                fruitless <= RECLAIM_ROUNDS_MAX && self.could_be_served(machine, pressure, request);
            if !retries && !self.give_kept(machine, request, Kept::All) {
                break;
            }
        }
        // Linux drains only after a round that made progress. Without this drain, free pages could
        // remain on page lists while a process is killed for lack of memory.
        tried.drained += self.drain_again(machine);
        attempt()
    }

    /// Returns whether a zone could serve `request` at its min watermark if all reclaimable pages
    /// of the zone's node were free.
    fn could_be_served(&self, machine: &M, pressure: &dyn Pressure<M>, request: Request) -> bool {
        let could = |zone: &Zone<M>| {
            let free = zone.free_pages(machine) + pressure.reclaimable(machine, zone.node);
            let reserve = &zone.settings.reserve[request.class as usize];
            let reserve = Settings::<M>::pages(machine, reserve);
            let (block, min) = (request.order.pages(), zone.watermarks(machine).min);
            watermark::allows(free, block, min, reserve, request.urgency)
        };
        self.zonelist(machine, request).any(could)
    }

    /// Calls `f` for each node that `request` would try, in order of preference.
    pub(crate) fn each_node(&self, machine: &M, request: Request, mut f: impl FnMut(NodeId)) {
        let mut last = None;
        for zone in self.zonelist(machine, request) {
            if last != Some(zone.node) {
                f(zone.node);
            }
            last = Some(zone.node);
        }
    }

    /// Returns whether some zone of `node`, up to the kind `highest`, is above its high watermark
    /// (Linux: `pgdat_balanced`). A node without such zones, or whose zones have no memory left,
    /// counts as balanced.
    pub(crate) fn is_balanced(&self, machine: &M, node: NodeId, highest: ZoneKind) -> bool {
        let mut zones = self.zones_of(node, highest).peekable();
        zones.peek().is_none()
            || zones.any(|zone| {
                let (free, high) = (zone.free_pages(machine), zone.watermarks(machine).high);
                let reserve =
                    Settings::<M>::pages(machine, &zone.settings.reserve[highest as usize]);
                watermark::allows(free, Order::ZERO.pages(), high, reserve, Urgency::Normal)
            })
    }

    /// Returns the number of pages that kswapd tries to reclaim in a pass: the sum of the high
    /// watermarks of the zones of `node`, up to the kind `highest`. A zone counts as at least 32
    /// pages.
    pub(crate) fn pass_of_kswapd(&self, machine: &M, node: NodeId, highest: ZoneKind) -> u64 {
        let of = |zone: &Zone<M>| u64::from(zone.watermarks(machine).high.0.max(32));
        self.zones_of(node, highest).map(of).sum()
    }

    /// Adds up the free pages of the zones of `node`, without the movable zone, and the min
    /// watermarks of the same zones. Returns whether the free pages are more than half of that sum
    /// of watermarks (Linux: `allow_direct_reclaim`), or the sum is 0.
    pub(crate) fn has_reserve(&self, machine: &M, node: NodeId) -> bool {
        let (mut free, mut min) = (0, 0);
        for zone in self.zones_of(node, ZoneKind::Normal) {
            free += zone.free_pages(machine);
            min += u64::from(zone.watermarks(machine).min.0);
        }
        min == 0 || free > min / 2
    }

    /// Returns the number of free pages of the zones of `node`, and the sum of their high
    /// watermarks. The movable zone counts too (Linux: `prepare_scan_control`).
    pub(crate) fn free_and_high(&self, machine: &M, node: NodeId) -> (u64, u64) {
        let of = |zone: &Zone<M>| {
            let high = u64::from(zone.watermarks(machine).high.0);
            (zone.free_pages(machine), high)
        };
        let zones = self.zones_of(node, ZoneKind::Movable).map(of);
        zones.fold((0, 0), |sum, zone| (sum.0 + zone.0, sum.1 + zone.1))
    }

    /// The zones of `node` that have memory, up to the kind `highest`.
    fn zones_of(&self, node: NodeId, highest: ZoneKind) -> impl Iterator<Item = &Zone<M>> {
        let zones = self.zones.iter();
        let fits = move |zone: &&Zone<M>| zone.node == node && zone.kind <= highest;
        zones
            .filter(fits)
            .filter(|zone| zone.managed() > Pages::ZERO)
    }

    /// Returns the number of nodes, up to the last one that has memory.
    pub(crate) fn nodes(&self) -> u32 {
        let nodes = self.zones.iter().map(|zone| zone.node.0 + 1);
        nodes.max().unwrap_or(0)
    }

    /// Returns the smallest range of frames that contains every zone of `node`.
    pub(crate) fn frames_of(&self, node: NodeId) -> Range<u32> {
        let zones = || self.zones.iter().filter(|zone| zone.node == node);
        let start = zones().map(|zone| zone.frames_range().start).min();
        let end = zones().map(|zone| zone.frames_range().end).max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }
}
