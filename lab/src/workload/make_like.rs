//! A workload like `make -j`: many short-lived processes, each on a CPU drawn at random.

use std::rc::Rc;

use plimsoll_mm::counter::{Batch, Plan};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::Work;
use plimsoll_mm::space::rss::{Rss, RssKind};
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
    /// The mean time, in nanoseconds, that a process computes for each page. It does not include
    /// the time of the page fault.
    pub think_ns_per_page: u32,
    /// The mean pause between the end of a process and the start of the next.
    pub pause: Nanos,
    /// True if each process counts its resident pages, with the counters of the design.
    pub counts_rss: bool,
}

impl MakeLike {
    /// Starts the jobs. No process starts after `until`. Each process is a task, from its fork to
    /// the end of its exit. The process creates its counters of resident pages at the fork, adds
    /// each page to the counters when it faults in the page, and destroys the counters at its exit.
    ///
    /// # Panics
    /// If this computer has not enough memory for the counters, or a counter of a process is not 0
    /// when the process ends.
    pub fn start(self, testbed: &Testbed, until: Nanos) -> Tasks {
        let tasks = Tasks::default();
        let cpus = testbed.sim.topology().cpus();
        let plan = self.counts_rss.then(|| {
            let counting = testbed.design.counting;
            let plan = Plan::new(&testbed.sim, counting, Rss::<Sim>::WIDTH, Batch::RSS);
            Rc::new(plan.expect("the machine's CPUs can be counted"))
        });
        for job in 0..self.jobs {
            let (mm, tasks, plan) = (Rc::clone(&testbed.mm), tasks.clone(), plan.clone());
            testbed.sim.spawn(CpuId(job % cpus), move |sim| {
                while sim.now() < until {
                    sim.sleep(about(sim, self.pause));
                    let cpu = sim.rng().random_range(0..cpus);
                    sim.migrate(CpuId(cpu));
                    let begun = sim.now();
                    self.process(sim, plan.as_deref(), &mut Mapping::new(&mm));
                    tasks.end(sim, begun);
                }
            });
        }
        tasks
    }

    fn process(&self, sim: &Sim, plan: Option<&Plan<Sim>>, mapping: &mut Mapping<'_>) {
        /// The number of pages that a process touches before it computes for these pages. The
        /// process touches and computes in turns, until it has touched all its pages.
        const STEP: usize = 16;
        sim.spend(Work::Process, 1);
        let rss = plan.map(|plan| Rss::new(sim, plan).expect("this computer has the memory"));
        let add = |pages| {
            if let Some(rss) = &rss {
                rss.add_growing(sim, RssKind::Anon, pages);
            }
        };
        let pages = around(sim, self.pages);
        for _ in 0..pages.div_ceil(STEP) {
            if !mapping.fault_each(sim, STEP, || add(1)) {
                break;
            }
            let mean = u64::from(self.think_ns_per_page) * STEP as u64;
            sim.compute(about(sim, Nanos(mean)));
        }
        mapping.unmap_each(sim, |pages| add(-signed(pages)));
        if let Some(rss) = rss {
            rss.destroy(sim).expect("every page has been unmapped");
        }
    }
}

/// Converts a number of pages into a change of a counter. The pages are mapped by one page table,
/// so there are at most 512 of them.
fn signed(pages: usize) -> i64 {
    i64::try_from(pages).expect("a page table maps 512 pages")
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::counter::Counting;
    use plimsoll_mm::design::Design;
    use plimsoll_sim::profile::{Card, Profile};

    use super::*;

    /// Runs a short load and returns the run's hash and the number of processes that ended. If
    /// `counts_rss` is true, the processes count their resident pages with counters of the kind
    /// `counting`.
    fn run(counting: Counting, counts_rss: bool) -> (u64, usize) {
        let profile = Profile::load("laptop-2", Card::Mid).expect("built in");
        let design = Design {
            counting,
            ..Design::UNPATCHED
        };
        let testbed = Testbed::new(&profile, design, 1);
        let make = MakeLike {
            jobs: 4,
            pages: 60,
            think_ns_per_page: 100,
            pause: Nanos(0),
            counts_rss,
        };
        let tasks = make.start(&testbed, Nanos::from_ms(20));
        testbed.sim.run();
        (testbed.sim.stats().hash, tasks.count())
    }

    #[test]
    fn processes_count_in_the_way_of_the_design() {
        let all = Counting::ALL.map(|counting| run(counting, true));
        for (nth, (hash, processes)) in all.iter().enumerate() {
            assert!(*processes > 10, "each ended with counters of 0");
            let others = &all[nth + 1..];
            assert!(others.iter().all(|(other, _)| other != hash), "{all:?}");
        }
    }

    #[test]
    fn processes_that_do_not_count_run_alike_in_every_design() {
        let [first, others @ ..] = Counting::ALL.map(|counting| run(counting, false));
        assert!(others.iter().all(|other| *other == first), "{others:?}");
        assert!(
            run(Counting::ALL[0], true).0 != first.0,
            "counting takes time"
        );
    }
}
