//! The catalog: every published experiment, by name.
//!
//! An experiment answers one question. Its file in `lab/experiments/` has the machines, designs,
//! comparisons, published figures and the sentences of the answer, and names a workload. The
//! modules of this folder are the workloads, with their metrics and with the tables that only code
//! can make. The module `driver` reads the files and runs all experiments in the same way. It
//! returns one report per machine. Experiments do not depend on how reports are printed.

#[cfg(test)]
mod answers;
mod drain;
mod driver;
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

use std::path::Path;
use std::sync::LazyLock;

use self::driver::Runs;
pub use self::driver::code::{PartInfo, Subject};
pub use self::driver::numbers::Number;
pub use self::driver::text::words;
use crate::error::Error;
use crate::measure::comparison::Comparison;
use crate::plan::source;
use crate::report::misses::Beside;
use crate::report::{Report, Table};
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;

/// An experiment of the catalog: one question, and the simulated or real measurements that answer
/// it.
pub trait Experiment: Sync {
    /// The name that `plimsoll reproduce` accepts.
    fn name(&self) -> &str;

    /// The question in one line, for listings.
    fn question(&self) -> &str;

    /// Returns whether [`Options::memory`] changes the experiment's runs.
    fn takes_memory(&self) -> bool;

    /// A table of the runs that [`Experiment::run`] would make.
    fn outline(&self) -> Table;

    /// Runs the experiment and returns one report for each machine.
    ///
    /// # Errors
    /// If the options ask to run each case twice and the two runs of a case differ.
    fn run(&self, options: &Options, progress: &Progress) -> Result<Vec<Report>, Error>;

    /// The published figures that the experiment declares, without the values that our runs
    /// measured.
    ///
    /// # Errors
    /// If the experiment's file uses an unknown name.
    fn figures(&self) -> Result<Vec<Beside>, Error>;

    /// The machines that a full run uses.
    fn machines(&self) -> Vec<&str>;

    /// Returns whether the runs take place on simulated machines, whose results depend on prices
    /// (how long each step takes).
    fn is_simulated(&self) -> bool;

    /// The names of the designs.
    fn design_names(&self) -> Vec<String>;

    /// The names of the metrics that a quick run on `machine` measures.
    ///
    /// # Errors
    /// If the machine is unknown.
    fn quick_metrics(&self, machine: &str) -> Result<Vec<String>, Error>;

    /// The names of the metrics that have a row or a verdict in the reports of a run with `effort`.
    /// No name occurs twice.
    ///
    /// # Errors
    /// If the experiment's file names an unknown machine.
    fn reported_metrics(&self, effort: Effort) -> Result<Vec<String>, Error>;

    /// Runs only the designs whose names are in `designs`, and makes no tables and no finding.
    /// `machine` can have changed prices, as in `grace-72@work.fault=200`. Names of designs that
    /// the experiment does not have are ignored.
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

/// The experiment `$name`, whose file in `lab/experiments/` is built into the program.
macro_rules! builtin {
    ($name:literal) => {
        embedded(
            concat!("lab/experiments/", $name, ".toml"),
            include_str!(concat!("../../experiments/", $name, ".toml")),
        )
    };
}

/// The experiments that `plimsoll reproduce` runs, in this order, when the user names no
/// experiment. The experiments that take longest come last, so that a user sees first results soon.
pub static CATALOG: LazyLock<Vec<&'static dyn Experiment>> = LazyLock::new(|| {
    vec![
        builtin!("rss-accuracy"),
        builtin!("rss-cost"),
        builtin!("rss-memory"),
        builtin!("reaper"),
        builtin!("mrelease"),
        builtin!("oom-latency"),
        builtin!("oom-accuracy"),
        builtin!("oom-storm"),
        builtin!("vmstat"),
        builtin!("drain"),
        builtin!("drain-swap"),
    ]
});

/// Experiments that run only when the user names them.
static HIDDEN: LazyLock<Vec<&'static dyn Experiment>> = LazyLock::new(|| {
    vec![
        builtin!("selftest"),
        builtin!("stalls"),
        builtin!("purge"),
        builtin!("exits"),
    ]
});

/// The workloads that are Rust code and that experiment files can name.
static SUBJECTS: LazyLock<Vec<&'static dyn Runs>> = LazyLock::new(|| {
    vec![
        selftest::SUBJECT,
        rss_accuracy::SUBJECT,
        rss_cost::SUBJECT,
        rss_memory::SUBJECT,
        reaper::SUBJECT,
        mrelease::SUBJECT,
        oom_choice::LATENCY,
        oom_choice::ACCURACY,
        oom_storm::SUBJECT,
        vmstat::SUBJECT,
        drain::SUBJECT,
        drain::SWAPPING,
        stalls::SUBJECT,
        owning::PURGE,
        owning::EXITS,
    ]
});

/// Reads a built-in experiment from `text`, the content of `file`. The experiment is never freed.
fn embedded(file: &str, text: &str) -> &'static dyn Experiment {
    let read = driver::read::experiment((file, text), Path::new(""), &SUBJECTS);
    let found = read.unwrap_or_else(|error| panic!("{error}"));
    Box::leak(found.expect("the file names a workload with code"))
}

/// Reads the experiment in the file at `path`. Returns `None` if the file's workload is not Rust
/// code. [`crate::plan`] runs such files.
///
/// # Errors
/// [`Error::Invalid`] if the file cannot be read or has mistakes. The error lists all mistakes.
pub fn of_file(path: &Path) -> Result<Option<Box<dyn Experiment + Send>>, Error> {
    let (file, text) = source::load(path)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    driver::read::experiment((&file, &text), folder, &SUBJECTS)
}

/// The workloads that are Rust code and that experiment files can name.
pub fn subjects() -> impl Iterator<Item = &'static dyn Subject> {
    SUBJECTS.iter().map(|of| *of as &dyn Subject)
}

/// The experiment called `name`.
///
/// # Errors
/// [`Error::Unknown`] if no experiment has this name. The error suggests the most similar names.
pub fn find(name: &str) -> Result<&'static dyn Experiment, Error> {
    let found = all().find(|experiment| experiment.name() == name);
    let names: Vec<&str> = all().map(|experiment| experiment.name()).collect();
    found.ok_or_else(|| Error::unknown("experiment", name, &names))
}

/// All published figures: the figures that the experiments of the catalog declare, and the figures
/// that no experiment measures. The values that our runs measured are not included.
///
/// # Errors
/// If a declaration uses an unknown name.
pub fn figures() -> Result<Vec<Beside>, Error> {
    let mut figures = Vec::new();
    for experiment in CATALOG.iter() {
        figures.extend(experiment.figures()?);
    }
    figures.extend(unmeasured());
    Ok(figures)
}

/// The figures that mailing-list threads published but no experiment measures, each with the reason
/// why it is not measured.
#[must_use]
pub fn unmeasured() -> Vec<Beside> {
    unmeasured::figures()
}

fn all() -> impl Iterator<Item = &'static dyn Experiment> {
    CATALOG.iter().chain(&*HIDDEN).copied()
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
        let mut names: Vec<_> = all().map(|experiment| experiment.name()).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
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

    /// `docs/misses.md` is made from the published figures that experiment files declare, and from
    /// results that are stored at the end of this page. If a declared figure changes, this test
    /// fails until the page is made again.
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
            .map(|row| (&*row.experiment, &*row.machine))
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
