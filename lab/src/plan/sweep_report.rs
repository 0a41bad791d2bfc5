//! Runs every point of a sweep, and makes one table of all points.

use super::data::{Plan, Sweep};
use super::drive::{self, How};
use super::metrics::OF_SWEEP;
use super::prepare::{Prepared, prepare};
use super::sweep::{self, Point};
use super::{command, difference};
use crate::error::Error;
use crate::measure::comparison::{Comparison, fold_hashes};
use crate::measure::metric::Metric;
use crate::measure::stats::Verdict;
use crate::report::value::{human_estimate, human_ratio};
use crate::report::{Report, Row, Table, VerdictRow};
use crate::run::progress::Progress;

/// Runs all `points` of `plan`, which [`sweep::points`] has made, on every machine of each.
///
/// # Errors
/// [`Error::Invalid`] if the runs of a design are identical to those of the first one at every
/// point.
pub fn run(
    plan: &Plan,
    sweep: &Sweep,
    points: &[Point],
    how: &How,
    progress: &Progress,
) -> Result<Report, Error> {
    let mut rows = Vec::new();
    let mut hashes = Vec::new();
    let mut identical = vec![true; plan.designs.len()];
    let has_machine_axis = sweep::machine_axis(sweep).is_some();
    for point in points {
        let prepared = prepare(&point.plan).map_err(command::first)?;
        for scene in &prepared.scenes {
            let machine = &scene.profile.name;
            let title = format!("{} on {machine}, {}", plan.name, point.title(sweep));
            progress.start(title);
            let (runs, _) = drive::compare(&prepared, scene, how, progress)?;
            hashes.push(runs.hash());
            for (nth, is_identical) in identical.iter_mut().enumerate() {
                *is_identical &= runs.are_identical(0, nth);
            }
            let mut first = point.values.clone();
            if !has_machine_axis {
                first.insert(0, scene.machine.clone());
            }
            rows.extend(of_point(&prepared, &runs, &first));
        }
    }
    if let Some(nth) = (1..identical.len()).find(|nth| identical[*nth]) {
        let prepared = prepare(&points[0].plan).map_err(command::first)?;
        let (a, b) = (&prepared.designs[0], &prepared.designs[nth]);
        return Err(difference::identical(a, b, prepared.workload));
    }
    let seeds: Vec<u64> = (1..=plan.seeds).collect();
    let machines = if has_machine_axis {
        "several machines".to_owned()
    } else {
        plan.machines.join(", ")
    };
    let hash = fold_hashes(hashes.iter().copied());
    let mut report = Report::new(&plan.name, &machines, plan.card, &seeds, hash);
    report.tables = vec![table(plan, sweep, has_machine_axis, rows)];
    report.finding = about(plan, sweep, points);
    Ok(report)
}

/// The names of the metrics that the table shows.
fn shown(plan: &Plan) -> Vec<&str> {
    if plan.metrics.is_empty() {
        OF_SWEEP.to_vec()
    } else {
        plan.metrics.iter().map(String::as_str).collect()
    }
}

/// The rows of one point on one machine: one for each design, each of which begins with `first`.
fn of_point(prepared: &Prepared<'_>, runs: &Comparison, first: &[String]) -> Vec<Vec<String>> {
    let rows = runs.rows(|_, _| None);
    let verdicts = runs.verdicts(0);
    let row = |(nth, label): (usize, &String)| {
        let mut cells = first.to_vec();
        cells.push(label.clone());
        for name in shown(prepared.plan) {
            let is_it = |metric: &Metric| metric.name == name;
            let mine = rows
                .iter()
                .find(|row| row.design == *label && is_it(&row.metric));
            let show = |row: &Row| human_estimate(&row.estimate, row.metric.unit);
            cells.push(mine.map(show).unwrap_or_default());
            let verdict = verdicts
                .iter()
                .find(|row| row.b == *label && is_it(&row.metric));
            let against = if nth > 0 && runs.are_identical(0, nth) {
                "identical runs".to_owned()
            } else {
                verdict.map(words).unwrap_or_default()
            };
            cells.push(against);
        }
        cells
    };
    runs.designs().iter().enumerate().map(row).collect()
}

/// The ratio to the first design with its verdict. A ratio of two medians of zero would say
/// nothing.
fn words(row: &VerdictRow) -> String {
    let ratio = human_ratio(&row.comparison.ratio);
    match row.comparison.verdict {
        Verdict::Lower => format!("{ratio} lower"),
        Verdict::Higher => format!("{ratio} higher"),
        Verdict::NoDifference => format!("{ratio} no difference seen"),
        Verdict::Equal => Verdict::Equal.words().to_owned(),
        Verdict::TooFewSeeds => format!("{ratio} too few seeds"),
    }
}

fn table(plan: &Plan, sweep: &Sweep, has_machine_axis: bool, rows: Vec<Vec<String>>) -> Table {
    let base = &plan.designs[0].label;
    let mut columns: Vec<String> = Vec::new();
    if !has_machine_axis {
        columns.push("machine".to_owned());
    }
    columns.extend(sweep.axes.iter().map(|axis| axis.target.key()));
    columns.push("design".to_owned());
    for name in shown(plan) {
        columns.push(name.to_owned());
        columns.push(format!("/ {base}"));
    }
    Table {
        title: "Every point of the sweep".to_owned(),
        note: format!(
            "Each figure is the median over the seeds with its interval. The columns `/ {base}` \
             compare a design with {base} at the same point, paired by seed."
        ),
        columns,
        rows,
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
        "{question}{} points{drawn}, under the workload {}.",
        points.len(),
        plan.workload
    )
}
