//! `plimsoll sweep`: runs the points of a sweep (combinations of settings), or a part of the
//! points, and writes their samples as one table.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_lab::plan::data::{Draw, Plan, Sweep as Axes};
use plimsoll_lab::plan::drive::How;
use plimsoll_lab::plan::part::Part;
use plimsoll_lab::plan::{FromFile, command, outline, sweep, sweep_summary};
use plimsoll_lab::report::table;
use plimsoll_lab::run::jobs::Jobs;
use plimsoll_lab::run::progress::Progress;
use plimsoll_lab::store::head::Inputs;
use plimsoll_lab::store::{hash_of, inputs};

use crate::output::{self, BadInput};
use crate::runs::Runs;
use crate::samples::{self, TableFormat};
use crate::store::{Keeping, StoreArgs};

/// Runs the sweep of an experiment file, or a part of it, and writes the samples as one table
#[derive(Debug, clap::Args)]
pub(crate) struct Sweep {
    /// The experiment file, with a sweep
    file: PathBuf,
    /// Runs only every Nth point, beginning with point K: one of N parts that can run on N
    /// computers
    #[arg(long, value_name = "K/N")]
    part: Option<Part>,
    /// Draws this many points from the grid, instead of as many as the file says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=sweep::POINTS_MAX))]
    random: Option<u64>,
    /// The seed that decides which points are drawn [default: 1]
    #[arg(long, value_name = "SEED", requires = "random")]
    draw_seed: Option<u64>,
    /// The file for the table of samples: a row for each case and metric
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The format of FILE; json is one object per line, one line per row [default: that of the
    /// ending of FILE]
    #[arg(long, requires = "output")]
    format: Option<TableFormat>,
    /// Sets a knob that `plimsoll knobs` lists in all designs; may be given several times
    #[arg(long, value_name = "KNOB=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    runs: Runs,
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Sweep) -> anyhow::Result<()> {
    let from_file = load(args)?;
    let plan = &from_file.plan;
    let axes = axes(plan, args)?;
    let points = sweep::points(plan, axes);
    let mut points = points.map_err(|problems| from_file.locate(&problems))?;
    let part = args.part.unwrap_or(Part::WHOLE);
    let all = points.len();
    part.retain(&mut points);
    if points.is_empty() {
        let refused = format!("part {part} has no point, because the sweep has only {all}");
        return Err(BadInput(refused).into());
    }
    let file = args.output.as_deref();
    let format = match file {
        Some(_) => Some(samples::format(file, args.format)?),
        None => None,
    };
    output::warn(outline::too_short(&points).as_slice());
    let machines = inputs::machines_of(plan, &points)?;
    let mut keeping = Keeping::begin(&args.store, machines, inputs_of(args, &from_file, part)?)?;
    let collected = keeping.collect();
    let progress = Progress::new().kept_in(Arc::clone(&collected) as _, "run");
    let how = How {
        jobs: Jobs::new(args.runs.jobs()),
        record: None,
        watch: None,
        trace: None,
    };
    let run = sweep_summary::run(plan, axes, &points, &how, &progress);
    progress.finish();
    let summary = keeping.of_begun(run)?;
    if let Some(format) = format {
        samples::write(&collected.rows(keeping.head()), format, file)?;
    }
    output::print(&table::render_tables(
        std::slice::from_ref(&summary),
        output::width(),
    ))?;
    keeping.table(&summary)?;
    keeping.finish()
}

/// Loads the file, and changes its plan as the arguments say.
fn load(args: &Sweep) -> anyhow::Result<FromFile> {
    let mut from_file = FromFile::load(&args.file)?;
    let plan = &mut from_file.plan;
    command::set(plan, &settings(args))?;
    plan.seeds = args.runs.seeds.unwrap_or(plan.seeds);
    if let (Some(axes), Some(points)) = (&mut plan.sweep, args.random) {
        let seed = args.draw_seed.unwrap_or(1);
        axes.random = Some(Draw { points, seed });
    }
    Ok(from_file)
}

fn settings(args: &Sweep) -> Vec<&str> {
    args.set.iter().map(String::as_str).collect()
}

/// The sweep of the file. It is an error if the file has no sweep, or if the samples are neither
/// kept in a store nor written to a file.
fn axes<'p>(plan: &'p Plan, args: &Sweep) -> Result<&'p Axes, BadInput> {
    let file = args.file.display();
    let Some(axes) = &plan.sweep else {
        let refused = format!("{file} has no sweep: add [sweep] to it, or use `plimsoll run`");
        return Err(BadInput(refused));
    };
    if args.store.no_store && args.output.is_none() {
        let refused = "with --no-store the samples are kept nowhere: name a file with --output";
        return Err(BadInput(refused.to_owned()));
    }
    Ok(axes)
}

/// Collects the inputs that determine the results of the sweep. A sweep can be resumed only with
/// the same inputs.
fn inputs_of(args: &Sweep, from_file: &FromFile, part: Part) -> anyhow::Result<Inputs> {
    let file = args.file.display().to_string();
    let plan = &from_file.plan;
    let mut inputs = inputs::of_file(&file, hash_of(&args.file)?, plan, &settings(args));
    inputs.insert("part".to_owned(), part.to_string());
    if let Some(Draw { points, seed }) = plan.sweep.as_ref().and_then(|of| of.random) {
        let drawn = format!("{points} points, drawn with seed {seed}");
        inputs.insert("random".to_owned(), drawn);
    }
    Ok(inputs)
}
