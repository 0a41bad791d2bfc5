//! Creating a page allocator, and recomputing its settings when a knob, the set of CPUs or the
//! memory of a zone changes.
//!
//! Watermarks, list sizes, thresholds and reserves depend on each other, so they are always
//! recomputed together.
//!
//! Locks: the sizing lock (Linux: `pcp_batch_high_lock`) is held during each change.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use core::{array, fmt};

use super::layout::{Layout, LayoutError, ZoneKind};
use super::mobility::Grouping;
use super::sizing::Sizes;
use super::watermark::{self, Share};
use super::zone::{Policy, Zone};
use super::{LastResort, NO_ZONE, PageAllocator, Pressure, Reclaimer};
use crate::cpus::{Cpus, Hotplug};
use crate::design::Design;
use crate::machine::{Lock, Machine, Word};
use crate::site::{LockClass, Site};
use crate::tunables::{Knob, TunableError, Tunables};
use crate::units::{CpuId, Nanos, Pages, narrow, signed};
use crate::vmstat::threshold;

/// The inputs for creating a page allocator.
pub struct Config<M: Machine> {
    /// The zones of the machine.
    pub layout: Layout,
    /// The variant to use for each mechanism.
    pub design: Design,
    /// The initial values of the knobs.
    pub tunables: Tunables,
    /// The reclaimers, in the order in which allocations call them.
    pub reclaimers: Vec<Box<dyn Reclaimer<M>>>,
    /// The last resort that an allocation calls when the reclaimers cannot free any more memory. If
    /// there is none, the allocation fails.
    pub last_resort: Option<Box<dyn LastResort<M>>>,
    /// The object that reclaims used pages. If there is none, no used page is reclaimed, and only
    /// the reclaimers free memory.
    pub pressure: Option<Box<dyn Pressure<M>>>,
    /// A CPU's share of the last-level cache (Linux: `per_cpu_data_slice_size`). If this share
    /// exceeds three batches, a run of frees of order 1 to 3 empties the lists only if the lists
    /// have at least a batch of pages.
    pub cache_slice: Pages,
    /// Whether pages are grouped by mobility, and the size of a page block.
    pub grouping: Grouping,
}

impl<M: Machine> Config<M> {
    /// Returns a configuration for the memory of `layout`, with defaults for everything else.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            design: Design::default(),
            tunables: Tunables::default(),
            reclaimers: Vec::new(),
            last_resort: None,
            pressure: None,
            cache_slice: Pages::from_bytes(1 << 20),
            grouping: Grouping::Off,
        }
    }
}

impl<M: Machine> fmt::Debug for Config<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("layout", &self.layout)
            .field("design", &self.design)
            .field("reclaimers", &self.reclaimers.len())
            .field("last_resort", &self.last_resort.is_some())
            .field("pressure", &self.pressure.is_some())
            .finish_non_exhaustive()
    }
}

impl<M: Machine> PageAllocator<M> {
    /// Creates an allocator in which all memory of `config` is free.
    ///
    /// # Errors
    /// If the layout of `config` is invalid: see [`LayoutError`].
    pub fn new(machine: &M, config: Config<M>) -> Result<Self, LayoutError> {
        let Config {
            layout,
            design,
            tunables,
            reclaimers,
            last_resort,
            pressure,
            cache_slice,
            grouping,
        } = config;
        layout.check()?;
        let zones: Vec<Zone<M>> = (0..)
            .zip(&layout.zones)
            .map(|(index, zone)| {
                let policy = Policy {
                    holds: design.holds,
                    owning: design.owning,
                    grouping,
                    cache_slice,
                    stays_unmixed: grouping.block().is_some() && layout.stays_unmixed(zone),
                    index: layout.index,
                };
                Zone::new(machine, index, zone, layout.metadata, policy)
            })
            .collect();
        let this = CpuId(0);
        let topology = machine.topology();
        let zonelists = zonelists(&zones, topology.nodes());
        let nearest = |cpu| {
            let lists = &zonelists[topology.place(cpu).node.index()];
            array::from_fn(|class| lists[class].first().copied().unwrap_or(NO_ZONE))
        };
        let mut ascending: Box<[u32]> = (0..).take(zones.len()).collect();
        ascending.sort_unstable_by_key(|&zone| zones[zone as usize].pfn(0));
        let pages = Self {
            ascending,
            nearest: topology.ids().map(nearest).collect(),
            alone: (0..).take(zones.len()).collect(),
            zonelists,
            zones,
            reclaimers,
            last_resort,
            pressure,
            cpus: Cpus::new(machine),
            tunables: machine.lock(LockClass::Sizing, this, tunables),
            draining: machine.lock(LockClass::DrainAll, this, ()),
            metadata: layout.metadata,
            stat_interval_ms: machine.word(0),
        };
        pages.tunables.with(machine, Site::Control, |tunables| {
            pages.recompute(machine, tunables);
        });
        pages.provide_lists(machine);
        Ok(pages)
    }

    /// The current value of a knob.
    pub fn tunable(&self, machine: &M, knob: Knob) -> u64 {
        self.tunables
            .with(machine, Site::Control, |tunables| tunables.get(knob))
    }

    /// Sets a knob and recomputes all settings that depend on it.
    ///
    /// # Errors
    /// If the value is out of bounds. Nothing changes then.
    pub fn set_tunable(&self, machine: &M, knob: Knob, value: u64) -> Result<(), TunableError> {
        self.tunables.with(machine, Site::Control, |tunables| {
            tunables.set(knob, value)?;
            self.recompute(machine, tunables);
            Ok(())
        })?;
        self.provide_lists(machine);
        Ok(())
    }

    /// Records that a CPU went online or offline, and recomputes all settings that depend on the
    /// number of CPUs.
    pub(crate) fn hotplug(&self, machine: &M, cpu: CpuId, state: Hotplug) {
        self.tunables.with(machine, Site::Control, |tunables| {
            self.cpus.set(machine, cpu, state);
            self.recompute(machine, tunables);
        });
        self.provide_lists(machine);
    }

    /// Allocates memory for page lists that may become longer than before. If memory is short, the
    /// lists stay shorter and the zones serve requests instead.
    pub(super) fn provide_lists(&self, machine: &M) {
        for zone in &self.zones {
            for cpu in self.cpus.iter(machine) {
                zone.provide_lists(machine, cpu);
            }
        }
    }

    /// Recomputes every setting. The caller holds the sizing lock (Linux: `pcp_batch_high_lock`).
    pub(super) fn recompute(&self, machine: &M, tunables: &Tunables) {
        let interval_ms = signed(tunables.get(Knob::StatInterval));
        self.stat_interval_ms.store(machine, interval_ms, Relaxed);
        let is_lowmem = |zone: &&Zone<M>| zone.kind != ZoneKind::Movable;
        let lowmem = self
            .zones
            .iter()
            .filter(is_lowmem)
            .fold(Pages(0), |sum, z| sum + z.managed());
        let min_free_kib = match tunables.get(Knob::MinFree) {
            0 => watermark::min_free_kib(u64::from(lowmem.0) * 4),
            set => set,
        };
        let min_free = Pages(narrow(min_free_kib / 4));
        for zone in &self.zones {
            self.recompute_zone(machine, tunables, zone, lowmem, min_free);
        }
    }

    fn recompute_zone(
        &self,
        machine: &M,
        tunables: &Tunables,
        zone: &Zone<M>,
        lowmem: Pages,
        min_free: Pages,
    ) {
        let share = if zone.kind == ZoneKind::Movable {
            Share::Movable
        } else {
            Share::Lowmem
        };
        let scale = tunables.get(Knob::WatermarkScale);
        let marks = watermark::marks(zone.managed(), lowmem, min_free, scale, share);
        let online = self.cpus.online(machine);
        let normal = threshold::normal(online, zone.managed());
        let distance = marks.low.saturating_sub(marks.min);
        zone.counters.set_threshold(machine, normal);
        let drift = threshold::drift_mark(online, normal, distance, marks.high);
        zone.set_watermarks(machine, marks, drift);

        // If no CPU of the zone's node is online, all online CPUs share the zone.
        let sharing = match self.cpus.online_on(machine, zone.node) {
            0 => online,
            cpus => cpus,
        };
        let fraction = tunables.get(Knob::HighFraction);
        let sizes = Sizes::of(zone.managed(), marks.low, sharing, fraction);
        let hold = Nanos(tunables.get(Knob::HoldTimeMax));
        zone.set_sizes(machine, sizes, tunables.get(Knob::BatchScaleMax), hold);
        zone.set_front_limits(machine, sizes, &self.cpus);
        for class in ZoneKind::ALL {
            zone.set_reserve(machine, class, self.reserve(tunables, zone, class));
        }
    }

    /// The number of pages of `zone` that requests of `class` must leave free, because higher zones
    /// of the node could serve these requests (Linux: `lowmem_reserve`).
    fn reserve(&self, tunables: &Tunables, zone: &Zone<M>, class: ZoneKind) -> Pages {
        let ratio = tunables.get(match zone.kind {
            ZoneKind::Dma => Knob::ReserveRatioDma,
            ZoneKind::Dma32 => Knob::ReserveRatioDma32,
            ZoneKind::Normal => Knob::ReserveRatioNormal,
            ZoneKind::Movable => return Pages::ZERO,
        });
        let above = |other: &&Zone<M>| {
            other.node == zone.node && other.kind > zone.kind && other.kind <= class
        };
        let pages: u64 = self
            .zones
            .iter()
            .filter(above)
            .map(|other| u64::from(other.managed().0))
            .sum();
        // Zones do not overlap, so all of them together have fewer than 2³² pages.
        Pages(narrow(pages.checked_div(ratio).unwrap_or(0)))
    }
}

/// Creates the zonelists. For each node and kind, the list has the indices of the node's zones from
/// that kind downwards. The zones of the other nodes follow in the same way, in ascending order of
/// the node numbers. After the last node comes node 0.
fn zonelists<M: Machine>(zones: &[Zone<M>], nodes: u32) -> Vec<[Vec<u32>; ZoneKind::ALL.len()]> {
    let nodes = zones
        .iter()
        .map(|zone| zone.node.0 + 1)
        .max()
        .unwrap_or(1)
        .max(nodes);
    let list = |from: u32, class: ZoneKind| {
        let mut fitting: Vec<&Zone<M>> = zones.iter().filter(|zone| zone.kind <= class).collect();
        fitting.sort_by_key(|zone| {
            (
                (zone.node.0 + nodes - from) % nodes,
                core::cmp::Reverse(zone.kind),
                zone.index,
            )
        });
        fitting.iter().map(|zone| zone.index).collect()
    };
    (0..nodes)
        .map(|from| array::from_fn(|class| list(from, ZoneKind::ALL[class])))
        .collect()
}
