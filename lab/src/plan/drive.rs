//! Runs a plan: every design with every seed, on each machine.
//!
//! `plimsoll compare` and `plimsoll run` both end here.

use plimsoll_recording::Recording;

use super::prepare::{PlannedMachine, Prepared};
use super::{difference, metrics, timeline};
use crate::catalog::tuned::Tuned;
use crate::error::Error;
use crate::measure::comparison::{Comparison, Sample};
use crate::measure::holds::{self, HoldLog};
use crate::measure::locks;
use crate::measure::metric::Unit;
use crate::report::answer::Identical;
use crate::report::value::human;
use crate::report::{Report, Table};
use crate::run::as_recording::{self, Recordings};
use crate::run::cases::Case;
use crate::run::jobs::Jobs;
use crate::run::options::{Determinism, Effort, Options};
use crate::run::progress::Progress;
use crate::run::testbed::Testbed;
use crate::slices::{Tracer, Traces};
use crate::watch::Courses;

/// Options for running a plan. They do not change the results of the plan.
#[derive(Clone, Debug)]
pub struct How {
    /// The number of cases (a case is one design with one seed) that run in parallel.
    pub jobs: Jobs,
    /// The maximum number of events to record of each design's run with the first seed. `None`
    /// records nothing.
    pub record: Option<usize>,
    /// Where to keep the course (what happened, over time) of each design's run with the first
    /// seed. `None` if no run is watched.
    pub watch: Option<Courses>,
    /// Where to keep the slices (what each CPU and task did, and when) of each design's run with
    /// the first seed. `None` traces nothing.
    pub trace: Option<Traces>,
}

/// Runs the designs of `prepared` on the machine of `planned`. Returns a report on the waits for
/// locks and on the page lists. If the runs of a design are identical to the runs of the first
/// design, the answer of the report says so and gives the reason.
///
/// # Errors
/// [`Error::NotDeterministic`] if a run differs from the run in the journal of `progress`.
pub fn run(
    prepared: &Prepared<'_>,
    planned: &PlannedMachine,
    how: &How,
    progress: &Progress,
) -> Result<(Report, Recordings), Error> {
    let Prepared { plan, designs, .. } = prepared;
    progress.start_on(&plan.name, &planned.profile.name, "");
    let (runs, kept) = compare(prepared, planned, how, progress)?;
    let identical = (1..designs.len()).filter(|&nth| runs.are_identical(0, nth));
    let identical = identical
        .map(|nth| identical_to_first(prepared, nth))
        .collect();
    let mut report = Report::new(
        &plan.name,
        &planned.profile.name,
        plan.card,
        runs.seeds(),
        runs.hash(),
    );
    metrics::fill(&mut report, plan, &planned.machine, &runs);
    report.answer = metrics::answer(&report, plan, runs.designs(), identical);
    let of_tasks = metrics::unmeasured_of_tasks(&report, plan, prepared.workload);
    report.answer.unmeasured.extend(of_tasks);
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
    report.finding = about(prepared, planned);
    Ok((report, recordings))
}

/// Describes the design at index `nth`, whose runs were identical to the runs of the first design.
pub(super) fn identical_to_first(prepared: &Prepared<'_>, nth: usize) -> Identical {
    let Prepared {
        designs,
        workload,
        length,
        ..
    } = prepared;
    let (a, b) = (&designs[0], &designs[nth]);
    Identical {
        a: a.to_string(),
        b: b.to_string(),
        why: difference::why_identical(a, b, workload, *length),
    }
}

/// Runs every design with every seed. Before the call, the caller must have started `progress` with
/// a title that no other comparison of the plan has.
pub(super) fn compare(
    prepared: &Prepared<'_>,
    planned: &PlannedMachine,
    how: &How,
    progress: &Progress,
) -> Result<(Comparison, Vec<Kept>), Error> {
    let plan = prepared.plan;
    let options = Options {
        seeds: (1..=plan.seeds).collect(),
        jobs: how.jobs.clone(),
        card: Some(plan.card),
        memory: plan.memory,
        effort: Effort::Full,
        determinism: Determinism::Trust,
        jitter: plan.jitter,
        watch: how.watch.clone(),
    };
    Comparison::run_keeping(&prepared.designs, &options, progress, |case| {
        let record = how.record.filter(|_| case.seed == options.seeds[0]);
        let trace = how.trace.as_ref().filter(|_| case.seed == options.seeds[0]);
        measure(prepared, planned, case, record, trace)
    })
}

/// Returns two indices in the plan: the index of the machine and the index of the design of the run
/// `case`.
fn place(prepared: &Prepared<'_>, planned: &PlannedMachine, case: &Case<Tuned>) -> (usize, usize) {
    let mut machines = prepared.machines.iter();
    let machine = machines.position(|of| of.machine == planned.machine);
    let named = |of: &Tuned| of.named.name == case.design.named.name;
    let designs = prepared.designs.iter().position(named);
    (machine.unwrap_or_default(), designs.unwrap_or_default())
}

/// Runs each design on each machine of `prepared` again with the first seed. The only purpose of
/// these runs is to keep their slices: what each CPU and task did, and when.
///
/// # Errors
/// As [`Comparison::run`].
pub fn trace(prepared: &Prepared<'_>, how: &How, progress: &Progress) -> Result<(), Error> {
    for planned in &prepared.machines {
        progress.start_on(&prepared.plan.name, &planned.profile.name, "");
        compare(prepared, planned, how, progress)?;
    }
    Ok(())
}

/// The introduction of a report, in sentences: the question of the plan, and a description of its
/// runs.
fn about(prepared: &Prepared<'_>, planned: &PlannedMachine) -> String {
    let Prepared {
        plan,
        workload,
        length,
        ..
    } = prepared;
    let workers = planned.values.get("workers");
    let mut about = String::new();
    if !plan.question.is_empty() {
        about = format!("The question: {} ", plan.question);
    }
    about.push_str(&format!(
        "{workers} workers for {} of virtual time: {}. {}",
        human(length.0 as f64, Unit::Nanos),
        planned.values.fill(workload.about),
        planned.start.about(),
    ));
    let moments: Vec<String> = plan.timeline.iter().map(timeline::about).collect();
    if !moments.is_empty() {
        about.push_str(&format!(" During each run: {}.", moments.join("; ")));
    }
    about
}

/// The results of one run, apart from its metrics and its hash.
pub(super) struct Kept {
    stats: plimsoll_sim::Stats,
    holds: HoldLog,
    recording: Option<Recording>,
}

/// Creates the machine of `planned` for one run. Its memory and its online CPUs are in the state in
/// which the run begins.
pub(super) fn testbed(
    prepared: &Prepared<'_>,
    planned: &PlannedMachine,
    design: &Tuned,
    seed: u64,
) -> Testbed {
    let Tuned { named, tunables } = design;
    let swap = prepared.workload.swap.map(|slots| slots(&planned.values));
    let testbed = Testbed::tuned(&planned.profile, named.design, seed, swap, *tunables);
    let begun = planned.start.begin(&testbed);
    begun.expect("the same machine has begun so before");
    timeline::begin(&testbed, timeline::of_design(prepared.plan, &named.name));
    // Count allocated pages only from now on, because the allocation of pages that are in use from
    // the start is not the workload's work.
    testbed.count_pages();
    testbed
}

fn measure(
    prepared: &Prepared<'_>,
    planned: &PlannedMachine,
    case: &Case<Tuned>,
    record: Option<usize>,
    trace: Option<&Traces>,
) -> (Sample, Kept) {
    let Prepared {
        workload, length, ..
    } = prepared;
    let PlannedMachine {
        profile, values, ..
    } = planned;
    let named = &case.design.named;
    let testbed = testbed(prepared, planned, &case.design, case.seed);
    let recorder = record.map(|events_max| testbed.record(events_max));
    let tracer = trace.map(|traces| {
        let limits = traces.limits(&profile.name, &named.name);
        (traces, Tracer::attach(&testbed.sim, &testbed.mm, limits))
    });
    let tasks = (workload.start)(&testbed, values, *length);
    testbed.sim.run_until(*length);
    if let Some((traces, tracer)) = tracer {
        let slices = tracer.finish(&testbed.sim);
        let slices = slices.named(&profile.name, &named.name);
        traces.keep(place(prepared, planned, case), slices);
    }
    let recording = recorder.map(|recorder| {
        let release = format!("{named} on {}", profile.name);
        let workers = values.get("workers");
        let command = format!("{}, {workers} workers, seed {}", workload.name, case.seed);
        recorder.finish(&testbed.sim, release, command)
    });
    let (stats, log) = testbed.finish();
    let sample = Sample {
        hash: stats.hash,
        metrics: metrics::of_run(workload, &stats, &log, tasks.as_ref(), *length),
    };
    let kept = Kept {
        stats,
        holds: log.holds,
        recording,
    };
    (sample, kept)
}
