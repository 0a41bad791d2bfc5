//! Physical memory: zones, free lists, per-CPU page lists.
//!
//! ```text
//! alloc ──> pcp list of this CPU ──(empty)── refill ──> free lists ──(below low)──> next zone
//! free  ──> pcp list of this CPU ──(≥ high)── spill ──> free lists
//! no zone has a block ──> drain ──> reclaimers ──> last resort
//! ```
//!
//! `buddy`, `links`, `tag` and `mobility` implement the free lists. `pcp`, `sizing` and `watermark`
//! make decisions and take no locks. `zone` holds one zone and lists which file implements which of
//! its methods. `hold` and `blocks` move pages under one hold of the zone lock. `alloc`, `free` and
//! `drain` allocate, free and drain pages. For an allocation that finds no block, `pressure`
//! reclaims used pages if the embedder provides for that, and `last_resort` is the last step.
//! `resize` adds memory to a zone and removes it; `report` gives the memory of free huge blocks
//! back to the host or hypervisor. `holds` has the policies for how many pages one hold moves, and
//! `owned` has page lists whose CPUs own blocks.

mod alloc;
mod bits;
mod blocks;
mod buddy;
#[cfg(test)]
mod buddy_tests;
mod bulk;
mod carve;
mod drain;
mod error;
mod free;
mod front;
mod front_direct;
mod front_run;
mod gauge;
#[cfg(test)]
mod grouped_tests;
mod hold;
pub mod holds;
mod kept;
mod last_resort;
mod layout;
mod links;
mod list_state;
mod local;
mod mobility;
pub mod owned;
mod pcp;
#[cfg(test)]
mod pcp_props;
mod pressure;
mod quick;
mod report;
mod resize;
#[cfg(test)]
mod resized_tests;
mod seed;
mod settings;
mod settled;
mod setup;
pub mod sizing;
mod supply;
mod tag;
mod view;
pub mod watermark;
mod zone;

use ::alloc::boxed::Box;
use ::alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

pub use self::bulk::BULK_PAGES_MAX;
pub use self::carve::FreeBlocks;
pub use self::error::{AllocError, BulkError, FreeError, NoKill, Tried};
pub use self::last_resort::{LastResort, Relief};
pub use self::layout::{FreeIndex, Layout, LayoutError, ZONE_PAGES_MAX, ZoneKind, ZoneLayout};
pub use self::links::Metadata;
pub use self::list_state::{ListState, TypedBlock};
pub use self::local::Local;
pub use self::mobility::{Grouping, Mobility};
pub(crate) use self::pcp::FREE_BATCH;
pub use self::pressure::Pressure;
pub use self::report::{Reported, Sweep};
pub use self::resize::{Holder, ResizeError};
pub use self::seed::SeedError;
pub use self::setup::Config;
pub use self::view::ZoneView;
use self::watermark::Urgency;
pub(crate) use self::zone::Zone;
pub use self::zone::{Kswapd, Reclaiming};
use crate::cpus::Cpus;
use crate::machine::{Machine, Word};
pub use crate::topology::NODES_MAX;
use crate::tunables::Tunables;
use crate::units::{CpuId, Nanos, NodeId, Order, Pages, Pfn, signed, total_in};
use crate::vmstat::counters::ZoneItem;

/// All physical memory of a machine.
pub struct PageAllocator<M: Machine> {
    zones: Vec<Zone<M>>,
    /// For each node that a request may start from, and for each `class` of a request, the indices
    /// of the zones that the request tries, in order of preference.
    zonelists: Vec<[Vec<u32>; ZoneKind::ALL.len()]>,
    /// The indices of all zones, in ascending order: `alone[i]` is `i`. So the slice `alone[i..=i]`
    /// is the zonelist of a request for zone `i` alone.
    alone: Vec<u32>,
    /// The indices of all zones, in ascending order of their first frames.
    ascending: Box<[u32]>,
    /// For each CPU, and for each `class` of a request, the index of the zone that the request
    /// tries first, or `NO_ZONE` if it may use no zone.
    nearest: Vec<[u32; ZoneKind::ALL.len()]>,
    reclaimers: Vec<Box<dyn Reclaimer<M>>>,
    last_resort: Option<Box<dyn LastResort<M>>>,
    pressure: Option<Box<dyn Pressure<M>>>,
    cpus: Cpus<M>,
    tunables: M::Lock<Tunables>,
    draining: M::Lock<()>,
    metadata: Metadata,
    stat_interval_ms: M::Word,
}

/// A request for a block of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// log₂ of the number of pages in the block.
    pub order: Order,
    /// The highest kind of zone that may serve the request.
    pub class: ZoneKind,
    /// How far below a watermark the request may bring a zone's free pages, and whether the request
    /// may wait.
    pub urgency: Urgency,
    /// The type of the page blocks from which the request takes its pages if possible. If pages are
    /// not grouped by mobility, the allocator ignores this field.
    pub mobility: Mobility,
    /// The node to start from, or `LOCAL`, or `ONLY_ZONE` plus a zone's index. This is a plain
    /// number so that a request fits in one register.
    node: u32,
}

/// The value of [`Request::node`] that stands for the node of the allocating CPU.
const LOCAL: u32 = u32::MAX;

/// The value of [`Request::node`] in a request for zone 0 alone. A request for another single zone
/// has the sum of this value and the zone's index. All these values are larger than any node
/// number.
const ONLY_ZONE: u32 = 1 << 31;

/// The largest number of zones among which the zone of a frame is searched linearly. For more zones
/// a binary search is faster.
const ZONES_LOOKED_THROUGH: usize = 8;

/// The value that stands for no zone; larger than any zone's index.
const NO_ZONE: u32 = u32::MAX;

impl Request {
    /// Returns a request for an unmovable block of `order` that starts from the allocating CPU's
    /// node and may use any zone except those for movable memory.
    #[must_use]
    pub const fn new(order: Order) -> Self {
        Self {
            order,
            class: ZoneKind::Normal,
            urgency: Urgency::Normal,
            mobility: Mobility::Unmovable,
            node: LOCAL,
        }
    }

    /// Restricts the request to the zone with this index in the layout. The request's `class` then
    /// affects only which reserve applies. The allocation fails with [`AllocError::NoSuchZone`] if
    /// there is no such zone.
    #[must_use]
    pub const fn from_zone(self, zone: u32) -> Self {
        // No layout has a zone of index `last`, so larger indices are clamped to `last`. Otherwise
        // `ONLY_ZONE | zone` could equal `LOCAL`.
        let last = ONLY_ZONE - 2;
        let zone = if zone < last { zone } else { last };
        Self {
            node: ONLY_ZONE | zone,
            ..self
        }
    }

    /// Changes the mobility of the request (Linux: `gfp_migratetype`). [`Mobility::HighAtomic`] is
    /// a type only of blocks, never of requests, and means [`Mobility::Unmovable`] here.
    #[must_use]
    pub const fn of_mobility(self, mobility: Mobility) -> Self {
        let mobility = match mobility {
            Mobility::HighAtomic => Mobility::Unmovable,
            other => other,
        };
        Self { mobility, ..self }
    }

    /// Changes the request to start from `node`. If `node` is above the last node's number, the
    /// request starts from the last node.
    #[must_use]
    pub const fn from_node(self, node: NodeId) -> Self {
        // No layout has a node whose number is `NODES_MAX` or more. All such numbers become
        // `NODES_MAX`, because some of them have another meaning in this field (`LOCAL`,
        // `ONLY_ZONE`).
        let node = if node.0 < NODES_MAX {
            node.0
        } else {
            NODES_MAX
        };
        Self { node, ..self }
    }

    /// Changes the request to use only zones of kind `class` or lower.
    #[must_use]
    pub const fn of_class(self, class: ZoneKind) -> Self {
        Self { class, ..self }
    }

    /// Changes the urgency of the request, which says how far below a watermark the request may
    /// bring a zone's free pages, and whether it may wait.
    #[must_use]
    pub const fn urgent(self, urgency: Urgency) -> Self {
        Self { urgency, ..self }
    }
}

/// An object that frees memory when zones run low, such as a page cache, a buffer pool or a garbage
/// collector.
pub trait Reclaimer<M: Machine>: Send + Sync {
    /// The reclaimer's name, for out-of-memory reports.
    fn name(&self) -> &'static str;

    /// Frees about `wanted` pages to the page allocator `pages`, and returns the number of pages
    /// that it freed. May be called on any CPU, and on several at once. Must not allocate.
    fn reclaim(&self, machine: &M, pages: &PageAllocator<M>, wanted: Pages) -> Pages;
}

impl<M: Machine> fmt::Debug for PageAllocator<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageAllocator")
            .field("zones", &self.zones.len())
            .finish_non_exhaustive()
    }
}

impl<M: Machine> PageAllocator<M> {
    /// The set of online CPUs.
    pub fn cpus(&self) -> &Cpus<M> {
        &self.cpus
    }

    /// When memory for the links of the free lists is allocated: in advance, or when blocks are
    /// first split.
    pub(crate) fn metadata(&self) -> Metadata {
        self.metadata
    }

    pub(crate) fn zones(&self) -> &[Zone<M>] {
        &self.zones
    }

    /// The interval at which each CPU does its periodic work. It is read without a lock: if the
    /// value is stale, the work runs too early or too late once.
    pub(crate) fn stat_interval(&self, machine: &M) -> Nanos {
        let ms = self.stat_interval_ms.load(machine, Relaxed);
        Nanos::from_ms(total_in(ms))
    }

    /// A snapshot of every zone, in the order of the layout (Linux: `/proc/zoneinfo`,
    /// `/proc/buddyinfo`).
    pub fn view(&self, machine: &M) -> Vec<ZoneView> {
        self.zones.iter().map(|zone| zone.view(machine)).collect()
    }

    /// The number of pages on `cpu`'s lists in all zones, read without a lock.
    pub fn listed(&self, machine: &M, cpu: CpuId) -> Pages {
        let of = |zone: &Zone<M>| zone.listed(machine, cpu);
        Pages(self.zones.iter().map(of).sum())
    }

    /// The number of double frees that the allocator detected late: two threads freed the same page
    /// at the same moment, and both frees succeeded ([`Front::free`]). Such a page may have had two
    /// owners for a while. A program that frees no page twice sees 0.
    ///
    /// [`Front::free`]: crate::machine::Front::free
    pub fn double_frees(&self) -> u64 {
        let dropped = |zone: &Zone<M>| zone.dropped.load(Relaxed);
        self.zones.iter().map(dropped).sum()
    }

    /// Tells the zones of `node`, up to the kind `highest`, whether reclaim is active. While
    /// reclaim is active, the page lists of these zones are kept short (Linux:
    /// `set_reclaim_active`, `clear_reclaim_active`).
    pub fn set_reclaiming(
        &self,
        machine: &M,
        node: NodeId,
        highest: ZoneKind,
        reclaiming: Reclaiming,
    ) {
        let is_one = |zone: &&Zone<M>| zone.node == node && zone.kind <= highest;
        for zone in self.zones.iter().filter(is_one) {
            zone.set_reclaiming(machine, reclaiming);
        }
    }

    /// Tells the zones of `node` whether kswapd is awake. While kswapd is awake, CPUs add their
    /// differentials to the counters at a lower threshold, but only in zones where the
    /// differentials of all CPUs together could hide that free memory is below the min watermark
    /// (Linux: `set_pgdat_percpu_threshold`).
    pub fn set_kswapd(&self, machine: &M, node: NodeId, kswapd: Kswapd) {
        let online = self.cpus.online(machine);
        for zone in self.zones.iter().filter(|zone| zone.node == node) {
            zone.set_kswapd(machine, kswapd, online);
        }
    }

    /// Tests the high watermarks of the zones that `request` would try, up to the first one that
    /// may give a block. Each of these zones that is below its high watermark is marked as such, so
    /// that frees return pages to it early.
    ///
    /// Linux makes this test at each allocation. [`PageAllocator::alloc`] makes it only when a
    /// block has to come from the zone itself. So a replay of a recording of Linux may call this
    /// before each of its allocations.
    pub fn test_high(&self, machine: &M, request: Request) {
        let ask = zone::ZoneRequest {
            order: request.order,
            class: request.class,
            urgency: request.urgency,
            mark: zone::Mark::Low,
            mobility: request.mobility,
            unmixed: false,
        };
        let mut zones = self.zonelist(machine, request);
        zones.find(|zone| zone.allows(machine, ask));
    }

    /// Marks a zone as below its high watermark, as an allocation does when it finds the zone below
    /// that watermark. This is for replays of recordings of Linux, which also marks a zone that has
    /// no free block of the requested size.
    ///
    /// # Errors
    /// If there is no zone with the index `zone`.
    pub fn set_below_high(&self, machine: &M, zone: u32) -> Result<(), SeedError> {
        self.zone_at(zone)?.set_below_high(machine);
        Ok(())
    }

    /// The node that `pfn` belongs to, or `None` for a frame in no zone (Linux: `page_to_nid`).
    #[inline]
    pub fn node_of(&self, pfn: Pfn) -> Option<NodeId> {
        let (zone, _) = self.locate(pfn)?;
        Some(zone.node())
    }

    /// Adds `delta` pages to the counter of `item` in the zone that contains `pfn`. The pages are
    /// first added to the calling CPU's own part of the counter (its differential). Does nothing
    /// for a frame in no zone.
    #[inline]
    pub fn count(&self, machine: &M, pfn: Pfn, item: ZoneItem, delta: i64) {
        if let Some((zone, _)) = self.locate(pfn) {
            zone.counters.add(machine, item as usize, delta);
        }
    }

    /// For each of `pfns`, adds `each` to the counter of `item` in the zone that contains that
    /// frame. These additions go first to the calling CPU's own part of the counter (its
    /// differential). Skips frames in no zone.
    pub(crate) fn count_each(&self, machine: &M, pfns: &[Pfn], item: ZoneItem, each: i64) {
        let mut rest = pfns;
        while let Some(&first) = rest.first() {
            let mut run = 1;
            if let Some((zone, _)) = self.locate(first) {
                let here = |pfn: &&Pfn| zone.page(**pfn).is_some();
                run = rest.iter().take_while(here).count();
                let delta = each.saturating_mul(signed(run as u64));
                zone.counters.add(machine, item as usize, delta);
            }
            rest = &rest[run..];
        }
    }

    /// The total of `item` over all zones, differentials included.
    pub fn counted(&self, machine: &M, item: ZoneItem) -> u64 {
        self.zones
            .iter()
            .map(|zone| zone.counters.snapshot(machine, item as usize))
            .fold(0, u64::saturating_add)
    }

    #[inline]
    fn locate(&self, pfn: Pfn) -> Option<(&Zone<M>, u32)> {
        if self.zones.len() > ZONES_LOOKED_THROUGH {
            return self.locate_among_many(pfn);
        }
        // Start with the highest zone, because most memory is there.
        self.zones
            .iter()
            .rev()
            .find_map(|zone| Some((zone, zone.page(pfn)?)))
    }

    #[cold]
    fn locate_among_many(&self, pfn: Pfn) -> Option<(&Zone<M>, u32)> {
        let above = self
            .ascending
            .partition_point(|&zone| self.zones[zone as usize].pfn(0) <= pfn);
        let zone = &self.zones[*self.ascending.get(above.checked_sub(1)?)? as usize];
        Some((zone, zone.page(pfn)?))
    }

    /// Returns the zone that `request` tries first. In nearly every case this zone has a block, and
    /// the request tries no other zone.
    #[inline(always)]
    fn first_zone(&self, machine: &M, request: Request) -> Option<&Zone<M>> {
        self.first_zone_from(machine, machine.this_cpu(), request)
    }

    /// Returns the zone that `request` tries first if its caller runs on `cpu`.
    #[inline(always)]
    fn first_zone_from(&self, machine: &M, cpu: CpuId, request: Request) -> Option<&Zone<M>> {
        if request.node != LOCAL {
            return self.zonelist(machine, request).next();
        }
        let Some(nearest) = self.nearest.get(cpu.index()) else {
            zone::no_such_cpu(cpu, self.nearest.len());
        };
        self.zones.get(nearest[request.class as usize] as usize)
    }

    #[inline]
    fn zonelist(&self, machine: &M, request: Request) -> impl Iterator<Item = &Zone<M>> {
        let from = |node: NodeId| {
            let node = node.index().min(self.zonelists.len() - 1);
            &*self.zonelists[node][request.class as usize]
        };
        let list = match request.node {
            LOCAL => from(machine.topology().place(machine.this_cpu()).node),
            only if only & ONLY_ZONE != 0 => {
                let zone = (only & !ONLY_ZONE) as usize;
                self.alone.get(zone..=zone).unwrap_or_default()
            }
            node => from(NodeId(node)),
        };
        list.iter().map(|&zone| &self.zones[zone as usize])
    }
}
