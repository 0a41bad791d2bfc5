//! The metrics with which a report begins, each with the designs that it compares.

use std::fmt::{Debug, Display};

use super::{Declaration, Results, check};
use crate::error::Error;
use crate::measure::metric::Metric;
use crate::report::answer::{Answer, AnswerCell, AnswerRow, ROWS_MAX, published_ratio};
use crate::report::misses::Beside;

/// The metrics that answer the question of an experiment.
pub(in crate::experiment) struct Headlines {
    /// What the designs of each metric are; the heads of the columns. The first is the base.
    pub(in crate::experiment) sides: &'static [&'static str],
    /// The metrics, at most [`ROWS_MAX`].
    pub(in crate::experiment) rows: &'static [Headline],
}

/// A metric, and the design of each side. A quick run that does not measure the metric leaves it
/// out.
pub(in crate::experiment) struct Headline {
    /// What the metric measures, in at most [`WHAT_MAX`] characters.
    pub(in crate::experiment) what: &'static str,
    pub(in crate::experiment) metric: &'static str,
    pub(in crate::experiment) designs: &'static [&'static str],
}

/// The sides of an experiment about a patch for Linux.
pub(in crate::experiment) const LINUX_PATCH_OURS: &[&str] = &["Linux", "patch", "ours"];

/// The largest number of characters of [`Headline::what`], so that a table of three designs fits a
/// mail.
const WHAT_MAX: usize = 21;

impl Headline {
    pub(in crate::experiment) const fn new(
        what: &'static str,
        metric: &'static str,
        designs: &'static [&'static str],
    ) -> Self {
        Self {
            what,
            metric,
            designs,
        }
    }
}

impl Headlines {
    /// Checks that every metric is one of `metrics`, that every design is one of `designs`, and
    /// that every row is as long as its table is wide.
    pub(super) fn check(&self, metrics: &[String], designs: &[String]) -> Result<(), Error> {
        if self.rows.is_empty() || self.rows.len() > ROWS_MAX {
            return Err(Error::Invalid(format!(
                "an answer has 1 to {ROWS_MAX} metrics, not {}",
                self.rows.len()
            )));
        }
        for row in self.rows {
            check::known("metric", row.metric, metrics)?;
            for design in row.designs {
                check::known("design", design, designs)?;
            }
            if row.designs.len() != self.sides.len() {
                return Err(Error::Invalid(format!(
                    "`{}` of an answer has {} designs for {} columns",
                    row.what,
                    row.designs.len(),
                    self.sides.len()
                )));
            }
            if row.what.chars().count() > WHAT_MAX {
                return Err(Error::Invalid(format!(
                    "`{}` of an answer is longer than {WHAT_MAX} characters",
                    row.what
                )));
            }
        }
        Ok(())
    }
}

impl<S, K, D: Debug + Display> Declaration<S, K, D> {
    /// The answer of a report: `sentence`, and the metrics that the runs have measured.
    pub(super) fn answered(
        &self,
        sentence: String,
        metrics: &[Metric],
        results: &Results,
        figures: &[Beside],
    ) -> Answer {
        let row = |headline: &Headline| {
            let metric = metrics.iter().find(|it| it.name == headline.metric)?;
            let base = *headline.designs.first()?;
            let cell = |(nth, design): (usize, &&str)| {
                Some(AnswerCell {
                    design: (*design).to_owned(),
                    estimate: results.estimate(design, metric),
                    compared: (nth > 0).then(|| results.compare((base, design), metric)),
                })
            };
            let patch = headline.designs.get(1);
            Some(AnswerRow {
                what: headline.what.to_owned(),
                metric: metric.clone(),
                cells: headline.designs.iter().enumerate().map(cell).collect(),
                published_ratio: patch
                    .and_then(|patch| published_ratio(figures, headline.metric, base, patch)),
            })
        };
        Answer {
            question: capital(self.question),
            sentence,
            sides: self
                .answer
                .sides
                .iter()
                .map(|side| (*side).to_owned())
                .collect(),
            rows: self.answer.rows.iter().filter_map(row).collect(),
        }
    }
}

/// The text with a capital at its beginning.
fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}
