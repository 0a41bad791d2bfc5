//! `plimsoll reproduce`: runs the named experiments, or all experiments of the catalog.

use plimsoll_lab::experiment::{self, CATALOG, Experiment};
use plimsoll_lab::run::aging::Memory;
use plimsoll_lab::run::options::{Determinism, Effort, Options};
use plimsoll_lab::run::progress::Progress;

use crate::args::Reproduce;
use crate::output::{BadInput, Sink};

const SEEDS: u64 = 8;
const SEEDS_QUICK: u64 = 2;

pub(crate) fn run(args: Reproduce) -> anyhow::Result<()> {
    let options = options(&args)?;
    let experiments = experiments(&args.experiment)?;
    check_memory(&args, &experiments)?;
    let mut sink = Sink::open(args.output)?;
    let progress = Progress::new();
    for experiment in experiments {
        let reports = experiment.run(&options, &progress);
        progress.finish();
        // Each report is written before the next experiment starts, so a crash does not lose it.
        for report in reports? {
            sink.write(&report)?;
        }
    }
    Ok(())
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

/// Refuses `--memory` for an experiment that the user names and that the option does not change.
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
        jobs: args.runs.jobs(),
        card: args.card.map(Into::into),
        memory: args.memory.as_deref().map(Memory::named).transpose()?,
        effort,
        determinism,
        ..Options::of_seeds(args.runs.seeds.unwrap_or(seeds))
    })
}
