//! `plimsoll compare`: compares any designs under a workload that is chosen by name. The command
//! line makes a plan, as an experiment file does.

use plimsoll_lab::plan::data::{Plan, SEEDS};
use plimsoll_lab::plan::drive::{self, How};
use plimsoll_lab::plan::{command, prepare};
use plimsoll_lab::run::aging::Memory;
use plimsoll_lab::run::jobs::Jobs;
use plimsoll_lab::run::progress::Progress;
use plimsoll_lab::store::head::Machine;
use plimsoll_lab::store::inputs;

use crate::args::Compare;
use crate::command::ending;
use crate::html::HtmlFile;
use crate::output::{self, Sink};
use crate::recordings::Shelf;
use crate::store::Keeping;
use crate::trace::TraceFile;

/// The designs of a comparison: A first.
fn designs(args: &Compare) -> Vec<&str> {
    let names = std::iter::once(&args.a).chain(&args.b);
    names.map(String::as_str).collect()
}

/// The plan that the command line describes.
pub(crate) fn plan(args: &Compare) -> anyhow::Result<Plan> {
    let designs = designs(args);
    let settings: Vec<&str> = args.set.iter().map(String::as_str).collect();
    Ok(Plan {
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
    })
}

pub(crate) fn run(args: Compare) -> anyhow::Result<()> {
    let plan = plan(&args)?;
    let designs = designs(&args);
    let number = |of: Option<u64>| of.map_or("default".to_owned(), |of| of.to_string());
    let inputs = inputs::inputs([
        ("workload", args.workload.clone()),
        ("machine", args.machine.clone()),
        ("designs", designs.join(" ")),
        ("knobs", args.set.join(" ")),
        ("seeds", format!("1 to {}", plan.seeds)),
        ("card", plan.card.to_string()),
        (
            "memory",
            plan.memory.map_or("all free", Memory::name).to_owned(),
        ),
        ("jitter", inputs::word(&plan.jitter)),
        ("workers", number(args.workers.map(u64::from))),
        ("length_ms", number(args.length_ms)),
    ]);
    let shelf = Shelf::open(args.record)?;
    let trace = TraceFile::open(args.trace)?;
    let mut page = HtmlFile::open(args.html, vec![args.machine.clone()])?;
    let how = How {
        jobs: Jobs::new(args.runs.jobs()),
        record: shelf.events_max(),
        watch: page.watch(),
        trace: trace.traces(),
    };
    let prepared = prepare::prepare(&plan).map_err(command::first)?;
    output::warn(prepared.too_short().as_slice());
    let mut sink = Sink::open(args.output, args.extent)?;
    let machine = Machine::load(&args.machine, plan.card)?;
    let mut keeping = Keeping::begin(&args.store, vec![machine], inputs)?;
    let progress = keeping.journal(Progress::new(), "compare");
    let run = drive::run(&prepared, &prepared.machines[0], &how, &progress);
    progress.finish();
    let (report, recordings) = keeping.of_begun(run)?;
    sink.write(&report)?;
    keeping.report(&report)?;
    let reports = [report];
    page.write(&reports, None, &mut keeping)?;
    keeping.finish()?;
    shelf.write(&recordings)?;
    trace.write()?;
    sink.check_metrics(&reports)?;
    Ok(ending::check_differs(&reports)?)
}
