//! Runs some points (combinations of values) of a sweep. The resulting table does not show every
//! point. It only counts the verdicts, because another program reads the measured values.

use std::collections::BTreeMap;

use super::data::{Plan, Sweep};
use super::drive::How;
use super::sweep::Point;
use super::sweep_report::{each_point, shown, words};
use crate::error::Error;
use crate::measure::comparison::Comparison;
use crate::report::Table;
use crate::run::progress::Progress;

/// For each design after the first, and for each metric, how many points (combinations of values)
/// have each verdict.
type Counts = BTreeMap<(usize, usize), BTreeMap<&'static str, usize>>;

/// Runs `points` of `plan`, and returns the table of the verdicts. Each point runs on all machines
/// of its plan.
///
/// # Errors
/// If a point cannot run.
pub fn run(
    plan: &Plan,
    sweep: &Sweep,
    points: &[Point],
    how: &How,
    progress: &Progress,
) -> Result<Table, Error> {
    let metrics = shown(plan);
    let (mut counts, mut cases) = (Counts::new(), 0);
    each_point(sweep, points, how, progress, |_, _, _, runs| {
        cases += runs.designs().len() * runs.seeds().len();
        count(&mut counts, runs, &metrics);
    })?;
    let base = &plan.designs[0].label;
    let row = |((design, metric), of): (&(usize, usize), &BTreeMap<&str, usize>)| {
        let said = of
            .iter()
            .map(|(words, points)| format!("{words}: {points}"));
        let said: Vec<String> = said.collect();
        let design = plan.designs[*design].label.clone();
        vec![design, metrics[*metric].to_owned(), said.join(", ")]
    };
    let points = match points.len() {
        1 => "1 point".to_owned(),
        count => format!("{count} points"),
    };
    Ok(Table {
        title: format!("{}: {points}, {cases} cases", plan.name),
        note: format!(
            "At how many points each design differs from {base}, paired by seed. \
             `plimsoll results export` writes the samples."
        ),
        columns: ["design", "metric", "verdict and number of points"]
            .map(str::to_owned)
            .to_vec(),
        rows: counts.iter().map(row).collect(),
    })
}

/// Adds the verdicts of one point (combination of values) to `counts`.
fn count(counts: &mut Counts, runs: &Comparison, metrics: &[&str]) {
    let verdicts = runs.verdicts(0);
    for (design, label) in runs.designs().iter().enumerate().skip(1) {
        for (metric, name) in metrics.iter().enumerate() {
            let mut of_metric = verdicts.iter();
            let row = of_metric.find(|row| row.b == *label && row.metric.name == *name);
            let said = match row {
                _ if runs.are_identical(0, design) => "identical runs",
                Some(row) => words(row),
                None => "not measured",
            };
            let of = counts.entry((design, metric)).or_default();
            *of.entry(said).or_default() += 1;
        }
    }
}
