//! `plimsoll compare`: compares any designs under a workload that is chosen by name. The command
//! line makes a plan, as an experiment file does.

use plimsoll_lab::plan::data::{Plan, SEEDS};
use plimsoll_lab::plan::drive::{self, How};
use plimsoll_lab::plan::{command, prepare};
use plimsoll_lab::run::aging::Memory;
use plimsoll_lab::run::jobs::Jobs;
use plimsoll_lab::run::progress::Progress;

use crate::args::Compare;
use crate::output::Sink;
use crate::recordings::Shelf;

pub(crate) fn run(args: Compare) -> anyhow::Result<()> {
    let shelf = Shelf::open(args.record)?;
    let designs: Vec<&str> = std::iter::once(&args.a)
        .chain(&args.b)
        .map(String::as_str)
        .collect();
    let settings: Vec<&str> = args.set.iter().map(String::as_str).collect();
    let plan = Plan {
        parameters: args
            .workers
            .map(|workers| ("workers".to_owned(), workers.into()))
            .into_iter()
            .collect(),
        memory: args.memory.as_deref().map(Memory::named).transpose()?,
        length_ms: args.length_ms,
        seeds: args.runs.seeds.unwrap_or(SEEDS),
        jitter: args.jitter.into(),
        card: args.card.into(),
        ..command::plan(&args.workload, &args.machine, &designs, &settings)?
    };
    let how = How {
        jobs: Jobs::new(args.runs.jobs()),
        record: shelf.events_max(),
    };
    let prepared = prepare::prepare(&plan).map_err(command::first)?;
    let mut sink = Sink::open(args.output, args.extent)?;
    let progress = Progress::new();
    let run = drive::run(&prepared, &prepared.scenes[0], &how, &progress);
    progress.finish();
    let (report, recordings) = run?;
    sink.write(&report)?;
    shelf.write(&recordings)?;
    sink.check_metrics(&report)
}
