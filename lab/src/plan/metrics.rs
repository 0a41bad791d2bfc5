//! The metrics of a plan's runs: which metrics each run measures, and which of these metrics the
//! reports show.

use plimsoll_mm::design::Design;
use plimsoll_mm::units::Nanos;
use plimsoll_sim::Stats;
use plimsoll_sim::profile::Profile;

use super::data::Plan;
use super::read::Problem;
use super::workloads::Workload;
use crate::error::Error;
use crate::measure::comparison::Comparison;
use crate::measure::locks;
use crate::measure::metric::{Metric, Unit};
use crate::measure::tasks::{self, Tasks};
use crate::report::answer::{self, Answer, Identical};
use crate::report::value::{NOTHING, human, ratio_of};
use crate::report::{Report, Table};
use crate::run::testbed::{Log, Testbed};

/// How many pages the workload allocated per second. This is a measure of the workload's progress.
const ALLOCATED: Metric = Metric::higher("pages_allocated_per_s", Unit::PagesPerSecond);

/// The metrics that a sweep (runs with many combinations of settings) shows if the plan names none.
pub(super) const OF_SWEEP: [&str; 3] = ["pages_allocated_per_s", "contentions", "total_wait_ns"];

/// The metrics of a run that lasted `length`, with their values.
pub(super) fn of_run(
    workload: &Workload,
    stats: &Stats,
    log: &Log,
    tasks: Option<&Tasks>,
    length: Nanos,
) -> Vec<(Metric, f64)> {
    let allocated = log.allocated as f64 * 1e9 / length.0 as f64;
    let mut metrics = vec![(ALLOCATED, allocated)];
    metrics.extend(locks::metrics(stats, &log.holds));
    let refreshes = Metric::neither("refreshes", Unit::Count);
    metrics.push((refreshes, log.refreshes as f64));
    let decayed = Metric::neither("pages_decayed", Unit::Pages);
    metrics.push((decayed, log.decayed as f64));
    metrics.extend(tasks.into_iter().flat_map(|tasks| tasks.metrics(length)));
    if workload.swap.is_some() {
        metrics.extend(log.reclaim.metrics());
    }
    metrics
}

/// Adds a problem to `problems` for each metric, label and machine that the plan names although it
/// does not exist. `profile` can be the profile of any machine, because all machines have the same
/// metrics.
pub(super) fn check(
    plan: &Plan,
    workload: &Workload,
    profile: &Profile,
    problems: &mut Vec<Problem>,
) {
    if plan.metrics.is_empty() && plan.published.is_empty() {
        return;
    }
    let (stats, log) = Testbed::new(profile, Design::OURS, 1).finish();
    let measured = of_run(workload, &stats, &log, None, Nanos::SECOND);
    let of_tasks = tasks::METRICS
        .into_iter()
        .filter(|_| workload.task.is_some());
    let known: Vec<Metric> = measured
        .into_iter()
        .map(|(metric, _)| metric)
        .chain(of_tasks)
        .collect();
    let known: Vec<&str> = known.iter().map(|metric| &*metric.name).collect();
    let labels: Vec<&str> = plan.designs.iter().map(|of| of.label.as_str()).collect();
    let machines: Vec<&str> = plan.machines.iter().map(String::as_str).collect();
    for (nth, name) in plan.metrics.iter().enumerate() {
        if plan.metrics[..nth].contains(name) {
            let why = format!("the metric `{name}` stands here twice; remove one of the two");
            problems.push(Problem {
                key: format!("metrics[{nth}]"),
                on_key: false,
                why: Error::Invalid(why),
            });
        }
    }
    let mut demand = |key: String, kind, name: &str, known: &[&str]| {
        if !known.contains(&name) {
            let why = Error::unknown(kind, name, known);
            problems.push(Problem {
                key,
                on_key: false,
                why,
            });
        }
    };
    for (nth, name) in plan.metrics.iter().enumerate() {
        demand(format!("metrics[{nth}]"), "metric", name, &known);
    }
    for (nth, of) in plan.published.iter().enumerate() {
        let key = |what: &str| format!("published[{nth}].{what}");
        demand(key("metric"), "metric", &of.metric, &known);
        demand(key("design"), "design", &of.design, &labels);
        demand(
            key("machine"),
            "machine of this experiment",
            &of.machine,
            &machines,
        );
    }
}

/// Returns whether the reports of `plan` show `metric`. If the plan names no metrics, the reports
/// show all metrics.
pub(super) fn shows(plan: &Plan, metric: &Metric) -> bool {
    plan.metrics.is_empty() || plan.metrics.iter().any(|name| *name == metric.name)
}

/// The value that was published for `metric` under `design` on `machine`, according to `plan`.
pub(super) fn published(plan: &Plan, machine: &str, design: &str, metric: &Metric) -> Option<f64> {
    let of = plan
        .published
        .iter()
        .find(|of| of.machine == machine && of.design == design && of.metric == metric.name);
    of.and_then(|of| of.value.parse().ok())
}

/// Fills `report` with the rows and verdicts of `runs` for the metrics that `plan` shows, and with
/// the plan's published figures on `machine`.
pub(super) fn fill(report: &mut Report, plan: &Plan, machine: &str, runs: &Comparison) {
    let known = |design: &str, metric: &Metric| published(plan, machine, design, metric);
    report.rows = runs.rows(known);
    report.rows.retain(|row| shows(plan, &row.metric));
    report.verdicts = runs.verdicts(0);
    report.verdicts.retain(|row| shows(plan, &row.metric));
    report.tables.extend(sources(report, plan, machine));
}

/// The metrics of tasks that no run in `report` has measured, because no task has ended. If `plan`
/// names its metrics, the answer already has those of them that no run has measured.
pub(super) fn unmeasured_of_tasks(
    report: &Report,
    plan: &Plan,
    workload: &Workload,
) -> Vec<String> {
    if !plan.metrics.is_empty() || workload.task.is_none() {
        return Vec::new();
    }
    let is_measured =
        |metric: &Metric| report.rows.iter().any(|row| row.metric.name == metric.name);
    let unmeasured = tasks::METRICS.into_iter().filter(|of| !is_measured(of));
    unmeasured.map(|of| of.name.into_owned()).collect()
}

/// The metrics with which a report begins if the plan names none: how often and how long CPUs wait
/// for the zone locks, and how many pages the workload allocates.
const HEADLINES: [&str; 3] = ["contentions", "total_wait_ns", "pages_allocated_per_s"];

/// Makes the answer with which `report` begins, from the report's rows and verdicts. `designs` are
/// the names of the designs. `identical` has the designs whose runs were identical to the runs of
/// the first design.
pub(super) fn answer(
    report: &Report,
    plan: &Plan,
    designs: &[String],
    identical: Vec<Identical>,
) -> Answer {
    let question = if plan.question.is_empty() {
        format!(
            "What changes under {} on {} with {}?",
            plan.name,
            report.machine,
            answer::instead_of(designs)
        )
    } else {
        plan.question.clone()
    };
    let named: Vec<&str> = plan.metrics.iter().map(String::as_str).collect();
    let shown = if named.is_empty() {
        &HEADLINES[..]
    } else {
        &named
    };
    let figures = (&report.rows[..], &report.verdicts[..]);
    answer::of_designs(question, designs, shown, figures, identical)
}

/// Makes the table of the published figures on `machine`, with their sources. Returns `None` if
/// there are no published figures.
fn sources(report: &Report, plan: &Plan, machine: &str) -> Option<Table> {
    let of_machine = plan.published.iter().filter(|of| of.machine == machine);
    let row = |of: &super::data::PublishedOf| {
        let ours = report
            .rows
            .iter()
            .find(|row| row.design == of.design && row.metric.name == of.metric);
        let value: f64 = of.value.parse().unwrap_or(f64::NAN);
        let unit = ours.map_or(Unit::Count, |row| row.metric.unit);
        let ours = ours.map(|row| row.estimate.median);
        vec![
            of.metric.clone(),
            of.design.clone(),
            human(value, unit),
            ours.map_or(NOTHING.to_owned(), |ours| human(ours, unit)),
            ours.map_or(NOTHING.to_owned(), |ours| ratio_of(value, ours)),
            of.source.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = of_machine.map(row).collect();
    (!rows.is_empty()).then(|| Table {
        title: "Published figures, and ours".to_owned(),
        note: String::new(),
        columns: [
            "metric",
            "design",
            "published",
            "ours",
            "ours / published",
            "source",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows,
    })
}
