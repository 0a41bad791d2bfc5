//! A workload like `make -j`: many short-lived processes, each on a CPU drawn at random.

use std::rc::Rc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::Work;
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::Sim;
use rand::RngExt;

use super::{Mapping, about, around};
use crate::measure::tasks::Tasks;
use crate::run::testbed::Testbed;

/// The load: simultaneous jobs, each of which runs one short-lived process after another.
#[derive(Clone, Copy, Debug)]
pub struct MakeLike {
    /// The number of processes that run at the same time (make: `-j`).
    pub jobs: u32,
    /// The mean number of pages that each process touches.
    pub pages: usize,
    /// The mean time, in nanoseconds, that a process computes for each page in addition to the page
    /// fault.
    pub think_ns_per_page: u32,
    /// The mean pause between the end of a process and the start of the next.
    pub pause: Nanos,
}

impl MakeLike {
    /// Starts the jobs; no process starts after `until`. Each process is a task, from its fork to
    /// the end of its exit.
    pub fn start(self, testbed: &Testbed, until: Nanos) -> Tasks {
        let tasks = Tasks::default();
        let cpus = testbed.sim.topology().cpus();
        for job in 0..self.jobs {
            let (mm, tasks) = (Rc::clone(&testbed.mm), tasks.clone());
            testbed.sim.spawn(CpuId(job % cpus), move |sim| {
                while sim.now() < until {
                    sim.sleep(about(sim, self.pause));
                    let cpu = sim.rng().random_range(0..cpus);
                    sim.migrate(CpuId(cpu));
                    let begun = sim.now();
                    self.process(sim, &mut Mapping::new(&mm));
                    tasks.end(sim, begun);
                }
            });
        }
        tasks
    }

    fn process(&self, sim: &Sim, mapping: &mut Mapping<'_>) {
        /// A process touches this many pages, then computes, and so on in turns.
        const STEP: usize = 16;
        sim.spend(Work::Process, 1);
        let pages = around(sim, self.pages);
        for _ in 0..pages.div_ceil(STEP) {
            if !mapping.fault(sim, STEP) {
                break;
            }
            let mean = u64::from(self.think_ns_per_page) * STEP as u64;
            sim.compute(about(sim, Nanos(mean)));
        }
        mapping.unmap(sim);
    }
}
