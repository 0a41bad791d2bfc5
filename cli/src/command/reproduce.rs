//! `plimsoll reproduce`: runs the named experiments, or all built-in experiments. After several
//! reports it prints a table of their answers. After all experiments it also prints each figure
//! that was published for a Linux patch, beside our figure, or else only says how many of these
//! figures match.

use std::fs;
use std::panic;
use std::path::Path;
use std::thread::{self, JoinHandle};

use plimsoll_lab::Error;
use plimsoll_lab::experiment::{self, CATALOG, Experiment};
use plimsoll_lab::report::misses;
use plimsoll_lab::report::{Report, pick};
use plimsoll_lab::run::aging::Memory;
use plimsoll_lab::run::durations::Durations;
use plimsoll_lab::run::jobs::Jobs;
use plimsoll_lab::run::options::{Determinism, Effort, Options};
use plimsoll_lab::run::overall::{Overall, Shown};
use plimsoll_lab::run::progress::Progress;
use plimsoll_lab::store::head::Inputs;
use plimsoll_lab::store::{hash_of, inputs};

use crate::args::{ProgressForm, Reproduce, Run, WithJitter};
use crate::command::ending;
use crate::html::HtmlFile;
use crate::output::{self, BadInput, Sink};
use crate::store::Keeping;

/// The number of seeds unless the user chooses another number. With fewer seeds, a comparison of
/// two designs could not say which is better.
const SEEDS: u64 = 6;
const SEEDS_QUICK: u64 = 2;

pub(crate) fn run(args: Reproduce) -> anyhow::Result<()> {
    let experiments = experiments(&args.experiment)?;
    run_all(args, &experiments, inputs::inputs([]))
}

/// Runs the experiment that a file describes. The value `experiment` lives until the program ends.
pub(crate) fn run_file(args: Run, experiment: Box<dyn Experiment + Send>) -> anyhow::Result<()> {
    if !args.set.is_empty() {
        let refused = "--set has no effect with the workload of this file: leave it out";
        return Err(BadInput(refused.to_owned()).into());
    }
    let of_file = inputs::inputs([
        ("experiment", args.file.display().to_string()),
        ("hash of the file", hash_of(&args.file)?),
    ]);
    let args = Reproduce {
        runs: args.runs,
        quick: args.quick,
        extent: args.extent,
        html: args.html,
        store: args.store,
        output: args.output,
        experiment: Vec::new(),
        card: None,
        memory: None,
        check_determinism: false,
        misses: None,
        jitter: WithJitter { no_jitter: false },
        progress: None,
        save_durations: None,
    };
    run_all(args, &[Box::leak(experiment)], of_file)
}

/// Runs `experiments`. The store of results keeps `more` with the other inputs of the run.
fn run_all(
    args: Reproduce,
    experiments: &[&'static dyn Experiment],
    more: Inputs,
) -> anyhow::Result<()> {
    let mut options = options(&args)?;
    check_memory(&args, experiments)?;
    check_metrics(&args.extent.metric, experiments, options.effort)?;
    options.jitter = args.jitter.into();
    let whole = CATALOG.iter().all(|of| {
        experiments
            .iter()
            .any(|experiment| experiment.name() == of.name())
    });
    if let Some(page) = &args.misses {
        if !whole && !page.exists() {
            let refused = "--misses lists the figures of all experiments: name no experiment, or \
                           name a page that exists, to replace the figures of the experiments on it";
            return Err(BadInput(refused.to_owned()).into());
        }
        output::writable(page, "--misses")?;
    }
    let mut page_file = HtmlFile::open(args.html, Vec::new())?;
    options.watch = page_file.watch();
    let mut sink = Sink::open(args.output, args.extent)?;
    let (machines, mut inputs) = inputs::of_experiments(experiments, &options);
    inputs.extend(more);
    let mut keeping = Keeping::begin(&args.store, machines, inputs)?;
    let overall = overall(args.progress, experiments, &options, &keeping);
    let mut all = Vec::new();
    for (nth, started) in start_all(experiments, &options, &overall, &keeping)
        .into_iter()
        .enumerate()
    {
        let reports = started.join().unwrap_or_else(|cause| {
            overall.finish();
            panic::resume_unwind(cause)
        });
        overall.end(nth);
        // Each report is written as soon as all earlier reports have been written, so a later crash
        // does not lose this report.
        for report in reports.inspect_err(|_| overall.finish())? {
            overall.beside(|| sink.write(&report))?;
            overall.beside(|| keeping.report(&report))?;
            all.push(report);
            overall.beside(|| page_file.write(&all, None, &mut keeping))?;
        }
    }
    overall.finish();
    if let Some(file) = &args.save_durations {
        save_durations(file, experiments, options.effort, &overall)?;
    }
    let figures = whole.then(|| misses::table(&ending::figures_of(&all)));
    ending::write(&mut sink, &all, figures.as_ref())?;
    page_file.draw(&all, figures.as_ref())?;
    if let Some(figures) = &figures {
        keeping.table(figures)?;
    }
    keeping.finish()?;
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

/// Starts all experiments at once, each on a separate thread. The experiments share a fixed number
/// of slots, each for one simulated run. The first experiment that needs a slot gets the next free
/// slot. So the experiments end roughly in their order, and no CPU is idle while an experiment
/// waits for its last run. If an experiment fails, the threads of the other experiments end with
/// the process.
fn start_all(
    experiments: &[&'static dyn Experiment],
    options: &Options,
    overall: &Overall,
    keeping: &Keeping,
) -> Vec<JoinHandle<Result<Vec<Report>, Error>>> {
    let start = |(rank, &experiment): (usize, &&'static dyn Experiment)| {
        let options = Options {
            jobs: options.jobs.ranked(rank),
            ..options.clone()
        };
        let progress = keeping.journal(Progress::of(overall.clone(), rank), experiment.name());
        let thread = thread::Builder::new().name(experiment.name().to_owned());
        let started = thread.spawn(move || experiment.run(&options, &progress));
        started.expect("the computer starts a dozen threads")
    };
    experiments.iter().enumerate().map(start).collect()
}

fn overall(
    form: Option<ProgressForm>,
    experiments: &[&dyn Experiment],
    options: &Options,
    keeping: &Keeping,
) -> Overall {
    let names: Vec<&str> = experiments.iter().map(|of| of.name()).collect();
    let shown = match form {
        Some(ProgressForm::Plain) => Shown::Lines,
        None => Shown::Bar,
    };
    let overall = Overall::new(&names, options, shown);
    for (nth, name) in names.iter().enumerate() {
        overall.skip(nth, keeping.known(name));
    }
    overall
}

/// Stores in a data file how long each of `experiments` took in this run. These durations replace
/// the older ones of the same experiments.
fn save_durations(
    file: &Path,
    experiments: &[&dyn Experiment],
    effort: Effort,
    overall: &Overall,
) -> anyhow::Result<()> {
    let mut durations = Durations::committed();
    for (nth, experiment) in experiments.iter().enumerate() {
        durations.set(experiment.name(), effort, overall.measured(nth));
    }
    output::replace(file, &durations.to_json())
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

/// Returns an error if the user names a metric that no report of `experiments` has.
fn check_metrics(
    names: &[String],
    experiments: &[&dyn Experiment],
    effort: Effort,
) -> anyhow::Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let mut known = Vec::new();
    for experiment in experiments {
        known.extend(experiment.reported_metrics(effort)?);
    }
    Ok(pick::check(names, &known, &[])?)
}

/// Returns an error if the user gives `--memory` and names an experiment on which this option has
/// no effect.
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
