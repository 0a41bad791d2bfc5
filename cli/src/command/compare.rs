//! `plimsoll compare`: compares any designs under a workload that is chosen by name.

use plimsoll_lab::compare_command::{self, CompareOptions};
use plimsoll_lab::run::aging::Memory;
use plimsoll_lab::run::progress::Progress;

use crate::args::Compare;
use crate::output::Sink;
use crate::recordings::Shelf;

/// The default number of seeds, which equals that of an experiment.
const SEEDS: u64 = 6;

pub(crate) fn run(args: Compare) -> anyhow::Result<()> {
    let jobs = args.runs.jobs();
    let shelf = Shelf::open(args.record)?;
    let options = CompareOptions {
        workload: args.workload,
        machine: args.machine,
        jitter: args.jitter.into(),
        designs: std::iter::once(args.a).chain(args.b).collect(),
        settings: args.set,
        workers: args.workers,
        memory: args.memory.as_deref().map(Memory::named).transpose()?,
        length_ms: args.length_ms,
        seeds: (1..=args.runs.seeds.unwrap_or(SEEDS)).collect(),
        jobs,
        card: args.card.into(),
        record: shelf.events_max(),
    };
    let mut sink = Sink::open(args.output)?;
    let progress = Progress::new();
    let run = compare_command::run(&options, &progress);
    progress.finish();
    let (report, recordings) = run?;
    sink.write(&report)?;
    shelf.write(&recordings)
}
