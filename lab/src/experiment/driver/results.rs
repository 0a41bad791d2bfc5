//! The samples of all designs, looked up by design and metric.
//!
//! A lookup panics if the design did not run or the metric was not measured. In this case, the
//! experiment has a bug, and a default value would hide it.

use crate::measure::comparison::Comparison;
use crate::measure::metric::Metric;
use crate::measure::stats::{self, Estimate};
use crate::report::VerdictRow;
use crate::report::value::{human, human_estimate, human_ratio};

/// The samples of every design on every seed.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct Results(Comparison);

impl Results {
    pub(in crate::experiment) const fn new(comparison: Comparison) -> Self {
        Self(comparison)
    }

    pub(in crate::experiment) const fn comparison(&self) -> &Comparison {
        &self.0
    }

    /// Panics unless every run has measured exactly `metrics`.
    pub(in crate::experiment) fn assert_measured(&self, metrics: &[Metric]) {
        for (nth, design) in self.0.designs().iter().enumerate() {
            for sample in self.0.samples(nth) {
                let measured = sample.metrics.iter().map(|(metric, _)| metric);
                assert!(
                    measured.eq(metrics),
                    "a run of `{design}` measured other metrics than are declared"
                );
            }
        }
    }

    pub(in crate::experiment) fn position(&self, design: &str) -> usize {
        let designs = self.0.designs();
        let found = designs.iter().position(|name| name == design);
        found.unwrap_or_else(|| panic!("no design is called `{design}`, only {designs:?}"))
    }

    /// Returns whether the runs have measured `metric`.
    pub(in crate::experiment) fn has(&self, metric: &Metric) -> bool {
        let mut samples = self.0.samples(0);
        samples.any(|sample| sample.value(metric).is_some())
    }

    /// The values of `metric` with `design`, in the order of the seeds.
    pub(in crate::experiment) fn values(&self, design: &str, metric: &Metric) -> Vec<f64> {
        let value = |sample: &crate::measure::comparison::Sample| {
            let value = sample.value(metric);
            value.unwrap_or_else(|| panic!("`{design}` has not measured `{}`", metric.name))
        };
        self.0.samples(self.position(design)).map(value).collect()
    }

    /// The median of `metric` with `design` over the seeds, with its 95 % interval.
    pub(in crate::experiment) fn estimate(&self, design: &str, metric: &Metric) -> Estimate {
        stats::estimate(&self.values(design, metric)).expect("every design runs on a seed")
    }

    pub(in crate::experiment) fn median(&self, design: &str, metric: &Metric) -> f64 {
        stats::median(&self.values(design, metric)).expect("every design runs on a seed")
    }

    pub(in crate::experiment) fn mean(&self, design: &str, metric: &Metric) -> f64 {
        let values = self.values(design, metric);
        values.iter().sum::<f64>() / values.len() as f64
    }

    /// The largest value of `metric` with `design` on any seed.
    pub(in crate::experiment) fn max(&self, design: &str, metric: &Metric) -> f64 {
        let values = self.values(design, metric).into_iter();
        values
            .reduce(f64::max)
            .expect("every design runs on a seed")
    }

    /// Compares design B of a pair with design A, seed by seed, by the values of `metric`.
    pub(in crate::experiment) fn compare(
        &self,
        (a, b): (&str, &str),
        metric: &Metric,
    ) -> stats::Comparison {
        let compared = stats::compare(&self.values(a, metric), &self.values(b, metric));
        compared.expect("every design runs on a seed")
    }

    /// The median, over the seeds, of `metric` with design B divided by `metric` with design A.
    pub(in crate::experiment) fn ratio(&self, pair: (&str, &str), metric: &Metric) -> f64 {
        self.compare(pair, metric).ratio.median
    }

    /// Compares design B of a pair with design A on each metric for which `is_compared` returns
    /// true. If B is `None`, every design except A is compared with A.
    pub(in crate::experiment) fn verdicts_of(
        &self,
        (a, b): (&str, Option<&str>),
        is_compared: impl Fn(&Metric) -> bool,
    ) -> Vec<VerdictRow> {
        let a = self.position(a);
        let mut rows = match b {
            None => self.0.verdicts(a),
            Some(b) => self.0.verdicts_between(a, self.position(b)),
        };
        rows.retain(|row| is_compared(&row.metric));
        rows
    }

    /// The median of `metric` with `design`, formatted for people.
    pub(in crate::experiment) fn show(&self, design: &str, metric: &Metric) -> String {
        human(self.median(design, metric), metric.unit)
    }

    /// The median of `metric` with `design`, with its interval, formatted for people.
    pub(in crate::experiment) fn show_interval(&self, design: &str, metric: &Metric) -> String {
        human_estimate(&self.estimate(design, metric), metric.unit)
    }

    /// The ratio of `metric` with design B to `metric` with design A, with its interval, formatted
    /// for people.
    pub(in crate::experiment) fn show_ratio(&self, pair: (&str, &str), metric: &Metric) -> String {
        human_ratio(&self.compare(pair, metric).ratio)
    }
}
