//! Compares any designs on any machine under a workload that the user names.
//!
//! The catalog of experiments reproduces published results; this command runs the same comparisons
//! on the user's own designs.

mod difference;
mod workloads;

use std::num::NonZeroUsize;

use plimsoll_mm::units::{Nanos, Pages};
use plimsoll_recording::Recording;
use plimsoll_sim::profile::{Card, Profile};

pub use self::workloads::{WORKLOADS, Workload};
use crate::catalog::machines;
use crate::catalog::tuned::{self, Tuned};
use crate::error::Error;
use crate::measure::comparison::{Comparison, Sample};
use crate::measure::holds::{self, HoldLog};
use crate::measure::locks;
use crate::measure::metric::{Metric, Unit};
use crate::report::value::human;
use crate::report::{Report, Table};
use crate::run::aging::{self, Memory};
use crate::run::as_recording::{self, Recordings};
use crate::run::cases::Case;
use crate::run::jobs::Jobs;
use crate::run::options::{Determinism, Effort, Jitter, Options};
use crate::run::progress::Progress;
use crate::run::testbed::Testbed;

/// The user's choices for `plimsoll compare`.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// The name of a workload.
    pub workload: String,
    /// The name of a built-in machine, or the path of a profile file.
    pub machine: String,
    /// Whether interrupts, softirqs and steals disturb the machine's CPUs.
    pub jitter: Jitter,
    /// The designs, each as `DESIGN` or `DESIGN@KNOB=VALUE,...`. Each design after the first is
    /// compared with the first.
    pub designs: Vec<String>,
    /// The knobs of all designs, each as `KNOB=VALUE`.
    pub settings: Vec<String>,
    /// The number of workers or jobs; `None` uses one per CPU.
    pub workers: Option<u32>,
    /// The state of memory when a run begins. All memory but what the workload needs is then in use
    /// until the end. `None` leaves all memory free, in the largest blocks.
    pub memory: Option<Memory>,
    /// The virtual duration of each run, in milliseconds. `None` chooses one that can show in what
    /// the designs differ.
    pub length_ms: Option<u64>,
    /// The seeds to run, each with every design.
    pub seeds: Vec<u64>,
    /// The number of cases to run in parallel.
    pub jobs: NonZeroUsize,
    /// The cost card: the low, middle or high value of every cost's range.
    pub card: Card,
    /// The maximum number of events to record of each design's run of the first seed; `None`
    /// records nothing.
    pub record: Option<usize>,
}

/// Runs a workload under each design and reports locks and page lists.
///
/// # Errors
/// If a workload, machine, design or knob is unknown, or the profile is bad. Also if the runs of
/// two designs are identical, because the workload does not use what they differ in.
pub fn run(options: &CompareOptions, progress: &Progress) -> Result<(Report, Recordings), Error> {
    let workload = workloads::find(&options.workload)?;
    let mut profile = machines::load(&options.machine, options.card)?;
    if options.jitter == Jitter::Off {
        profile = profile.without_jitter();
    }
    let names: Vec<&str> = options.designs.iter().map(String::as_str).collect();
    let settings: Vec<&str> = options.settings.iter().map(String::as_str).collect();
    let designs = tuned::find_different(&names, &settings)?;
    let chosen = || difference::length_ms(&designs);
    let length = Nanos::from_ms(options.length_ms.unwrap_or_else(chosen));
    let workers = options.workers.unwrap_or(profile.topology.cpus());

    if options.memory.is_some() && workload.swap.is_some() {
        let name = workload.name;
        return Err(Error::Invalid(format!(
            "{name} decides itself how much memory is free; leave out --memory"
        )));
    }
    let start = Start::new(workload, &profile, workers, options.memory);
    // A machine that is too small is an error now, and not a panic in a run.
    start.begin(&Testbed::new(&profile, designs[0].named.design, 1))?;

    progress.start_on(workload.name, &profile.name, "");
    let lab_options = Options {
        seeds: options.seeds.clone(),
        jobs: Jobs::new(options.jobs),
        card: Some(options.card),
        memory: options.memory,
        effort: Effort::Full,
        determinism: Determinism::Trust,
        jitter: options.jitter,
    };
    let (runs, kept) = Comparison::run_keeping(&designs, &lab_options, progress, |case| {
        let record = options.record.filter(|_| case.seed == options.seeds[0]);
        measure(workload, &profile, start, workers, length, case, record)
    })?;

    for nth in 1..designs.len() {
        if runs.are_identical(0, nth) {
            return Err(difference::identical(&designs[0], &designs[nth], workload));
        }
    }
    let mut report = Report::new(
        workload.name,
        &profile.name,
        options.card,
        runs.seeds(),
        runs.hash(),
    );
    report.rows = runs.rows(|_, _| None);
    report.verdicts = runs.verdicts(0);
    let mut lists = Vec::new();
    let mut recordings = Vec::new();
    for (design, kept) in designs.iter().zip(kept) {
        report
            .tables
            .extend(locks::tables(&design.named.name, &kept.stats));
        lists.extend(kept.holds.rows(&design.named.name));
        recordings.extend(kept.recording.map(|of| (design.named.name.clone(), of)));
    }
    report.warnings = as_recording::warnings(&recordings, "shorten --length-ms");
    report.tables.push(Table {
        title: "Pages between lists and zones, first seed".to_owned(),
        note: String::new(),
        columns: holds::COLUMNS.map(str::to_owned).to_vec(),
        rows: lists,
    });
    report.finding = format!(
        "{workers} workers for {} of virtual time: {}. {}",
        human(length.0 as f64, Unit::Nanos),
        workload.about,
        start.about(),
    );
    Ok((report, recordings))
}

/// The pages that the workload allocated a second: the work done.
const ALLOCATED: Metric = Metric::higher("pages_allocated_per_s", Unit::PagesPerSecond);

/// The memory of a run when it begins.
#[derive(Clone, Copy)]
struct Start {
    memory: Option<Memory>,
    /// The number of pages to leave free on each node, if `memory` is given.
    leave: Pages,
}

impl Start {
    fn new(workload: &Workload, profile: &Profile, workers: u32, memory: Option<Memory>) -> Self {
        let needs = u64::from(workers) * workload.needs * 3 / 2;
        let nodes = profile.node_bytes.len().max(1) as u64;
        Self {
            memory,
            leave: Pages::from_bytes(needs / nodes),
        }
    }

    fn begin(self, testbed: &Testbed) -> Result<(), Error> {
        let memory = self
            .memory
            .map(|memory| aging::begin(testbed, memory, self.leave));
        memory.unwrap_or(Ok(()))
    }

    fn about(self) -> String {
        let memory = self.memory.map(|memory| {
            let mib = self.leave.bytes() >> 20;
            format!(
                "Memory is {} at the start, and {mib} MiB of each node are free.",
                memory.name()
            )
        });
        memory.unwrap_or_else(|| "All memory is free at the start.".to_owned())
    }
}

/// The results of one run, apart from its metrics and its hash.
struct Kept {
    stats: plimsoll_sim::Stats,
    holds: HoldLog,
    recording: Option<Recording>,
}

fn measure(
    workload: &Workload,
    profile: &Profile,
    start: Start,
    workers: u32,
    length: Nanos,
    case: &Case<Tuned>,
    record: Option<usize>,
) -> (Sample, Kept) {
    let Tuned { named, tunables } = &case.design;
    let swap = workload.swap.map(|slots| slots(workers));
    let testbed = Testbed::tuned(profile, named.design, case.seed, swap, *tunables);
    let begun = start.begin(&testbed);
    begun.expect("the same machine has begun so before");
    // Only from now on, because memory that is in use from the start is not the workload's work.
    testbed.count_pages();
    let recorder = record.map(|events_max| testbed.record(events_max));
    (workload.start)(&testbed, workers, length);
    testbed.sim.run_until(length);
    let recording = recorder.map(|recorder| {
        let release = format!("{named} on {}", profile.name);
        let command = format!("{}, {workers} workers, seed {}", workload.name, case.seed);
        recorder.finish(&testbed.sim, release, command)
    });
    let (stats, log) = testbed.finish();
    let allocated = log.allocated as f64 * 1e9 / length.0 as f64;
    let mut metrics = vec![(ALLOCATED, allocated)];
    metrics.extend(locks::metrics(&stats, &log.holds));
    let refreshes = Metric::neither("refreshes", Unit::Count);
    metrics.push((refreshes, log.refreshes as f64));
    let decayed = Metric::neither("pages_decayed", Unit::Pages);
    metrics.push((decayed, log.decayed as f64));
    if workload.swap.is_some() {
        metrics.extend(log.reclaim.metrics());
    }
    let sample = Sample {
        hash: stats.hash,
        metrics,
    };
    let kept = Kept {
        stats,
        holds: log.holds,
        recording,
    };
    (sample, kept)
}
