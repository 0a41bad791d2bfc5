//! A workload on a machine, with two kinds of ratios of the patch to Linux: the measured ratios of
//! its runs and the published ratios.

use crate::experiment::driver::Results;
use crate::experiment::vmstat::causes::Cause;
use crate::experiment::vmstat::likeness::Beside;
use crate::experiment::vmstat::setup::{
    PERF_CONTENTIONS, PERF_MAX_WAIT, PERF_MEAN_WAIT, PERF_TOTAL_WAIT,
};
use crate::experiment::vmstat::{BASELINE, PATCH};
use crate::measure::metric::Metric;
use crate::report::misses::{Beside as Figure, Values};
use crate::report::value::{NOTHING, human_ratio};
use crate::workload::mix::Mix;

/// The metrics for which the mailing-list thread published values, each with a short name.
pub(super) const COMPARED: [(&str, Metric); 4] = [
    ("contentions", PERF_CONTENTIONS),
    ("total wait", PERF_TOTAL_WAIT),
    ("longest wait", PERF_MAX_WAIT),
    ("mean wait", PERF_MEAN_WAIT),
];

/// A workload of the vmstat experiment on a machine, with the results of its runs.
pub(super) struct Member {
    pub(super) workload: &'static Mix,
    pub(super) machine: String,
    pub(super) results: Results,
}

impl Member {
    /// The value of `metric` with the patch, divided by its value with Linux. `None` if Linux's
    /// median is zero.
    pub(super) fn ratio(&self, metric: &Metric) -> Option<f64> {
        let has_ratio = self.has_ratio(metric);
        has_ratio.then(|| self.results.ratio((BASELINE, PATCH), metric))
    }

    /// Returns whether Linux's median is above zero. If the median is zero, a ratio to it is
    /// infinite or undefined, and says nothing about a gain.
    fn has_ratio(&self, metric: &Metric) -> bool {
        self.results.median(BASELINE, metric) > 0.0
    }

    /// The value of `metric` with `design`, divided by its value with Linux, as text for a table
    /// cell.
    pub(super) fn show(&self, design: &str, metric: &Metric) -> String {
        if self.has_ratio(metric) {
            let compared = self.results.compare((BASELINE, design), metric);
            human_ratio(&compared.ratio)
        } else {
            NOTHING.to_owned()
        }
    }

    pub(super) fn cause(&self) -> Cause {
        Cause::of(&self.results)
    }

    /// For each metric with published values, the measured ratio of the patch to Linux beside the
    /// published ratio. A metric is left out if one of these two ratios is missing.
    pub(super) fn beside(&self, figures: &[Figure]) -> Vec<Beside> {
        let pair = |(_, metric): (&str, Metric)| {
            Some(Beside {
                measured: self.ratio(&metric)?,
                published: published_ratio(figures, &self.machine, &metric)?,
            })
        };
        COMPARED.into_iter().filter_map(pair).collect()
    }
}

/// The published value of a metric with a design on a machine.
pub(super) fn published(
    figures: &[Figure],
    machine: &str,
    design: &str,
    metric: &Metric,
) -> Option<f64> {
    let level = |figure: &Figure| {
        let place = figure.place.as_ref()?;
        if place.machine != machine || place.metric != metric.name {
            return None;
        }
        let nth = place.designs.iter().position(|of| of == design)?;
        match &figure.published {
            Values::Levels(levels) => levels.get(nth).copied(),
            Values::ChangePercent(_) => None,
        }
    };
    figures.iter().find_map(level)
}

/// The published value of `metric` with the patch, divided by its published value with Linux.
/// `None` if one of the two values was not published.
pub(super) fn published_ratio(figures: &[Figure], machine: &str, metric: &Metric) -> Option<f64> {
    let [linux, patch] =
        [BASELINE, PATCH].map(|design| published(figures, machine, design, metric));
    Some(patch? / linux?)
}
