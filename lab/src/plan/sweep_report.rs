//! Runs every point (combination of values) of a sweep, and makes a table of each metric with all
//! points.

use super::command;
use super::data::{Plan, Sweep, Target};
use super::drive::{self, How};
use super::metrics::OF_SWEEP;
use super::prepare::{PlannedMachine, Prepared, prepare};
use super::sweep::{self, Point};
use crate::catalog::tuned::Tuned;
use crate::error::Error;
use crate::measure::comparison::{Comparison, fold_hashes};
use crate::measure::metric::Better;
use crate::measure::stats::Verdict;
use crate::report::value::{human_estimate, human_ratio};
use crate::report::{Report, Table, VerdictRow, answer};
use crate::run::progress::Progress;

/// Runs all `points` of `plan`, which [`sweep::points`] has made. Each point runs on all machines
/// of its plan. If, at every point, the runs of a design are identical to the runs of the first
/// design, the answer of the report says so.
///
/// # Errors
/// If a point cannot run.
pub fn run(
    plan: &Plan,
    sweep: &Sweep,
    points: &[Point],
    how: &How,
    progress: &Progress,
) -> Result<Report, Error> {
    let mut tables = empty_tables(plan, sweep);
    let mut hashes = Vec::new();
    let mut identical = vec![true; plan.designs.len()];
    each_point(
        sweep,
        points,
        how,
        progress,
        |point, prepared, planned, runs| {
            hashes.push(runs.hash());
            for (nth, is_identical) in identical.iter_mut().enumerate() {
                *is_identical &= runs.are_identical(0, nth);
            }
            let mut first = point.values.clone();
            if shows_machine(plan, sweep) {
                first.insert(0, planned.machine.clone());
            }
            for (table, metric) in tables.iter_mut().zip(shown(plan)) {
                table.rows.extend(rows(prepared, runs, metric, &first));
            }
        },
    )?;
    let seeds: Vec<u64> = (1..=plan.seeds).collect();
    let machines = match sweep::machine_axis(sweep) {
        Some(_) => "several machines".to_owned(),
        None => plan.machines.join(", "),
    };
    let hash = fold_hashes(hashes.iter().copied());
    let mut report = Report::new(&plan.name, &machines, plan.card, &seeds, hash);
    report.tables = tables;
    report.finding = about(plan, sweep, points);
    if let Some(point) = points.first() {
        let prepared = prepare(&point.plan).map_err(command::first)?;
        let identical = (1..identical.len()).filter(|nth| identical[*nth]);
        let identical = identical.map(|nth| drive::identical_to_first(&prepared, nth));
        report.answer.identical = identical.collect();
        report.answer.sides = answer::letters(plan.designs.len());
    }
    Ok(report)
}

/// Runs each of `points` (combinations of values) on each machine of its plan, and passes the runs
/// to `take`.
pub(super) fn each_point(
    sweep: &Sweep,
    points: &[Point],
    how: &How,
    progress: &Progress,
    mut take: impl FnMut(&Point, &Prepared<'_>, &PlannedMachine, &Comparison),
) -> Result<(), Error> {
    for point in points {
        let prepared = prepare(&point.plan).map_err(command::first)?;
        for planned in &prepared.machines {
            let machine = &planned.profile.name;
            progress.start_on(&point.plan.name, machine, &point.title(sweep));
            let (runs, _) = drive::compare(&prepared, planned, how, progress)?;
            take(point, &prepared, planned, &runs);
        }
    }
    Ok(())
}

/// The names of the metrics that the report shows.
pub(super) fn shown(plan: &Plan) -> Vec<&str> {
    if plan.metrics.is_empty() {
        OF_SWEEP.to_vec()
    } else {
        plan.metrics.iter().map(String::as_str).collect()
    }
}

/// Returns whether the tables have a column for the machine. They have one if the plan has several
/// machines and the machine is not an axis. (If the machine is an axis, it has a column like every
/// axis.)
fn shows_machine(plan: &Plan, sweep: &Sweep) -> bool {
    plan.machines.len() > 1 && sweep::machine_axis(sweep).is_none()
}

/// Makes a table for each metric that the report shows, with columns but without rows.
fn empty_tables(plan: &Plan, sweep: &Sweep) -> Vec<Table> {
    let base = &plan.designs[0].label;
    let machine = shows_machine(plan, sweep).then(|| "machine".to_owned());
    let axes = sweep.axes.iter().map(|axis| column(&axis.target));
    let before: Vec<String> = machine.into_iter().chain(axes).collect();
    let table = |metric: &str| {
        let ratio = format!("/ {base}");
        let after = ["design", "median", &ratio, "verdict"].map(str::to_owned);
        Table {
            title: format!("{metric} at every point"),
            note: String::new(),
            columns: before.iter().cloned().chain(after).collect(),
            rows: Vec::new(),
        }
    };
    shown(plan).into_iter().map(table).collect()
}

/// The head of an axis' column: the axis' key in the table `[sweep]`, but without the prefix of the
/// key, because columns are narrow.
fn column(target: &Target) -> String {
    match target {
        Target::Machine | Target::Memory | Target::Card => target.key(),
        Target::Workload(name) | Target::Knob(name) => name.clone(),
        Target::Price(name) => format!("{name} ×"),
    }
}

/// The rows of one point (combination of values) on one machine in the table of `metric`: one row
/// for each design. Each row begins with the cells `first`.
fn rows(
    prepared: &Prepared<'_>,
    runs: &Comparison,
    metric: &str,
    first: &[String],
) -> Vec<Vec<String>> {
    let rows = runs.rows(|_, _| None);
    let verdicts = runs.verdicts(0);
    let row = |(nth, label): (usize, &Tuned)| {
        let label = &label.named.name;
        let mine = rows
            .iter()
            .find(|row| row.design == *label && row.metric.name == metric);
        let value = mine.map(|row| human_estimate(&row.estimate, row.metric.unit));
        let verdict = verdicts
            .iter()
            .find(|row| row.b == *label && row.metric.name == metric);
        let (ratio, verdict) = match verdict {
            _ if mine.is_none() => (String::new(), "not measured"),
            _ if nth > 0 && runs.are_identical(0, nth) => (String::new(), "identical runs"),
            Some(row) => (ratio(row), words(row)),
            None => (String::new(), ""),
        };
        let last = [value.unwrap_or_default(), ratio, verdict.to_owned()];
        let cells = first.iter().chain([label]).cloned();
        cells.chain(last).collect()
    };
    prepared.designs.iter().enumerate().map(row).collect()
}

/// The ratio to the first design, as text. Empty if the values are equal on every seed, because
/// they may all be zero, and the ratio of two zeros says nothing.
fn ratio(row: &VerdictRow) -> String {
    match row.comparison.verdict {
        Verdict::Equal => String::new(),
        _ => human_ratio(&row.comparison.ratio),
    }
}

pub(super) fn words(row: &VerdictRow) -> &'static str {
    match (row.comparison.verdict, row.metric.better) {
        (Verdict::Lower, Better::Lower) => "lower (better)",
        (Verdict::Lower, Better::Higher) => "lower (worse)",
        (Verdict::Lower, Better::Neither) => "lower",
        (Verdict::Higher, Better::Higher) => "higher (better)",
        (Verdict::Higher, Better::Lower) => "higher (worse)",
        (Verdict::Higher, Better::Neither) => "higher",
        (Verdict::NoDifference, _) => "no difference seen",
        (Verdict::Equal | Verdict::TooFewSeeds, _) => row.comparison.verdict.words(),
    }
}

fn about(plan: &Plan, sweep: &Sweep, points: &[Point]) -> String {
    let question = if plan.question.is_empty() {
        String::new()
    } else {
        format!("The question: {} ", plan.question)
    };
    let drawn = sweep.random.map_or(String::new(), |draw| {
        format!(", drawn from the grid with seed {}", draw.seed)
    });
    format!(
        "{question}{} points{drawn}, under the workload {}. Each figure is the median over the \
         seeds with its interval. The column `/ {}` compares a design with {} at the same point, \
         paired by seed.",
        points.len(),
        plan.workload,
        plan.designs[0].label,
        plan.designs[0].label,
    )
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::plan::data::{Axis, AxisValue};
    use crate::run::jobs::Jobs;

    #[test]
    fn a_metric_that_a_point_did_not_measure_is_said_not_to_be_measured() {
        let plan = Plan {
            length_ms: Some(1),
            seeds: 1,
            metrics: vec!["task_time_mean_ns".to_owned()],
            ..command::plan("stress-vm", "laptop-2", &["linux", "tree"], &[]).unwrap()
        };
        let sweep = Sweep {
            axes: vec![Axis {
                target: Target::Workload("workers".to_owned()),
                values: vec![AxisValue::Whole(1)],
            }],
            random: None,
        };
        let how = How {
            jobs: Jobs::new(NonZeroUsize::MIN),
            record: None,
            watch: None,
            trace: None,
        };
        let points = sweep::points(&plan, &sweep).unwrap();
        let report = run(&plan, &sweep, &points, &how, &Progress::hidden()).unwrap();
        let verdicts = report.tables[0].rows.iter().map(|row| &row[4]);
        assert_eq!(
            verdicts.collect::<Vec<_>>(),
            ["not measured", "not measured"]
        );
    }
}
