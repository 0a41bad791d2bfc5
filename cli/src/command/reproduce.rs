//! `plimsoll reproduce`: runs the named experiments, or all experiments of the catalog. After all of
//! them, it prints every published figure beside ours.

use plimsoll_lab::experiment::{self, CATALOG, Experiment};
use plimsoll_lab::report::Report;
use plimsoll_lab::report::misses::{self, Beside};
use plimsoll_lab::run::options::{Determinism, Effort, Options};
use plimsoll_lab::run::progress::Progress;

use crate::args::Reproduce;
use crate::output::{self, BadInput, Sink};

const SEEDS: u64 = 8;
const SEEDS_QUICK: u64 = 2;

pub(crate) fn run(args: Reproduce) -> anyhow::Result<()> {
    let options = options(&args);
    let experiments = experiments(&args.experiment)?;
    let whole = CATALOG
        .iter()
        .all(|of| experiments.iter().any(|it| it.name() == of.name()));
    if let Some(page) = &args.misses {
        if !whole {
            let refused = "--misses lists the figures of all experiments: name no experiment";
            return Err(BadInput(refused.to_owned()).into());
        }
        output::writable(page, "--misses")?;
    }
    let mut sink = Sink::open(args.output)?;
    let progress = Progress::new();
    let mut all = Vec::new();
    for experiment in experiments {
        let reports = experiment.run(&options, &progress);
        progress.finish();
        // Each report is written before the next experiment starts, so a crash does not lose it.
        for report in reports? {
            sink.write(&report)?;
            all.push(report);
        }
    }
    if whole {
        sink.write_table(&misses::table(&figures_of(&all)))?;
    }
    if let Some(page) = &args.misses {
        let text = misses::page::of_reports(experiment::figures()?, &all)?;
        output::replace(page, &text)?;
    }
    Ok(())
}

/// The figures of the reports, and those that no experiment measures.
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
