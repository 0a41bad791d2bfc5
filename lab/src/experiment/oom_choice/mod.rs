//! `reproduce oom-latency` and `reproduce oom-accuracy`: when memory is out, how long does it take
//! to choose the victim, and is it the right one?
//!
//! Every process has real counters of the simulated machine, to which its pages were added on the
//! CPUs it ran on. A selector then runs on one CPU and pays for each process it looks at, for each
//! cache line it fetches, and for each CPU it sums.
//!
//! `population`: the processes, and where their pages were touched. `set`: a population on a
//! machine, and one selection. `oracle`: the right choice. `latency`, `accuracy`: the experiments.

mod accuracy;
mod latency;
mod oracle;
mod population;
mod processes;

use std::fmt;

use plimsoll_mm::counter::Counting;
use plimsoll_mm::oom::Selecting;

pub(super) use self::accuracy::EXPERIMENT as ACCURACY;
pub(super) use self::latency::EXPERIMENT as LATENCY;
use crate::measure::comparison::Comparison;
use crate::measure::metric::{Metric, Unit};
use crate::measure::stats::{self, Estimate};
use crate::report::Table;
use crate::report::value::{NOTHING, human};

/// The machine of the published times.
const MACHINE: &str = "epyc-9654-256";

/// A selector and the counters that it reads; prints as a design spells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    selecting: Selecting,
    counting: Counting,
}

impl Way {
    const fn new(selecting: Selecting, counting: Counting) -> Self {
        Self {
            selecting,
            counting,
        }
    }

    /// The column head in tables.
    fn short(self) -> String {
        let name = self.selecting.name();
        let name = name.strip_prefix("select-").unwrap_or(name);
        format!("{name} {}", self.counting.name())
    }
}

/// Positions among [`WAYS`].
const PRECISE: usize = 0;
const APPROXIMATE: usize = 1;
const PATCH: usize = 2;
const OURS: usize = 3;

/// In this order: Linux from 6.18 on, Linux before, the patch, ours.
const WAYS: [Way; 4] = [
    Way::new(Selecting::Precise, Counting::Flat),
    Way::new(Selecting::Approximate, Counting::Flat),
    Way::new(Selecting::TwoPass16, Counting::Tree),
    Way::new(Selecting::Bounded, Counting::OneSided),
];

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.selecting.name(), self.counting.name())
    }
}

/// The values of `metric` for `way`, seed by seed.
fn values(runs: &Comparison, way: usize, metric: &Metric) -> Vec<f64> {
    let samples = runs.samples(way);
    samples.filter_map(|sample| sample.value(metric)).collect()
}

fn estimate(runs: &Comparison, way: usize, metric: &Metric) -> Option<Estimate> {
    stats::estimate(&values(runs, way, metric))
}

fn median(runs: &Comparison, way: usize, metric: &Metric) -> Option<f64> {
    stats::median(&values(runs, way, metric))
}

/// The largest value over all seeds.
fn most(runs: &Comparison, way: usize, metric: &Metric) -> Option<f64> {
    values(runs, way, metric).into_iter().reduce(f64::max)
}

/// The ratio of B to A, paired by seed.
fn ratio(runs: &Comparison, a: usize, b: usize, metric: &Metric) -> Option<Estimate> {
    let compared = stats::compare(&values(runs, a, metric), &values(runs, b, metric));
    compared.map(|it| it.ratio)
}

fn texts<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn shown(value: Option<f64>, unit: Unit) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| human(value, unit))
}

/// A target, what was measured, and whether that meets it.
struct Target {
    what: &'static str,
    is: String,
    /// `None` if it was not measured.
    met: Option<bool>,
}

fn targets(targets: impl IntoIterator<Item = Target>) -> Table {
    let row = |target: Target| {
        let verdict = match target.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        vec![target.what.to_owned(), target.is, verdict.to_owned()]
    };
    Table {
        title: "Targets".to_owned(),
        note: "By the less favourable end of an interval.".to_owned(),
        columns: texts(["target", "measured", "verdict"]),
        rows: targets.into_iter().map(row).collect(),
    }
}
