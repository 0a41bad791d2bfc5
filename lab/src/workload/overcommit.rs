//! Processes that together use more memory than the machine has, so that some of their pages are in
//! swap.
//!
//! Each worker is a process. The worker first touches all pages of the process in order, and then
//! random pages. Nine of ten random touches go to hot pages, which are the first half of the
//! process's pages. One of ten goes to any of the process's pages. If the touched page is in swap,
//! it returns to memory, and another page goes to swap.

use std::rc::Rc;
use std::sync::Arc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::space::{Access, AddressSpace, FaultError, MapRequest, Place};
use plimsoll_mm::units::{CpuId, Nanos, Pages, Vpn};
use plimsoll_sim::Sim;
use rand::RngExt;

use crate::run::pressure::Pressure;
use crate::run::testbed::Testbed;

/// The first page of each process's memory.
const START: u64 = 1 << 20;

/// How many of ten random touches go to hot pages.
const HOT_OF_TEN: u32 = 9;

/// The memory that the processes use, and how much memory the machine has for them.
#[derive(Clone, Copy, Debug)]
pub struct Overcommit {
    /// The number of pages of each process.
    pub pages: u32,
    /// The memory that the machine has for all processes together, in percent of the memory that
    /// the processes use. Memory below the low watermarks does not count.
    pub memory_percent: u32,
    /// The time that a process computes between two touches, in nanoseconds.
    pub think_ns: u32,
}

impl Overcommit {
    /// The size of a swap area, in slots of one page, that can hold all pages of `workers`
    /// processes. With a swap area of this size, the processes cannot run out of memory.
    #[must_use]
    pub const fn slots(&self, workers: u32) -> u32 {
        self.pages.saturating_mul(workers)
    }

    /// Starts a process on each of `cpus`. The processes stop at `until`.
    ///
    /// # Panics
    /// If `testbed` cannot reclaim memory (see `Testbed::with_pressure`).
    pub fn start(self, testbed: &Testbed, cpus: &[CpuId], until: Nanos) {
        let pressure = testbed.pressure.as_ref();
        let pressure = pressure.expect("the workload's testbed reclaims");
        let used = u64::from(self.pages) * cpus.len() as u64;
        let nodes = u64::from(testbed.sim.topology().nodes());
        let left = used * u64::from(self.memory_percent) / 100 / nodes;
        testbed.fill_to_low(Pages(u32::try_from(left).unwrap_or(u32::MAX)));
        for &cpu in cpus {
            let pressure = Rc::clone(pressure);
            testbed.sim.spawn(cpu, move |sim| {
                let space = pressure.space(sim);
                self.run(sim, &pressure, &space, until);
            });
        }
    }

    fn run(self, sim: &Sim, pressure: &Pressure, space: &Arc<AddressSpace<Sim>>, until: Nanos) {
        let pages = u64::from(self.pages);
        let request = MapRequest::anonymous(Place::Fixed(Vpn(START)), pages);
        let mapped = pressure.with_memory(sim, |memory| space.map(memory, request));
        mapped.expect("nothing is there");
        let touch = |page: u64| {
            let page = Vpn(START + page);
            let faulted =
                pressure.with_memory(sim, |memory| space.fault(memory, page, Access::Write));
            sim.compute(Nanos(u64::from(self.think_ns)));
            match faulted {
                Ok(_) => sim.now() < until,
                Err(FaultError::OutOfMemory(_)) => false,
                Err(error) => panic!("a mapped page can be touched: {error}"),
            }
        };
        if !(0..pages).all(&touch) {
            return;
        }
        loop {
            let hot = sim.rng().random_range(0..10) < HOT_OF_TEN;
            let below = if hot { pages / 2 } else { pages };
            let page = sim.rng().random_range(0..below.max(1));
            if !touch(page) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::design::Design;
    use plimsoll_sim::Stats;
    use plimsoll_sim::profile::Card;

    use super::*;
    use crate::catalog::machines;
    use crate::run::pressure::ReclaimLog;

    fn run(memory_percent: u32) -> (Stats, ReclaimLog) {
        let profile = machines::load("laptop-2", Card::Mid).expect("it is built in");
        let work = Overcommit {
            pages: 4096,
            memory_percent,
            think_ns: 2000,
        };
        let testbed = Testbed::with_pressure(&profile, Design::OURS, 1, work.slots(2));
        let until = Nanos::from_ms(100);
        work.start(&testbed, &[CpuId(0), CpuId(1)], until);
        testbed.sim.run_until(until);
        let (stats, log) = testbed.finish();
        assert_eq!(log.out_of_memory, 0, "there is a slot for each page");
        (stats, log.reclaim)
    }

    #[test]
    fn pages_move_to_swap_only_if_memory_is_short() {
        let (_, plenty) = run(120);
        assert_eq!(plenty, ReclaimLog::default());
        let (stats, short) = run(50);
        let out = short.by_kswapd + short.by_direct;
        assert!(out > 1000 && short.kswapd_wakes > 0, "{short:?}");
        assert!(short.scanned > out, "a touched page stays: {short:?}");
        assert_eq!(run(50).0.hash, stats.hash);
    }
}
