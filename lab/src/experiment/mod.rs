//! The catalog: every published experiment, by name.
//!
//! An experiment answers one question. It declares its machines, designs, metrics and published
//! values. The module `declared` runs all declarations in the same way and returns one report per
//! machine. Experiments do not depend on how reports are printed.

mod declared;
mod drain;
mod emptier;
mod mrelease;
mod oom_choice;
mod oom_storm;
mod reaper;
mod rss_accuracy;
mod rss_cost;
mod rss_memory;
mod selftest;
mod vmstat;

use crate::error::Error;
use crate::report::Report;
use crate::run::options::Options;
use crate::run::progress::Progress;

/// One question, and the measurements that answer it.
pub trait Experiment: Sync {
    /// The name that `plimsoll reproduce` accepts.
    fn name(&self) -> &'static str;

    /// The question in one line, for listings.
    fn question(&self) -> &'static str;

    /// Returns whether [`Options::memory`] changes the experiment's runs.
    fn takes_memory(&self) -> bool {
        false
    }

    /// Runs the experiment and returns one report for each machine.
    ///
    /// # Errors
    /// If the options ask to run each case twice and the two runs differ, or if the declaration
    /// uses an unknown name.
    fn run(&self, options: &Options, progress: &Progress) -> Result<Vec<Report>, Error>;

    /// Checks, without a run, that every name in the declaration is known.
    ///
    /// # Errors
    /// An error for the first unknown name. It offers the nearest known names.
    fn check(&self) -> Result<(), Error>;
}

/// The experiments that `plimsoll reproduce` runs, in this order, when the user names none.
pub const CATALOG: &[&dyn Experiment] = &[
    vmstat::EXPERIMENT,
    drain::EXPERIMENT,
    rss_accuracy::EXPERIMENT,
    rss_cost::EXPERIMENT,
    rss_memory::EXPERIMENT,
    reaper::EXPERIMENT,
    mrelease::EXPERIMENT,
    oom_choice::LATENCY,
    oom_choice::ACCURACY,
    oom_storm::EXPERIMENT,
];

/// Experiments that run only when the user names them.
const HIDDEN: &[&dyn Experiment] = &[selftest::EXPERIMENT];

/// The experiment called `name`.
///
/// # Errors
/// [`Error::Unknown`] with the nearest names.
pub fn find(name: &str) -> Result<&'static dyn Experiment, Error> {
    let found = all().find(|experiment| experiment.name() == name);
    let names: Vec<&str> = all().map(Experiment::name).collect();
    found.ok_or_else(|| Error::unknown("experiment", name, &names))
}

fn all() -> impl Iterator<Item = &'static dyn Experiment> {
    CATALOG.iter().chain(HIDDEN).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_experiment_is_bad_input_and_offers_names() {
        let error = find("selftst").err().expect("a slip");
        assert!(error.is_bad_input());
        assert_eq!(
            error.to_string(),
            "no experiment is called `selftst`; did you mean `selftest`?"
        );
    }

    #[test]
    fn names_in_the_catalog_are_unique() {
        let mut names: Vec<_> = all().map(Experiment::name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn every_declaration_is_whole() {
        for experiment in all() {
            let checked = experiment.check();
            checked.unwrap_or_else(|error| panic!("{}: {error}", experiment.name()));
        }
    }
}
