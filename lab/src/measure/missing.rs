//! Runs the cases (a case is a design with a seed) whose samples are not in the journal of an
//! earlier run.

use std::any::Any;
use std::fmt::{Debug, Display};

use crate::error::Error;
use crate::measure::sample::Sample;
use crate::run::cases::{Case, run_cases};
use crate::run::journal::Cases;
use crate::run::options::{Determinism, Options};
use crate::run::progress::Progress;

/// Returns the sample of each case. For each of the first `first` cases, also returns the second
/// value that `run` returned. Adds each case that runs to the journal of `progress`. A case that is
/// already in the journal usually does not run. It runs if its second value is needed, if it is one
/// of the first cases and the user watches these runs, or if the options ask to run each case
/// twice.
pub(super) fn run<D: Debug + Display + Sync, T: Send + 'static>(
    cases: &[Case<D>],
    first: usize,
    options: &Options,
    progress: &Progress,
    run: impl Fn(&Case<D>) -> (Sample, T) + Sync,
) -> Result<(Vec<Sample>, Vec<T>), Error> {
    let journal = progress.begin_comparison();
    let known = known(cases, options, journal.as_ref());
    let again = unit::<T>().is_none() || options.watch.is_some();
    let is_run = |nth: usize| known[nth].is_none() || (nth < first && again);
    let runs: Vec<&Case<D>> = (0..cases.len())
        .filter(|nth| is_run(*nth))
        .map(|nth| &cases[nth])
        .collect();
    let ran = run_cases(&runs, &options.jobs, progress, |case| {
        let (sample, value) = run(case);
        if let Some(journal) = &journal {
            journal.keep(&case.design.to_string(), case.seed, &sample);
        }
        (sample, value)
    });
    let mut ran = ran.into_iter();
    let (mut samples, mut values) = (Vec::new(), Vec::new());
    for (nth, case) in cases.iter().enumerate() {
        let of_run = if is_run(nth) { ran.next() } else { None };
        let (sample, value) = match (&known[nth], of_run) {
            (Some(known), Some((sample, _))) if known.hash != sample.hash => {
                return Err(Error::NotDeterministic {
                    case: format!("{case:?}"),
                    first: known.hash,
                    second: sample.hash,
                });
            }
            // Times that a real clock measured differ from run to run. The journal has the times of
            // the case's first run, so the report shows these times again.
            (Some(known), Some((_, value))) => (known.clone(), Some(value)),
            (None, Some((sample, value))) => (sample, Some(value)),
            (Some(known), None) => (known.clone(), unit()),
            (None, None) => unreachable!("a case that the journal does not have runs"),
        };
        samples.push(sample);
        values.extend(value.filter(|_| nth < first));
    }
    Ok((samples, values))
}

/// The samples that the journal has, in the order of the cases.
fn known<D: Display>(
    cases: &[Case<D>],
    options: &Options,
    journal: Option<&Cases>,
) -> Vec<Option<Sample>> {
    let journal = journal.filter(|_| options.determinism == Determinism::Trust);
    let find = |case: &Case<D>| journal?.find(&case.design.to_string(), case.seed);
    cases.iter().map(find).collect()
}

/// Returns `()` as a value of `T` if `T` is `()`, and `None` if `T` is another type.
fn unit<T: 'static>() -> Option<T> {
    let unit: Box<dyn Any> = Box::new(());
    unit.downcast().ok().map(|unit| *unit)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::measure::comparison::Comparison;
    use crate::measure::metric::{Metric, Unit};
    use crate::run::journal::{ComparisonKey, Journal};

    const WAITS: Metric = Metric::lower("waits", Unit::Count);

    type Key = (ComparisonKey, String, u64);

    /// A journal in memory, which keeps the samples of finished cases. It stops the comparison
    /// after it has kept `most` cases.
    #[derive(Debug, Default)]
    struct InMemory {
        cases: Mutex<BTreeMap<Key, Sample>>,
        most: Option<usize>,
    }

    impl InMemory {
        fn with(cases: BTreeMap<Key, Sample>, most: Option<usize>) -> Arc<Self> {
            let cases = Mutex::new(cases);
            Arc::new(Self { cases, most })
        }

        fn cases(&self) -> BTreeMap<Key, Sample> {
            let cases = self
                .cases
                .lock()
                .unwrap_or_else(|broken| broken.into_inner());
            cases.clone()
        }
    }

    impl Journal for InMemory {
        fn find(&self, comparison: &ComparisonKey, design: &str, seed: u64) -> Option<Sample> {
            let key = (comparison.clone(), design.to_owned(), seed);
            self.cases().get(&key).cloned()
        }

        fn keep(&self, comparison: &ComparisonKey, design: &str, seed: u64, sample: &Sample) {
            let mut cases = self
                .cases
                .lock()
                .unwrap_or_else(|broken| broken.into_inner());
            assert!(Some(cases.len()) != self.most, "broken off");
            let key = (comparison.clone(), design.to_owned(), seed);
            cases.insert(key, sample.clone());
        }
    }

    /// Makes two comparisons with the same name, and returns their hashes and the number of cases
    /// that ran.
    fn compare<T: Send + 'static>(
        journal: &Arc<InMemory>,
        kept: impl Fn(u64) -> T + Sync,
    ) -> (Vec<u64>, Vec<T>, usize) {
        let progress = Progress::hidden().kept_in(Arc::<InMemory>::clone(journal), "test");
        let ran = AtomicUsize::new(0);
        let (mut hashes, mut values) = (Vec::new(), Vec::new());
        progress.start_on("test", "no machine", "");
        for add in [0, 1000] {
            let (runs, kept) =
                Comparison::run_keeping(&["a", "b"], &Options::of_seeds(4), &progress, |case| {
                    ran.fetch_add(1, Relaxed);
                    let waits = case.seed + add + u64::from(case.design == "b") * 100;
                    let metrics = vec![(WAITS, waits as f64)];
                    let hash = waits;
                    (Sample { hash, metrics }, kept(waits))
                })
                .expect("the same every time");
            hashes.push(runs.hash());
            values.extend(kept);
        }
        (hashes, values, ran.into_inner())
    }

    #[test]
    fn a_run_goes_on_after_any_number_of_cases() {
        let whole = InMemory::with(BTreeMap::new(), None);
        let (hashes, values, ran) = compare(&whole, |waits| waits);
        assert_eq!((ran, &values[..]), (16, &[1, 101, 1001, 1101][..]));
        for most in 0..16 {
            let broken = InMemory::with(BTreeMap::new(), Some(most));
            let run = || compare(&broken, |waits| waits);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(run))
                .expect_err("the journal breaks the run off");
            assert_eq!(broken.cases().len(), most);
            let again = InMemory::with(broken.cases(), None);
            let (again_hashes, again_values, ran) = compare(&again, |waits| waits);
            assert_eq!((&again_hashes, &again_values), (&hashes, &values));
            assert_eq!(again.cases(), whole.cases());
            // The cases of the first seed run again, because the journal does not keep the second
            // values that `run` returns.
            let of_first = |of: &(&Key, &Sample)| of.0.2 == 1;
            let first = broken.cases().iter().filter(of_first).count();
            assert_eq!(ran, 16 - most + first);
        }
    }

    #[test]
    fn without_second_values_no_finished_case_runs_again() {
        let whole = InMemory::with(BTreeMap::new(), None);
        let (hashes, _, ran) = compare(&whole, |_| ());
        assert_eq!(ran, 16);
        let (again, values, ran) = compare(&whole, |_| ());
        assert_eq!((again, values.len(), ran), (hashes, 4, 0));
    }

    #[test]
    fn a_case_that_differs_from_the_journal_is_an_error() {
        let journal = InMemory::with(BTreeMap::new(), None);
        let run = |hash| {
            let progress = Progress::hidden().kept_in(Arc::<InMemory>::clone(&journal), "test");
            Comparison::run_keeping(&["a"], &Options::of_seeds(1), &progress, |_| {
                let metrics = Vec::new();
                (Sample { hash, metrics }, 0)
            })
        };
        run(7).expect("the first run");
        let error = run(8).expect_err("the hash differs").to_string();
        assert!(error.contains("differ: hash 0000000000000007"), "{error}");
    }

    #[test]
    fn a_run_that_checks_determinism_runs_every_case() {
        let journal = InMemory::with(BTreeMap::new(), None);
        compare(&journal, |_| ());
        let options = Options {
            determinism: Determinism::Check,
            ..Options::of_seeds(4)
        };
        let progress = Progress::hidden().kept_in(Arc::<InMemory>::clone(&journal), "test");
        progress.start_on("test", "no machine", "");
        let ran = AtomicUsize::new(0);
        Comparison::run(&["a", "b"], &options, &progress, |_| {
            ran.fetch_add(1, Relaxed);
            let (hash, metrics) = (1, Vec::new());
            Sample { hash, metrics }
        })
        .expect("the same twice");
        assert_eq!(ran.into_inner(), 16);
    }
}
