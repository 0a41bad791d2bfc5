//! The price of each step, which is the virtual time that the step takes: the profile's prices,
//! laid out for fast lookup.
//!
//! The price of a step that involves no other CPU depends on the CPU's pace: its speed, and the
//! factor by which limited memory bandwidth slows down steps that move pages. The engine looks up
//! only the prices of the running CPU, so it loads the prices of a CPU before that CPU runs. If all
//! CPUs have the same pace, and load cannot change it, the loaded prices never change.

use std::cell::{Cell, OnceCell};

use plimsoll_mm::site::Work;
use plimsoll_mm::topology::{Distance, Topology};
use plimsoll_mm::units::CpuId;

use crate::engine::load::{Pace, UNSTRETCHED};
use crate::profile::{Costs, HoldPrice, Load, MOVERS};

/// The place of a CPU (its core, its last-level cache and its socket) is packed into one number.
/// The lowest `CORE_BITS` bits hold the core. The bits from there up to [`LLC_BITS`] hold the
/// last-level cache (LLC).
const CORE_BITS: u32 = 16;
/// The number of bits that the core and the LLC take together. The bits above them hold the number
/// of the socket.
const LLC_BITS: u32 = 32;

/// The prices of steps, and the places of CPUs.
pub(crate) struct Prices {
    /// The price of each kind of work on the running CPU, indexed by `Work as usize`, in
    /// nanoseconds. The prices in the next three fields are also those of the running CPU.
    work_ns: [Cell<u32>; Work::ALL.len()],
    /// The prices of [`Work::BuddyAlloc`] and [`Work::BuddyFree`], which depend on how many pages
    /// the CPU has moved since it took the zone lock.
    in_hold: [Cell<HoldPrice>; 2],
    lock_own_ns: Cell<u32>,
    word_own_ns: Cell<u32>,
    pub(crate) lock_remote_extra_ns: u32,
    pub(crate) lock_handover_extra_ns: u32,
    pub(crate) transfer_ns: [u32; 5],
    /// The socket, LLC and core of each CPU, packed into one number. The highest bit in which two
    /// numbers differ determines the distance between the CPUs.
    places: Box<[u64]>,
    /// The number of bytes that one unit of each kind of work moves between a CPU and memory.
    moved_bytes: [u32; Work::ALL.len()],
    /// The prices as the profile gives them; they are for a core whose speed is 100 percent.
    costs: Costs,
    /// The prices at each speed, indexed by the speed in percent. The prices at a speed are
    /// computed when a CPU first has this speed.
    at_speeds: Box<[OnceCell<Box<AtSpeed>>]>,
    /// The speed of each CPU on an idle machine, in percent; empty if all speeds are 100.
    own_percent: Box<[u32]>,
    /// The pace of each CPU: its speed, and the factor by which limited memory bandwidth lengthens
    /// its steps. Empty if all paces are equal and never change.
    paces: Box<[Cell<Pace>]>,
    /// The pace of the running CPU, for which the prices in the fields above were computed.
    loaded: Cell<Pace>,
}

/// The prices of steps at one speed of a CPU, without the effect of limited memory bandwidth.
struct AtSpeed {
    costs: Costs,
    in_hold: [HoldPrice; 2],
}

impl AtSpeed {
    fn new(costs: &Costs, percent: u32) -> Self {
        let costs = costs.at_speed(percent);
        let in_hold = [Work::BuddyAlloc, Work::BuddyFree].map(|work| HoldPrice::new(&costs, work));
        Self { costs, in_hold }
    }
}

/// The highest speed of a core, in percent.
const PERCENT_MAX: u32 = 400;

impl Prices {
    /// Creates the prices of a machine, and loads those of CPU 0. If `load` says that busy CPUs
    /// slow each other down, the prices on each CPU may change later.
    ///
    /// # Panics
    /// If some CPUs have a speed and others have none.
    pub(crate) fn new(
        costs: &Costs,
        topology: &Topology,
        speed_percent: &[u32],
        load: &Load,
    ) -> Self {
        let pack = |cpu: CpuId| {
            let place = topology.place(cpu);
            assert!(place.core >> CORE_BITS == 0, "core numbers fit 16 bits");
            assert!(place.llc >> CORE_BITS == 0, "LLC numbers fit 16 bits");
            u64::from(place.socket) << LLC_BITS
                | u64::from(place.llc) << CORE_BITS
                | u64::from(place.core)
        };
        let cpus = topology.cpus() as usize;
        assert!(
            [0, cpus].contains(&speed_percent.len()),
            "either all CPUs have a speed or no CPU has one"
        );
        let mut costs = costs.clone();
        costs.work_ns[Work::Think as usize] = 1;
        let bandwidth = load.bandwidth.as_ref();
        let paced = *load != Load::default() || !speed_percent.is_empty();
        let prices = Self {
            work_ns: [const { Cell::new(0) }; Work::ALL.len()],
            in_hold: Default::default(),
            lock_own_ns: Cell::new(0),
            word_own_ns: Cell::new(0),
            lock_remote_extra_ns: costs.lock_remote_extra_ns,
            lock_handover_extra_ns: costs.lock_handover_extra_ns,
            transfer_ns: costs.transfer_ns,
            places: topology.ids().map(pack).collect(),
            moved_bytes: bandwidth.map_or([0; Work::ALL.len()], |bandwidth| bandwidth.moved_bytes),
            costs,
            at_speeds: (0..=PERCENT_MAX).map(|_| OnceCell::new()).collect(),
            own_percent: speed_percent.into(),
            paces: Box::default(),
            loaded: Cell::new(Pace {
                percent: 0,
                stretch: UNSTRETCHED,
            }),
        };
        let pace = |cpu| {
            Cell::new(Pace {
                percent: prices.own_percent(cpu),
                stretch: UNSTRETCHED,
            })
        };
        let paces: Box<[Cell<Pace>]> = (0..cpus).map(pace).collect();
        prices.put_in_front(paces[0].get());
        Self {
            paces: if paced { paces } else { Box::default() },
            ..prices
        }
    }

    /// The price of doing `work` once on the running CPU, in nanoseconds.
    #[inline(always)]
    pub(crate) fn work(&self, work: Work) -> u64 {
        u64::from(self.work_ns[work as usize].get())
    }

    /// The price, in nanoseconds, at which the running CPU moves `n` more pages. `work` is one of
    /// the kinds for which [`is_hold_work`](crate::profile::is_hold_work) is true. `before` is the
    /// number of pages that the CPU has already moved since it took a zone lock; `None` if the CPU
    /// holds no zone lock.
    #[inline]
    pub(crate) fn hold_work(&self, work: Work, before: Option<u32>, n: u32) -> u64 {
        let price = self.in_hold[usize::from(work == Work::BuddyFree)].get();
        match before {
            Some(before) => price.total(before.saturating_add(n)) - price.total(before),
            None => price.first() * u64::from(n),
        }
    }

    /// The price, in nanoseconds, of acquiring and releasing a lock that the running CPU held last.
    #[inline(always)]
    pub(crate) fn lock_own(&self) -> u64 {
        u64::from(self.lock_own_ns.get())
    }

    /// The price, in nanoseconds, of changing a word whose line the running CPU owns.
    #[inline(always)]
    pub(crate) fn word_own(&self) -> u64 {
        u64::from(self.word_own_ns.get())
    }

    /// The bytes that `n` units of `work` move between a CPU and memory.
    #[inline(always)]
    pub(crate) fn moved_bytes(&self, work: Work, n: u32) -> u64 {
        u64::from(self.moved_bytes[work as usize]) * u64::from(n)
    }

    /// Returns whether each kind of step takes the same time on all CPUs, at every moment of the
    /// run.
    pub(crate) fn are_alike(&self) -> bool {
        self.paces.is_empty()
    }

    /// The speed of `cpu` on an idle machine, in percent.
    pub(crate) fn own_percent(&self, cpu: usize) -> u32 {
        self.own_percent.get(cpu).copied().unwrap_or(100)
    }

    /// The current speed of the running CPU, in percent of the speed to which the profile's prices
    /// apply.
    #[inline]
    pub(crate) fn percent(&self) -> u32 {
        self.loaded.get().percent
    }

    /// Loads the prices of `cpu`, which runs from now on.
    #[inline]
    pub(crate) fn run_on(&self, cpu: usize) {
        if let Some(pace) = self.paces.get(cpu)
            && pace.get() != self.loaded.get()
        {
            self.put_in_front(pace.get());
        }
    }

    /// Changes the pace (speed and factor for limited memory bandwidth) of `cpu`, which is running.
    pub(crate) fn set_pace(&self, cpu: usize, pace: Pace) {
        self.paces[cpu].set(pace);
        self.run_on(cpu);
    }

    /// Loads the prices at `pace`. CPUs with different paces (speeds and factors for limited memory
    /// bandwidth) often run alternately, so this function copies only the prices that differ from
    /// the loaded prices.
    fn put_in_front(&self, pace: Pace) {
        let table = &self.at_speeds[pace.percent as usize];
        let table = table.get_or_init(|| Box::new(AtSpeed::new(&self.costs, pace.percent)));
        if pace.percent != self.loaded.get().percent {
            for (price_ns, own_ns) in self.work_ns.iter().zip(table.costs.work_ns) {
                price_ns.set(own_ns);
            }
            for (price, own) in self.in_hold.iter().zip(table.in_hold) {
                price.set(own);
            }
            self.lock_own_ns.set(table.costs.lock_own_ns);
            self.word_own_ns.set(table.costs.word_own_ns);
        }
        for work in MOVERS {
            let own_ns = table.costs.work_ns[work as usize];
            let stretched = u64::from(own_ns) * pace.stretch / UNSTRETCHED;
            self.work_ns[work as usize].set(u32::try_from(stretched).unwrap_or(u32::MAX));
        }
        self.loaded.set(pace);
    }

    /// The price, in nanoseconds, of moving a dirty line from CPU `from` to CPU `to`. The memory of
    /// the line is near CPU `home`.
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

    /// The distance between two CPUs: whether they share a core, a last-level cache or a socket.
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
        let prices = Prices::new(&costs, &topology, &[], &Load::default());
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
