//! The workload of the rss-cost experiment and its metrics.

use std::rc::Rc;

use plimsoll_mm::counter::{Batch, Plan};
use plimsoll_mm::design::Design;
use plimsoll_mm::site::{LockClass, Work};
use plimsoll_mm::space::rss::Rss;
use plimsoll_sim::Sim;
use plimsoll_sim::profile::Profile;

use super::counting::{Counted, PACES};
use crate::measure::comparison::{Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::run::options::Effort;
use crate::run::testbed::Testbed;
use crate::workload::UNMAPPING;
use crate::workload::page_fault::{Done, Mark, Mode, PageFault};

/// Both ways to run the benchmark.
pub(super) const MODES: [Mode; 2] = [Mode::Processes, Mode::Threads];

/// The name in metrics.
pub(super) const fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Processes => "processes",
        Mode::Threads => "threads",
    }
}

/// The numbers of tasks, and the memory of each task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    tasks: &'static [u32],
    /// The bytes that each task touches in a round.
    bytes: fn(tasks: u32) -> u64,
}

/// The benchmark's 128 MiB. Many tasks get a quarter of that, so that their rounds end within the
/// run; page lists then hold more of a round, so CPUs take zone locks even less often.
const fn bytes(tasks: u32) -> u64 {
    if tasks <= 24 { 128 << 20 } else { 32 << 20 }
}

/// The results of one run of one design besides its sample.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// The parts of the tasks' time, by mode and number of tasks.
    pub(super) times: Vec<(Mode, u32, Times)>,
    /// The results of nothing but counting, at each pace.
    pub(super) counting: [Counted; PACES.len()],
}

/// The time of tasks while they were measured, in ns: `total`, and its parts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) total: f64,
    pub(super) fault: f64,
    pub(super) unmap: f64,
    pub(super) pcp: f64,
    pub(super) buddy: f64,
    pub(super) count: f64,
    pub(super) zone_wait: f64,
    pub(super) pcp_wait: f64,
    pub(super) mmap_wait: f64,
    pub(super) counter_wait: f64,
}

impl Scene {
    pub(super) const fn of(effort: Effort) -> Self {
        let tasks: &[u32] = match effort {
            Effort::Full => &[1, 2, 24, 96, 192, 384],
            Effort::Quick => &[1, 24],
        };
        Self { tasks, bytes }
    }

    /// Runs every number of tasks in both modes, then nothing but counting.
    pub(super) fn measure(
        &self,
        profile: &Profile,
        design: &Design,
        seed: u64,
    ) -> (Sample, Measured) {
        let mut metrics = Vec::new();
        let mut hashes = Vec::new();
        let mut times = Vec::new();
        for mode in MODES {
            for &tasks in self.tasks {
                let work = PageFault {
                    tasks,
                    mode,
                    bytes: (self.bytes)(tasks),
                };
                let (done, hash) = run(work, profile, design, seed);
                metrics.push((rate(mode, tasks), done.faults_per_s));
                times.push((mode, tasks, Times::of(tasks, &done)));
                hashes.push(hash);
            }
        }
        let counting = PACES.map(|pace| Counted::measure(profile, design.counting, pace, seed));
        metrics.extend(counting.iter().flat_map(Counted::metrics));
        hashes.extend(counting.map(|counted| counted.hash));
        let sample = Sample {
            hash: fold_hashes(hashes),
            metrics,
        };
        (sample, Measured { times, counting })
    }
}

/// The faults per second of all tasks together.
pub(super) fn rate(mode: Mode, tasks: u32) -> Metric {
    let name = format!("faults_per_s_{}_{tasks}", name(mode));
    Metric::higher("faults_per_s", Unit::PerSecond).named(name)
}

fn run(work: PageFault, profile: &Profile, design: &Design, seed: u64) -> (Done, u64) {
    let testbed = Testbed::new(profile, *design, seed);
    let width = Rss::<Sim>::WIDTH;
    let plan = Plan::new(&testbed.sim, design.counting, width, Batch::RSS);
    let plan = Rc::new(plan.expect("four counters fit"));
    let done = work.run(&testbed, &plan);
    (done, testbed.finish().0.hash)
}

impl Times {
    fn of(tasks: u32, Done { from, to, .. }: &Done) -> Self {
        let between = |of: &dyn Fn(&Mark) -> u64| of(to) as f64 - of(from) as f64;
        let work = |kind: Work| between(&|mark| mark.stats.work_ns[kind as usize]);
        let wait = |class| between(&|mark| mark.stats.class(class).wait_total.0);
        Self {
            total: f64::from(tasks) * between(&|mark| mark.now.0),
            fault: work(Work::Fault),
            unmap: UNMAPPING.into_iter().map(work).sum(),
            pcp: work(Work::PcpAlloc) + work(Work::PcpFree),
            buddy: work(Work::BuddyAlloc) + work(Work::BuddyFree),
            count: work(Work::Count),
            zone_wait: wait(LockClass::Zone),
            pcp_wait: wait(LockClass::Pcp),
            mmap_wait: wait(LockClass::Mmap) + between(&|mark| mark.waited.0),
            counter_wait: wait(LockClass::Counter),
        }
    }

    /// Each part in percent, in the order of [`PARTS`].
    pub(super) fn percents(&self) -> [f64; PARTS.len()] {
        let parts = [
            self.fault,
            self.unmap,
            self.pcp,
            self.buddy,
            self.count,
            self.zone_wait,
            self.pcp_wait,
            self.mmap_wait,
            self.counter_wait,
        ];
        let rest = self.total - parts.iter().sum::<f64>();
        let mut percents = [0.0; PARTS.len()];
        for (percent, part) in percents.iter_mut().zip(parts.into_iter().chain([rest])) {
            *percent = 100.0 * part / self.total;
        }
        percents
    }
}

/// The names of the parts: work first, then waiting for locks, then what is left.
pub(super) const PARTS: [&str; 10] = [
    "fault",
    "unmap",
    "pcp",
    "buddy",
    "count",
    "zone lock",
    "pcp lock",
    "mmap_lock",
    "counter lock",
    "rest",
];

#[cfg(test)]
mod tests {
    use plimsoll_mm::counter::Counting;
    use plimsoll_sim::profile::Card;

    use super::*;

    const SMALL: Scene = Scene {
        tasks: &[1, 4],
        bytes: |_| 8 << 20,
    };

    fn measure(counting: Counting) -> Measured {
        let profile = Profile::load("epyc-9654-2s", Card::Mid).expect("built in");
        let design = Design {
            counting,
            ..Design::UNPATCHED
        };
        SMALL.measure(&profile, &design, 1).1
    }

    #[test]
    fn parts_are_all_of_the_time() {
        for (mode, tasks, times) in measure(Counting::Flat).times {
            let percents = times.percents();
            assert!((percents.iter().sum::<f64>() - 100.0).abs() < 1e-6);
            // Other CPUs have run ahead of a mark by up to 0.1 ms, of the 3 ms of these rounds.
            let all = |percent: &f64| (-5.0..=105.0).contains(percent);
            assert!(percents.iter().all(all), "{mode:?} {tasks}: {percents:?}");
        }
    }

    #[test]
    fn only_threads_wait_for_the_mmap_lock() {
        for (mode, tasks, times) in measure(Counting::OneSided).times {
            let waits = mode == Mode::Threads && tasks > 1;
            assert_eq!(times.mmap_wait > 0.0, waits, "{mode:?} {tasks}");
        }
    }
}
