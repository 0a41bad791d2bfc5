//! The background work of every machine: short wake-ups, and occasional allocations of a few pages.
//!
//! Daemons affect when timers fire. On an idle CPU, a deferrable timer fires only after something
//! else, such as a daemon, has woken the CPU.

use std::rc::Rc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::units::{CpuId, Nanos};
use rand::RngExt;

use super::{Mapping, about, around};
use crate::run::testbed::Testbed;

/// The load of the daemons (background programs) on each CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Daemons {
    /// The mean time between two wake-ups.
    pub(crate) every: Nanos,
    /// The mean working time after a wake-up.
    pub(crate) work: Nanos,
    /// The mean number of pages that the daemons of a CPU keep allocated. Each exchange of pages
    /// changes this number, so the CPU's vmstat work then finds per-CPU counts to add to the shared
    /// counters.
    pub(crate) pages: usize,
    /// The mean number of wake-ups between two exchanges. In an exchange, the daemons free their
    /// pages and allocate new pages.
    pub(crate) exchange_one_in: u32,
}

impl Daemons {
    /// Starts the daemons on each of `cpus`. The daemons stop at `until`.
    pub(crate) fn start(
        self,
        testbed: &Testbed,
        cpus: impl IntoIterator<Item = CpuId>,
        until: Nanos,
    ) {
        for cpu in cpus {
            let mm = Rc::clone(&testbed.mm);
            testbed.sim.spawn(cpu, move |sim| {
                let mut kept = Mapping::new(&mm);
                while sim.now() < until {
                    sim.sleep(about(sim, self.every));
                    sim.compute(about(sim, self.work));
                    if sim.rng().random_ratio(1, self.exchange_one_in) {
                        kept.unmap(sim);
                        kept.fault(sim, around(sim, self.pages));
                    }
                }
                kept.unmap(sim);
            });
        }
    }
}
