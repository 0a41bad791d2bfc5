//! `plimsoll bench`: measures how fast Plimsoll itself is.

use plimsoll_lab::bench;
use plimsoll_lab::report::json;
use plimsoll_lab::run::progress::Progress;

use crate::args::Bench;
use crate::output;
use crate::output::Format;

pub(crate) fn run(args: &Bench) -> anyhow::Result<()> {
    let bench = bench::find(&args.name)?;
    let progress = Progress::new();
    let found = bench.measure(&progress, args.size(), args.seconds);
    progress.finish();
    let found = found?;
    output::print(&match args.format {
        Format::Json => json::render_bench(bench.name, &found) + "\n",
        format => format.tables("", &found.tables, output::width()),
    })
}
