//! The catalog: every published experiment, by name.
//!
//! An experiment asks one question. It gets its options, measures, and returns one report per
//! machine it looked at; it does not know how a report is printed.

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

/// One question, and the function that answers it.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The name that `plimsoll reproduce` accepts.
    pub name: &'static str,
    /// The question in one line.
    pub title: &'static str,
    /// The function that measures and reports.
    pub run: fn(&Options, &Progress) -> Result<Vec<Report>, Error>,
}

/// The experiments that `plimsoll reproduce` runs, in this order, when the user names none.
pub const CATALOG: &[Experiment] = &[
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
const HIDDEN: &[Experiment] = &[selftest::EXPERIMENT];

/// The experiment called `name`.
///
/// # Errors
/// [`Error::Unknown`] with the nearest names.
pub fn find(name: &str) -> Result<&'static Experiment, Error> {
    let found = CATALOG
        .iter()
        .chain(HIDDEN)
        .find(|experiment| experiment.name == name);
    let names: Vec<&str> = CATALOG
        .iter()
        .chain(HIDDEN)
        .map(|known| known.name)
        .collect();
    found.ok_or_else(|| Error::unknown("experiment", name, &names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_experiment_is_bad_input_and_offers_names() {
        let error = find("selftst").expect_err("a slip");
        assert!(error.is_bad_input());
        assert_eq!(
            error.to_string(),
            "no experiment is called `selftst`; did you mean `selftest`?"
        );
    }

    #[test]
    fn names_in_the_catalog_are_unique() {
        let mut names: Vec<_> = CATALOG
            .iter()
            .chain(HIDDEN)
            .map(|known| known.name)
            .collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
