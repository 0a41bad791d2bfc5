//! `plimsoll sensitivity`: finds the prices (the times that the simulator charges for operations)
//! that decide the main comparisons of experiments.

use std::fs;
use std::path::Path;

use anyhow::Context;
use plimsoll_lab::run::jobs::Jobs;
use plimsoll_lab::run::options::{Effort, Options};
use plimsoll_lab::run::progress::Progress;
use plimsoll_lab::sensitivity::kept::Kept;
use plimsoll_lab::sensitivity::{measure, tables};

use crate::args::Sensitivity;
use crate::output;
use crate::runs::jobs_or_cpus;

/// The smallest number of seeds with which a comparison of two designs can say which is better.
const SEEDS: u64 = 6;

pub(crate) fn run(args: &Sensitivity) -> anyhow::Result<()> {
    measure::chosen(&args.experiment)?;
    let prices = measure::prices(&args.price)?;
    let before = args.save.as_deref().map(before).transpose()?;
    let options = Options {
        jobs: Jobs::new(jobs_or_cpus(args.jobs)),
        effort: Effort::Quick,
        ..Options::of_seeds(args.seeds.unwrap_or(SEEDS))
    };
    let progress = Progress::new();
    let found = measure::run(&args.experiment, &prices, &options, &progress);
    progress.finish();
    let found = found?;
    let tables = tables::tables(&found)?;
    let text = args.format.tables("sensitivity", &tables, output::width());
    output::print(&text)?;
    match args.save.as_deref().zip(before) {
        Some((file, before)) => output::replace(file, &before.replaced_by(found).text()),
        None => Ok(()),
    }
}

/// Reads the results that `file` has before this run. So if the command cannot read or write the
/// file, it says so before anything runs.
fn before(file: &Path) -> anyhow::Result<Kept> {
    output::writable(file, "--save")?;
    if !file.exists() {
        return Ok(Kept::default());
    }
    let name = || file.display().to_string();
    let text = fs::read_to_string(file).with_context(name)?;
    Kept::read(&text).with_context(name)
}
