//! `stress-ng --vm`: workers that repeatedly map memory, write every page, check it, and unmap it.
//!
//! If the workers sleep in pauses, CPUs go idle, and their vmstat work is no longer scheduled (it
//! goes dormant).

use std::cell::Cell;
use std::rc::Rc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::units::{CpuId, Nanos, Pages};

use plimsoll_sim::Sim;
use rand::RngExt;

use super::{Mapping, about, around};
use crate::measure::tasks::Tasks;
use crate::run::testbed::Testbed;

/// The work of each worker in a round.
#[derive(Clone, Copy, Debug)]
pub struct StressVm {
    /// The bytes that a worker maps in a round (stress-ng: `--vm-bytes`).
    pub bytes: u64,
    /// The time to write a pattern to a mapped page and read it back, in nanoseconds. If this time
    /// is zero, a run measures only page faults and the page allocator, as `page_fault1` of
    /// will-it-scale does.
    pub use_ns_per_page: u32,
    /// The pause between two rounds.
    pub pause: Pause,
}

/// The pause of a worker between two rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// No pause: the next round begins at once.
    No,
    /// The worker sleeps for this time on average. Its CPU can go idle.
    Asleep(Nanos),
    /// The worker computes for this time on average, without touching memory. Its CPU stays busy.
    Awake(Nanos),
}

impl Pause {
    pub(super) fn take(self, sim: &Sim) {
        match self {
            Self::No => {}
            Self::Asleep(mean) => sim.sleep(about(sim, mean)),
            Self::Awake(mean) => sim.compute(about(sim, mean)),
        }
    }
}

/// The work that all workers have done so far.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pages: Rc<Cell<u64>>,
    /// The completed rounds of all workers, without the first round of each worker. The pause after
    /// a round is not part of the round.
    pub rounds: Tasks,
}

impl Done {
    /// The number of pages that all workers have faulted in so far.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages.get()
    }

    pub(super) fn add(&self, pages: usize) {
        self.pages.set(self.pages.get() + pages as u64);
    }
}

impl StressVm {
    /// Starts a worker on each of `cpus`. The workers stop at `until`.
    pub fn start(
        self,
        testbed: &Testbed,
        cpus: impl IntoIterator<Item = CpuId>,
        until: Nanos,
    ) -> Done {
        let done = Done::default();
        for cpu in cpus {
            let (mm, done) = (Rc::clone(&testbed.mm), done.clone());
            testbed.sim.spawn(cpu, move |sim| {
                // Each worker starts after a random delay, so that the rounds of different workers
                // do not begin together.
                match self.pause {
                    Pause::No => sim.sleep(about(sim, Nanos::from_ms(1))),
                    pause => pause.take(sim),
                }
                let mut mapping = Mapping::new(&mm);
                let mut wanted = self.first_round(sim);
                let mut is_first = true;
                while sim.now() < until {
                    let begun = sim.now();
                    let mapped = self.round(sim, &mut mapping, wanted, &done, until);
                    if mapped == wanted && !is_first {
                        done.rounds.end(sim, begun);
                    }
                    is_first = false;
                    self.pause.take(sim);
                    wanted = self.next_round(sim);
                }
            });
        }
        done
    }

    /// How many pages the first round has. If workers do not pause, this number is random. So
    /// different workers are at different points of a round from the beginning.
    fn first_round(&self, sim: &Sim) -> usize {
        match self.pause {
            Pause::No => sim
                .rng()
                .random_range(0..=Pages::from_bytes(self.bytes).index()),
            _ => self.next_round(sim),
        }
    }

    fn next_round(&self, sim: &Sim) -> usize {
        let pages = Pages::from_bytes(self.bytes).index();
        match self.pause {
            Pause::No => pages,
            _ => around(sim, pages),
        }
    }

    /// Maps `wanted` pages, uses them, and unmaps them. Stops mapping at `until`, or if memory runs
    /// out. Returns the number of pages that were mapped.
    fn round(
        &self,
        sim: &Sim,
        mapping: &mut Mapping<'_>,
        wanted: usize,
        done: &Done,
        until: Nanos,
    ) -> usize {
        /// The number of pages that the worker faults in before it looks at the clock again.
        const STEP: usize = 256;
        let mut mapped = 0;
        while mapped < wanted && sim.now() < until {
            let step = STEP.min(wanted - mapped);
            if !mapping.fault(sim, step) {
                break;
            }
            mapped += step;
            done.add(step);
        }
        sim.compute(Nanos(u64::from(self.use_ns_per_page) * mapped as u64));
        mapping.unmap(sim);
        mapped
    }
}
