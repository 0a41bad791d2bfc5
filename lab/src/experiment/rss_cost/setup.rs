//! The workload and the metrics of the rss-cost experiment. The workload is will-it-scale's
//! `page_fault1` with different numbers of tasks.

use std::rc::Rc;

use plimsoll_mm::counter::{Batch, Plan};
use plimsoll_mm::design::Design;
use plimsoll_mm::site::{LockClass, Work};
use plimsoll_mm::space::rss::Rss;
use plimsoll_sim::Sim;
use plimsoll_sim::profile::Profile;

use super::counting::{Counted, PACES};
use crate::error::Error;
use crate::experiment::driver::{Number, Setting, metrics_of};
use crate::measure::comparison::{Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::run::testbed::Testbed;
use crate::workload::UNMAPPING;
use crate::workload::page_fault::{Done, Mark, Mode, PageFault};

/// The two ways to run the benchmark: the tasks are processes, or threads of one process.
pub(super) const MODES: [Mode; 2] = [Mode::Processes, Mode::Threads];

/// The word for the mode in the names of metrics.
pub(super) const fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Processes => "processes",
        Mode::Threads => "threads",
    }
}

/// The key of an experiment file that lists with how many tasks the benchmark runs.
pub(super) const TASKS: Number = Number::list(
    "tasks",
    (1, 4096),
    "numbers of processes, and of threads, with which the benchmark runs",
);

/// The machine, the task counts with which the benchmark runs, and the memory of each task.
#[derive(Clone, Debug)]
pub(super) struct FaultSetup {
    profile: Profile,
    tasks: Vec<u32>,
    /// The number of bytes that each task touches in a round.
    bytes: fn(mode: Mode, tasks: u32) -> u64,
}

/// Returns how many bytes a task touches in a round. With few tasks, this is 128 MiB, as in the
/// benchmark. With many tasks, it is 32 MiB (16 MiB with 384 processes), so that a run takes less
/// time. The fewer pages a round has, the larger is the share of them that fits on the page lists.
/// So with 32 MiB, CPUs take zone locks even less often than with 128 MiB.
///
/// Many threads touch even less in a round, because each of their faults takes many steps of the
/// simulator. The smaller a round is, the more often a thread waits for the mmap_lock for each page
/// that it touches. With 96 threads, rounds of 8 MiB give a tenth fewer faults a second than rounds
/// of 32 MiB.
const fn bytes(mode: Mode, tasks: u32) -> u64 {
    match (mode, tasks) {
        (_, ..=2) | (Mode::Processes, ..=24) => 128 << 20,
        (Mode::Processes, ..=192) | (Mode::Threads, ..=24) => 32 << 20,
        (Mode::Processes, _) => 16 << 20,
        (Mode::Threads, ..=96) => 8 << 20,
        (Mode::Threads, ..=192) => 4 << 20,
        (Mode::Threads, _) => 2 << 20,
    }
}

/// The data of one run that tables need besides the values of the metrics.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// For each mode and number of tasks, the percentage of the tasks' time that each of [`PARTS`]
    /// took.
    times: Vec<(Mode, u32, Percents)>,
    /// For each pace of the additions, the results of the second setup, in which all CPUs only
    /// count.
    pub(super) counting: [Counted; PACES.len()],
}

/// For each part of [`PARTS`], the percentage of the benchmark tasks' time that this part took.
pub(super) type Percents = [f64; PARTS.len()];

/// The parts into which tables divide the time of the benchmark's tasks: first kinds of work, then
/// waits for locks, then all other time.
pub(super) const PARTS: [&str; 11] = [
    "fault",
    "unmap",
    "pcp",
    "buddy",
    "count",
    "zone lock",
    "pcp lock",
    "mmap_lock",
    "lru lock",
    "counter lock",
    "rest",
];
/// The index in [`PARTS`] of the waits for the mmap_lock.
pub(super) const MMAP_LOCK: usize = 7;

impl Kept {
    /// For each of [`PARTS`], its percentage of the tasks' time in the run with `tasks` tasks in
    /// `mode`. `None` if the benchmark did not run with this number of tasks.
    pub(super) fn times(&self, mode: Mode, tasks: u32) -> Option<&Percents> {
        let mut times = self.times.iter();
        let found = times.find(|(of_mode, of_tasks, _)| (*of_mode, *of_tasks) == (mode, tasks));
        found.map(|(_, _, times)| times)
    }
}

impl FaultSetup {
    pub(super) fn new(setting: &Setting<'_>) -> Result<Self, Error> {
        let profile = setting.profile()?;
        let cpus = profile.topology.cpus();
        let tasks: Vec<u32> = setting
            .numbers
            .list(TASKS.name)
            .iter()
            .map(|tasks| u32::try_from(*tasks).expect("at most 4096"))
            .collect();
        if let Some(most) = tasks.iter().find(|tasks| **tasks > cpus) {
            let why = format!("{most} tasks do not fit on {cpus} CPUs, one on each");
            return Err(Error::Invalid(why));
        }
        Ok(Self {
            profile,
            tasks,
            bytes,
        })
    }

    pub(super) fn metrics(&self) -> Vec<Metric> {
        let counting = PACES
            .into_iter()
            .flat_map(|pace| metrics_of(pace.metrics()));
        self.rates().into_iter().chain(counting).collect()
    }

    /// The metrics for page faults per second: one for each mode and number of tasks.
    pub(super) fn rates(&self) -> Vec<Metric> {
        let of_mode = |mode| self.tasks.iter().map(move |tasks| rate(mode, *tasks));
        MODES.into_iter().flat_map(of_mode).collect()
    }

    /// The task counts with which the benchmark runs on this machine, one after the other.
    pub(super) fn tasks(&self) -> &[u32] {
        &self.tasks
    }

    pub(super) fn most_tasks(&self) -> u32 {
        self.tasks.iter().copied().max().unwrap_or(1)
    }

    /// Runs the benchmark with every number of tasks in both modes, and then the second setup, in
    /// which CPUs only add to counters.
    pub(super) fn measure(&self, design: &Design, seed: u64) -> (Sample, Kept) {
        let mut metrics = Vec::new();
        let mut hashes = Vec::new();
        let mut times = Vec::new();
        for mode in MODES {
            for &tasks in &self.tasks {
                let work = PageFault {
                    tasks,
                    mode,
                    bytes: (self.bytes)(mode, tasks),
                };
                let (done, hash) = run(work, &self.profile, design, seed);
                metrics.push((rate(mode, tasks), done.faults_per_s));
                times.push((mode, tasks, percents(tasks, &done)));
                hashes.push(hash);
            }
        }
        let counting =
            PACES.map(|pace| Counted::measure(&self.profile, design.counting, pace, seed));
        metrics.extend(counting.iter().flat_map(Counted::metrics));
        hashes.extend(counting.map(|counted| counted.hash));
        let sample = Sample {
            hash: fold_hashes(hashes),
            metrics,
        };
        (sample, Kept { times, counting })
    }
}

/// The metric for the page faults per second of all `tasks` tasks together.
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

/// For each part of [`PARTS`], the percentage of the time of `tasks` tasks that this part took
/// during the measurement.
fn percents(tasks: u32, Done { from, to, .. }: &Done) -> Percents {
    let between = |of: &dyn Fn(&Mark) -> u64| of(to) as f64 - of(from) as f64;
    let work = |kind: Work| between(&|mark| mark.stats.work_ns[kind as usize]);
    let wait = |class| between(&|mark| mark.stats.class(class).wait_total.0);
    let total = f64::from(tasks) * between(&|mark| mark.now.0);
    let mut parts = [
        work(Work::Fault),
        UNMAPPING.into_iter().map(work).sum(),
        work(Work::PcpAlloc) + work(Work::PcpFree),
        work(Work::BuddyAlloc) + work(Work::BuddyFree),
        work(Work::Count),
        wait(LockClass::Zone),
        wait(LockClass::Pcp),
        wait(LockClass::Mmap) + between(&|mark| mark.waited.0),
        wait(LockClass::Lru),
        wait(LockClass::Counter),
        0.0,
    ];
    parts[PARTS.len() - 1] = total - parts.iter().sum::<f64>();
    parts.map(|part| 100.0 * part / total)
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::counter::Counting;
    use plimsoll_sim::profile::Card;

    use super::*;

    fn measure(counting: Counting) -> Kept {
        let setup = FaultSetup {
            profile: Profile::load("epyc-9654-2s", Card::Mid).expect("built in"),
            tasks: vec![1, 4],
            bytes: |_, _| 8 << 20,
        };
        let design = Design {
            counting,
            ..Design::UNPATCHED
        };
        setup.measure(&design, 1).1
    }

    #[test]
    fn parts_are_all_of_the_time() {
        for (mode, tasks, percents) in measure(Counting::Flat).times {
            assert!((percents.iter().sum::<f64>() - 100.0).abs() < 1e-6);
            // At the beginning and the end of the measured time, a CPU may be up to 0.1 ms (3 % of
            // a round) ahead of the CPU that reads the statistics. So the measured share of a part
            // may be a few percent below 0 or above 100.
            let all = |percent: &f64| (-5.0..=105.0).contains(percent);
            assert!(percents.iter().all(all), "{mode:?} {tasks}: {percents:?}");
        }
    }

    #[test]
    fn only_threads_wait_for_the_mmap_lock() {
        for (mode, tasks, percents) in measure(Counting::OneSided).times {
            let waits = mode == Mode::Threads && tasks > 1;
            assert_eq!(percents[MMAP_LOCK] > 0.0, waits, "{mode:?} {tasks}");
        }
    }
}
