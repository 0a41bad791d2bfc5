//! `plimsoll replay`: runs a recording again, on another machine.

use plimsoll_lab::exact::{self, ExactOptions};
use plimsoll_lab::replay::{self, ReplayOptions};
use plimsoll_lab::run::jobs::Jobs;
use plimsoll_lab::run::progress::Progress;
use plimsoll_lab::store::head::Machine;
use plimsoll_lab::store::inputs;

use crate::args::Replay;
use crate::html::HtmlFile;
use crate::output::{BadInput, Sink};
use crate::recordings::Shelf;
use crate::store::Keeping;
use crate::trace::TraceFile;

/// The number of seeds unless the user chooses another number; experiments have the same default.
const SEEDS: u64 = 6;
/// The name that stands for standard input.
const STDIN: &str = "-";

pub(crate) fn run(args: Replay) -> anyhow::Result<()> {
    if args.exact {
        return exact(args);
    }
    let shelf = Shelf::open(args.record.clone())?;
    let trace = TraceFile::open(args.trace.clone())?;
    let machine = args.machine.clone().unwrap_or_default();
    let mut page = HtmlFile::open(args.html.clone(), vec![machine])?;
    let options = ReplayOptions {
        record: shelf.events_max(),
        watch: page.watch(),
        trace: trace.traces(),
        ..options(&args)
    };
    let mut sink = Sink::open(args.output, args.extent)?;
    if options.file == STDIN && args.store.resume.is_some() {
        let refused = "a replay of standard input cannot be resumed: name a file";
        return Err(BadInput(refused.to_owned()).into());
    }
    let machine = Machine::load(&options.machine, options.card)?;
    let mut keeping = Keeping::begin(&args.store, vec![machine], inputs::of_replay(&options))?;
    let progress = keeping.journal(Progress::new(), "replay");
    let run = replay::run(&options, &progress);
    progress.finish();
    let (report, recordings) = keeping.of_begun(run)?;
    sink.write(&report)?;
    keeping.report(&report)?;
    let reports = [report];
    page.write(&reports, None, &mut keeping)?;
    keeping.finish()?;
    shelf.write(&recordings)?;
    trace.write()?;
    sink.check_metrics(&reports)
}

/// Returns whether the recording comes from standard input.
pub(crate) fn reads_stdin(args: &Replay) -> bool {
    args.file == STDIN
}

/// The options that the command line describes, except those to record, watch or trace a run. The
/// caller sets these other options.
pub(crate) fn options(args: &Replay) -> ReplayOptions {
    ReplayOptions {
        file: args.file.clone(),
        machine: args.machine.clone().unwrap_or_default(),
        scale: args.scale,
        a: args.a.clone(),
        b: args.b.clone(),
        seeds: match args.seed {
            Some(seed) => vec![seed],
            None => (1..=args.runs.seeds.unwrap_or(SEEDS)).collect(),
        },
        jobs: Jobs::new(args.runs.jobs()),
        card: args.card.into(),
        record: None,
        watch: None,
        trace: None,
    }
}

/// Runs an exact replay, which compares each decision of Plimsoll with that of the recorded kernel.
/// A difference is a result, not an error.
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
