//! The results of an experiment, and the ways to render them: JSON, a terminal table, Markdown.
//!
//! A report is data: experiments fill it, and the files beside this one render it. A number never
//! travels without its unit, its interval and the seeds behind it.

pub mod figures;
pub mod json;
mod layout;
pub mod markdown;
pub mod spark;
pub mod table;
pub mod value;

use plimsoll_sim::profile::Card;

use crate::measure::metric::Metric;
use crate::measure::stats;

/// The results of one experiment on one machine.
#[derive(Clone, Debug)]
pub struct Report {
    /// The experiment's name in the catalog.
    pub experiment: String,
    /// The machine it ran on.
    pub machine: String,
    /// The card of costs: `low`, `mid` or `high`.
    pub card: String,
    /// The seeds on which every design ran.
    pub seeds: Vec<u64>,
    /// One hash for everything that happened in the runs of `rows`; it leaves out other runs of
    /// `tables`.
    pub hash: u64,
    /// A row for each design and metric.
    pub rows: Vec<Row>,
    /// The comparisons of designs with each other.
    pub verdicts: Vec<VerdictRow>,
    /// Tables of results that do not fit `rows`.
    pub tables: Vec<Table>,
    /// The conclusion, in one paragraph.
    pub finding: String,
    /// Warnings about the input; the caller prints them to standard error, and renderers leave them
    /// out.
    pub warnings: Vec<String>,
}

impl Report {
    /// A report of runs on these seeds without rows, tables or finding yet. `hash` is that of
    /// everything that happened in the runs.
    #[must_use]
    pub fn new(experiment: &str, machine: &str, card: Card, seeds: &[u64], hash: u64) -> Self {
        Self {
            experiment: experiment.to_owned(),
            machine: machine.to_owned(),
            card: card.name().to_owned(),
            seeds: seeds.to_vec(),
            hash,
            rows: Vec::new(),
            verdicts: Vec::new(),
            tables: Vec::new(),
            finding: String::new(),
            warnings: Vec::new(),
        }
    }
}

/// The measurement of one metric for one design.
#[derive(Clone, Debug)]
pub struct Row {
    /// The design's name.
    pub design: String,
    /// The metric that was measured.
    pub metric: Metric,
    /// The median over the seeds, with its interval.
    pub estimate: stats::Estimate,
    /// The value that the thread reported, in the same unit.
    pub published: Option<f64>,
}

/// The comparison of design B with design A on one metric.
#[derive(Clone, Debug)]
pub struct VerdictRow {
    /// The metric that is compared.
    pub metric: Metric,
    /// The design that B is compared with.
    pub a: String,
    /// The design that is compared with A.
    pub b: String,
    /// The ratio of B to A, and its verdict.
    pub comparison: stats::Comparison,
}

/// A table of text, for results that do not fit design × metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The caption.
    pub title: String,
    /// Advice on how to read the table; may be empty.
    pub note: String,
    /// The head of each column.
    pub columns: Vec<String>,
    /// Rows of as many cells as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// A small fixed report for the tests of the renderers.
#[cfg(test)]
pub(crate) fn sample() -> Report {
    use crate::measure::metric::Unit;
    use crate::measure::stats::{Comparison, Estimate, Verdict};

    let contentions = Metric::lower("contentions", Unit::Count);
    let total_wait = Metric::lower("total_wait_ns", Unit::Nanos);
    let rate = Metric::higher("pages_per_s", Unit::PagesPerSecond);
    let row = |design: &str, metric: &Metric, median: f64, published| Row {
        design: design.to_owned(),
        metric: metric.clone(),
        estimate: Estimate {
            median,
            low: median * 0.9,
            high: median * 1.1,
        },
        published,
    };
    let verdict_row = |metric: &Metric, ratio: f64, verdict| VerdictRow {
        metric: metric.clone(),
        a: "aligned".to_owned(),
        b: "phased+shepherd-phased".to_owned(),
        comparison: Comparison {
            ratio: Estimate {
                median: ratio,
                low: ratio * 0.9,
                high: ratio * 1.1,
            },
            verdict,
        },
    };
    Report {
        experiment: "vmstat".to_owned(),
        machine: "grace-72".to_owned(),
        card: "mid".to_owned(),
        seeds: (1..=8).collect(),
        hash: 0x12_3456_789a_bcde,
        rows: vec![
            row("aligned", &contentions, 872.0, Some(872.0)),
            row("aligned", &total_wait, 199_430_000.0, Some(199_430_000.0)),
            row("aligned", &rate, 12_345_678.0, None),
            row("phased+shepherd-phased", &contentions, 117.0, None),
            row("phased+shepherd-phased", &total_wait, 761.0, None),
            row("phased+shepherd-phased", &rate, 12_345_999.0, None),
        ],
        verdicts: vec![
            verdict_row(&contentions, 0.134, Verdict::Lower),
            verdict_row(&total_wait, f64::INFINITY, Verdict::Higher),
            verdict_row(&rate, 1.0, Verdict::NoDifference),
        ],
        tables: vec![Table {
            title: "The longest waits".to_owned(),
            note: "One row per caller.".to_owned(),
            columns: vec!["caller".to_owned(), "max wait".to_owned()],
            rows: vec![
                vec!["free_pcppages_bulk".to_owned(), "35.76 ms".to_owned()],
                vec!["rmqueue|bulk".to_owned(), "4.19 ms".to_owned()],
            ],
        }],
        finding: "Most of the gain is due to the phase: with the same period and the shepherd \
                  left alone, contentions fall as far as with all three changes together."
            .to_owned(),
        warnings: Vec::new(),
    }
}
