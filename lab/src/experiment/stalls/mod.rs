//! `reproduce stalls`: what makes a CPU stall for 20 seconds?
//!
//! The mailing-list thread on batching began with soft lockups and RCU stalls on a machine with 316
//! CPUs. This experiment looks for them. It measures the longest stretch that a CPU spends without
//! a reschedule point, and runs Linux's detectors. Then it applies several causes, each in runs of
//! its own: more pages between two reschedule points; steals (a hypervisor takes CPUs away); slower
//! memory; and slower memory on a machine with more CPUs.
//!
//! The submodule `scene` has the workload, the causes and the metrics.

mod scene;

use self::scene::{
    CAUSES, FREE, HUNG, LOCKUPS, METRICS, PCP_PART, RCU, STRETCH, Scene, WAIT_MAX, ZONE_PART,
    ZONE_WAITS,
};
use super::Experiment;
use super::declared::{
    Clock, Declaration, Finding, Headline, Headlines, LINUX_PATCH_OURS, Results, Run, metrics_of,
    variants_of,
};
use crate::error::Error;
use crate::measure::comparison::Comparison;
use crate::measure::detectors::watch::CpuStalls;
use crate::measure::metric::{Metric, Unit};
use crate::report::value::human;
use crate::report::{Table, tabulate};
use crate::run::options::{Effort, Options};

/// The experiment's entry in the catalog.
pub(super) static EXPERIMENT: &dyn Experiment = &DECLARATION;

static DECLARATION: Declaration<Scene, CpuStalls> = Declaration {
    name: "stalls",
    question: "what makes a CPU stall for 20 seconds, as in the thread on batching?",
    answer: Headlines {
        sides: LINUX_PATCH_OURS,
        rows: &[
            Headline::new(
                "longest stretch",
                "stretch_max_ns",
                &[UNBATCHED, MERGED, BOUNDED],
            ),
            Headline::new(
                "longest zone wait",
                "zone_wait_max_ns",
                &[UNBATCHED, MERGED, BOUNDED],
            ),
        ],
    },
    machines: &["turin-316"],
    clock: Clock::Virtual,
    designs: || variants_of("unpatched", [UNBATCHED, MERGED, BOUNDED]),
    verdicts: &[(UNBATCHED, MERGED), (UNBATCHED, BOUNDED)],
    published: &[],
    setup: Scene::new,
    metrics: |_| metrics_of(METRICS),
    shown: None,
    compared: Some(|_| vec![STRETCH, WAIT_MAX]),
    measure: |scene, case| scene.measure(&case.design.design, case.seed),
    cards: None,
    conclude,
};

const UNBATCHED: &str = "unbatched";
/// The design of the mailing-list thread's patch, as merged into Linux: frees in batches.
const MERGED: &str = "batched";
const BOUNDED: &str = "bounded";

/// The designs that run with each possible cause of stalls.
const TRIED: [&str; 2] = [UNBATCHED, BOUNDED];

/// The number of seeds with which each design runs for each possible cause of stalls.
const SEEDS: usize = 1;

/// The results of the runs with one possible cause of stalls.
struct Tried {
    cause: &'static str,
    scene: Scene,
    results: Results,
}

impl Tried {
    /// Returns whether one of Linux's detectors (soft lockup, RCU stall, hung task) reports
    /// something in a run of `design`.
    fn stalls(&self, design: &str) -> bool {
        [LOCKUPS, RCU, HUNG]
            .iter()
            .any(|reports| self.results.max(design, reports) > 0.0)
    }
}

fn conclude(run: &Run<'_, Scene, CpuStalls>) -> Result<(Vec<Table>, Finding), Error> {
    let mut few = run.options.clone();
    few.seeds.truncate(SEEDS);
    let causes = match run.options.effort {
        Effort::Full => CAUSES,
        Effort::Quick => &CAUSES[..2],
    };
    let mut tried = Vec::new();
    for cause in causes {
        let scene = run.scene.with(cause);
        let results = try_cause(run, &few, cause.name, &scene)?;
        tried.push(Tried {
            cause: cause.name,
            scene,
            results,
        });
    }
    let finding = finding(&tried);
    Ok((vec![run.scene.table(), causes_table(&tried)], finding))
}

fn try_cause(
    run: &Run<'_, Scene, CpuStalls>,
    options: &Options,
    name: &str,
    scene: &Scene,
) -> Result<Results, Error> {
    run.progress.start_on("stalls", run.machine, name);
    let designs = run.named(&TRIED);
    let compared = Comparison::run(&designs, options, run.progress, |case| {
        scene.measure(&case.design.design, case.seed).0
    })?;
    Ok(Results::new(compared))
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
            "run" => human(row.0.scene.length.0 as f64, Unit::Nanos),
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

/// Makes the report's finding, its conclusion in words. Every statement in it is computed from the
/// runs.
fn finding(tried: &[Tried]) -> Finding {
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
    Finding::new(
        format!(
            "Unbatched, the machine {}; bounded, it {}.",
            said(UNBATCHED),
            said(BOUNDED),
        ),
        [
            (
                "longest stretch on the machine as it is, unbatched",
                show(UNBATCHED),
            ),
            ("bounded", show(BOUNDED)),
            (
                "length of these runs",
                human(plain.scene.length.0 as f64, Unit::Nanos),
            ),
        ],
    )
    .further("A detector reports a stall if a CPU passes no reschedule point for more than 20 s.")
}
