//! The results of an experiment, and the ways to render them: a terminal table, Markdown, a mail,
//! CSV and JSON.
//!
//! A report is data: experiments fill it, and the submodules render it. A report begins with its
//! [`answer`]. Every number is shown with its unit, its interval and its seeds.

pub mod answer;
pub mod csv;
pub mod figures;
mod fit;
pub mod json;
pub(crate) mod layout;
pub mod mail;
pub mod markdown;
pub mod misses;
#[cfg(test)]
mod narrow;
pub mod paint;
pub mod pick;
pub(crate) mod spark;
pub mod summary;
pub mod table;
pub(crate) mod value;
pub mod visible;
pub(crate) mod wrap;

pub(crate) use self::layout::words;
use plimsoll_sim::profile::Card;
use serde::{Deserialize, Serialize};

use self::answer::Answer;
use crate::measure::metric::Metric;
use crate::measure::stats;

/// The results of one experiment on one machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The experiment's name in the catalog.
    pub experiment: String,
    /// The machine that the experiment ran on.
    pub machine: String,
    /// True if the machine is simulated. Otherwise, times were measured on this computer.
    pub is_simulated: bool,
    /// The price card: `low`, `mid` or `high`, for the low end, the middle or the high end of every
    /// price range.
    pub card: String,
    /// The seeds on which every design ran.
    pub seeds: Vec<u64>,
    /// One hash of everything that happened in the runs that `rows` shows. Runs that only `tables`
    /// shows are not included.
    pub hash: u64,
    /// The question, the answer in one sentence, and the few metrics that this sentence is about.
    pub answer: Answer,
    /// A row for each design and metric.
    pub rows: Vec<Row>,
    /// The comparisons between designs.
    pub verdicts: Vec<VerdictRow>,
    /// Tables of results that do not fit into `rows`.
    pub tables: Vec<Table>,
    /// The conclusion, in one paragraph.
    pub finding: String,
    /// The published figures of the experiment on this machine, beside ours.
    pub figures: Vec<misses::Beside>,
    /// The prices of simulated steps that decide the headline comparisons of the experiment (the
    /// comparisons that people quote). `None` if the sensitivity table does not include the
    /// experiment.
    pub decided: Option<Decided>,
    /// Warnings about the input. Renderers omit the warnings, because the caller prints them to
    /// standard error.
    pub warnings: Vec<String>,
}

impl Report {
    /// Creates a report of simulated runs on these seeds, without answer, rows, tables or finding.
    /// `hash` covers everything that happened in the runs.
    #[must_use]
    pub fn new(experiment: &str, machine: &str, card: Card, seeds: &[u64], hash: u64) -> Self {
        Self {
            experiment: experiment.to_owned(),
            machine: machine.to_owned(),
            is_simulated: true,
            card: card.name().to_owned(),
            seeds: seeds.to_vec(),
            hash,
            answer: Answer::default(),
            rows: Vec::new(),
            verdicts: Vec::new(),
            tables: Vec::new(),
            finding: String::new(),
            figures: Vec::new(),
            decided: None,
            warnings: Vec::new(),
        }
    }
}

/// The result for one design and one metric.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The design's name.
    pub design: String,
    /// The metric that was measured.
    pub metric: Metric,
    /// The median over the seeds, with its interval.
    pub estimate: stats::Estimate,
    /// The number of seeds whose runs have measured the metric. 0 in a report that an older version
    /// of Plimsoll has kept, which does not have this number.
    #[serde(default)]
    pub seeds: usize,
    /// True if the value is 0 on every seed. The interval cannot tell this, because it leaves out
    /// the smallest and the largest values if there are many seeds.
    #[serde(default)]
    pub is_zero: bool,
    /// The value that was published on the mailing list with the patch, in the unit of the metric.
    pub published: Option<f64>,
}

/// The comparison of design B with design A on one metric.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VerdictRow {
    /// The metric that is compared.
    pub metric: Metric,
    /// The name of design A, the base of the comparison.
    pub a: String,
    /// The name of design B, which is compared with A.
    pub b: String,
    /// The ratio of the metric with design B to the metric with design A, and the verdict.
    pub comparison: stats::Comparison,
    /// The number of seeds on which the runs of both designs have measured the metric. 0 in a
    /// report that an older version of Plimsoll has kept, which does not have this number.
    #[serde(default)]
    pub pairs: usize,
}

/// The prices that decide the headline comparisons of an experiment (the comparisons that people
/// quote). A price is the time of one kind of simulated step. The prices come from the sensitivity
/// table, which has the effect of each price.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// A remark if the sensitivity table (the effects of changed prices) was made on another
    /// machine than this report, or with other prices. Otherwise empty.
    pub note: String,
    /// The number of seeds with which the sensitivity table was made.
    pub seeds: usize,
    /// The headline comparisons (the comparisons that people quote) of the experiment.
    pub headlines: Vec<DecidedHeadline>,
}

/// One headline comparison (a comparison that people quote), and the prices that decide it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecidedHeadline {
    /// The name of design A.
    pub a: String,
    /// The name of design B, which is compared with A.
    pub b: String,
    /// The name of the metric.
    pub metric: String,
    /// The prices that decide the comparison, the most important first. A price is the time of one
    /// kind of simulated step.
    pub prices: Vec<DecidingPrice>,
    /// The number of prices that are left out of `prices`, because they change the comparison by no
    /// more than other seeds would.
    pub within_noise: usize,
}

/// A price (the time of one kind of simulated step) that decides a headline comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecidingPrice {
    /// The key of the price, such as `work.fault`.
    pub key: String,
    /// True if the price was chosen (fitted) so that a run matches a published figure.
    pub fitted: bool,
    /// How the verdict or the ratio changes at half the price or at twice the price.
    pub effect: String,
}

/// A table of text, for results that do not fit into rows by design and metric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The caption.
    pub title: String,
    /// Advice on how to read the table. It can be empty.
    pub note: String,
    /// The head of each column.
    pub columns: Vec<String>,
    /// The rows. Each has as many cells as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// Makes a [`Table`] with one row per element of `rows`:
///
/// `tabulate!(title, note, rows, |row| { head => cell })`
macro_rules! tabulate {
    (
        $title:expr, $note:expr, $rows:expr,
        |$row:pat_param| { $($head:expr => $cell:expr),+ $(,)? }
    ) => {
        $crate::report::Table::of($title, $note, &[$($head),+], $rows, |$row| {
            vec![$(($cell).to_string()),+]
        })
    };
}
pub(crate) use tabulate;

impl Table {
    /// Creates a table with one row per element of `rows`. `cells` returns the cells of a row.
    #[must_use]
    pub fn of<R>(
        title: impl Into<String>,
        note: impl Into<String>,
        columns: &[&str],
        rows: &[R],
        cells: impl Fn(&R) -> Vec<String>,
    ) -> Self {
        Self {
            title: title.into(),
            note: note.into(),
            columns: columns.iter().map(|head| (*head).to_owned()).collect(),
            rows: rows.iter().map(cells).collect(),
        }
    }

    /// Adds a column for each of `things`. A thing is a pair of the column's head and a value. The
    /// value is passed to `cell` for each cell of the column. `rows` must be the rows from which
    /// the table was created.
    #[must_use]
    pub fn with_each<R, H: ToString, T>(
        mut self,
        rows: &[R],
        things: impl IntoIterator<Item = (H, T)>,
        cell: impl Fn(&R, &T) -> String,
    ) -> Self {
        for (head, thing) in things {
            self.columns.push(head.to_string());
            for (cells, row) in self.rows.iter_mut().zip(rows) {
                cells.push(cell(row, &thing));
            }
        }
        self
    }

    /// Makes a table of facts. Each row has the subject of one fact, and a statement about this
    /// subject.
    #[must_use]
    pub fn facts(
        title: impl Into<String>,
        note: impl Into<String>,
        facts: &[(&str, String)],
    ) -> Self {
        tabulate!(title, note, facts, |(what, is)| {
            "what" => what,
            "is" => is,
        })
    }
}

#[cfg(test)]
fn sample_row(design: &str, metric: &Metric, median: f64, published: Option<f64>) -> Row {
    Row {
        design: design.to_owned(),
        metric: metric.clone(),
        estimate: stats::Estimate {
            median,
            low: median * 0.9,
            high: median * 1.1,
        },
        seeds: 8,
        is_zero: median == 0.0,
        published,
    }
}

/// A small fixed report for the tests of the renderers.
#[cfg(test)]
pub(crate) fn sample() -> Report {
    use crate::measure::metric::Unit;
    use crate::measure::stats::{Comparison, Estimate, Verdict};

    let row = sample_row;
    let contentions = Metric::lower("contentions", Unit::Count);
    let total_wait = Metric::lower("total_wait_ns", Unit::Nanos);
    let rate = Metric::higher("pages_per_s", Unit::PagesPerSecond);
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
        pairs: 8,
    };
    let mut report = Report {
        experiment: "vmstat".to_owned(),
        machine: "grace-72".to_owned(),
        is_simulated: true,
        card: "mid".to_owned(),
        seeds: (1..=8).collect(),
        hash: 0x12_3456_789a_bcde,
        answer: Answer::default(),
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
        figures: Vec::new(),
        decided: None,
        warnings: Vec::new(),
    };
    report.answer = answer::of_designs(
        "What do phases of the vmstat work gain?".to_owned(),
        &["aligned", "phased+shepherd-phased"].map(str::to_owned),
        &["contentions", "total_wait_ns", "pages_per_s"],
        (&report.rows, &report.verdicts),
        Vec::new(),
    );
    report.answer.rows[0].published_ratio = Some(117.0 / 872.0);
    report
}

/// A report on five designs for the tests of the renderers. Its answer has a row for each design.
#[cfg(test)]
pub(crate) fn many_designs() -> Report {
    use crate::measure::stats::Verdict;

    let mut report = sample();
    let designs: Vec<String> = (0..5).map(|nth| format!("design-{nth}")).collect();
    let [of_a, of_b] = [0, 3].map(|from| report.rows[from..from + 3].to_vec());
    let verdicts = report.verdicts.clone();
    report.rows = of_a;
    report.verdicts.clear();
    for (nth, design) in designs.iter().enumerate().skip(1) {
        report.rows.extend(of_b.iter().cloned().map(|mut row| {
            row.design.clone_from(design);
            row.estimate.median = nth as f64;
            row
        }));
        report
            .verdicts
            .extend(verdicts.iter().cloned().map(|mut row| {
                row.a.clone_from(&designs[0]);
                row.b.clone_from(design);
                row.comparison.verdict = Verdict::Lower;
                row
            }));
    }
    for row in report.rows.iter_mut().take(3) {
        row.design.clone_from(&designs[0]);
    }
    report.answer = answer::of_designs(
        "Which of these designs is best?".to_owned(),
        &designs,
        &["contentions", "total_wait_ns", "pages_per_s"],
        (&report.rows, &report.verdicts),
        Vec::new(),
    );
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_cell_for_each_row_and_column() {
        let rows = [("linux", 100), ("ours", 50)];
        let table = tabulate!("Waits", "", &rows, |(design, waits)| {
            "design" => design,
            "waits" => waits,
        });
        let table = table.with_each(
            &rows,
            [2, 10].map(|times| (format!("{times} times"), times)),
            |(_, waits), times| (waits * times).to_string(),
        );
        assert_eq!(table.columns, ["design", "waits", "2 times", "10 times"]);
        assert_eq!(table.rows[0], ["linux", "100", "200", "1000"]);
        assert_eq!(table.rows[1], ["ours", "50", "100", "500"]);
    }

    #[test]
    fn facts_are_a_table_of_two_columns() {
        let table = Table::facts("Workload", "", &[("workers", "50".to_owned())]);
        assert_eq!(table.columns, ["what", "is"]);
        assert_eq!(table.rows, [["workers", "50"]]);
    }
}
