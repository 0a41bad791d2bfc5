//! `stress-ng --vm`: workers that map memory, write every page, check it, unmap, and repeat.
//!
//! In bursts there is a pause between two rounds, so that CPUs go idle and their vmstat work
//! goes dormant.

use std::cell::Cell;
use std::rc::Rc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::Work;
use plimsoll_mm::units::{CpuId, Nanos, Pages};

use super::{Mapping, about, around};
use crate::room::Room;

/// What each worker does.
#[derive(Clone, Copy, Debug)]
pub struct StressVm {
    /// Memory per worker and round (stress-ng: `--vm-bytes`).
    pub bytes: u64,
    /// Writing a pattern to a mapped page and reading it back. Zero measures the page allocator
    /// alone, as will-it-scale's `page_fault1` does.
    pub use_ns_per_page: u32,
    /// The mean pause between two rounds; none keeps the CPU busy.
    pub pause: Option<Nanos>,
}

/// What all workers did.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pages: Rc<Cell<u64>>,
}

impl Done {
    /// Pages that were faulted in.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages.get()
    }

    fn add(&self, pages: usize) {
        self.pages.set(self.pages.get() + pages as u64);
    }
}

impl StressVm {
    /// Starts a worker on each of `cpus`; they stop at `until`.
    pub fn start(self, room: &Room, cpus: impl IntoIterator<Item = CpuId>, until: Nanos) -> Done {
        let done = Done::default();
        for cpu in cpus {
            let (mm, done) = (Rc::clone(&room.mm), done.clone());
            room.sim.spawn(cpu, move |sim| {
                // Workers start at different moments of a round.
                sim.sleep(about(sim, self.pause.unwrap_or(Nanos::from_ms(1))));
                let mut mapping = Mapping::new(&mm);
                while sim.now() < until {
                    self.round(sim, &mut mapping, &done, until);
                }
            });
        }
        done
    }

    fn round(&self, sim: &plimsoll_sim::Sim, mapping: &mut Mapping<'_>, done: &Done, until: Nanos) {
        /// Pages faulted before the worker looks at the clock.
        const STEP: usize = 256;
        let wanted = Pages::from_bytes(self.bytes).index();
        let wanted = if self.pause.is_some() {
            around(sim, wanted)
        } else {
            wanted
        };
        let mut mapped = 0;
        while mapped < wanted && sim.now() < until {
            let step = STEP.min(wanted - mapped);
            if !mapping.fault(sim, step) {
                break;
            }
            mapped += step;
        }
        done.add(mapped);
        let use_ns = u64::from(self.use_ns_per_page) * mapped as u64;
        sim.spend(Work::Think, u32::try_from(use_ns).unwrap_or(u32::MAX));
        mapping.unmap(sim);
        if let Some(pause) = self.pause {
            sim.sleep(about(sim, pause));
        }
    }
}
