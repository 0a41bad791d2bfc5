//! Two runs of a store side by side. For each design and metric that both runs have, a diff has the
//! medians and the ratio of B to A. It uses the same statistics as a report of one run.
//!
//! A comparison of run A matches the comparison of run B with the same experiment, name and
//! machine. If a comparison has no such match, it also matches a comparison that differs only in
//! the machine, provided that each run has only one such comparison. So a user can compare runs on
//! two machines.

mod matched;
mod shown;

use serde::Serialize;

use self::matched::{Grouped, grouped, pairs};
use super::head::Head;
use super::journal::CaseLine;
use super::run::Kept;
use crate::error::Error;
use crate::measure::metric::Metric;
use crate::measure::stats::{self, Comparison, Estimate};
use crate::report::pick;
use crate::run::journal::ComparisonKey;

/// The version of the JSON object that [`Diff::json`] makes.
const SCHEMA: u32 = 1;

/// The things that two runs have in common, and their differences.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    schema: u32,
    /// The first of the two runs, called A.
    pub a: Head,
    /// The second run, called B.
    pub b: Head,
    /// True if both runs have the same cases (a case is one design on one seed), with the same
    /// hashes and values.
    pub identical: bool,
    /// The comparisons that both runs have.
    pub comparisons: Vec<Compared>,
    /// The comparisons, and the parts of comparisons, that only one of the runs has.
    pub only: Vec<Only>,
}

/// A comparison that both runs have.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The comparison in run A.
    pub a: ComparisonKey,
    /// The comparison in run B.
    pub b: ComparisonKey,
    /// True if both runs have the same cases (one design on one seed each) of this comparison, with
    /// the same hashes and values.
    pub identical: bool,
    /// The results of each design and metric that both runs have.
    pub rows: Vec<DiffRow>,
}

/// The results of two runs for one design and one metric.
#[derive(Clone, Debug, Serialize)]
pub struct DiffRow {
    /// The design.
    pub design: String,
    /// The metric.
    pub metric: Metric,
    /// The median in run A, over all its seeds, with its interval.
    pub a: Estimate,
    /// The median in run B, over all its seeds, with its interval.
    pub b: Estimate,
    /// The number of seeds that both runs have. The values of the two runs with the same seed are
    /// compared.
    pub pairs: usize,
    /// The ratio of B to A over the seeds that both runs have. `None` if there is no such seed.
    pub compared: Option<Comparison>,
}

/// A comparison, or a part of a comparison, that only one run has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Only {
    /// `A` or `B`.
    pub run: char,
    /// The comparison as text.
    pub comparison: String,
    /// The part of the comparison that the other run lacks, such as a design. Empty if the other
    /// run lacks the whole comparison.
    pub what: String,
}

impl Diff {
    /// Compares run B with run A.
    ///
    /// # Errors
    /// If the cases of a run cannot be read.
    pub fn of(a: &Kept, b: &Kept) -> Result<Self, Error> {
        Ok(Self::of_cases(
            (&a.head, &a.cases()?),
            (&b.head, &b.cases()?),
        ))
    }

    fn of_cases(a: (&Head, &[CaseLine]), b: (&Head, &[CaseLine])) -> Self {
        let (of_a, of_b) = (grouped(a.1), grouped(b.1));
        let mut only = Vec::new();
        let mut comparisons = Vec::new();
        for (in_a, in_b) in pairs(&of_a, &of_b) {
            match (in_a, in_b) {
                (Some(in_a), Some(in_b)) => comparisons.push(compare(in_a, in_b, &mut only)),
                (Some(in_a), None) => only.push(Only::new('A', in_a, String::new())),
                (None, Some(in_b)) => only.push(Only::new('B', in_b, String::new())),
                (None, None) => unreachable!("a pair has one side at least"),
            }
        }
        Self {
            schema: SCHEMA,
            a: a.0.clone(),
            b: b.0.clone(),
            identical: only.is_empty() && comparisons.iter().all(|comparison| comparison.identical),
            comparisons,
            only,
        }
    }

    /// This difference with only those metrics that the user chose with `names`. If `names` is
    /// empty, the difference keeps all metrics.
    ///
    /// # Errors
    /// [`Error::Unknown`] for the first of `names` that is not a metric of both runs. The error
    /// offers the nearest names of such metrics, or all of them.
    pub fn only_metrics(mut self, names: &[String]) -> Result<Self, Error> {
        if names.is_empty() {
            return Ok(self);
        }
        let mut known: Vec<&str> = Vec::new();
        for row in self.comparisons.iter().flat_map(|of| &of.rows) {
            if !known.contains(&&*row.metric.name) {
                known.push(&row.metric.name);
            }
        }
        pick::check(names, &known, &[])?;
        for compared in &mut self.comparisons {
            compared.rows.retain(|row| {
                let mut names = names.iter();
                names.any(|name| pick::names_metric(name, &row.metric.name))
            });
        }
        let has_rows = |of: &Compared| of.identical || !of.rows.is_empty();
        self.comparisons.retain(has_rows);
        Ok(self)
    }

    /// This difference as one JSON object, without a newline.
    ///
    /// # Panics
    /// Never: text and numbers can always be written as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("text and numbers always serialise")
    }
}

impl Only {
    fn new(run: char, comparison: &Grouped<'_>, what: String) -> Self {
        let comparison = comparison.key.to_string();
        Self {
            run,
            comparison,
            what,
        }
    }
}

/// Compares one comparison in run A with the matching comparison in run B. Adds to `only` each
/// design and each metric that only one of the two comparisons has.
fn compare(a: &Grouped<'_>, b: &Grouped<'_>, only: &mut Vec<Only>) -> Compared {
    let mut rows = Vec::new();
    let mut lacks = |run, what| only.push(Only::new(run, if run == 'A' { a } else { b }, what));
    for (design, _) in &b.designs {
        if a.cases(design).is_none() {
            lacks('B', format!("design {design}"));
        }
    }
    for (design, of_a) in &a.designs {
        let Some(of_b) = b.cases(design) else {
            lacks('A', format!("design {design}"));
            continue;
        };
        let mut metrics = matched::metrics(of_a);
        let in_b = matched::metrics(of_b);
        for metric in &in_b {
            if !metrics.contains(metric) {
                lacks('B', format!("metric {} of {design}", metric.name));
            }
        }
        metrics.retain(|metric| {
            let both = in_b.contains(metric);
            if !both {
                lacks('A', format!("metric {} of {design}", metric.name));
            }
            both
        });
        let row = |metric| row(design, metric, of_a, of_b);
        rows.extend(metrics.into_iter().filter_map(row));
    }
    Compared {
        a: a.key.clone(),
        b: b.key.clone(),
        identical: a.is_like(b),
        rows,
    }
}

fn row(design: &str, metric: Metric, a: &[&CaseLine], b: &[&CaseLine]) -> Option<DiffRow> {
    let values = |of: &[&CaseLine]| -> Vec<(u64, f64)> {
        let value = |case: &&CaseLine| Some((case.seed, case.value(&metric.name)?));
        of.iter().filter_map(value).collect()
    };
    let (in_a, in_b) = (values(a), values(b));
    let estimate = |of: &[(u64, f64)]| {
        let values: Vec<f64> = of.iter().map(|(_, value)| *value).collect();
        stats::estimate(&values)
    };
    let partner = |(seed, value): &(u64, f64)| {
        let partner = in_b.iter().find(|(other, _)| other == seed)?;
        Some((*value, partner.1))
    };
    let (paired_a, paired_b): (Vec<f64>, Vec<f64>) = in_a.iter().filter_map(partner).unzip();
    Some(DiffRow {
        design: design.to_owned(),
        a: estimate(&in_a)?,
        b: estimate(&in_b)?,
        pairs: paired_a.len(),
        compared: stats::compare(&paired_a, &paired_b),
        metric,
    })
}

#[cfg(test)]
mod tests;
