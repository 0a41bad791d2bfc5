//! `plimsoll bench`: how fast Plimsoll itself is.

use plimsoll_lab::bench;
use plimsoll_lab::progress::Progress;
use plimsoll_lab::report::table;

use crate::args::Bench;
use crate::output;

pub(crate) fn run(args: &Bench) -> anyhow::Result<()> {
    let bench = bench::find(&args.name)?;
    let progress = Progress::new();
    let tables = (bench.run)(&progress);
    progress.finish();
    output::print(&table::render_tables(&tables?, output::width()))
}
