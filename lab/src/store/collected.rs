//! Keeps the cases of a run (one design on one seed each) in memory, to make a table of their
//! measured values.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::export::Rows;
use super::head::Head;
use super::journal::CaseLine;
use crate::measure::sample::Sample;
use crate::run::journal::{ComparisonKey, Journal};

/// The name of a case (one design on one seed): its comparison, its design and its seed.
type Key = (ComparisonKey, String, u64);

/// A journal that collects every case (one design on one seed) of a run, including the cases that
/// were already in the journal on disk. It has each case once, because the case's name is the key.
#[derive(Debug, Default)]
pub struct Collected {
    /// The journal that keeps the cases on disk. `None` if there is no such journal.
    kept: Option<Arc<dyn Journal>>,
    cases: Mutex<BTreeMap<Key, Sample>>,
}

impl Collected {
    /// Makes an empty collection. The collection gets each case that the run finds in `kept` or
    /// adds.
    #[must_use]
    pub fn of(kept: Option<Arc<dyn Journal>>) -> Self {
        Self {
            kept,
            cases: Mutex::default(),
        }
    }

    /// The measured values so far, in the order of their comparisons, designs and seeds. `head`
    /// describes the run.
    #[must_use]
    pub fn rows(&self, head: &Head) -> Rows {
        let cases = self.cases.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |((comparison, design, seed), sample): (&Key, &Sample)| {
            CaseLine::of(comparison, design, *seed, sample)
        };
        let lines: Vec<CaseLine> = cases.iter().map(line).collect();
        let mut rows = Rows::default();
        rows.add_cases(head, &lines);
        rows
    }

    fn add(&self, comparison: &ComparisonKey, design: &str, seed: u64, sample: &Sample) {
        let key = (comparison.clone(), design.to_owned(), seed);
        // The map is valid even if a thread panicked while it held the lock.
        let mut cases = self.cases.lock().unwrap_or_else(PoisonError::into_inner);
        cases.entry(key).or_insert_with(|| sample.clone());
    }
}

impl Journal for Collected {
    fn find(&self, comparison: &ComparisonKey, design: &str, seed: u64) -> Option<Sample> {
        let found = self.kept.as_ref()?.find(comparison, design, seed)?;
        self.add(comparison, design, seed, &found);
        Some(found)
    }

    fn keep(&self, comparison: &ComparisonKey, design: &str, seed: u64, sample: &Sample) {
        self.add(comparison, design, seed, sample);
        if let Some(kept) = &self.kept {
            kept.keep(comparison, design, seed, sample);
        }
    }
}
