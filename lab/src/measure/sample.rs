//! What one run of a case measured.

use crate::measure::metric::Metric;

/// The metrics of one run, and a hash over everything that happened in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The hash over everything that happened in the run.
    pub hash: u64,
    /// Each metric with its value, which is finite and not negative.
    pub metrics: Vec<(Metric, f64)>,
}

impl Sample {
    /// The value of `metric`. `None` if the run did not measure it.
    #[must_use]
    pub fn value(&self, metric: &Metric) -> Option<f64> {
        let found = self
            .metrics
            .iter()
            .find(|(other, _)| other.name == metric.name);
        found.map(|(_, value)| *value)
    }
}
