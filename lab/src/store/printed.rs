//! The output of a run as data, so that it can be printed again in any format.

use serde::{Deserialize, Serialize};

use crate::measure::metric::Better;
use crate::measure::stats::Verdict;
use crate::report::{Report, Table};

/// A part of a run's output: a line of the file `report.jsonl`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Printed {
    /// A report.
    Report(Box<Report>),
    /// A table that belongs to no single report.
    Table(Table),
}

/// The number of verdicts of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    better: usize,
    worse: usize,
    /// The number of changes of metrics for which neither direction is better.
    changed: usize,
    none: usize,
    equal: usize,
    too_few: usize,
}

impl Tally {
    pub(super) fn add(&mut self, report: &Report) {
        for row in &report.verdicts {
            let count = match (row.comparison.verdict, row.metric.better) {
                (Verdict::Lower, Better::Lower) | (Verdict::Higher, Better::Higher) => {
                    &mut self.better
                }
                (Verdict::Lower, Better::Higher) | (Verdict::Higher, Better::Lower) => {
                    &mut self.worse
                }
                (Verdict::Lower | Verdict::Higher, Better::Neither) => &mut self.changed,
                (Verdict::NoDifference, _) => &mut self.none,
                (Verdict::Equal, _) => &mut self.equal,
                (Verdict::TooFewSeeds, _) => &mut self.too_few,
            };
            *count += 1;
        }
    }

    /// The counts as one line, such as `2 better, 1 worse, 3 no difference`. Empty if there is no
    /// verdict.
    pub(super) fn line(self) -> String {
        let parts = [
            (self.better, "better"),
            (self.worse, "worse"),
            (self.changed, "changed"),
            (self.none, "no difference"),
            (self.equal, "equal"),
            (self.too_few, "too few seeds"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::paint::Paint;
    use crate::report::pick::Detail;
    use crate::report::{json, markdown, table};

    #[test]
    fn a_report_that_was_read_prints_as_the_one_that_was_written() {
        let mut report = crate::report::sample();
        report.figures = crate::report::misses::sample();
        report.warnings = vec!["the last line is cut off".to_owned()];
        let text = serde_json::to_string(&Printed::Report(Box::new(report.clone()))).unwrap();
        let Printed::Report(read) = serde_json::from_str(&text).unwrap() else {
            panic!("a report was written");
        };
        let all = |of: &Report| {
            let details = [Detail::Answer, Detail::Whole];
            let table =
                |width| details.map(|detail| table::render(of, width, detail, Paint::Plain));
            (
                [80, 110].map(table),
                details.map(|detail| markdown::render(of, detail)),
                json::render(of),
                of.warnings.clone(),
            )
        };
        assert_eq!(all(&read), all(&report));
        assert!(!text.contains('\n'), "one line");
    }

    #[test]
    fn verdicts_are_counted_by_what_they_mean() {
        let mut tally = Tally::default();
        assert_eq!(tally.line(), "");
        tally.add(&crate::report::sample());
        assert_eq!(tally.line(), "1 better, 1 worse, 1 no difference");
    }
}
