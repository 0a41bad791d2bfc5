//! The simulated rates of the benchmark and the published rates, at every number of tasks.

use super::setup::{MODES, PARTS, name, rate};
use super::{FLAT, OURS, RssRun, TREE, change};
use crate::measure::metric::Unit;
use crate::report::misses::Basis;
use crate::report::value::human;
use crate::report::{Table, tabulate};
use crate::workload::page_fault::Mode;

/// A prediction counts as right if it differs from the published rate by at most this factor,
/// upwards or downwards.
const HOLDS_WITHIN: f64 = 2.0;

/// A row of the table: the benchmark in one mode, with one number of tasks.
struct Row<'a> {
    mode: Mode,
    tasks: u32,
    run: &'a RssRun<'a>,
}

impl Row<'_> {
    fn published(&self, design: &str) -> Option<f64> {
        self.run.published(design, &rate(self.mode, self.tasks))
    }

    /// The simulated rate with flat counters (as in Linux), divided by the published rate. Returns
    /// `None` if no rate was published.
    fn miss(&self) -> Option<f64> {
        let ours = self.run.results.median(FLAT, &rate(self.mode, self.tasks));
        Some(ours / self.published(FLAT)?)
    }

    /// Returns whether the published rate is independent, which means that no price (time of a
    /// simulated step) was fitted to it.
    fn is_independent(&self) -> bool {
        let metric = rate(self.mode, self.tasks);
        let mut figures = self.run.figures().iter().flat_map(|of| &of.figures);
        figures.any(|figure| figure.metric == metric.name && figure.basis == Basis::Independent)
    }

    fn holds(&self) -> Option<bool> {
        let miss = self.miss()?;
        Some((1.0 / HOLDS_WITHIN..=HOLDS_WITHIN).contains(&miss))
    }

    /// Names the part of the simulated work that takes most of the tasks' time, with its
    /// percentage. Faults and unmapping are left out, because they are the purpose of the
    /// benchmark.
    fn limit(&self) -> String {
        let times = self.run.kept[0].times(self.mode, self.tasks);
        let percents = times.expect("the benchmark ran with this number of tasks");
        let others = PARTS.into_iter().zip(percents).skip(2);
        let most = others.max_by(|(_, one), (_, other)| one.total_cmp(other));
        let (part, percent) = most.expect("there are more than two parts");
        format!("{part} {percent:.0} %")
    }

    fn ours(&self, design: &str) -> String {
        let ratio = self
            .run
            .results
            .ratio((FLAT, design), &rate(self.mode, self.tasks));
        change(ratio)
    }

    fn published_change(&self) -> String {
        let ratio = self.published(TREE).zip(self.published(FLAT));
        ratio.map_or_else(none, |(tree, flat)| change(tree / flat))
    }
}

fn none() -> String {
    "–".to_owned()
}

/// The table of all predictions.
pub(super) fn table(run: &RssRun<'_>) -> Table {
    let of_mode = |mode| {
        let rows = run.setup.tasks().iter();
        rows.map(move |&tasks| Row { mode, tasks, run })
    };
    let rows: Vec<Row<'_>> = MODES.into_iter().flat_map(of_mode).collect();
    let predicted = rows.iter().filter(|row| row.is_independent());
    let judged: Vec<bool> = predicted.filter_map(Row::holds).collect();
    let held = judged.iter().filter(|holds| **holds).count();
    let all = judged.len();
    let rate_of = |value: Option<f64>| value.map_or_else(none, |rate| human(rate, Unit::PerSecond));
    tabulate!(
        "Faults a second beside the published ones, by mode and number of tasks",
        format!(
            "{held} of {all} predictions are within a factor of {HOLDS_WITHIN} of the published \
             rate. No price was chosen to meet these {all} rates. The rates of one task are not \
             counted, because the price of a fault is fitted to them. The last column is what the \
             tasks spend most of their time on, beside faults and unmapping, in the first seed.",
        ),
        &rows,
        |row| {
            "mode" => name(row.mode),
            "tasks" => row.tasks,
            "published" => rate_of(row.published(FLAT)),
            "flat" => run.results.show(FLAT, &rate(row.mode, row.tasks)),
            "flat / published" => row.miss().map_or_else(none, |miss| format!("{miss:.2}")),
            "published tree" => row.published_change(),
            "tree" => row.ours(TREE),
            "one-sided" => row.ours(OURS),
            "limit" => row.limit(),
        }
    )
}
