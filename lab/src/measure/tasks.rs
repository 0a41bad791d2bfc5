//! Records the tasks that have ended during a run of a workload, with their durations.
//!
//! A task is a unit of work as a user sees it: a process of a build, a round of `stress-ng`, or the
//! end of a killed app. Each workload says what its tasks are.

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_mm::machine::Machine;
use plimsoll_mm::units::Nanos;
use plimsoll_sim::Sim;

use super::metric::{Metric, Unit};

/// The metrics of tasks: how many tasks ended per second, and the mean and the 99th percentile of
/// their durations.
pub const METRICS: [Metric; 3] = [
    Metric::higher("tasks_per_s", Unit::PerSecond),
    Metric::lower("task_time_mean_ns", Unit::Nanos),
    Metric::lower("task_time_p99_ns", Unit::Nanos),
];

/// The durations of the tasks that have ended. A clone of a `Tasks` shares its durations.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    took_ns: Rc<RefCell<Vec<u64>>>,
}

impl Tasks {
    /// Notes that a task which began at `begun` ends now. The call takes no virtual time.
    pub(crate) fn end(&self, sim: &Sim, begun: Nanos) {
        let took = sim.now().0.saturating_sub(begun.0);
        self.took_ns.borrow_mut().push(took);
    }

    /// The number of tasks that have ended.
    #[must_use]
    pub fn count(&self) -> usize {
        self.took_ns.borrow().len()
    }

    /// The values of [`METRICS`] for a run that lasted `length`. If no task has ended, the result
    /// has only the rate.
    #[must_use]
    pub fn metrics(&self, length: Nanos) -> Vec<(Metric, f64)> {
        let mut took = self.took_ns.borrow().clone();
        took.sort_unstable();
        let count = took.len();
        let [rate, mean, p99] = METRICS;
        let mut metrics = vec![(rate, count as f64 * 1e9 / length.0 as f64)];
        // `slow` is the index of the 99th percentile: the smallest duration that at least 99 % of
        // the tasks do not exceed.
        if let Some(slow) = (count * 99).div_ceil(100).checked_sub(1) {
            let sum: f64 = took.iter().map(|&ns| ns as f64).sum();
            metrics.push((mean, sum / count as f64));
            metrics.push((p99, took[slow] as f64));
        }
        metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(took: impl IntoIterator<Item = u64>) -> Vec<f64> {
        let tasks = Tasks::default();
        tasks.took_ns.borrow_mut().extend(took);
        let metrics = tasks.metrics(Nanos(500_000_000));
        metrics.into_iter().map(|(_, value)| value).collect()
    }

    #[test]
    fn a_percentile_is_the_duration_of_a_task() {
        assert_eq!(values((1..=200).rev()), [400.0, 100.5, 198.0]);
        assert_eq!(values([7]), [2.0, 7.0, 7.0]);
    }

    #[test]
    fn without_tasks_there_are_no_durations() {
        assert_eq!(values([]), [0.0]);
    }
}
