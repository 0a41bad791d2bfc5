//! Sets the state in which a replay starts. Either it is the state of the recorded machine when the
//! recording began, or all memory is free.

use std::cell::RefCell;

use plimsoll_mm::Manager;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::Request;
use plimsoll_mm::page::watermark::Watermarks;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};
use plimsoll_sim::Sim;

use super::plan::ZoneRequest;
use crate::exact::pages::State;
use crate::exact::pages::memory::{Area, Stock};
use crate::run::testbed::Testbed;

/// The state in which a replay starts.
#[derive(Clone, Copy)]
pub(super) enum Start<'a> {
    /// Page lists are empty and all memory is free. `Why` says why the recorded state is unknown.
    Cold(Why),
    /// Zones and page lists are as they were on the recorded machine.
    Recorded(&'a State),
}

/// The reason why a replay starts with empty page lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The recording lacks the `/proc/zoneinfo` of its beginning.
    NoZoneinfo,
    /// The recording has `/proc/zoneinfo` but no refills, so the length of each list is unknown.
    NoRefills,
}

impl Why {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::NoZoneinfo => "the recording has no /proc/zoneinfo of before",
            Self::NoRefills => "the recording has no mm_page_alloc_zone_locked",
        }
    }
}

/// The memory of the simulated machine in a replay that starts in the recorded state.
pub(super) struct Memory {
    /// For each node, the index of its first zone.
    first: Vec<u32>,
    /// For each zone, the blocks that have been in use since before the recording.
    stock: Vec<RefCell<Stock>>,
}

/// For each node, how many of its CPUs the replay uses. The replay has `scale` copies of the
/// recording, and each copy uses `cpus` CPUs.
fn shares(topology: &Topology, cpus: u32, scale: u32) -> Vec<u32> {
    let mut shares = vec![0; topology.nodes() as usize];
    for cpu in 0..cpus * scale {
        let NodeId(node) = topology.place(CpuId(cpu)).node;
        shares[node as usize] += 1;
    }
    shares
}

/// Divides `pages` equally among `cpus` CPUs, and returns how many pages `share` of these CPUs get.
/// The result is rounded down.
fn part(pages: u64, share: u32, cpus: u32) -> u64 {
    pages * u64::from(share) / u64::from(cpus.max(1))
}

fn part_of(pages: Pages, share: u32, cpus: u32) -> Pages {
    Pages(u32::try_from(part(u64::from(pages.0), share, cpus)).unwrap_or(u32::MAX))
}

fn marks_of(marks: Watermarks, share: u32, cpus: u32) -> Watermarks {
    Watermarks {
        min: part_of(marks.min, share, cpus),
        low: part_of(marks.low, share, cpus),
        high: part_of(marks.high, share, cpus),
    }
}

impl Memory {
    /// The zones to lay out. Each node on which the replay uses CPUs gets one zone for each
    /// recorded zone. The size of the new zone is the recorded zone's size divided by `cpus`, times
    /// the number of the node's CPUs that the replay uses. It is at least one block of the largest
    /// order.
    pub(super) fn areas(state: &State, topology: &Topology, cpus: u32, scale: u32) -> Vec<Area> {
        let shares = shares(topology, cpus, scale);
        let nodes = (0..)
            .map(NodeId)
            .zip(shares)
            .filter(|(_, share)| *share > 0);
        let of_node = |(node, share)| {
            state.zones.iter().map(move |zone| Area {
                kind: zone.kind,
                node,
                managed: part(zone.managed, share, cpus).max(u64::from(Order::MAX.pages().0)),
            })
        };
        nodes.flat_map(of_node).collect()
    }

    /// Sets the zones and page lists of `testbed` to the recorded state. `testbed` must have the
    /// zones of [`Memory::areas`]. `cpus` are the recorded numbers of the CPUs in the plan.
    ///
    /// If the state cannot be set, returns the reason.
    pub(super) fn begin(
        testbed: &Testbed,
        state: &State,
        cpus: &[u32],
        scale: u32,
    ) -> Result<Self, String> {
        let (sim, pages) = (&testbed.sim, testbed.mm.pages());
        let of = index(cpus.len());
        let mut memory = Self {
            first: Vec::new(),
            stock: Vec::new(),
        };
        for share in shares(sim.topology(), of, scale) {
            memory.first.push(index(memory.stock.len()));
            for zone in state.zones.iter().filter(|_| share > 0) {
                let at = index(memory.stock.len());
                let free = part(zone.free, share, of);
                let stock = Stock::beside(pages, sim, at, free);
                memory.stock.push(RefCell::new(stock));
                let marks = marks_of(zone.marks, share, of);
                let set = pages.seed_sizes(sim, at, marks, zone.sizes);
                set.map_err(|error| error.to_string())?;
            }
        }
        for copy in 0..scale {
            for (nth, &recorded) in (0..).zip(cpus) {
                memory.seed_lists(testbed, state, recorded, CpuId(copy * of + nth))?;
            }
        }
        Ok(memory)
    }

    /// Gives the page lists of the simulated CPU `cpu` as many pages as the recorded CPU `recorded`
    /// had on its lists.
    fn seed_lists(
        &self,
        testbed: &Testbed,
        state: &State,
        recorded: u32,
        cpu: CpuId,
    ) -> Result<(), String> {
        for (kind, zone) in (0..).zip(&state.zones) {
            let lists = zone.lists.get(recorded as usize);
            let Some(lists) = lists.and_then(Option::as_ref) else {
                continue;
            };
            let at = self.zone(&testbed.sim, cpu, kind);
            let mut stock = self.stock[at as usize].borrow_mut();
            let pages = testbed.mm.pages();
            lists
                .start
                .seed(pages, &testbed.sim, (at, cpu), &mut stock)?;
        }
        Ok(())
    }

    /// Turns `ask` into a request by the CPU that calls this function. If `ask` names a recorded
    /// zone, the block must come from the zone that stands for it.
    pub(super) fn request(&self, sim: &Sim, ask: ZoneRequest) -> Request {
        let request = Request::new(ask.order).of_mobility(ask.mobility);
        match ask.zone {
            Some(zone) => request.from_zone(self.zone(sim, sim.this_cpu(), zone)),
            None => request,
        }
    }

    /// Takes a block that has been in use since before the recording. The block comes from the zone
    /// that stands for the recorded zone of `ask`. Returns `None` if this zone has no such block
    /// left, or if the recorded zone is unknown.
    pub(super) fn take_old(&self, mm: &Manager<Sim>, sim: &Sim, ask: ZoneRequest) -> Option<Pfn> {
        let zone = self.zone(sim, sim.this_cpu(), ask.zone?);
        let mut stock = self.stock[zone as usize].borrow_mut();
        stock.take(mm.pages(), sim, ask.order)
    }

    /// Returns the index of the simulated machine's zone that stands for the recorded zone `zone`.
    /// The simulated zone is on the node of `cpu`.
    fn zone(&self, sim: &Sim, cpu: CpuId, zone: u8) -> u32 {
        let NodeId(node) = sim.topology().place(cpu).node;
        self.first[node as usize] + u32::from(zone)
    }
}

fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_watermark_is_shared_like_the_zone() {
        let marks = Watermarks {
            min: Pages(1000),
            low: Pages(1500),
            high: Pages(2001),
        };
        let half = marks_of(marks, 2, 4);
        assert_eq!([half.min.0, half.low.0, half.high.0], [500, 750, 1000]);
        assert_eq!(marks_of(marks, 4, 4), marks);
        assert_eq!(part(1 << 40, 3, 4), 3 << 38);
    }
}
