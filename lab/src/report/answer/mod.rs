//! The answer with which a report begins: the question, one sentence, and a table of at most three
//! metrics that compares a few designs.
//!
//! The submodule `words` puts verdicts into words, `text` makes lines of text of an answer, and
//! `short` counts the verdicts of a report.

pub(crate) mod short;
pub mod text;
pub(crate) mod words;

use serde::{Deserialize, Serialize};

use super::misses::Beside;
use super::{Row, VerdictRow};
use crate::measure::metric::Metric;
use crate::measure::stats::{self, Estimate};

/// The largest number of rows of an answer.
pub const ROWS_MAX: usize = 3;

/// The answer of a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The question, on one line.
    pub question: String,
    /// The answer in one sentence.
    pub sentence: String,
    /// The names of the compared sides, such as `Linux`, `patch` and `ours`, as heads of columns.
    /// The first side is the base with which the others are compared.
    pub sides: Vec<String>,
    /// The metrics that the answer shows, at most [`ROWS_MAX`].
    pub rows: Vec<AnswerRow>,
}

/// One metric of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerRow {
    /// What was measured, in a few words.
    pub what: String,
    /// The metric.
    pub metric: Metric,
    /// The value of each side; `None` if the side has no design for this metric.
    pub cells: Vec<Option<AnswerCell>>,
    /// The published value of the second side, divided by the published value of the first side.
    pub published_ratio: Option<f64>,
}

/// The value of one side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerCell {
    /// The name of the design.
    pub design: String,
    /// The median over the seeds, with its interval.
    pub estimate: Estimate,
    /// The comparison of this side with the first side; `None` for the first side itself.
    pub compared: Option<stats::Comparison>,
}

impl AnswerRow {
    /// Each cell of this row that is compared with the base, with the index of its side and the
    /// comparison.
    pub(crate) fn compared(&self) -> impl Iterator<Item = (usize, &AnswerCell, stats::Comparison)> {
        let cells = self.cells.iter().enumerate();
        cells.filter_map(|(nth, cell)| {
            let cell = cell.as_ref()?;
            Some((nth, cell, cell.compared?))
        })
    }

    /// Returns whether every side has the value 0 on every seed.
    pub(crate) fn is_all_zero(&self) -> bool {
        let mut cells = self.cells.iter().flatten();
        cells.all(|cell| cell.estimate.low == 0.0 && cell.estimate.high == 0.0)
    }
}

/// The published ratio of the design `b` to the design `a`, if `figures` has one.
pub(crate) fn published_ratio(figures: &[Beside], metric: &str, a: &str, b: &str) -> Option<f64> {
    let of = |figure: &&Beside| {
        let place = figure.place.as_ref();
        place.is_some_and(|place| place.metric == metric && place.designs == [a, b])
    };
    figures.iter().find(of).and_then(Beside::published_ratio)
}

/// Makes the answer of a command that compares designs which the user names: the first of `designs`
/// is A, the others are B. `metrics` are the names of the metrics to show, if the rows have them.
#[must_use]
pub fn of_designs(
    question: String,
    designs: &[String],
    metrics: &[&str],
    rows: &[Row],
    verdicts: &[VerdictRow],
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
                compared: compared.map(|row| row.comparison),
            })
        };
        let metric = &rows.iter().find(|row| row.metric.name == *name)?.metric;
        Some(AnswerRow {
            what: words::plain(metric),
            metric: metric.clone(),
            cells: designs.iter().take(SIDES_MAX).map(cell).collect(),
            published_ratio: None,
        })
    };
    let rows: Vec<AnswerRow> = metrics.iter().filter_map(row).take(ROWS_MAX).collect();
    Answer {
        question,
        sentence: words::sentence(designs, &rows),
        sides: letters(designs.len()),
        rows,
    }
}

/// The largest number of designs that an answer shows beside each other.
const SIDES_MAX: usize = 3;

/// The heads of the columns of `designs` designs: A and B, or A, B1 and B2.
fn letters(designs: usize) -> Vec<String> {
    let letter = |nth: usize| match (nth, designs) {
        (0, _) => "A".to_owned(),
        (_, 2) => "B".to_owned(),
        (nth, _) => format!("B{nth}"),
    };
    (0..designs.min(SIDES_MAX)).map(letter).collect()
}

/// The designs of a comparison as a question names them: `ours` (B) instead of `linux` (A).
#[must_use]
pub fn instead_of(designs: &[String]) -> String {
    let letters = letters(designs.len());
    let named = designs.iter().zip(&letters);
    let named: Vec<String> = named
        .map(|(design, letter)| format!("`{design}` ({letter})"))
        .collect();
    let more = designs.len().saturating_sub(SIDES_MAX);
    let (a, others) = named.split_first().map_or(("", &[][..]), |(a, b)| (a, b));
    match (others, more) {
        ([], _) => a.to_owned(),
        (others, 0) => format!("{} instead of {a}", words::list(others)),
        (others, more) => format!("{} and {more} more instead of {a}", others.join(", ")),
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
    fn a_question_names_each_design_with_the_head_of_its_column() {
        let text = |designs: &[&str]| instead_of(&names(designs));
        assert_eq!(text(&["linux"]), "`linux` (A)");
        assert_eq!(
            text(&["linux", "ours"]),
            "`ours` (B) instead of `linux` (A)"
        );
        assert_eq!(
            text(&["a", "b", "c"]),
            "`b` (B1) and `c` (B2) instead of `a` (A)"
        );
        assert_eq!(
            text(&["a", "b", "c", "d"]),
            "`b` (B1), `c` (B2) and 1 more instead of `a` (A)"
        );
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
            &report.rows,
            &report.verdicts,
        );
        let whats: Vec<&str> = answer.rows.iter().map(|row| &*row.what).collect();
        assert_eq!(whats, ["total wait", "contentions"]);
        assert_eq!(answer.sides, ["A", "B"]);
        let cell = answer.rows[1].cells[1].as_ref().expect("B was measured");
        assert_eq!(cell.estimate.median, 117.0);
        assert!(cell.compared.is_some());
        assert!(
            answer.rows[1].cells[0]
                .as_ref()
                .is_some_and(|a| a.compared.is_none())
        );
        let none = of_designs(String::new(), &[], &metrics, &report.rows, &report.verdicts);
        assert_eq!(none, Answer::default());
    }
}
