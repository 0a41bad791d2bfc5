//! The interface to a journal, which stores the sample of each case that has finished. If a run was
//! interrupted, the command can continue the run and skip the cases that are in the journal.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::measure::sample::Sample;

/// The name of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Title {
    /// The experiment or workload.
    pub what: String,
    /// The machine. Empty if the comparison has no machine, or if its caller did not name the
    /// machine.
    pub machine: String,
    /// Words that distinguish the comparison from the main comparison of the same report. Empty for
    /// the main comparison.
    pub about: String,
}

/// Identifies a comparison among those of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ComparisonKey {
    /// The experiment to which the comparison belongs, or the name of the command.
    pub experiment: String,
    /// The name of the comparison.
    #[serde(flatten)]
    pub title: Title,
    /// How many comparisons of this experiment with the same name began earlier.
    pub nth: usize,
}

impl fmt::Display for ComparisonKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            experiment,
            title,
            nth,
        } = self;
        f.write_str(&title.what)?;
        if !title.machine.is_empty() {
            write!(f, " on {}", title.machine)?;
        }
        if !title.about.is_empty() {
            write!(f, ", {}", title.about)?;
        }
        if experiment != &title.what && title.machine.is_empty() {
            write!(f, " of {experiment}")?;
        }
        if *nth > 0 {
            write!(f, " ({})", nth + 1)?;
        }
        Ok(())
    }
}

/// Keeps finished cases.
pub trait Journal: Debug + Send + Sync {
    /// The sample of a case that finished in an earlier run. `None` if the journal has no such
    /// case.
    fn find(&self, comparison: &ComparisonKey, design: &str, seed: u64) -> Option<Sample>;

    /// Stores the sample of a case that has just finished. If the journal cannot store the sample,
    /// it tells the user, and the run continues.
    fn keep(&self, comparison: &ComparisonKey, design: &str, seed: u64, sample: &Sample);
}

/// A journal, and the names of the comparisons of one experiment that have begun.
#[derive(Debug)]
pub(super) struct Begun {
    journal: Arc<dyn Journal>,
    experiment: String,
    /// For each name, the number of comparisons with this name that have begun.
    names: Mutex<BTreeMap<Title, usize>>,
}

impl Begun {
    pub(super) fn new(journal: Arc<dyn Journal>, experiment: &str) -> Self {
        Self {
            journal,
            experiment: experiment.to_owned(),
            names: Mutex::default(),
        }
    }

    /// Begins a comparison. An experiment begins its comparisons in the same order in every run. So
    /// `nth`, which counts earlier comparisons with the same title, is the same in every run, too.
    pub(super) fn begin(&self, title: Title) -> Cases {
        let mut names = self.names.lock().expect("no holder of this lock panics");
        let count = names.entry(title.clone()).or_default();
        let nth = *count;
        *count += 1;
        drop(names);
        Cases {
            journal: Arc::clone(&self.journal),
            key: ComparisonKey {
                experiment: self.experiment.clone(),
                title,
                nth,
            },
        }
    }
}

/// The cases of one comparison in a journal.
#[derive(Clone, Debug)]
pub(crate) struct Cases {
    journal: Arc<dyn Journal>,
    key: ComparisonKey,
}

impl Cases {
    /// The sample of a case that finished in an earlier run, if the journal has it.
    pub(crate) fn find(&self, design: &str, seed: u64) -> Option<Sample> {
        self.journal.find(&self.key, design, seed)
    }

    /// Stores the sample of a case in the journal.
    pub(crate) fn keep(&self, design: &str, seed: u64, sample: &Sample) {
        self.journal.keep(&self.key, design, seed, sample);
    }
}
