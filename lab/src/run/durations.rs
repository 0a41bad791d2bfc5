//! How long the cases of each experiment took on one computer. From these durations, a command
//! computes how long it will still run.
//!
//! An experiment runs its cases in *stretches*: one for its main table, and one for each other
//! table. The data file `lab/data/durations.json` has the stretches of every experiment in the
//! order in which they run. Only the ratios of the durations matter, because a command measures its
//! own speed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::options::Effort;

/// The text of the data file with the durations, as it was when Plimsoll was built.
const FILE: &str = include_str!("../../data/durations.json");

/// The number of seeds with which the runs in the data file were made.
pub(super) const SEEDS: f64 = 6.0;

/// The stretches of each experiment, by the experiment's name. A stretch is all cases that the
/// experiment runs for one table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Durations {
    /// For each experiment, the stretches of full runs. A stretch is all cases for one table.
    pub full: BTreeMap<String, Vec<Stretch>>,
    /// For each experiment, the stretches of quick runs. A stretch is all cases for one table.
    pub quick: BTreeMap<String, Vec<Stretch>>,
}

/// The cases that an experiment runs for one of its tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    /// The number of cases.
    pub cases: usize,
    /// The sum of the times that the cases took, in seconds. Each case runs on one CPU.
    pub seconds: f64,
}

impl Durations {
    /// Reads the data file that is built into the program.
    ///
    /// # Panics
    /// If this file is damaged. A test checks that it is not.
    #[must_use]
    pub fn committed() -> Self {
        serde_json::from_str(FILE).expect("a test reads the committed file")
    }

    /// The stretches of one experiment. A stretch has the cases for one table. The list is empty if
    /// the file does not have the experiment.
    #[must_use]
    pub fn of(&self, experiment: &str, effort: Effort) -> &[Stretch] {
        let all = match effort {
            Effort::Full => &self.full,
            Effort::Quick => &self.quick,
        };
        all.get(experiment).map_or(&[], Vec::as_slice)
    }

    /// The text of a data file with these durations.
    ///
    /// # Panics
    /// Never: every duration has a form in JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("durations are finite numbers") + "\n"
    }

    /// Replaces the stretches of one experiment. A stretch has the cases for one table.
    pub fn set(&mut self, experiment: &str, effort: Effort, stretches: Vec<Stretch>) {
        let all = match effort {
            Effort::Full => &mut self.full,
            Effort::Quick => &mut self.quick,
        };
        all.insert(experiment.to_owned(), stretches);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::CATALOG;

    #[test]
    fn the_committed_file_has_every_experiment_of_the_catalog() {
        let committed = Durations::committed();
        for experiment in CATALOG.iter() {
            for effort in [Effort::Full, Effort::Quick] {
                let stretches = committed.of(experiment.name(), effort);
                assert!(!stretches.is_empty(), "{}", experiment.name());
                assert!(stretches.iter().all(|stretch| stretch.seconds >= 0.0));
            }
        }
    }

    #[test]
    fn a_replaced_experiment_leaves_the_others() {
        let mut durations = Durations::default();
        let one = Stretch {
            cases: 1,
            seconds: 2.0,
        };
        durations.set("a", Effort::Full, vec![one]);
        durations.set("b", Effort::Full, vec![one, one]);
        durations.set("a", Effort::Quick, vec![]);
        assert_eq!(durations.of("a", Effort::Full), [one]);
        assert_eq!(durations.of("b", Effort::Full), [one, one]);
        assert!(durations.of("b", Effort::Quick).is_empty());
    }
}
