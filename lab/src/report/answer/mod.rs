//! The answer with which a report begins: the question, one sentence, and a table of at most three
//! metrics that compares the designs.
//!
//! The submodule `sides` names the designs, and `words` puts verdicts into words. `remarks` makes
//! the lines below the table. `grid` and `text` make lines of text from an answer. `short` counts
//! the verdicts of a report.

mod grid;
pub(crate) mod remarks;
pub(crate) mod short;
mod sides;
pub mod text;
pub(crate) mod words;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::sides::instead_of;
pub(crate) use self::sides::letters;
use super::misses::Beside;
use super::{Row, VerdictRow};
use crate::measure::metric::Metric;
use crate::measure::stats::{self, Estimate, Verdict};

/// The largest number of rows of an answer.
pub const ROWS_MAX: usize = 3;
/// The table of an answer has a column for each side (each compared design) if there are at most
/// this many sides. If there are more, it has a row for each side and a column for each metric.
pub(crate) const COLUMNS_MAX: usize = 3;

/// The answer of a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The question, on one line.
    pub question: String,
    /// The answer in one sentence.
    pub sentence: String,
    /// The names of the sides (the compared designs), such as `Linux`, `patch` and `ours`. They are
    /// the heads of the columns. The other sides are compared with the first.
    pub sides: Vec<String>,
    /// The name of the design of each side. Empty if a side has different designs for different
    /// metrics; then each cell has the name of its design.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub designs: Vec<String>,
    /// The metrics that the answer shows, at most [`ROWS_MAX`].
    pub rows: Vec<AnswerRow>,
    /// The names of those metrics that the report should show, but that no run of any design has
    /// measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmeasured: Vec<String>,
    /// The sides (compared designs) whose runs were identical to the runs of the first side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identical: Vec<Identical>,
}

/// A side (a compared design) whose runs were identical to the runs of the first side on every
/// seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identical {
    /// The name of the design with which this design is compared.
    pub a: String,
    /// The name of this design.
    pub b: String,
    /// Why nothing differed, and what the user could run instead. This is a clause without a full
    /// stop.
    pub why: String,
}

impl fmt::Display for Identical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { a, b, why } = self;
        write!(f, "`{b}` and `{a}` ran identically on every seed: {why}.")
    }
}

/// One metric of an answer, with its value for each side (each compared design).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerRow {
    /// What was measured, in a few words.
    pub what: String,
    /// The metric.
    pub metric: Metric,
    /// The value of each side (each compared design). `None` if no run of the side has measured
    /// this metric.
    pub cells: Vec<Option<AnswerCell>>,
    /// The published value of the second compared design, divided by that of the first.
    pub published_ratio: Option<f64>,
}

/// The value of one side (one compared design).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerCell {
    /// The name of the design.
    pub design: String,
    /// The median over the seeds, with its interval.
    pub estimate: Estimate,
    /// The number of seeds whose runs have measured the metric, as in [`Row::seeds`].
    #[serde(default)]
    pub seeds: usize,
    /// True if the value is 0 on every seed.
    #[serde(default)]
    pub is_zero: bool,
    /// The comparison of this design with the first design. `None` if this is the first design, or
    /// if no seed has measured both designs.
    pub compared: Option<stats::Comparison>,
    /// The number of seeds on which this design and the first design have measured the metric, as
    /// in [`VerdictRow::pairs`].
    #[serde(default)]
    pub pairs: usize,
}

impl Answer {
    /// Returns whether all runs were identical, that is, the runs of every design were identical to
    /// the runs of the first design. Returns false if only one design ran.
    #[must_use]
    pub fn is_all_identical(&self) -> bool {
        self.sides.len() > 1 && self.identical.len() + 1 == self.sides.len()
    }

    /// Returns whether the runs of `design` were identical to the runs of the first design.
    fn is_identical(&self, design: &str) -> bool {
        self.identical.iter().any(|of| of.b == design)
    }
}

impl AnswerRow {
    /// For each cell of this row whose design is compared with the first design: the index of the
    /// cell, the cell, and the comparison.
    pub(crate) fn compared(&self) -> impl Iterator<Item = (usize, &AnswerCell, stats::Comparison)> {
        let cells = self.cells.iter().enumerate();
        cells.filter_map(|(nth, cell)| {
            let cell = cell.as_ref()?;
            Some((nth, cell, cell.compared?))
        })
    }

    /// Returns whether the verdict of `cell` rests on other seeds than the medians, because only one
    /// of the two compared designs has measured the metric on some seeds. Then the medians may
    /// contradict the verdict.
    pub(crate) fn is_apart(&self, cell: &AnswerCell) -> bool {
        let first = self.cells.first().and_then(Option::as_ref);
        let seeds = first.map_or(0, |first| first.seeds.max(cell.seeds));
        let verdict = cell.compared.map(|of| of.verdict);
        let has_verdict = verdict.is_some_and(|verdict| verdict != Verdict::TooFewSeeds);
        // The number of pairs is 0 in a report that an older version of Plimsoll has kept.
        has_verdict && (1..seeds).contains(&cell.pairs)
    }

    /// Returns whether every compared design has been measured and has the value 0 on every seed.
    pub(crate) fn is_all_zero(&self) -> bool {
        let is_zero = |cell: &Option<AnswerCell>| cell.as_ref().is_some_and(|cell| cell.is_zero);
        self.cells.iter().all(is_zero)
    }
}

/// The published ratio of the design `b` to the design `a`. `None` if `figures` does not have this
/// ratio.
pub(crate) fn published_ratio(figures: &[Beside], metric: &str, a: &str, b: &str) -> Option<f64> {
    let of = |figure: &&Beside| {
        let place = figure.place.as_ref();
        place.is_some_and(|place| place.metric == metric && place.designs == [a, b])
    };
    figures.iter().find(of).and_then(Beside::published_ratio)
}

/// Makes the answer of a command that compares designs of the user's choice. The first of `designs`
/// is A, and the others are B. `metrics` are the names of the metrics to show. If there are no rows
/// of a metric, the answer says that it was not measured. `identical` has the designs whose runs
/// were identical to the runs of A.
#[must_use]
pub fn of_designs(
    question: String,
    designs: &[String],
    metrics: &[&str],
    (rows, verdicts): (&[Row], &[VerdictRow]),
    identical: Vec<Identical>,
) -> Answer {
    let Some(a) = designs.first() else {
        return Answer::default();
    };
    let row = |name: &&str| {
        let cell = |design: &String| {
            let found = rows
                .iter()
                .find(|row| row.design == *design && row.metric.name == *name)?;
            let compared = verdicts
                .iter()
                .find(|row| row.a == *a && row.b == *design && row.metric.name == *name);
            Some(AnswerCell {
                design: design.clone(),
                estimate: found.estimate,
                seeds: found.seeds,
                is_zero: found.is_zero,
                compared: compared.map(|row| row.comparison),
                pairs: compared.map_or(0, |row| row.pairs),
            })
        };
        let metric = &rows.iter().find(|row| row.metric.name == *name)?.metric;
        Some(AnswerRow {
            what: words::plain(metric),
            metric: metric.clone(),
            cells: designs.iter().map(cell).collect(),
            published_ratio: None,
        })
    };
    let is_measured = |name: &&&str| rows.iter().any(|row| row.metric.name == **name);
    let unmeasured = metrics.iter().filter(|name| !is_measured(name));
    let unmeasured = unmeasured.map(|name| (*name).to_owned()).collect();
    let rows: Vec<AnswerRow> = metrics.iter().filter_map(row).take(ROWS_MAX).collect();
    let sides = letters(designs.len());
    Answer {
        question,
        sentence: words::sentence(designs, &sides, &rows, &identical),
        sides,
        designs: designs.to_vec(),
        rows,
        unmeasured,
        identical,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn names(designs: &[&str]) -> Vec<String> {
        designs.iter().map(|design| (*design).to_owned()).collect()
    }

    #[test]
    fn an_answer_has_the_rows_that_were_measured() {
        let report = sample();
        let designs = names(&["aligned", "phased+shepherd-phased"]);
        let metrics = ["total_wait_ns", "no_such_metric", "contentions"];
        let answer = of_designs(
            "which?".to_owned(),
            &designs,
            &metrics,
            (&report.rows, &report.verdicts),
            Vec::new(),
        );
        let whats: Vec<&str> = answer.rows.iter().map(|row| &*row.what).collect();
        assert_eq!(whats, ["total wait", "contentions"]);
        assert_eq!(answer.unmeasured, ["no_such_metric"]);
        assert_eq!(answer.sides, ["A", "B"]);
        let cell = answer.rows[1].cells[1].as_ref().expect("B was measured");
        assert_eq!(cell.estimate.median, 117.0);
        assert!(cell.compared.is_some());
        assert!(
            answer.rows[1].cells[0]
                .as_ref()
                .is_some_and(|a| a.compared.is_none())
        );
        let figures = (&report.rows[..], &report.verdicts[..]);
        let none = of_designs(String::new(), &[], &metrics, figures, Vec::new());
        assert_eq!(none, Answer::default());
    }
}
