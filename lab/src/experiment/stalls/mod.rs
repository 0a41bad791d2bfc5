//! `reproduce stalls`: what makes a CPU stall for 20 seconds?
//!
//! The mailing-list thread on batching began with soft lockups and RCU stalls on a machine with 316
//! CPUs. This experiment looks for such stalls. It measures the longest stretch that a CPU spends
//! without a reschedule point, and runs Linux's detectors. Then it tries several possible causes in
//! separate runs. The causes are more pages between two reschedule points, steals (a hypervisor
//! takes CPUs away), slower memory, and slower memory on a machine with more CPUs.
//!
//! The submodule `setup` has the workload, the causes and the metrics.

mod setup;

use self::setup::{
    CAUSES, FREE, HUNG, LOCKUPS, METRICS, NUMBERS, PCP_PART, RCU, STRETCH, StallSetup, WAIT_MAX,
    ZONE_PART, ZONE_WAITS,
};
use super::driver::{Clock, Code, Made, Part, Results, Run, Runs, metrics_of};
use crate::error::Error;
use crate::measure::detectors::watch::CpuStalls;
use crate::measure::metric::{Metric, Unit};
use crate::report::value::human;
use crate::report::{Table, tabulate};

/// The workload of this experiment, which experiment files can name.
pub(super) static SUBJECT: &dyn Runs = &CODE;

static CODE: Code<StallSetup, CpuStalls> = Code {
    workload: "workers-that-reschedule",
    about: "one worker on each CPU, with reschedule points; causes of stalls are tried",
    numbers: NUMBERS,
    of_designs: &[],
    takes_memory: false,
    clock: Clock::Virtual,
    setup: StallSetup::new,
    metrics: |_| metrics_of(METRICS),
    measure: |setup, case| setup.measure(&case.design.design, case.seed),
    parts: &[
        Part::new("workload", |run| Ok(run.setup.table().into())),
        Part::new("causes", causes).naming(&TRIED).giving(&[
            "unbatched_stalls",
            "bounded_stalls",
            "unbatched_stretch",
            "bounded_stretch",
            "length_of_runs",
        ]),
    ],
    cells: &[],
};

const UNBATCHED: &str = "unbatched";
const BOUNDED: &str = "bounded";

/// The designs that run with each possible cause of stalls.
const TRIED: [&str; 2] = [UNBATCHED, BOUNDED];

/// The results of the runs with one possible cause of stalls.
struct Tried {
    cause: &'static str,
    setup: StallSetup,
    results: Results,
}

impl Tried {
    /// Returns whether one of Linux's detectors (soft lockup, RCU stall, hung task) makes a report
    /// in any run of `design`.
    fn stalls(&self, design: &str) -> bool {
        [LOCKUPS, RCU, HUNG]
            .iter()
            .any(|reports| self.results.max(design, reports) > 0.0)
    }
}

/// Runs the designs [`TRIED`] with the first causes in [`CAUSES`]. The experiment's file says how
/// many causes to try.
fn causes(run: &Run<'_, StallSetup, CpuStalls>) -> Result<Made, Error> {
    let seeds = run.numbers().count("seeds_of_causes");
    let is_long = run.numbers().get("long_causes") == 1;
    let designs = run.named(&TRIED);
    let mut tried = Vec::new();
    for cause in &CAUSES[..run.numbers().count("causes")] {
        let setup = run.setup.with(cause, is_long);
        let (results, _) = run.further_on_few(cause.name, &setup, &designs, seeds)?;
        tried.push(Tried {
            cause: cause.name,
            setup,
            results,
        });
    }
    Ok(finding(Made::from(causes_table(&tried)), &tried))
}

/// The table of the longest stretches without a reschedule point, for each possible cause of stalls
/// and each design.
fn causes_table(tried: &[Tried]) -> Table {
    let rows = tried
        .iter()
        .flat_map(|tried| TRIED.map(|design| (tried, design)));
    let rows: Vec<(&Tried, &str)> = rows.collect();
    let longest = |(tried, design): &(&Tried, &str), metric: &Metric| {
        human(tried.results.max(design, metric), metric.unit)
    };
    tabulate!(
        "The longest stretch without a reschedule point, with each cause",
        "The largest value of any seed. `longest freeing`: the longest time in which a worker \
         freed pages between two reschedule points. `zone waits`, `their sum` and `pcp waits` are \
         those waits in the longest stretch that have ended. A stretch that lasts until the end of \
         the run counts up to there, so it cannot be longer than the run.",
        &rows,
        |row| {
            "cause" => row.0.cause,
            "design" => row.1,
            "run" => human(row.0.setup.length.0 as f64, Unit::Nanos),
            "longest stretch" => longest(row, &STRETCH),
            "longest freeing" => longest(row, &FREE),
            "zone waits" => longest(row, &ZONE_WAITS),
            "their sum" => longest(row, &ZONE_PART),
            "pcp waits" => longest(row, &PCP_PART),
            "longest zone wait" => longest(row, &WAIT_MAX),
            "soft lockups" => longest(row, &LOCKUPS),
            "RCU stalls" => longest(row, &RCU),
            "hung tasks" => longest(row, &HUNG),
        }
    )
}

/// Adds to `made` the facts (texts for the report's answer) about the possible causes of stalls.
fn finding(made: Made, tried: &[Tried]) -> Made {
    let (plain, causes) = tried
        .split_first()
        .expect("the machine as it is comes first");
    let reached = |design: &str| -> Vec<&str> {
        let with = causes.iter().filter(|tried| tried.stalls(design));
        with.map(|tried| tried.cause).collect()
    };
    let said = |design: &str| match (plain.stalls(design), &reached(design)[..]) {
        (true, _) => "stalls even without any of the causes".to_owned(),
        (false, []) => "does not stall with any cause that was tried".to_owned(),
        (false, with) => format!("stalls only with: {}", with.join("; ")),
    };
    let show = |design: &str| human(plain.results.max(design, &STRETCH), Unit::Nanos);
    let length = human(plain.setup.length.0 as f64, Unit::Nanos);
    made.fact("unbatched_stalls", said(UNBATCHED))
        .fact("bounded_stalls", said(BOUNDED))
        .fact("unbatched_stretch", show(UNBATCHED))
        .fact("bounded_stretch", show(BOUNDED))
        .fact("length_of_runs", length)
}
