//! `stress-ng --vm` on a machine with too little memory: workers that repeatedly map memory, write
//! every page, use every page once more, and unmap all of them. At the same time, reclaim moves
//! pages to swap.
//!
//! The workers of [`stress_vm`](super::stress_vm) have no page tables, so reclaim cannot move their
//! pages to swap. Each worker here is a process with an address space. If a page is in swap when
//! the worker uses it again, the worker brings it back.

use std::rc::Rc;
use std::sync::Arc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::space::{Access, AddressSpace, FaultError, MapRequest, Place};
use plimsoll_mm::units::{CpuId, Nanos, Pages, Vpn};
use plimsoll_sim::Sim;
use rand::RngExt;

use super::about;
use super::stress_vm::{Done, Pause};
use crate::run::pressure::Pressure;
use crate::run::testbed::Testbed;

/// The first page of each worker's memory.
const START: Vpn = Vpn(1 << 20);

/// How many pages a worker touches before it computes and looks at the clock. If some of these
/// pages are in swap, the worker reads all of them from swap together. (In Linux, `vm.page-cluster`
/// makes this 8 pages.)
const STEP: u64 = 8;

/// The work of each worker in a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StressSwap {
    /// The bytes that a worker maps in a round (stress-ng: `--vm-bytes`).
    pub(crate) bytes: u64,
    /// The time for which a worker computes with each page when it uses the page again, in
    /// nanoseconds.
    pub(crate) use_ns_per_page: u32,
    /// The pause of a worker between two rounds.
    pub(crate) pause: Pause,
}

impl StressSwap {
    /// Starts a worker on each of `cpus`. The workers stop at `until`. The returned counter counts
    /// each page twice in a round: when the worker writes the page, and when the worker uses the
    /// page again.
    ///
    /// # Panics
    /// If `testbed` cannot reclaim memory (see `Testbed::with_pressure`).
    pub(crate) fn start(
        self,
        testbed: &Testbed,
        cpus: impl IntoIterator<Item = CpuId>,
        until: Nanos,
    ) -> Done {
        let done = Done::default();
        let pressure = testbed.pressure.as_ref();
        let pressure = pressure.expect("the workload's testbed reclaims");
        for cpu in cpus {
            let (pressure, done) = (Rc::clone(pressure), done.clone());
            testbed.sim.spawn(cpu, move |sim| {
                match self.pause {
                    Pause::No => sim.sleep(about(sim, Nanos::from_ms(1))),
                    pause => pause.take(sim),
                }
                let space = pressure.space(sim);
                let all = u64::from(Pages::from_bytes(self.bytes).0);
                // If workers do not pause, the first round of each worker has a random length. So
                // at any time, different workers are at different points of a round.
                let mut pages = match self.pause {
                    Pause::No => sim.rng().random_range(0..=all),
                    _ => self.next_round(sim, all),
                };
                while sim.now() < until {
                    self.round(sim, &pressure, &space, pages.max(1), &done, until);
                    self.pause.take(sim);
                    pages = self.next_round(sim, all);
                }
            });
        }
        done
    }

    /// Returns how many pages a worker uses in its next round. If workers pause between rounds,
    /// this number is random, as in [`StressVm`](super::stress_vm::StressVm).
    fn next_round(&self, sim: &Sim, all: u64) -> u64 {
        match self.pause {
            Pause::No => all,
            _ => sim.rng().random_range(all / 2..=all + all / 2),
        }
    }

    fn round(
        &self,
        sim: &Sim,
        pressure: &Pressure,
        space: &Arc<AddressSpace<Sim>>,
        pages: u64,
        done: &Done,
        until: Nanos,
    ) {
        let request = MapRequest::anonymous(Place::Fixed(START), pages);
        let mapped = pressure.with_memory(sim, |memory| space.map(memory, request));
        mapped.expect("nothing is there");
        // The first write to a page causes a page fault for this page alone.
        let write = |page: u64| {
            let page = Vpn(START.0 + page);
            let faulted =
                pressure.with_memory(sim, |memory| space.fault(memory, page, Access::Write));
            is_touched(faulted.map(|_| ()))
        };
        let write_some = |from: u64, to: u64| (from..to).all(write);
        let use_some = |from: u64, to: u64| {
            let pages = Vpn(START.0 + from)..Vpn(START.0 + to);
            let touched = pressure.with_memory(sim, |memory| space.populate(memory, pages));
            sim.compute(Nanos(u64::from(self.use_ns_per_page) * (to - from)));
            is_touched(touched)
        };
        let pass = |pages: u64, touch: &dyn Fn(u64, u64) -> bool| {
            let mut touched = 0;
            while touched < pages && sim.now() < until {
                let step = STEP.min(pages - touched);
                if !touch(touched, touched + step) {
                    break;
                }
                touched += step;
                done.add(usize::try_from(step).unwrap_or(usize::MAX));
            }
            touched
        };
        let written = pass(pages, &write_some);
        pass(written, &use_some);
        let unmapped = pressure.with_memory(sim, |memory| space.unmap(memory, START, pages));
        unmapped.expect("the worker's own memory can be unmapped");
    }
}

/// Returns whether a touch was successful. A touch fails if memory and swap have run out.
fn is_touched(touched: Result<(), FaultError>) -> bool {
    match touched {
        Ok(()) => true,
        Err(FaultError::OutOfMemory(_)) => false,
        Err(error) => panic!("a mapped page can be touched: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::design::Design;
    use plimsoll_sim::profile::Card;

    use super::*;
    use crate::catalog::machines;
    use crate::run::pressure::ReclaimLog;

    /// Runs two workers of 16 MiB each on a machine of `bytes` bytes. Returns the number of touched
    /// pages, and the log of reclaim.
    fn run(bytes: u64) -> (u64, ReclaimLog) {
        let mut profile = machines::load("laptop-2", Card::Mid).expect("it is built in");
        profile.node_bytes = vec![bytes];
        let work = StressSwap {
            bytes: 16 << 20,
            use_ns_per_page: 400,
            pause: Pause::No,
        };
        let testbed = Testbed::with_pressure(&profile, Design::OURS, 1, 1 << 14);
        let until = Nanos::from_ms(60);
        let done = work.start(&testbed, [CpuId(0), CpuId(1)], until);
        testbed.sim.run_until(until);
        let (_, log) = testbed.finish();
        assert_eq!(log.out_of_memory, 0, "there is a slot for each page");
        (done.pages(), log.reclaim)
    }

    #[test]
    fn pages_move_to_swap_only_if_workers_map_more_than_the_machine_has() {
        let (enough, idle) = run(64 << 20);
        assert_eq!(idle, ReclaimLog::default());
        let (few, busy) = run(24 << 20);
        assert!(busy.by_kswapd + busy.by_direct > 1000, "{busy:?}");
        assert!(few < enough, "a page that comes from swap costs time");
    }
}
