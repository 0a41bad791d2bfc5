//! `plimsoll replay`: runs a recording again, on another machine.

use plimsoll_lab::exact::{self, ExactOptions};
use plimsoll_lab::replay::{self, ReplayOptions};
use plimsoll_lab::run::progress::Progress;

use crate::args::Replay;
use crate::output::Sink;
use crate::recordings::Shelf;

/// The default number of seeds, which equals that of an experiment.
const SEEDS: u64 = 6;

pub(crate) fn run(args: Replay) -> anyhow::Result<()> {
    if args.exact {
        return exact(args);
    }
    let jobs = args.runs.jobs();
    let seeds = match args.seed {
        Some(seed) => vec![seed],
        None => (1..=args.runs.seeds.unwrap_or(SEEDS)).collect(),
    };
    let shelf = Shelf::open(args.record)?;
    let options = ReplayOptions {
        file: args.file,
        machine: args.machine.unwrap_or_default(),
        scale: args.scale,
        a: args.a,
        b: args.b,
        seeds,
        jobs,
        card: args.card.into(),
        record: shelf.events_max(),
    };
    let mut sink = Sink::open(args.output, args.extent)?;
    let progress = Progress::new();
    let run = replay::run(&options, &progress);
    progress.finish();
    let (report, recordings) = run?;
    sink.write(&report)?;
    shelf.write(&recordings)?;
    sink.check_metrics(&report)
}

/// Runs an exact replay. A difference from the recorded kernel is a finding, not an error.
fn exact(args: Replay) -> anyhow::Result<()> {
    let options = ExactOptions {
        file: args.file,
        only: args.only,
        design: args.design,
    };
    let mut sink = Sink::open(args.output, args.extent)?;
    let progress = Progress::new();
    let outcome = exact::run(&options, &progress);
    progress.finish();
    sink.write_exact(&outcome?)
}
