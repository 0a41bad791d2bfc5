//! The cases of a run in memory, for a table of its samples.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::export::Rows;
use super::head::Head;
use super::journal::CaseLine;
use crate::measure::sample::Sample;
use crate::run::journal::{ComparisonKey, Journal};

/// A comparison, a design and a seed: what names a case.
type Key = (ComparisonKey, String, u64);

/// A journal that collects every case of a run, also those that another journal had already. A case
/// is in the collection once, because its name is its key.
#[derive(Debug, Default)]
pub struct Collected {
    /// The journal that keeps the cases on disk; `None` if nothing is kept.
    kept: Option<Arc<dyn Journal>>,
    cases: Mutex<BTreeMap<Key, Sample>>,
}

impl Collected {
    /// A collection of the cases that `kept` has, as far as the run asks for them, and of those
    /// that the run adds to it.
    #[must_use]
    pub fn of(kept: Option<Arc<dyn Journal>>) -> Self {
        Self {
            kept,
            cases: Mutex::default(),
        }
    }

    /// The samples so far, in the order of their comparisons, designs and seeds. `head` describes
    /// the run.
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
        // A thread that panics while it holds the lock leaves the map as it was.
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
