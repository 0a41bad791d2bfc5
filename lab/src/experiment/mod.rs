//! The catalog: every published experiment, by name.
//!
//! An experiment answers one question. It declares its machines, designs, metrics and published
//! values. The module `declared` runs all declarations in the same way and returns one report per
//! machine. Experiments do not depend on how reports are printed.

#[cfg(test)]
mod answers;
mod declared;
mod drain;
mod emptier;
mod mrelease;
mod oom_choice;
mod oom_storm;
mod owning;
#[cfg(test)]
mod readme;
mod reaper;
mod rss_accuracy;
mod rss_cost;
mod rss_memory;
mod selftest;
mod stalls;
mod unmeasured;
mod vmstat;

use self::declared::Unmeasured;
use crate::error::Error;
use crate::measure::comparison::Comparison;
use crate::report::Report;
use crate::report::misses::Beside;
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;

/// An experiment of the catalog: one question, and the simulated or real measurements that answer
/// it.
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

    /// The published figures that the experiment declares, without the values that our runs
    /// measured.
    ///
    /// # Errors
    /// If the declaration uses an unknown name.
    fn figures(&self) -> Result<Vec<Beside>, Error>;

    /// The machines that a full run uses.
    fn machines(&self) -> &'static [&'static str];

    /// Returns whether the runs take place on simulated machines, so that prices matter.
    fn is_simulated(&self) -> bool;

    /// The names of the designs.
    ///
    /// # Errors
    /// If the declaration uses an unknown name.
    fn design_names(&self) -> Result<Vec<String>, Error>;

    /// The names of the metrics that a quick run on `machine` measures.
    ///
    /// # Errors
    /// If the machine is unknown.
    fn quick_metrics(&self, machine: &str) -> Result<Vec<String>, Error>;

    /// The names of the metrics that have a row or a verdict in the reports of a run with `effort`,
    /// each once.
    ///
    /// # Errors
    /// If the declaration uses an unknown machine.
    fn reported_metrics(&self, effort: Effort) -> Result<Vec<String>, Error>;

    /// Runs only the designs called `designs`, and makes no tables and no finding. `machine` may
    /// have scaled prices, as in `grace-72@work.fault=200`. Designs that the experiment does not
    /// have are left out.
    ///
    /// # Errors
    /// As [`Experiment::run`], and if the machine is unknown.
    fn compare_some(
        &self,
        machine: &str,
        designs: &[&str],
        options: &Options,
    ) -> Result<Comparison, Error>;
}

/// The experiments that `plimsoll reproduce` runs, in this order, when the user names none. Those
/// that take longest come last, so that a user soon sees a first answer.
pub const CATALOG: &[&dyn Experiment] = &[
    rss_accuracy::EXPERIMENT,
    rss_cost::EXPERIMENT,
    rss_memory::EXPERIMENT,
    reaper::EXPERIMENT,
    mrelease::EXPERIMENT,
    oom_choice::LATENCY,
    oom_choice::ACCURACY,
    oom_storm::EXPERIMENT,
    vmstat::EXPERIMENT,
    drain::EXPERIMENT,
    drain::SWAPPING,
];

/// Experiments that run only when the user names them.
const HIDDEN: &[&dyn Experiment] = &[
    selftest::EXPERIMENT,
    stalls::EXPERIMENT,
    owning::PURGE,
    owning::EXITS,
];

/// The experiment called `name`.
///
/// # Errors
/// [`Error::Unknown`] with the nearest names.
pub fn find(name: &str) -> Result<&'static dyn Experiment, Error> {
    let found = all().find(|experiment| experiment.name() == name);
    let names: Vec<&str> = all().map(Experiment::name).collect();
    found.ok_or_else(|| Error::unknown("experiment", name, &names))
}

/// All published figures: those that the experiments of the catalog declare, and those that no
/// experiment measures. They come without the values that our runs measured.
///
/// # Errors
/// If a declaration uses an unknown name.
pub fn figures() -> Result<Vec<Beside>, Error> {
    let mut figures = Vec::new();
    for experiment in CATALOG {
        figures.extend(experiment.figures()?);
    }
    figures.extend(unmeasured());
    Ok(figures)
}

/// The figures that mailing-list threads published and that no experiment measures, each with the
/// reason.
#[must_use]
pub fn unmeasured() -> Vec<Beside> {
    unmeasured::FIGURES.iter().map(Unmeasured::beside).collect()
}

fn all() -> impl Iterator<Item = &'static dyn Experiment> {
    CATALOG.iter().chain(HIDDEN).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::misses::stored::{self, Stored};
    use crate::report::misses::{Thread, page};

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

    #[test]
    fn every_published_figure_says_where_and_why_and_is_declared_once() {
        let figures = figures().unwrap();
        let mut whats = Vec::new();
        for figure in &figures {
            assert!(
                !figure.source.is_empty() && figure.why.ends_with('.'),
                "{figure:?}"
            );
            assert!(Thread::ALL.contains(&figure.thread), "{figure:?}");
            whats.push(&figure.what);
        }
        whats.sort_unstable();
        assert!(whats.windows(2).all(|pair| pair[0] != pair[1]), "{whats:?}");
    }

    const OVERWRITE: &str = "docs/misses.md is not what the declarations say. If only texts or prices \
                             changed, run this test with PLIMSOLL_MISSES=overwrite; if figures \
                             changed, run `plimsoll reproduce --misses docs/misses.md`";

    /// `docs/misses.md` is made from the declared figures and from the results that the page itself
    /// keeps at its end. If a declaration has changed, the page must be made again.
    #[test]
    fn the_committed_page_of_misses_is_that_of_the_declared_figures() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/misses.md");
        let committed = std::fs::read_to_string(path).expect("a committed page");
        let stored = Stored::read(&committed).unwrap();
        let declared = figures().unwrap();
        if std::env::var_os("PLIMSOLL_MISSES").is_some_and(|is| is == "overwrite") {
            let stored = stored::still_declared(stored, &declared);
            let made = page::of_stored(declared, &stored).unwrap();
            std::fs::write(path, &made).expect("a page that can be written");
            return;
        }
        let made = page::of_stored(declared, &stored).expect(OVERWRITE);
        assert!(made == committed, "{OVERWRITE}");
    }

    #[test]
    fn the_page_of_misses_has_a_run_of_every_machine_with_figures() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/misses.md");
        let committed = std::fs::read_to_string(path).expect("a committed page");
        let stored = Stored::read(&committed).unwrap();
        let ran: Vec<_> = stored
            .iter()
            .map(|it| (&*it.experiment, &*it.machine))
            .collect();
        for figure in figures().unwrap() {
            if let Some(place) = figure.place {
                assert!(
                    ran.contains(&(&*place.experiment, &*place.machine)),
                    "{}",
                    figure.what
                );
            }
        }
    }
}
