//! What each step costs: the profile's prices laid out for fast lookup.

use plimsoll_mm::site::Work;
use plimsoll_mm::topology::{Distance, Topology};
use plimsoll_mm::units::CpuId;

use crate::profile::Costs;

/// Bits of a place for the core; the LLC is above.
const CORE_BITS: u32 = 16;
/// Bits of a place for core and LLC; the socket is above.
const LLC_BITS: u32 = 32;

/// Prices and places.
pub(crate) struct Prices {
    pub(crate) work_ns: [u32; Work::ALL.len()],
    pub(crate) lock_own_ns: u32,
    pub(crate) lock_remote_extra_ns: u32,
    pub(crate) lock_handover_extra_ns: u32,
    pub(crate) word_own_ns: u32,
    pub(crate) transfer_ns: [u32; 5],
    /// Socket, LLC and core of each CPU in one number: the highest bit in which two differ says
    /// how far apart they are.
    places: Box<[u64]>,
}

impl Prices {
    pub(crate) fn new(costs: &Costs, topology: &Topology) -> Self {
        let pack = |cpu: CpuId| {
            let place = topology.place(cpu);
            assert!(place.core >> CORE_BITS == 0, "core numbers fit 16 bits");
            assert!(place.llc >> CORE_BITS == 0, "LLC numbers fit 16 bits");
            u64::from(place.socket) << LLC_BITS
                | u64::from(place.llc) << CORE_BITS
                | u64::from(place.core)
        };
        let mut work_ns = costs.work_ns;
        work_ns[Work::Think as usize] = 1;
        Self {
            work_ns,
            lock_own_ns: costs.lock_own_ns,
            lock_remote_extra_ns: costs.lock_remote_extra_ns,
            lock_handover_extra_ns: costs.lock_handover_extra_ns,
            word_own_ns: costs.word_own_ns,
            transfer_ns: costs.transfer_ns,
            places: topology.ids().map(pack).collect(),
        }
    }

    /// Moving a dirty line from one CPU to another, its memory being near `home`.
    ///
    /// Two caches of a socket that is not the line's home ask the home socket who has it, and pay
    /// as if they were on different sockets. Within one last-level cache nobody is asked.
    #[inline]
    pub(crate) fn transfer_home(&self, from: usize, to: usize, home: usize) -> u64 {
        let mut distance = self.distance(from, to);
        if distance == Distance::Socket && (self.places[home] ^ self.places[to]) >> LLC_BITS != 0 {
            distance = Distance::Remote;
        }
        u64::from(self.transfer_ns[distance as usize])
    }

    /// How far apart two CPUs are.
    #[inline]
    pub(crate) fn distance(&self, from: usize, to: usize) -> Distance {
        let differ = self.places[from] ^ self.places[to];
        if from == to {
            Distance::Same
        } else if differ == 0 {
            Distance::Core
        } else if differ >> CORE_BITS == 0 {
            Distance::Llc
        } else if differ >> LLC_BITS == 0 {
            Distance::Socket
        } else {
            Distance::Remote
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::topology::CpuPlace;
    use plimsoll_mm::units::NodeId;

    use super::*;

    #[test]
    fn distances_are_those_of_the_topology_and_a_far_home_costs_more() {
        let place = |cpu: u32| CpuPlace {
            core: cpu / 2,
            llc: cpu / 4,
            node: NodeId(cpu / 8),
            socket: cpu / 8,
        };
        let topology = Topology::new((0..16).map(place).collect());
        let costs = Costs {
            work_ns: [0; Work::ALL.len()],
            transfer_ns: [1, 10, 30, 100, 190],
            lock_own_ns: 0,
            lock_remote_extra_ns: 0,
            lock_handover_extra_ns: 0,
            word_own_ns: 0,
        };
        let prices = Prices::new(&costs, &topology);
        for (from, to) in topology
            .ids()
            .flat_map(|a| topology.ids().map(move |b| (a, b)))
        {
            let distance = prices.distance(from.index(), to.index());
            assert_eq!(distance, topology.distance(from, to), "{from} to {to}");
        }
        assert_eq!(prices.transfer_home(8, 12, 8), 100);
        assert_eq!(prices.transfer_home(8, 12, 0), 190);
        assert_eq!(prices.transfer_home(8, 11, 0), 30);
        assert_eq!(prices.work_ns[Work::Think as usize], 1);
    }
}
