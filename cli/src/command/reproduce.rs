//! `plimsoll reproduce`: runs the named experiments, or all experiments of the catalog. After all
//! of them, it prints every published figure beside ours.

use std::fs;
use std::panic;
use std::thread::{self, JoinHandle};

use plimsoll_lab::Error;
use plimsoll_lab::experiment::{self, CATALOG, Experiment};
use plimsoll_lab::report::Report;
use plimsoll_lab::report::misses::{self, Beside};
use plimsoll_lab::run::aging::Memory;
use plimsoll_lab::run::jobs::Jobs;
use plimsoll_lab::run::options::{Determinism, Effort, Options};
use plimsoll_lab::run::progress::Progress;

use crate::args::Reproduce;
use crate::output::{self, BadInput, Sink};

/// The number of seeds unless the user chooses another. It is the smallest number with which a
/// comparison has a verdict.
const SEEDS: u64 = 6;
const SEEDS_QUICK: u64 = 2;

pub(crate) fn run(args: Reproduce) -> anyhow::Result<()> {
    let mut options = options(&args)?;
    let experiments = experiments(&args.experiment)?;
    check_memory(&args, &experiments)?;
    options.jitter = args.jitter.into();
    let whole = CATALOG
        .iter()
        .all(|of| experiments.iter().any(|it| it.name() == of.name()));
    if let Some(page) = &args.misses {
        if !whole && !page.exists() {
            let refused = "--misses lists the figures of all experiments: name no experiment, or \
                           name a page that exists, to replace the figures of the experiments on it";
            return Err(BadInput(refused.to_owned()).into());
        }
        output::writable(page, "--misses")?;
    }
    let mut sink = Sink::open(args.output)?;
    let mut all = Vec::new();
    for started in start_all(&experiments, &options) {
        // Each report is written as soon as those before it are, so a crash does not lose it.
        for report in started.finish()? {
            sink.write(&report)?;
            all.push(report);
        }
    }
    if whole {
        sink.write_table(&misses::table(&figures_of(&all)))?;
    }
    if let Some(page) = &args.misses {
        let declared = experiment::figures()?;
        let text = if whole {
            misses::page::of_reports(declared, &all)?
        } else {
            misses::page::updated(&fs::read_to_string(page)?, declared, &all)?
        };
        output::replace(page, &text)?;
    }
    Ok(())
}

/// An experiment that runs on a thread of its own.
struct Started {
    thread: JoinHandle<Result<Vec<Report>, Error>>,
    progress: Progress,
}

impl Started {
    /// Shows the experiment's progress until it has ended, and returns its reports.
    fn finish(self) -> Result<Vec<Report>, Error> {
        self.progress.show();
        let reports = self.thread.join();
        self.progress.finish();
        reports.unwrap_or_else(|cause| panic::resume_unwind(cause))
    }
}

/// Starts all experiments at once. They share the slots for cases, and an earlier experiment gets a
/// free slot first. So the experiments end about in their order, and no CPU is idle while one of
/// them waits for its last case. If an experiment fails, the threads of the others end with the
/// process.
fn start_all(experiments: &[&'static dyn Experiment], options: &Options) -> Vec<Started> {
    let start = |(rank, &experiment): (usize, &&'static dyn Experiment)| {
        let progress = Progress::hidden();
        let of_thread = progress.clone();
        let options = Options {
            jobs: options.jobs.ranked(rank),
            ..options.clone()
        };
        let thread = thread::spawn(move || experiment.run(&options, &of_thread));
        Started { thread, progress }
    };
    experiments.iter().enumerate().map(start).collect()
}

/// The published figures with ours from the reports, and the published figures that no experiment
/// measures.
fn figures_of(reports: &[Report]) -> Vec<Beside> {
    let of_reports = reports.iter().flat_map(|report| report.figures.clone());
    of_reports.chain(experiment::unmeasured()).collect()
}

/// Looks up all names before any experiment runs. An experiment that is named twice runs once.
fn experiments(names: &[String]) -> anyhow::Result<Vec<&'static dyn Experiment>> {
    if names.is_empty() && CATALOG.is_empty() {
        return Err(BadInput("the catalog of experiments is empty; name one".to_owned()).into());
    }
    if names.is_empty() {
        return Ok(CATALOG.to_vec());
    }
    let mut chosen: Vec<&'static dyn Experiment> = Vec::new();
    for name in names {
        let experiment = experiment::find(name)?;
        if chosen.iter().all(|known| known.name() != experiment.name()) {
            chosen.push(experiment);
        }
    }
    Ok(chosen)
}

/// Returns an error if `--memory` is given and has no effect on an experiment that the user names.
fn check_memory(args: &Reproduce, experiments: &[&dyn Experiment]) -> anyhow::Result<()> {
    let mut named = experiments.iter().filter(|_| !args.experiment.is_empty());
    let unchanged = named.find(|experiment| !experiment.takes_memory());
    if let (Some(_), Some(experiment)) = (&args.memory, unchanged) {
        let takes = CATALOG.iter().filter(|other| other.takes_memory());
        let takes: Vec<&str> = takes.map(|other| other.name()).collect();
        return Err(BadInput(format!(
            "--memory does not change `{}`: leave it out, or name only {}",
            experiment.name(),
            takes.join(", ")
        ))
        .into());
    }
    Ok(())
}

fn options(args: &Reproduce) -> anyhow::Result<Options> {
    let (effort, seeds) = if args.quick {
        (Effort::Quick, SEEDS_QUICK)
    } else {
        (Effort::Full, SEEDS)
    };
    let determinism = if args.check_determinism {
        Determinism::Check
    } else {
        Determinism::Trust
    };
    Ok(Options {
        jobs: Jobs::new(args.runs.jobs()),
        card: args.card.map(Into::into),
        memory: args.memory.as_deref().map(Memory::named).transpose()?,
        effort,
        determinism,
        ..Options::of_seeds(args.runs.seeds.unwrap_or(seeds))
    })
}
