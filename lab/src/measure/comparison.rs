//! Compares designs: runs every design on every seed, then turns the samples into rows and
//! verdicts.
//!
//! The hash of a comparison is computed from the hashes of its runs, in the order of the cases. So
//! it is the same for any number of workers, and in debug and release builds.

use std::fmt::{Debug, Display};

use crate::error::Error;
use crate::measure::metric::Metric;
use crate::measure::missing;
pub use crate::measure::sample::Sample;
use crate::measure::stats;
use crate::report::{Row, VerdictRow};
use crate::run::cases::{Case, matrix, run_cases};
use crate::run::options::{Determinism, Options};
use crate::run::progress::Progress;
use crate::watch::Course;

/// The samples of every design on every seed.
#[derive(Clone, Debug)]
pub struct Comparison {
    designs: Vec<String>,
    seeds: Vec<u64>,
    /// The samples in the order of the matrix: all designs with the first seed, then all designs
    /// with the next seed, and so on.
    samples: Vec<Sample>,
}

impl Comparison {
    /// Measures each design on each seed. A design's `Display` text is its name. If `progress` has
    /// a journal, a case (a design with a seed) whose sample is in the journal does not run again.
    ///
    /// # Errors
    /// [`Error::NotDeterministic`] if the options request the check for determinism and the two
    /// runs of a case differ, or if a run differs from the run in the journal.
    ///
    /// # Panics
    /// If a run panics. The message names the design and the seed.
    pub fn run<D: Clone + Debug + Display + Sync>(
        designs: &[D],
        options: &Options,
        progress: &Progress,
        run: impl Fn(&Case<D>) -> Sample + Sync,
    ) -> Result<Self, Error> {
        let (comparison, _) =
            Self::run_keeping(designs, options, progress, |case| (run(case), ()))?;
        Ok(comparison)
    }

    /// Like [`Comparison::run`], but the closure `run` returns a second value in addition to the
    /// sample. For each design, this method also returns the second value of the run with the first
    /// seed. A journal has no second values, so the cases of the first seed always run, unless `T`
    /// is `()`. These cases also run if the options ask to watch runs. If this is the main
    /// comparison of a report, what happened in each watched run is kept.
    ///
    /// # Errors
    /// As [`Comparison::run`].
    ///
    /// # Panics
    /// As [`Comparison::run`].
    pub fn run_keeping<D: Clone + Debug + Display + Sync, T: Send + 'static>(
        designs: &[D],
        options: &Options,
        progress: &Progress,
        run: impl Fn(&Case<D>) -> (Sample, T) + Sync,
    ) -> Result<(Self, Vec<T>), Error> {
        let cases = matrix(designs, &options.seeds);
        let watched = options.watch.as_ref().zip(progress.main_comparison());
        let watched_run = |case: &Case<D>| match &watched {
            Some((courses, title)) if options.seeds.first() == Some(&case.seed) => {
                let name = |course: &mut Course| {
                    course.experiment.clone_from(&title.what);
                    course.machine.clone_from(&title.machine);
                    course.design = case.design.to_string();
                };
                courses.of(name, || run(case))
            }
            _ => run(case),
        };
        let (samples, kept) = missing::run(&cases, designs.len(), options, progress, watched_run)?;
        if options.determinism == Determinism::Check {
            let again = run_cases(&cases, &options.jobs, progress, |case| run(case).0);
            check_equal(&cases, &samples, &again)?;
        }
        let comparison = Self {
            designs: designs.iter().map(ToString::to_string).collect(),
            seeds: options.seeds.clone(),
            samples,
        };
        Ok((comparison, kept))
    }

    /// The names of the designs, in the order in which they ran.
    #[must_use]
    pub fn designs(&self) -> &[String] {
        &self.designs
    }

    /// Returns one hash over the hashes of all runs.
    #[must_use]
    pub fn hash(&self) -> u64 {
        fold_hashes(self.samples.iter().map(|sample| sample.hash))
    }

    /// Returns whether both designs have identical runs: on every seed, the runs of `a` and `b`
    /// have equal hashes and equal metrics.
    ///
    /// # Panics
    /// If `a` or `b` is not the index of a design.
    #[must_use]
    pub fn are_identical(&self, a: usize, b: usize) -> bool {
        self.samples(a)
            .zip(self.samples(b))
            .all(|(a, b)| a.hash == b.hash && a.metrics == b.metrics)
    }

    /// Returns the samples of one design, in the order of the seeds.
    ///
    /// # Panics
    /// If `design` is not the index of a design.
    pub fn samples(&self, design: usize) -> impl Iterator<Item = &Sample> {
        assert!(design < self.designs.len(), "a design of this comparison");
        self.samples.iter().skip(design).step_by(self.designs.len())
    }

    /// Returns a row for each design and metric, with median and interval. `published` returns the
    /// published value of a metric with a design, if there is one.
    #[must_use]
    pub fn rows(&self, published: impl Fn(&str, &Metric) -> Option<f64>) -> Vec<Row> {
        let mut rows = Vec::new();
        for (nth, design) in self.designs.iter().enumerate() {
            for metric in self.metrics() {
                let values: Vec<f64> = self
                    .samples(nth)
                    .filter_map(|sample| sample.value(&metric))
                    .collect();
                rows.extend(stats::estimate(&values).map(|estimate| Row {
                    design: design.clone(),
                    published: published(design, &metric),
                    metric,
                    estimate,
                    seeds: values.len(),
                    is_zero: values.iter().all(|value| *value == 0.0),
                }));
            }
        }
        rows
    }

    /// Compares every other design (B) with the design at index `baseline` (A), metric by metric.
    #[must_use]
    pub fn verdicts(&self, baseline: usize) -> Vec<VerdictRow> {
        let others = (0..self.designs.len()).filter(|nth| *nth != baseline);
        others
            .flat_map(|other| self.verdicts_between(baseline, other))
            .collect()
    }

    /// Compares design `b` (B) with design `a` (A), metric by metric. Ignores seeds on which A or B
    /// lacks the metric.
    #[must_use]
    pub fn verdicts_between(&self, a: usize, b: usize) -> Vec<VerdictRow> {
        let mut verdicts = Vec::new();
        for metric in self.metrics() {
            let pairs = self.samples(a).zip(self.samples(b));
            let pairs = pairs.filter_map(|(a, b)| a.value(&metric).zip(b.value(&metric)));
            let (of_a, of_b): (Vec<f64>, Vec<f64>) = pairs.unzip();
            verdicts.extend(stats::compare(&of_a, &of_b).map(|comparison| VerdictRow {
                metric,
                a: self.designs[a].clone(),
                b: self.designs[b].clone(),
                comparison,
                pairs: of_a.len(),
            }));
        }
        verdicts
    }

    /// The seeds of the runs.
    #[must_use]
    pub fn seeds(&self) -> &[u64] {
        &self.seeds
    }

    /// The metrics of all samples, in order of first appearance.
    fn metrics(&self) -> Vec<Metric> {
        let mut metrics: Vec<Metric> = Vec::new();
        for (metric, _) in self.samples.iter().flat_map(|sample| &sample.metrics) {
            if metrics.iter().all(|known| known.name != metric.name) {
                metrics.push(metric.clone());
            }
        }
        metrics
    }
}

fn check_equal<D: Debug>(
    cases: &[Case<D>],
    samples: &[Sample],
    again: &[Sample],
) -> Result<(), Error> {
    let mut pairs = cases.iter().zip(samples.iter().zip(again));
    match pairs.find(|(_, (first, second))| first != second) {
        None => Ok(()),
        Some((case, (first, second))) => Err(Error::NotDeterministic {
            case: format!("{case:?}"),
            first: first.hash,
            second: second.hash,
        }),
    }
}

/// Runs cases like [`run_cases`]. But if the options request the check for determinism, runs each
/// case twice and checks that the two results are equal. Use this function for results that are not
/// [`Sample`]s.
///
/// # Errors
/// As [`Comparison::run`].
pub fn run_checked<C: Debug + Sync, S: Debug + PartialEq + Send>(
    cases: &[C],
    options: &Options,
    progress: &Progress,
    run: impl Fn(&C) -> S + Sync,
) -> Result<Vec<S>, Error> {
    let results = run_cases(cases, &options.jobs, progress, &run);
    if options.determinism == Determinism::Check {
        let again = run_cases(cases, &options.jobs, progress, &run);
        let hash = |result: &S| fold_hashes(format!("{result:?}").bytes().map(u64::from));
        let mut pairs = cases.iter().zip(results.iter().zip(&again));
        if let Some((case, (first, second))) = pairs.find(|(_, (one, other))| one != other) {
            return Err(Error::NotDeterministic {
                case: format!("{case:?}"),
                first: hash(first),
                second: hash(second),
            });
        }
    }
    Ok(results)
}

/// Computes one hash from `hashes`, in their order, as the FNV-1a hash of their bytes.
#[must_use]
pub fn fold_hashes(hashes: impl IntoIterator<Item = u64>) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let bytes = hashes.into_iter().flat_map(u64::to_le_bytes);
    bytes.fold(OFFSET, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;
    use crate::measure::metric::Unit;
    use crate::measure::stats::Verdict;
    use crate::run::jobs::Jobs;

    const WAITS: Metric = Metric::lower("waits", Unit::Count);
    const RATE: Metric = Metric::higher("pages_per_s", Unit::PagesPerSecond);

    fn options(jobs: usize) -> Options {
        Options {
            jobs: Jobs::new(NonZeroUsize::new(jobs).expect("not zero")),
            ..Options::of_seeds(8)
        }
    }

    fn run(options: &Options) -> Result<Comparison, Error> {
        Comparison::run(&["linux", "ours"], options, &Progress::hidden(), |case| {
            let waits = if case.design == "linux" { 100 } else { 50 } + case.seed;
            let mut metrics = vec![(WAITS, waits as f64)];
            if case.design == "ours" {
                metrics.push((RATE, 1e6));
            }
            Sample {
                hash: waits,
                metrics,
            }
        })
    }

    #[test]
    fn rows_hold_what_each_design_measured_beside_what_was_published() {
        let rows = run(&options(2))
            .unwrap()
            .rows(|design, metric| (design == "linux" && metric.name == "waits").then_some(872.0));
        let shown: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    &*row.design,
                    &*row.metric.name,
                    row.estimate.median,
                    row.published,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("linux", "waits", 104.5, Some(872.0)),
                ("ours", "waits", 54.5, None),
                ("ours", "pages_per_s", 1e6, None),
            ]
        );
    }

    /// Runs two designs on 12 seeds. A lacks `waits` on seeds 1 to 4, and B lacks it on seed 12. On
    /// all other seeds, the number of waits is 0, except on seed 5 with B.
    #[test]
    fn rows_and_verdicts_have_the_numbers_of_their_seeds() {
        let options = Options::of_seeds(12);
        let runs = Comparison::run(&["a", "b"], &options, &Progress::hidden(), |case| {
            let is_missing = match case.design {
                "a" => case.seed < 5,
                _ => case.seed == 12,
            };
            let waits = f64::from(case.design == "b" && case.seed == 5);
            let metrics = if is_missing {
                vec![]
            } else {
                vec![(WAITS, waits)]
            };
            Sample { hash: 0, metrics }
        })
        .unwrap();
        let rows = runs.rows(|_, _| None);
        let seeds = rows.iter().map(|row| (row.seeds, row.is_zero));
        assert_eq!(seeds.collect::<Vec<_>>(), [(8, true), (11, false)]);
        let b = &rows[1].estimate;
        assert_eq!((b.low, b.high), (0.0, 0.0), "the interval leaves out the 1");
        assert_eq!(runs.verdicts(0)[0].pairs, 7);
    }

    #[test]
    fn a_metric_that_one_side_lacks_gets_no_verdict() {
        let verdicts = run(&options(2)).unwrap().verdicts(0);
        assert_eq!(verdicts.len(), 1);
        assert_eq!((&*verdicts[0].a, &*verdicts[0].b), ("linux", "ours"));
        assert_eq!(verdicts[0].comparison.verdict, Verdict::Lower);
    }

    #[test]
    fn the_hash_does_not_depend_on_the_number_of_workers() {
        let hashes = [1, 2, 16].map(|jobs| run(&options(jobs)).unwrap().hash());
        assert!(hashes.iter().all(|hash| *hash == hashes[0]));
        assert_ne!(fold_hashes([1, 2]), fold_hashes([2, 1]), "order matters");
    }

    #[test]
    fn a_run_that_differs_the_second_time_is_an_error_that_names_the_case() {
        let options = Options {
            determinism: Determinism::Check,
            ..options(1)
        };
        assert_eq!(run(&options).unwrap().hash(), run(&options).unwrap().hash());
        let clock = AtomicU64::new(0);
        let error = Comparison::run(&["linux"], &options, &Progress::hidden(), |_| Sample {
            hash: clock.fetch_add(1, Relaxed),
            metrics: Vec::new(),
        });
        let text = error.expect_err("each run saw another clock").to_string();
        assert!(
            text.contains(r#"Case { design: "linux", seed: 1 }"#),
            "{text}"
        );
    }
}
