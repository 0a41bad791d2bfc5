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

/// The number of seeds unless the user chooses another; experiments have the same default.
const SEEDS: u64 = 6;
/// The name that stands for standard input.
const STDIN: &str = "-";

pub(crate) fn run(args: Replay) -> anyhow::Result<()> {
    if args.exact {
        return exact(args);
    }
    let jobs = Jobs::new(args.runs.jobs());
    let seeds = match args.seed {
        Some(seed) => vec![seed],
        None => (1..=args.runs.seeds.unwrap_or(SEEDS)).collect(),
    };
    let shelf = Shelf::open(args.record)?;
    let machine = args.machine.unwrap_or_default();
    let mut page = HtmlFile::open(args.html, vec![machine.clone()])?;
    let options = ReplayOptions {
        file: args.file,
        machine,
        scale: args.scale,
        a: args.a,
        b: args.b,
        seeds,
        jobs,
        card: args.card.into(),
        record: shelf.events_max(),
        watch: page.watch(),
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
    sink.check_metrics(&reports)
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
