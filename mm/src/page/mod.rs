//! Physical memory: zones, free lists, per-CPU page lists.
//!
//! ```text
//! alloc ──> pcp list of this CPU ──(empty)── refill ──> free lists ──(below low)──> next zone
//! free  ──> pcp list of this CPU ──(≥ high)── spill ──> free lists      ──> drain ──> reclaimers ──> last resort
//! ```
//!
//! `buddy`, `links`, `tag`, `mobility`: the free lists. `pcp`, `sizing`, `watermark`: decisions, no locks.
//! `zone`: one zone. `supply`: whether it may give. `hold`, `blocks`: what moves under one hold of its lock. `alloc`, `free`, `drain`: the three ways pages move. `last_resort`: what
//! follows when none are left. `holds`: the variants.

mod alloc;
mod blocks;
mod buddy;
#[cfg(test)]
mod buddy_tests;
mod bulk;
mod carve;
mod drain;
mod error;
mod free;
#[cfg(test)]
mod grouped_tests;
mod hold;
pub mod holds;
mod kept;
mod last_resort;
mod layout;
mod links;
mod mobility;
mod pcp;
#[cfg(test)]
mod pcp_props;
mod seed;
mod setup;
pub mod sizing;
mod supply;
mod tag;
pub mod watermark;
mod zone;

use ::alloc::boxed::Box;
use ::alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

pub use self::carve::FreeBlocks;
pub use self::error::{AllocError, FreeError, NoKill, Tried};
pub(crate) use self::free::FREE_BATCH;
pub use self::last_resort::{LastResort, Relief};
pub use self::layout::{Layout, LayoutError, ZONE_PAGES_MAX, ZoneKind, ZoneLayout};
pub use self::links::Metadata;
pub use self::mobility::{Grouping, Mobility};
pub use self::seed::{ListState, SeedError, TypedBlock};
pub use self::setup::Config;
use self::sizing::Sizes;
use self::watermark::{Urgency, Watermarks};
pub(crate) use self::zone::Zone;
pub use self::zone::{Kswapd, Reclaiming};
use crate::cpus::Cpus;
use crate::machine::{LocalWord, Lock, Machine, Word};
use crate::site::Site;
pub use crate::topology::NODES_MAX;
use crate::tunables::Tunables;
use crate::units::{CpuId, Nanos, NodeId, Order, Pages, Pfn};
use crate::vmstat::counters::ZoneItem;

/// Bytes of records per managed page: one tag, and 8 bytes of links per pair of pages. Links of
/// 4 MiB blocks, and pointers to the links inside them, come on top: 16 bytes per 1024 pages.
pub const METADATA_BYTES_PER_PAGE: usize = 5;

/// All physical memory of a machine.
pub struct PageAllocator<M: Machine> {
    zones: Vec<Zone<M>>,
    /// For each node and kind, the zones to ask, best first.
    zonelists: Vec<[Vec<u32>; ZoneKind::ALL.len()]>,
    /// For each zone, itself: the zones to ask by a request for that zone.
    alone: Vec<u32>,
    /// Every zone, that with the lowest frame first.
    ascending: Box<[u32]>,
    /// For each CPU and kind, the zone to ask first, or `NO_ZONE`.
    nearest: Vec<[u32; ZoneKind::ALL.len()]>,
    reclaimers: Vec<Box<dyn Reclaimer<M>>>,
    last_resort: Option<Box<dyn LastResort<M>>>,
    cpus: Cpus<M>,
    tunables: M::Lock<Tunables>,
    draining: M::Lock<()>,
    stat_interval_ms: M::Word,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// log₂ of the pages wanted.
    pub order: Order,
    /// The highest kind of zone that will do.
    pub class: ZoneKind,
    /// How far below a watermark the request may go.
    pub urgency: Urgency,
    /// Which blocks of memory its pages belong in, if the zones group pages.
    pub mobility: Mobility,
    /// The node to start from, or `LOCAL`, or `ONLY_ZONE` and a zone. A plain number keeps a
    /// request in one register.
    node: u32,
}

/// This CPU's node.
const LOCAL: u32 = u32::MAX;

/// Added to the index of the only zone to ask. No machine has so many nodes.
const ONLY_ZONE: u32 = 1 << 31;

/// With up to so many zones, looking at each is faster than a binary search.
const ZONES_LOOKED_THROUGH: usize = 8;

/// More than any zone's index.
const NO_ZONE: u32 = u32::MAX;

impl Request {
    /// A block of `order` from any zone but movable memory, from this CPU's node on.
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

    /// The same from the zone of this index alone, in the order of the layout; its `class` counts for
    /// the reserve only. Refused with [`AllocError::NoSuchZone`] if there is none.
    #[must_use]
    pub const fn from_zone(self, zone: u32) -> Self {
        // No layout has the last index: a larger one means the same, and is not `LOCAL`.
        let last = ONLY_ZONE - 2;
        let zone = if zone < last { zone } else { last };
        Self {
            node: ONLY_ZONE | zone,
            ..self
        }
    }

    /// The same for pages of which may be done what `mobility` says (Linux: `gfp_migratetype`).
    /// [`Mobility::HighAtomic`] is for blocks only and means [`Mobility::Unmovable`] here.
    #[must_use]
    pub const fn of_mobility(self, mobility: Mobility) -> Self {
        let mobility = match mobility {
            Mobility::HighAtomic => Mobility::Unmovable,
            other => other,
        };
        Self { mobility, ..self }
    }

    /// The same from `node` on. A node past the last one means the last one.
    #[must_use]
    pub const fn from_node(self, node: NodeId) -> Self {
        // Larger numbers mean something else in this field, and no layout has such a node.
        let node = if node.0 < NODES_MAX {
            node.0
        } else {
            NODES_MAX
        };
        Self { node, ..self }
    }

    /// The same from zones of `class` or lower.
    #[must_use]
    pub const fn of_class(self, class: ZoneKind) -> Self {
        Self { class, ..self }
    }

    /// The same for somebody who may go below the watermarks.
    #[must_use]
    pub const fn urgent(self, urgency: Urgency) -> Self {
        Self { urgency, ..self }
    }
}

/// Gets memory back when zones run low: a page cache, a buffer pool, a garbage collector.
pub trait Reclaimer<M: Machine>: Send + Sync {
    /// What it is called in an out-of-memory report.
    fn name(&self) -> &'static str;

    /// Frees about `wanted` pages through `pages`, and says how many it freed. May be called on
    /// any CPU, by several at once, and must not allocate.
    fn reclaim(&self, machine: &M, pages: &PageAllocator<M>, wanted: Pages) -> Pages;
}

/// A zone, seen from outside. Exact when nothing is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneView {
    /// What it is for.
    pub kind: ZoneKind,
    /// Whose memory it is.
    pub node: NodeId,
    /// Pages that are memory.
    pub managed: Pages,
    /// Pages on the free lists.
    pub free: Pages,
    /// Free blocks of each order.
    pub blocks: [u32; Order::COUNT],
    /// The same by the type of the block they are in: all unmovable if pages are not grouped.
    pub blocks_by_mobility: [[u32; Order::COUNT]; Mobility::COUNT],
    /// Pages on CPUs' lists.
    pub listed: Pages,
    /// What the counter of free pages says, differentials included.
    pub counted_free: u64,
    /// Watermarks.
    pub watermarks: Watermarks,
    /// Sizes of each CPU's lists.
    pub sizes: Sizes,
}

impl<M: Machine> fmt::Debug for PageAllocator<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageAllocator")
            .field("zones", &self.zones.len())
            .finish_non_exhaustive()
    }
}

impl<M: Machine> PageAllocator<M> {
    /// Which CPUs are online.
    pub fn cpus(&self) -> &Cpus<M> {
        &self.cpus
    }

    pub(crate) fn zones(&self) -> &[Zone<M>] {
        &self.zones
    }

    /// How often periodic work runs, read without a lock: a stale interval moves one firing.
    pub(crate) fn stat_interval(&self, machine: &M) -> Nanos {
        let ms = self.stat_interval_ms.load(machine, Relaxed);
        Nanos::from_ms(u64::try_from(ms).unwrap_or(1))
    }

    /// Every zone, in layout order (Linux: `/proc/zoneinfo`, `/proc/buddyinfo`).
    pub fn view(&self, machine: &M) -> Vec<ZoneView> {
        self.zones.iter().map(|zone| zone.view(machine)).collect()
    }

    /// Pages on `cpu`'s lists in all zones, read without a lock.
    pub fn listed(&self, machine: &M, cpu: CpuId) -> Pages {
        let of = |zone: &Zone<M>| u32::try_from(zone.slot(cpu).count.read(machine)).unwrap_or(0);
        Pages(self.zones.iter().map(of).sum())
    }

    /// Tells the page lists of the zones of `node` up to `highest` whether somebody reclaims there
    /// (Linux: `set_reclaim_active`, `clear_reclaim_active`).
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

    /// Tells the zones of `node` whether kswapd is awake. While it is, a CPU holds back fewer counted pages
    /// in each zone in which all CPUs together could hide the min watermark (Linux:
    /// `set_pgdat_percpu_threshold`).
    pub fn set_kswapd(&self, machine: &M, node: NodeId, kswapd: Kswapd) {
        let online = self.cpus.online(machine);
        for zone in self.zones.iter().filter(|zone| zone.node == node) {
            zone.set_kswapd(machine, kswapd, online);
        }
    }

    /// Tests the high watermarks of the zones that `request` would ask, up to the first that may give, and
    /// notes which are below, as Linux does at each allocation. [`PageAllocator::alloc`] tests them only
    /// where a zone must give; a replay of what another allocator did may call this before each of its
    /// allocations.
    pub fn test_high(&self, machine: &M, request: Request) {
        let ask = zone::Ask {
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

    /// Notes that a zone is below its high watermark, as an allocation does that finds it so. For replays
    /// of what another allocator did, which also counts a zone that has no block as large as is wanted.
    ///
    /// # Errors
    /// When there is no zone of that index.
    pub fn set_below_high(&self, machine: &M, zone: u32) -> Result<(), SeedError> {
        self.zone_at(zone)?.set_below_high(machine);
        Ok(())
    }

    /// The node whose memory `pfn` is, or `None` for a frame in no zone (Linux: `page_to_nid`).
    #[inline]
    pub fn node_of(&self, pfn: Pfn) -> Option<NodeId> {
        let (zone, _) = self.locate(pfn)?;
        Some(zone.node())
    }

    /// Counts `delta` pages more or fewer of an item in the zone of `pfn`, on this CPU. Nothing
    /// happens for a frame in no zone.
    #[inline]
    pub fn count(&self, machine: &M, pfn: Pfn, item: ZoneItem, delta: i64) {
        if let Some((zone, _)) = self.locate(pfn) {
            zone.counters.add(machine, item as usize, delta);
        }
    }

    /// Counts `each` more or fewer of an item for each of `pfns`, in its zone, on this CPU. Frames in
    /// no zone are passed over.
    pub fn count_each(&self, machine: &M, pfns: &[Pfn], item: ZoneItem, each: i64) {
        let mut rest = pfns;
        while let Some(&first) = rest.first() {
            let mut run = 1;
            if let Some((zone, _)) = self.locate(first) {
                let here = |pfn: &&Pfn| zone.page(**pfn).is_some();
                run = rest.iter().take_while(here).count();
                let pages = i64::try_from(run).unwrap_or(i64::MAX);
                let delta = each.saturating_mul(pages);
                zone.counters.add(machine, item as usize, delta);
            }
            rest = &rest[run..];
        }
    }

    /// The sum of an item over all zones, differentials included.
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
        // Highest first: most memory is there.
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

    /// The zone to ask first: nearly always the only one.
    #[inline(always)]
    fn first_zone(&self, machine: &M, request: Request) -> Option<&Zone<M>> {
        if request.node != LOCAL {
            return self.zonelist(machine, request).next();
        }
        let cpu = machine.this_cpu();
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

impl<M: Machine> Zone<M> {
    fn view(&self, machine: &M) -> ZoneView {
        let (free, blocks, blocks_by_mobility) = self.buddy.with(machine, Site::Control, |buddy| {
            let mut blocks = [0; Order::COUNT];
            Order::all().for_each(|order| blocks[order.index()] = buddy.blocks(order));
            let of = |mobility| {
                let mut blocks = [0; Order::COUNT];
                Order::all()
                    .for_each(|order| blocks[order.index()] = buddy.blocks_of(order, mobility));
                blocks
            };
            (buddy.free(), blocks, Mobility::ALL.map(of))
        });
        let listed: i64 = self.slots.iter().map(|slot| slot.count.read(machine)).sum();
        ZoneView {
            kind: self.kind,
            node: self.node,
            managed: self.managed,
            free,
            blocks,
            blocks_by_mobility,
            listed: Pages(u32::try_from(listed).unwrap_or(0)),
            counted_free: self
                .counters
                .snapshot(machine, ZoneItem::FreePages as usize),
            watermarks: self.watermarks(machine),
            sizes: self.sizes(machine),
        }
    }
}
