//! Keeps the results of commands in a store.

use std::env;
use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_lab::Error;
use plimsoll_lab::report::visible::visible;
use plimsoll_lab::report::{Report, Table};
use plimsoll_lab::run::progress::Progress;
use plimsoll_lab::store::head::{Head, Inputs, Machine, New, Program};
use plimsoll_lab::store::{Collected, Printed, RunFolder, Store, hash_of};
use plimsoll_lab::watch::Course;

/// The folder of the store (the kept results), unless the user names another folder.
const FOLDER: &str = ".plimsoll";
/// The environment variable that names the folder of the store.
const VARIABLE: &str = "PLIMSOLL_STORE";

/// Where the results of a run are kept.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    /// Keeps the results in this folder, for `plimsoll results` [default: the folder that the
    /// environment variable PLIMSOLL_STORE names, or .plimsoll]
    #[arg(long, value_name = "DIR", conflicts_with = "no_store")]
    pub(crate) store: Option<PathBuf>,
    /// Keeps no results
    #[arg(long)]
    pub(crate) no_store: bool,
    /// Goes on with the run ID that was broken off, and runs only what is missing; without ID, with
    /// the newest that fits
    #[arg(long, value_name = "ID", num_args = 0..=1, require_equals = true)]
    #[arg(conflicts_with = "no_store")]
    pub(crate) resume: Option<Option<String>>,
}

/// The folder of the store: `named`, if the user has named it, or else the folder that the
/// environment variable names, or else `FOLDER`.
pub(crate) fn folder(named: Option<PathBuf>) -> PathBuf {
    let variable = || env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let named = named.or_else(|| variable().map(PathBuf::from));
    named.unwrap_or_else(|| PathBuf::from(FOLDER))
}

/// The place where the results of this command are kept.
pub(crate) struct Keeping {
    /// The folder of the run in the store; `None` if no results are kept.
    run: Option<RunFolder>,
    /// Whether the user has explicitly asked to keep the results. If so, a failure to keep the
    /// results is an error. Otherwise, such a failure only prints a warning.
    asked: bool,
    /// The facts about the run that were known when it began, such as its command line.
    head: Head,
}

impl Keeping {
    /// Prepares to keep the results of a run with these machines and inputs, or resumes a run that
    /// was broken off.
    pub(crate) fn begin(
        args: &StoreArgs,
        machines: Vec<Machine>,
        inputs: Inputs,
    ) -> anyhow::Result<Self> {
        let new = New {
            command: env::args_os()
                .skip(1)
                .map(|word| word.to_string_lossy().into())
                .collect(),
            program: program(),
            machines,
            inputs,
        };
        let mut keeping = Self {
            run: None,
            asked: args.store.is_some() || args.resume.is_some(),
            head: Head::unkept(new.clone()),
        };
        if args.no_store {
            return Ok(keeping);
        }
        let folder = folder(args.store.clone());
        let run = match &args.resume {
            Some(id) => Store::open(&folder)
                .and_then(|store| RunFolder::resume(&store, id.as_deref(), &new)),
            None => Store::open_or_make(&folder).and_then(|store| RunFolder::begin(&store, new)),
        };
        keeping.run = keeping.tolerate(run)?;
        if let Some(run) = &keeping.run {
            keeping.head = run.head().clone();
            if args.resume.is_some() {
                anstream::eprintln!("resuming {}: {} cases have finished", run.id(), run.known());
            } else if io::stderr().is_terminal() {
                anstream::eprintln!("keeping the results as {}", run.id());
            }
        }
        Ok(keeping)
    }

    /// Returns `progress`. If results are kept, adds a journal (a file of finished runs) to it.
    /// `experiment` is the name of the experiment or the command that runs.
    pub(crate) fn journal(&self, progress: Progress, experiment: &str) -> Progress {
        match &self.run {
            Some(run) => progress.kept_in(run.journal(), experiment),
            None => progress,
        }
    }

    /// Returns a collection for the cases (a case is one design on one seed) of this command. If
    /// results are kept, the store keeps the collected cases too.
    pub(crate) fn collect(&self) -> Arc<Collected> {
        let kept = self.run.as_ref().map(RunFolder::journal);
        Arc::new(Collected::of(kept))
    }

    /// Returns the facts about the run that were known when it began.
    pub(crate) const fn head(&self) -> &Head {
        &self.head
    }

    /// For an experiment, the number of cases that had finished before the run was resumed. A case
    /// is one design on one seed.
    pub(crate) fn known(&self, experiment: &str) -> usize {
        self.run.as_ref().map_or(0, |run| run.known_of(experiment))
    }

    /// Returns `run`. If `run` is an error and no case has finished, there is nothing to resume, so
    /// this function removes the run from the store. Otherwise the store keeps the finished cases.
    pub(crate) fn of_begun<T>(&mut self, run: Result<T, Error>) -> Result<T, Error> {
        if run.is_err() && self.run.as_ref().is_some_and(RunFolder::is_empty) {
            self.run.take().map_or(Ok(()), RunFolder::discard)?;
        }
        run
    }

    /// Keeps a report.
    pub(crate) fn report(&mut self, report: &Report) -> anyhow::Result<()> {
        self.print(|| Printed::Report(Box::new(report.clone())))
    }

    /// Keeps the courses of the watched runs, which say what happened in each run over time.
    pub(crate) fn courses(&mut self, courses: &[Course]) -> anyhow::Result<()> {
        let kept = match &self.run {
            Some(run) => run.keep_courses(courses),
            None => Ok(()),
        };
        self.tolerate(kept).map(drop)
    }

    /// Keeps a table that belongs to no single report.
    pub(crate) fn table(&mut self, table: &Table) -> anyhow::Result<()> {
        self.print(|| Printed::Table(table.clone()))
    }

    fn print(&mut self, printed: impl FnOnce() -> Printed) -> anyhow::Result<()> {
        let Some(run) = &mut self.run else {
            return Ok(());
        };
        let kept = run.print(&printed());
        if self.tolerate(kept)?.is_none() {
            self.run = None;
        }
        Ok(())
    }

    /// Marks the run as finished.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        let finished = self.run.take().map_or(Ok(()), RunFolder::finish);
        self.tolerate(finished).map(drop)
    }

    /// Returns the value of `result`. If `result` is an error, returns it if the user has
    /// explicitly asked to keep the results. Otherwise prints the error as a warning and returns
    /// `None`.
    fn tolerate<T>(&self, result: Result<T, Error>) -> anyhow::Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if self.asked => Err(error.into()),
            Err(error) => {
                warn(&format_args!("{error}; this run is not kept"));
                Ok(None)
            }
        }
    }
}

/// Prints a warning to standard error.
pub(crate) fn warn(text: &dyn Display) {
    anstream::eprintln!("warning: {}", visible(&text.to_string()));
}

/// Describes this program, with a hash of its file, because two builds of one commit may differ.
fn program() -> Program {
    let file = env::current_exe().ok();
    let build = file.and_then(|file| hash_of(&file).ok());
    Program {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("PLIMSOLL_COMMIT").to_owned(),
        build: build.unwrap_or_else(|| "unknown".to_owned()),
    }
}
