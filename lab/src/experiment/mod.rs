//! The catalog: every published experiment, by name.
//!
//! An experiment asks one question. It gets its options, measures, and returns one report per
//! machine it looked at; it does not know how a report is printed.

mod contestant;
mod drain;
mod mrelease;
mod oom_choice;
mod oom_storm;
mod reaper;
mod rss_accuracy;
mod rss_cost;
mod rss_memory;
mod vmstat;

use std::num::NonZeroUsize;
use std::thread;

use plimsoll_sim::profile::Card;

use crate::error::Error;
use crate::progress::Progress;
use crate::report::Report;
use crate::selftest;

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

/// The user's options for an experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seeds to run, each on every design.
    pub seeds: Vec<u64>,
    /// The number of cases that run at once.
    pub jobs: NonZeroUsize,
    /// One card of costs, or `None` for every card that the experiment reports.
    pub card: Option<Card>,
    /// The amount to measure.
    pub effort: Effort,
    /// Whether every case runs twice.
    pub determinism: Determinism,
}

impl Options {
    /// Seeds 1 to `seeds` on all CPUs of the host, with full effort, each case once.
    #[must_use]
    pub fn of_seeds(seeds: u64) -> Self {
        Self {
            seeds: (1..=seeds).collect(),
            jobs: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            card: None,
            effort: Effort::Full,
            determinism: Determinism::Trust,
        }
    }
}

/// The amount that an experiment measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Everything its report needs.
    Full,
    /// Enough to see that it works: shorter runs, fewer machines.
    Quick,
}

/// Whether to check that a run is a function of its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Determinism {
    /// Each case runs once.
    Trust,
    /// Each case runs twice, and a difference is an error.
    Check,
}

/// The `names` that `name` may have meant, best first, at most three.
#[must_use]
pub fn nearest<'a>(name: &str, names: &[&'a str]) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let likeness = |known: &str| {
        // The user may have cut a name short, so a prefix is as near as the whole name.
        let begins = !name.is_empty() && known.starts_with(&name);
        if begins {
            1.0
        } else {
            strsim::normalized_damerau_levenshtein(&name, known)
        }
    };
    let mut near: Vec<(f64, &str)> = names
        .iter()
        .map(|known| (likeness(known), *known))
        .filter(|(likeness, _)| *likeness >= 0.5)
        .collect();
    near.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    near.into_iter().map(|(_, known)| known).take(3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["vmstat", "drain", "grace-72", "grace-72-kasan"];

    #[test]
    fn slips_find_the_name_that_was_meant() {
        assert_eq!(nearest("vmstta", &NAMES), ["vmstat"]);
        assert_eq!(nearest("Drian", &NAMES), ["drain"]);
        assert_eq!(nearest("grace", &NAMES), ["grace-72", "grace-72-kasan"]);
        assert_eq!(nearest("turin-316", &NAMES), [""; 0]);
        assert_eq!(nearest("", &NAMES), [""; 0]);
    }

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
