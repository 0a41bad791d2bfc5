//! `plimsoll compare`: compares any designs under a workload that is chosen by name.

use plimsoll_lab::compare_command::{self, CompareOptions};
use plimsoll_lab::run::aging::Memory;
use plimsoll_lab::run::progress::Progress;
use plimsoll_lab::store::head::{Inputs, Machine};
use plimsoll_lab::store::inputs;

use crate::args::Compare;
use crate::output::Sink;
use crate::recordings::Shelf;
use crate::store::Keeping;

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
    let machine = Machine::load(&options.machine, options.card)?;
    let mut keeping = Keeping::begin(&args.store, vec![machine], inputs_of(&options))?;
    let progress = keeping.journal(Progress::new(), "compare");
    let run = compare_command::run(&options, &progress);
    progress.finish();
    let (report, recordings) = keeping.of_begun(run)?;
    sink.write(&report)?;
    keeping.report(&report)?;
    keeping.finish()?;
    shelf.write(&recordings)
}

/// What determines the results.
fn inputs_of(options: &CompareOptions) -> Inputs {
    let number = |of: Option<u64>| of.map_or("default".to_owned(), |of| of.to_string());
    inputs::inputs([
        ("workload", options.workload.clone()),
        ("machine", options.machine.clone()),
        ("designs", options.designs.join(" ")),
        ("knobs", options.settings.join(" ")),
        ("seeds", inputs::seeds(&options.seeds)),
        ("card", options.card.to_string()),
        (
            "memory",
            options.memory.map_or("all free", Memory::name).to_owned(),
        ),
        ("jitter", inputs::word(&options.jitter)),
        ("workers", number(options.workers.map(u64::from))),
        ("length_ms", number(options.length_ms)),
    ])
}
