//! Compares any designs on any machine under a workload that the user names.
//!
//! The catalog of experiments reproduces published results; this command runs the same comparisons
//! on the user's own designs.

use std::num::NonZeroUsize;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::units::{CpuId, Nanos, Pages};
use plimsoll_recording::Recording;
use plimsoll_sim::profile::{Card, Profile};

use crate::catalog::designs::{self, Named};
use crate::catalog::machines;
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
use crate::workload::make_like::MakeLike;
use crate::workload::overcommit::Overcommit;
use crate::workload::stress_vm::{Pause, StressVm};
use crate::workload::victim::KilledApps;

/// A workload that the user can name.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The name that `plimsoll compare` accepts.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// The number of swap slots for a given number of workers; `None` if no pages are to be
    /// reclaimed.
    swap: Option<fn(u32) -> u32>,
    /// The bytes that each worker needs. With [`CompareOptions::memory`], one and a half times as
    /// much is free when a run begins.
    needs: u64,
    start: fn(&Testbed, u32, Nanos),
}

/// Processes that use a quarter more memory than they get.
const OVERCOMMIT: Overcommit = Overcommit {
    pages: 4096,
    memory_percent: 80,
    think_ns: 2000,
};

/// The workloads that `plimsoll compare` accepts.
pub const WORKLOADS: [Workload; 5] = [
    Workload {
        name: "stress-vm",
        about: "stress-ng --vm: each worker maps 64 MiB, writes and checks it, unmaps, repeats",
        swap: None,
        needs: STRESS_BYTES,
        start: |testbed, workers, until| stress(testbed, workers, until, Pause::No),
    },
    Workload {
        name: "stress-vm-bursts",
        about: "the same with about a second of sleep between two rounds",
        swap: None,
        // A round maps up to half as much again.
        needs: STRESS_BYTES * 3 / 2,
        start: |testbed, workers, until| {
            stress(testbed, workers, until, Pause::Asleep(Nanos::SECOND));
        },
    },
    Workload {
        name: "make-like",
        about: "make -j: short processes of about 2000 pages, each on any CPU",
        swap: None,
        // A process maps up to half as much again.
        needs: 3000 << 12,
        start: |testbed, workers, until| {
            let make = MakeLike {
                jobs: workers,
                pages: 2000,
                think_ns_per_page: 1000,
                pause: Nanos::from_ms(1),
            };
            make.start(testbed, until);
        },
    },
    Workload {
        name: "killed-apps",
        about: "apps of 300 mappings are filled, killed and reaped at once, on two CPUs each",
        swap: None,
        // An app with ten times as many mappings has some 520 MiB.
        needs: 520 << 20,
        start: |testbed, workers, until| {
            let apps = KilledApps {
                pairs: workers,
                mappings: 300,
            };
            apps.start(testbed, until);
        },
    },
    Workload {
        name: "overcommit",
        about: "processes of 16 MiB touch random pages, with 80 % of their memory; the rest is in swap",
        swap: Some(|workers| OVERCOMMIT.slots(workers)),
        // The workload itself decides how much memory is free.
        needs: 0,
        start: |testbed, workers, until| {
            let cpus: Vec<CpuId> = (0..workers)
                .map(|worker| spread(testbed, workers, worker))
                .collect();
            OVERCOMMIT.start(testbed, &cpus, until);
        },
    },
];

/// The bytes that a worker of `stress-vm` maps.
const STRESS_BYTES: u64 = 64 << 20;

/// The user's choices for `plimsoll compare`.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// The name of a workload.
    pub workload: String,
    /// The name of a built-in machine, or the path of a profile file.
    pub machine: String,
    /// Whether interrupts, softirqs and steals disturb the machine's CPUs.
    pub jitter: Jitter,
    /// The names of the designs. Each design after the first is compared with the first.
    pub designs: Vec<String>,
    /// The number of workers or jobs; `None` uses one per CPU.
    pub workers: Option<u32>,
    /// The state of memory when a run begins. All memory but what the workload needs is then in use
    /// until the end. `None` leaves all memory free, in the largest blocks.
    pub memory: Option<Memory>,
    /// The virtual duration of each run, in milliseconds.
    pub length_ms: u64,
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
/// If a workload, machine or design is unknown, or the profile is bad.
pub fn run(options: &CompareOptions, progress: &Progress) -> Result<(Report, Recordings), Error> {
    let workload = find(&options.workload)?;
    let mut profile = machines::load(&options.machine, options.card)?;
    if options.jitter == Jitter::Off {
        profile = profile.without_jitter();
    }
    let names: Vec<&str> = options.designs.iter().map(String::as_str).collect();
    let designs = designs::find_different(&names)?;
    let length = Nanos::from_ms(options.length_ms);
    let workers = options.workers.unwrap_or(profile.topology.cpus());

    if options.memory.is_some() && workload.swap.is_some() {
        let name = workload.name;
        return Err(Error::Invalid(format!(
            "{name} decides itself how much memory is free; leave out --memory"
        )));
    }
    let start = Start::new(workload, &profile, workers, options.memory);
    // A machine that is too small is an error now, and not a panic in a run.
    start.begin(&Testbed::new(&profile, designs[0].design, 1))?;

    progress.start(format!("{} on {}", workload.name, profile.name));
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
            .extend(locks::tables(&design.name, &kept.stats));
        lists.extend(kept.holds.rows(&design.name));
        recordings.extend(kept.recording.map(|of| (design.name.clone(), of)));
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

/// Finds the workload called `name`.
fn find(name: &str) -> Result<&'static Workload, Error> {
    let names = WORKLOADS.map(|workload| workload.name);
    let found = WORKLOADS.iter().find(|workload| workload.name == name);
    found.ok_or_else(|| Error::unknown("workload", name, &names))
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
    case: &Case<Named>,
    record: Option<usize>,
) -> (Sample, Kept) {
    let (design, seed) = (case.design.design, case.seed);
    let testbed = match workload.swap {
        Some(slots) => Testbed::with_pressure(profile, design, seed, slots(workers)),
        None => Testbed::new(profile, design, seed),
    };
    let begun = start.begin(&testbed);
    begun.expect("the same machine has begun so before");
    let recorder = record.map(|events_max| testbed.record(events_max));
    (workload.start)(&testbed, workers, length);
    testbed.sim.run_until(length);
    let recording = recorder.map(|recorder| {
        let release = format!("{} on {}", case.design.name, profile.name);
        let command = format!("{}, {workers} workers, seed {}", workload.name, case.seed);
        recorder.finish(&testbed.sim, release, command)
    });
    let (stats, log) = testbed.finish();
    let mut metrics = locks::metrics(&stats, &log.holds);
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

/// Returns the CPU of a worker, if workers are spread evenly over the CPUs. If there are more
/// workers than CPUs, several run on one CPU.
fn spread(testbed: &Testbed, workers: u32, worker: u32) -> CpuId {
    let cpus = testbed.sim.topology().cpus();
    let nth = u64::from(worker) * u64::from(cpus) / u64::from(workers);
    CpuId(u32::try_from(nth).unwrap_or(0))
}

fn stress(testbed: &Testbed, workers: u32, until: Nanos, pause: Pause) {
    let worker = StressVm {
        bytes: STRESS_BYTES,
        use_ns_per_page: 400,
        pause,
    };
    let cpus = (0..workers).map(|worker| spread(testbed, workers, worker));
    worker.start(testbed, cpus, until);
}
