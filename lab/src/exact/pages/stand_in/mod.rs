//! Plimsoll's page allocator, set to the state in which a recording begins, and the operations that
//! the replay performs on this allocator.

mod shortage;

use std::collections::HashMap;

use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::watermark::{Urgency, Watermarks};
use plimsoll_mm::page::{
    Config, Grouping, Kswapd, ListState, PageAllocator, Request, TypedBlock, ZoneKind,
};
use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};

use super::follow::Learnt;
use super::lists::{LISTS, ListId, MOVABLE};
use super::machine::{Hold, Stepwise};
use super::memory::{Area, Stock, kind_of, layout, mobility_of, order_of};
use super::op::{Action, Op};
use super::zoneinfo::ZoneInfo;

/// The state of a CPU's lists in a zone when the replay begins. `high` and `free_count` are in
/// pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Start {
    pub(crate) high: u32,
    pub(crate) alloc_factor: u32,
    pub(crate) free_count: u32,
    /// The number of blocks on each list, by [`ListId`].
    pub(crate) blocks: [u32; LISTS],
}

impl Start {
    /// Sets the lists of a CPU in a zone to this state. Takes the blocks for the lists from
    /// `stock`, the zone's blocks that count as in use.
    pub(crate) fn seed<M: Machine>(
        &self,
        pages: &PageAllocator<M>,
        machine: &M,
        (zone, cpu): (u32, CpuId),
        stock: &mut Stock,
    ) -> Result<(), String> {
        let mut blocks = Vec::new();
        for (list, &count) in (0..).map(ListId).zip(&self.blocks) {
            for _ in 0..count {
                let pfn = stock.take(pages, machine, order_of(list.order()));
                blocks.push(typed(pfn.ok_or("the zone is too small")?, list));
            }
        }
        let state = ListState {
            high: Pages(self.high),
            alloc_factor: self.alloc_factor,
            free_count: Pages(self.free_count),
            freed_high_order: false,
            blocks,
        };
        let seeded = pages.seed_lists(machine, zone, cpu, &state);
        seeded.map_err(|error| error.to_string())
    }
}

/// The settings on which the sizes of page lists depend, as the recorded computer had them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Knobs {
    pub(super) min_free_kib: u64,
    pub(super) high_fraction: u64,
    /// The node of each CPU.
    pub(super) nodes: Vec<u32>,
    pub(super) offline: Vec<u32>,
    /// A CPU's share of the last-level cache. `None` if the recording does not state this share.
    pub(super) cache_slice: Option<Pages>,
}

/// Plimsoll's allocator. Some of its blocks stand for the blocks that the kernel has in use.
pub(super) struct StandIn {
    machine: Stepwise,
    mm: Manager<Stepwise>,
    /// The kind and the node of each zone, by the index of the zone.
    kinds: Vec<(ZoneKind, NodeId)>,
    /// For each zone, its watermarks without a boost and the sizes of its lists.
    sizes: Vec<(Watermarks, Sizes)>,
    /// For each zone, the blocks that have been in use since before the recording.
    stock: Vec<Stock>,
    /// The blocks that the kernel has allocated, keyed by their first frame. A value has Plimsoll's
    /// block that stands for the kernel's block, and the order of these two blocks.
    in_use: HashMap<u64, (Pfn, u8)>,
    /// The number of operations that Plimsoll could not perform.
    pub(super) refused: u64,
}

impl StandIn {
    pub(super) fn new(design: Design, zones: &[ZoneInfo], knobs: &Knobs) -> Result<Self, String> {
        let machine = Stepwise::new(topology(&knobs.nodes));
        let area = |zone: &ZoneInfo| Area {
            kind: kind_of(&zone.name),
            node: NodeId(zone.node),
            managed: zone.managed,
        };
        let areas: Vec<Area> = zones.iter().map(area).collect();
        let mut config = Config::new(layout(&areas));
        config.design = design;
        config.grouping = Grouping::Huge;
        config.cache_slice = knobs.cache_slice.unwrap_or(config.cache_slice);
        let set = [
            (Knob::MinFree, knobs.min_free_kib),
            (Knob::HighFraction, knobs.high_fraction),
        ];
        for (knob, value) in set {
            config
                .tunables
                .set(knob, value)
                .map_err(|error| error.to_string())?;
        }
        let mm = Manager::new(&machine, config).map_err(|error| error.to_string())?;
        for &cpu in &knobs.offline {
            mm.cpu_going(&machine, CpuId(cpu));
            mm.cpu_dead(&machine, CpuId(cpu));
        }
        let mut stock = Vec::new();
        for (index, zone) in (0..).zip(zones) {
            stock.push(Stock::beside(mm.pages(), &machine, index, zone.free));
        }
        let mut stand_in = Self {
            machine,
            mm,
            kinds: areas.iter().map(|area| (area.kind, area.node)).collect(),
            sizes: vec![(Watermarks::default(), Sizes::BOOT); zones.len()],
            stock,
            in_use: HashMap::new(),
            refused: 0,
        };
        for (zone, info) in (0..).zip(zones) {
            stand_in.free_up_to(zone, info.free);
        }
        // The zones' counters do not yet include the pages that were just freed, because CPU 0
        // still keeps their count for itself. The refresh (Linux: `vmstat_update`) adds this count
        // to the zones' counters.
        stand_in.mm.refresh(&stand_in.machine);
        stand_in.machine.take_holds();
        Ok(stand_in)
    }

    /// Frees pages that are in use in a zone, until `wanted` pages are free.
    fn free_up_to(&mut self, zone: u8, wanted: u64) {
        let view = self.mm.pages().view(&self.machine);
        let free = view[usize::from(zone)].free.0;
        let mut missing = wanted.saturating_sub(u64::from(free));
        for order in (0..=Order::MAX.get()).rev() {
            while missing >= 1 << order
                && let Some(block) = self.take_stock(zone, order)
            {
                // The block bypasses the lists, which must stay empty until [`StandIn::seed`] sets
                // their state.
                let free = || self.mm.pages().free(&self.machine, block, order_of(order));
                self.refused += u64::from(self.machine.interrupting(free).is_err());
                missing -= 1 << order;
            }
        }
    }

    /// Sets the lists of `cpu` in a zone to the state `start`.
    pub(super) fn seed(&mut self, zone: u8, cpu: u32, start: &Start) -> Result<(), String> {
        let stock = &mut self.stock[usize::from(zone)];
        let place = (u32::from(zone), CpuId(cpu));
        start.seed(self.mm.pages(), &self.machine, place, stock)
    }

    /// Sets the watermarks and the list sizes of a zone to the kernel's values.
    pub(super) fn set_sizes(
        &mut self,
        zone: u8,
        marks: Watermarks,
        sizes: Sizes,
    ) -> Result<(), String> {
        self.sizes[usize::from(zone)] = (marks, sizes);
        self.boost(zone, 0).map_err(|error| error.to_string())
    }

    pub(super) fn cpus(&self) -> usize {
        self.machine.topology().cpus() as usize
    }

    /// The number of pages on the lists of `cpu` in all zones.
    pub(super) fn listed(&self, cpu: u32) -> u64 {
        u64::from(self.mm.pages().listed(&self.machine, CpuId(cpu)).0)
    }

    /// The number of free pages of a zone.
    #[cfg(test)]
    pub(super) fn free(&self, zone: u8) -> u32 {
        self.mm.pages().view(&self.machine)[usize::from(zone)]
            .free
            .0
    }

    /// Performs one operation and returns the holds of zone locks in which pages moved.
    pub(super) fn perform(&mut self, op: &Op) -> Vec<Hold> {
        self.machine.go_to(op.cpu);
        let done = match op.action {
            Action::Alloc { zone, list, pfn } => {
                let wanted = (list.order(), list.mobility());
                self.test_high(zone, wanted);
                self.alloc(zone, wanted, pfn)
            }
            Action::AllocDirect {
                zone,
                order,
                mobility,
                pfn,
            } => {
                self.test_high(zone, (order, mobility));
                self.alloc_direct(zone, (order, mobility), pfn)
            }
            Action::Bulk {
                zone,
                list,
                ref pfns,
            } => self.bulk(op.cpu, zone, list, pfns),
            Action::Free { zone, list, pfn } => {
                let block = self.block(zone, list.order(), pfn);
                block.is_some_and(|block| {
                    let order = order_of(list.order());
                    let mobility = mobility_of(list.mobility());
                    self.mm
                        .pages()
                        .free_as(&self.machine, block, order, mobility)
                        .is_ok()
                })
            }
            Action::FreeDirect { zone, order, pfn } => {
                let block = self.block(zone, order, pfn);
                block.is_some_and(|block| {
                    let free = || self.mm.pages().free(&self.machine, block, order_of(order));
                    self.machine.interrupting(free).is_ok()
                })
            }
            Action::Refresh => {
                self.mm.refresh(&self.machine);
                true
            }
            Action::Drain { zone, by } => {
                // The drain runs on CPU `by`, because the CPU that drains adds the pages to the
                // zone's count of free pages.
                self.machine.go_to(by);
                let (pages, cpu) = (self.mm.pages(), CpuId(op.cpu));
                pages
                    .drain_lists(&self.machine, u32::from(zone), cpu)
                    .is_ok()
            }
            Action::Reclaim {
                node,
                highest,
                active,
            } => self.set_reclaiming(NodeId(node), highest, active),
            Action::Sleep { node } => self.set_kswapd(NodeId(node), Kswapd::Asleep),
            Action::Boost { zone, pages } => self.boost(zone, pages).is_ok(),
            Action::Shortage { node, highest } => self.set_below_high(node.map(NodeId), highest),
            // Plimsoll takes no block for this operation. Instead, the replay gives Plimsoll's
            // lists the lengths of the kernel's lists after this operation.
            Action::BulkNeverSeen { .. } => true,
            Action::Online(online) => self.set_online(CpuId(op.cpu), online),
        };
        self.refused += u64::from(!done);
        self.machine.take_holds()
    }

    fn set_online(&self, cpu: CpuId, online: bool) -> bool {
        if online {
            self.mm.cpu_online(&self.machine, cpu);
        } else {
            self.mm.cpu_going(&self.machine, cpu);
            self.mm.cpu_dead(&self.machine, cpu);
        }
        true
    }

    fn alloc(&mut self, zone: u8, (order, mobility): (u8, u8), pfn: u64) -> bool {
        let request = self.request(zone, order, mobility);
        let pages = self.mm.pages();
        // The kernel got a block, so Plimsoll must get a block too. If the watermarks forbid the
        // allocation, the second attempt ignores them.
        let got = pages
            .alloc(&self.machine, request)
            .or_else(|_| pages.alloc(&self.machine, request.urgent(Urgency::Reserve)));
        if let Ok(block) = got {
            self.in_use.insert(pfn, (block, order));
        }
        got.is_ok()
    }

    fn alloc_direct(&mut self, zone: u8, (order, mobility): (u8, u8), pfn: u64) -> bool {
        let request = self.request(zone, order, mobility).urgent(Urgency::Reserve);
        let got = self
            .machine
            .interrupting(|| self.mm.pages().alloc(&self.machine, request));
        if let Ok(block) = got {
            self.in_use.insert(pfn, (block, order));
        }
        got.is_ok()
    }

    fn bulk(&mut self, cpu: u32, zone: u8, list: ListId, pfns: &[u64]) -> bool {
        let request = self.request(zone, list.order(), list.mobility());
        if pfns.len() == 1 || list.order() > 0 {
            // Linux serves a bulk request for a single page as a normal allocation, and a normal
            // allocation has an event. So a single page that left a list without an event was part
            // of a larger bulk allocation. A normal allocation halves `free_count`, but a bulk
            // allocation does not, so the replay must not halve it.
            return pfns
                .iter()
                .all(|&pfn| self.alloc_keeping(cpu, zone, list, pfn));
        }
        let mut blocks = vec![Pfn(0); pfns.len()];
        let mut got = 0;
        while got < blocks.len() {
            let more = self
                .mm
                .pages()
                .alloc_bulk(&self.machine, request, &mut blocks[got..]);
            if more == 0 {
                break;
            }
            got += more;
        }
        for (&pfn, &block) in pfns.iter().zip(&blocks[..got]) {
            self.in_use.insert(pfn, (block, 0));
        }
        got == pfns.len()
    }

    /// Allocates a block, but preserves the count of pages freed in a row (`free_count`), which an
    /// allocation otherwise halves.
    fn alloc_keeping(&mut self, cpu: u32, zone: u8, list: ListId, pfn: u64) -> bool {
        let before = self.state(zone, cpu);
        let done = self.alloc(zone, (list.order(), list.mobility()), pfn);
        let after = self.state(zone, cpu);
        let kept = ListState {
            free_count: before.free_count,
            blocks: Vec::new(),
            ..after
        };
        let zone = u32::from(zone);
        let seeded = self
            .mm
            .pages()
            .seed_lists(&self.machine, zone, CpuId(cpu), &kept);
        done && seeded.is_ok()
    }

    fn request(&self, zone: u8, order: u8, mobility: u8) -> Request {
        Request::new(order_of(order))
            .from_zone(u32::from(zone))
            .of_class(self.class(zone, mobility))
            .of_mobility(mobility_of(mobility))
            .urgent(Urgency::NoWait)
    }

    /// Returns the highest kind of zone that a request is assumed to accept: `Movable` for movable
    /// pages, and otherwise the higher of `Normal` and the kind of `zone`. The recording does not
    /// show whether the request in fact accepted only lower zones.
    fn class(&self, zone: u8, mobility: u8) -> ZoneKind {
        let highest = if mobility == MOVABLE {
            ZoneKind::Movable
        } else {
            ZoneKind::Normal
        };
        highest.max(self.kinds[usize::from(zone)].0)
    }

    /// Takes Plimsoll's block that stands for the kernel's block at `pfn`. If Plimsoll has no such
    /// block of this order or a higher order, takes a block that has been in use since before the
    /// recording.
    fn block(&mut self, zone: u8, order: u8, pfn: u64) -> Option<Pfn> {
        match self.in_use.remove(&pfn) {
            Some((block, whole)) if whole == order => Some(block),
            Some((block, whole)) if whole > order => {
                // The kernel has split the block since then, and frees the other parts separately.
                let (from, to) = (order_of(whole), order_of(order));
                self.mm
                    .pages()
                    .split_to(&self.machine, block, from, to)
                    .ok()?;
                let step = 1u32 << order;
                for at in (step..1 << whole).step_by(step as usize) {
                    self.in_use
                        .insert(pfn + u64::from(at), (Pfn(block.0 + at), order));
                }
                Some(block)
            }
            _ => self.take_stock(zone, order),
        }
    }

    /// Takes a block of `order` that has been in use since before the recording.
    fn take_stock(&mut self, zone: u8, order: u8) -> Option<Pfn> {
        let stock = &mut self.stock[usize::from(zone)];
        stock.take(self.mm.pages(), &self.machine, order_of(order))
    }

    /// The number of blocks on each list of `cpu` in a zone.
    pub(super) fn lens(&self, zone: u8, cpu: u32) -> [u32; LISTS] {
        let mut lens = [0; LISTS];
        for block in self.state(zone, cpu).blocks {
            let mobility = u8::try_from(block.mobility.index()).unwrap_or(MOVABLE);
            if let Some(list) = ListId::of(block.order.get(), mobility) {
                lens[list.index()] += 1;
            }
        }
        lens
    }

    pub(super) fn state(&self, zone: u8, cpu: u32) -> ListState {
        let pages = self.mm.pages();
        let state = pages.list_state(&self.machine, u32::from(zone), CpuId(cpu));
        state.unwrap_or_default()
    }

    /// Takes `pages` single pages directly from the zone, because the kernel took them and Plimsoll
    /// did not. If `pages` is negative, returns pages to the zone instead. The page lists do not
    /// change.
    pub(super) fn take_from_zone(&mut self, zone: u8, cpu: u32, pages: i64) {
        self.machine.go_to(cpu);
        let request = self.request(zone, 0, MOVABLE).urgent(Urgency::Reserve);
        for _ in 0..pages {
            let take = || self.mm.pages().alloc(&self.machine, request);
            if let Ok(page) = self.machine.interrupting(take) {
                self.stock[usize::from(zone)].put(Order::ZERO, page);
            }
        }
        for _ in pages..0 {
            if let Some(page) = self.take_stock(zone, 0) {
                let free = || self.mm.pages().free(&self.machine, page, Order::ZERO);
                self.refused += u64::from(self.machine.interrupting(free).is_err());
            }
        }
        self.machine.take_holds();
    }

    /// Sets the lists of `cpu` in a zone to the lengths `wanted`. Also sets `high` and
    /// `alloc_factor`, if `learnt` has values for them.
    pub(super) fn set_lists(&mut self, zone: u8, cpu: u32, wanted: &[u32; LISTS], learnt: Learnt) {
        let state = self.state(zone, cpu);
        let lens = self.lens(zone, cpu);
        self.machine.go_to(cpu);
        let mut blocks = Vec::new();
        for list in (0..14).map(ListId) {
            let (have, want) = (lens[list.index()], wanted[list.index()]);
            for _ in want..have {
                let request = self.request(zone, list.order(), list.mobility());
                if let Ok(pfn) = self.mm.pages().alloc(&self.machine, request) {
                    self.stock[usize::from(zone)].put(order_of(list.order()), pfn);
                }
            }
            for _ in have..want {
                if let Some(pfn) = self.take_stock(zone, list.order()) {
                    blocks.push(typed(pfn, list));
                }
            }
        }
        let kept = ListState {
            high: learnt.high.map_or(state.high, Pages),
            alloc_factor: learnt.alloc_factor.unwrap_or(state.alloc_factor),
            blocks,
            ..state
        };
        let zone = u32::from(zone);
        let seeded = self
            .mm
            .pages()
            .seed_lists(&self.machine, zone, CpuId(cpu), &kept);
        self.refused += u64::from(seeded.is_err());
        self.machine.take_holds();
    }
}

fn typed(pfn: Pfn, list: ListId) -> TypedBlock {
    TypedBlock {
        pfn,
        order: order_of(list.order()),
        mobility: mobility_of(list.mobility()),
    }
}

/// The topology in which CPU `n` is on node `nodes[n]`. Each node is one socket.
fn topology(nodes: &[u32]) -> Topology {
    let place = |(core, &node)| CpuPlace {
        core,
        llc: node,
        node: NodeId(node),
        socket: node,
    };
    Topology::new((0..).zip(nodes).map(place).collect())
}
