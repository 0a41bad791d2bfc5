//! The price of each step: the profile's prices, laid out for fast lookup.
//!
//! The price of a step that involves no other CPU depends on the CPU's speed. The engine looks up
//! only the prices of the running CPU, so it loads the prices of a CPU before that CPU runs. If all
//! CPUs have the same speed, the loaded prices never change.

use std::cell::Cell;

use plimsoll_mm::site::Work;
use plimsoll_mm::topology::{Distance, Topology};
use plimsoll_mm::units::CpuId;

use crate::profile::{Costs, HoldPrice};

/// The place of a CPU is packed into one number. The lowest `CORE_BITS` bits hold the number of its
/// core, and the bits from there up to [`LLC_BITS`] hold the number of its LLC (last-level cache).
const CORE_BITS: u32 = 16;
/// The number of bits that the core and the LLC take together. The bits above them hold the number
/// of the socket.
const LLC_BITS: u32 = 32;

/// The prices of steps, and the places of CPUs.
pub(crate) struct Prices {
    /// The price of each kind of work on the running CPU, indexed by `Work as usize`, in
    /// nanoseconds. The prices in the next two fields also apply to the running CPU.
    work_ns: [Cell<u32>; Work::ALL.len()],
    /// The prices of the running CPU for [`Work::BuddyAlloc`] and [`Work::BuddyFree`], which depend
    /// on how many pages a hold has moved.
    in_hold: [Cell<HoldPrice>; 2],
    lock_own_ns: Cell<u32>,
    word_own_ns: Cell<u32>,
    pub(crate) lock_remote_extra_ns: u32,
    pub(crate) lock_handover_extra_ns: u32,
    pub(crate) transfer_ns: [u32; 5],
    /// The socket, LLC and core of each CPU, packed into one number. The highest bit in which two
    /// numbers differ determines the distance between the CPUs.
    places: Box<[u64]>,
    /// One table of prices for each speed that a CPU of the machine has.
    at_speeds: Box<[Costs]>,
    /// The index into `at_speeds` for each CPU; empty if all CPUs have the same speed.
    speeds: Box<[usize]>,
    /// The running CPU's index into `at_speeds`.
    speed: Cell<usize>,
}

impl Prices {
    /// The prices of a machine, with those of CPU 0 loaded.
    ///
    /// # Panics
    /// If some CPUs have a speed and others have none.
    pub(crate) fn new(costs: &Costs, topology: &Topology, speed_percent: &[u32]) -> Self {
        let pack = |cpu: CpuId| {
            let place = topology.place(cpu);
            assert!(place.core >> CORE_BITS == 0, "core numbers fit 16 bits");
            assert!(place.llc >> CORE_BITS == 0, "LLC numbers fit 16 bits");
            u64::from(place.socket) << LLC_BITS
                | u64::from(place.llc) << CORE_BITS
                | u64::from(place.core)
        };
        let mut costs = costs.clone();
        costs.work_ns[Work::Think as usize] = 1;
        let (at_speeds, speeds) = by_speed(&costs, topology, speed_percent);
        let prices = Self {
            work_ns: [const { Cell::new(0) }; Work::ALL.len()],
            in_hold: Default::default(),
            lock_own_ns: Cell::new(0),
            word_own_ns: Cell::new(0),
            lock_remote_extra_ns: costs.lock_remote_extra_ns,
            lock_handover_extra_ns: costs.lock_handover_extra_ns,
            transfer_ns: costs.transfer_ns,
            places: topology.ids().map(pack).collect(),
            speed: Cell::new(0),
            at_speeds,
            speeds,
        };
        prices.put_in_front(prices.speeds.first().map_or(0, |first| *first));
        prices
    }

    /// The price of doing `work` once on the running CPU, in nanoseconds.
    #[inline(always)]
    pub(crate) fn work(&self, work: Work) -> u64 {
        u64::from(self.work_ns[work as usize].get())
    }

    /// The price of moving `n` more pages on the running CPU, in nanoseconds, where `work` is one of
    /// the kinds for which [`is_hold_work`](crate::profile::is_hold_work) is true. The CPU holds a zone lock and has moved
    /// `before` pages in this hold, or `before` is `None` and it holds none.
    #[inline]
    pub(crate) fn hold_work(&self, work: Work, before: Option<u32>, n: u32) -> u64 {
        let price = self.in_hold[usize::from(work == Work::BuddyFree)].get();
        match before {
            Some(before) => price.total(before.saturating_add(n)) - price.total(before),
            None => price.first() * u64::from(n),
        }
    }

    /// The price of acquiring and releasing a lock that the running CPU held last, in nanoseconds.
    #[inline(always)]
    pub(crate) fn lock_own(&self) -> u64 {
        u64::from(self.lock_own_ns.get())
    }

    /// The price of changing a word whose line the running CPU owns, in nanoseconds.
    #[inline(always)]
    pub(crate) fn word_own(&self) -> u64 {
        u64::from(self.word_own_ns.get())
    }

    /// Returns whether all CPUs have the same speed, and so the same prices.
    pub(crate) fn are_alike(&self) -> bool {
        self.speeds.is_empty()
    }

    /// Loads the prices of `cpu`, which runs from now on.
    #[inline]
    pub(crate) fn run_on(&self, cpu: usize) {
        if let Some(speed) = self.speeds.get(cpu)
            && *speed != self.speed.get()
        {
            self.put_in_front(*speed);
        }
    }

    fn put_in_front(&self, speed: usize) {
        let costs = &self.at_speeds[speed];
        for (price_ns, own_ns) in self.work_ns.iter().zip(costs.work_ns) {
            price_ns.set(own_ns);
        }
        for (price, work) in self.in_hold.iter().zip([Work::BuddyAlloc, Work::BuddyFree]) {
            price.set(HoldPrice::new(costs, work));
        }
        self.lock_own_ns.set(costs.lock_own_ns);
        self.word_own_ns.set(costs.word_own_ns);
        self.speed.set(speed);
    }

    /// The price of moving a dirty line from CPU `from` to CPU `to`, in nanoseconds. The line
    /// belongs to memory near CPU `home`.
    ///
    /// The price depends on `home` only if `from` and `to` are in one socket but in different
    /// last-level caches. The request for the line then leaves the cache of `to` and goes to the
    /// socket of `home`. So if `home` is in another socket, the price is that of a transfer between
    /// sockets.
    #[inline]
    pub(crate) fn transfer_home(&self, from: usize, to: usize, home: usize) -> u64 {
        let mut distance = self.distance(from, to);
        if distance == Distance::Socket && (self.places[home] ^ self.places[to]) >> LLC_BITS != 0 {
            distance = Distance::Remote;
        }
        u64::from(self.transfer_ns[distance as usize])
    }

    /// The distance between two CPUs.
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

/// Returns the prices at each speed that occurs in `speed_percent`, and for each CPU the index of
/// its prices.
fn by_speed(
    costs: &Costs,
    topology: &Topology,
    speed_percent: &[u32],
) -> (Box<[Costs]>, Box<[usize]>) {
    if speed_percent.is_empty() {
        return (Box::new([costs.clone()]), Box::default());
    }
    assert_eq!(
        speed_percent.len(),
        topology.cpus() as usize,
        "every CPU has a speed, or none"
    );
    let mut percents = speed_percent.to_vec();
    percents.sort_unstable();
    percents.dedup();
    let speed = |percent| {
        let found = percents.binary_search(percent);
        found.expect("it is one of those that were sorted")
    };
    let speeds = speed_percent.iter().map(speed).collect();
    let costs = percents.iter().map(|percent| costs.at_speed(*percent));
    (costs.collect(), speeds)
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::topology::CpuPlace;
    use plimsoll_mm::units::NodeId;

    use super::*;
    use crate::profile::Slopes;

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
            slopes: Slopes::default(),
            transfer_ns: [1, 10, 30, 100, 190],
            lock_own_ns: 0,
            lock_remote_extra_ns: 0,
            lock_handover_extra_ns: 0,
            word_own_ns: 0,
        };
        let prices = Prices::new(&costs, &topology, &[]);
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
        assert_eq!(prices.work(Work::Think), 1);
        assert!(prices.are_alike());
    }
}
