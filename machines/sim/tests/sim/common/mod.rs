//! Simple prices, frequent disturbances, and profiles of small machines, for tests.

pub(crate) mod rw_fixture;

use plimsoll_mm::site::Work;
use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::units::{Hz, NodeId};
use plimsoll_sim::profile::{Card, Costs, Jitter, Load, Profile, Rate, Slopes};

/// Prices that differ enough from each other that a test can tell which of them was paid.
pub(crate) fn costs() -> Costs {
    let mut work_ns = [50; Work::ALL.len()];
    work_ns[Work::ContextSwitch as usize] = 1000;
    work_ns[Work::Interrupt as usize] = 500;
    work_ns[Work::Ipi as usize] = 200;
    work_ns[Work::Think as usize] = 1;
    Costs {
        work_ns,
        slopes: Slopes::default(),
        transfer_ns: [1, 10, 30, 100, 190],
        lock_own_ns: 20,
        lock_remote_extra_ns: 40,
        lock_handover_extra_ns: 25,
        word_own_ns: 5,
    }
}

/// Disturbances that are far more frequent than those of a real machine.
pub(crate) fn jitter() -> Jitter {
    let [interrupts, softirqs, steals] = [(20_000, 2000), (100_000, 10_000), (300_000, 100_000)];
    let rate = |(every_ns, length_ns)| {
        Some(Rate {
            every_ns,
            length_ns,
        })
    };
    Jitter {
        rates: [interrupts, softirqs, steals].map(rate),
    }
}

/// Returns a profile of `cpus` CPUs with a flat topology, at HZ 1000.
pub(crate) fn flat(cpus: u32) -> Profile {
    Profile {
        name: "flat".into(),
        card: Card::Mid,
        topology: Topology::flat(cpus),
        hz: Hz::new(1000).expect("in range"),
        node_bytes: vec![1 << 30],
        costs: costs(),
        speed_percent: Vec::new(),
        jitter: Some(jitter()),
        load: Load::default(),
    }
}

/// Returns a profile of `cpus` CPUs: two per core, eight per LLC, sixteen per socket.
pub(crate) fn tall(cpus: u32) -> Profile {
    let place = |cpu: u32| CpuPlace {
        core: cpu / 2,
        llc: cpu / 8,
        node: NodeId(cpu / 16),
        socket: cpu / 16,
    };
    Profile {
        topology: Topology::new((0..cpus).map(place).collect()),
        ..flat(cpus)
    }
}
