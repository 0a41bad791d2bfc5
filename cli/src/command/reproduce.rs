//! `plimsoll reproduce`: runs the named experiments, or all experiments of the catalog.

use plimsoll_lab::experiment::{self, CATALOG, Experiment};
use plimsoll_lab::run::options::{Determinism, Effort, Options};
use plimsoll_lab::run::progress::Progress;

use crate::args::Reproduce;
use crate::output::{BadInput, Sink};

const SEEDS: u64 = 8;
const SEEDS_QUICK: u64 = 2;

pub(crate) fn run(args: Reproduce) -> anyhow::Result<()> {
    let experiments = experiments(&args.experiment)?;
    let mut options = options(&args);
    options.jitter = args.jitter.into();
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

fn options(args: &Reproduce) -> Options {
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
    Options {
        jobs: args.runs.jobs(),
        card: args.card.map(Into::into),
        effort,
        determinism,
        ..Options::of_seeds(args.runs.seeds.unwrap_or(seeds))
    }
}
