//! `plimsoll show`: shows a recording as tables, or two recordings side by side.

use plimsoll_lab::report::{markdown, table};
use plimsoll_lab::show::{self, ShowOptions, json};

use crate::args::Show;
use crate::output::Format;
use crate::output::{BadInput, Sink};

pub(crate) fn run(args: Show) -> anyhow::Result<()> {
    if args.files.iter().filter(|file| *file == "-").count() > 1 {
        return Err(BadInput(
            "standard input is one recording; name a file for the other".to_owned(),
        )
        .into());
    }
    if args.caller.iter().any(String::is_empty) {
        return Err(BadInput(
            "--caller needs a part of a function's name, such as rmqueue".to_owned(),
        )
        .into());
    }
    let mut sink = Sink::open(args.output)?;
    let mut recordings = Vec::new();
    for file in args.files {
        let (recording, warnings) = show::open(&file)?;
        for warning in warnings {
            anstream::eprintln!("warning: {warning}");
        }
        recordings.push((file, recording));
    }
    let options = ShowOptions {
        table: args.table,
        callers: args.caller,
    };
    let shown = show::show(&recordings, &options)?;
    sink.write_text(|format, width| match format {
        Format::Table => table::render_tables(&shown.tables(), width),
        Format::Markdown => markdown::render_tables(&shown.tables()),
        Format::Json => json::render(&shown) + "\n",
    })
}
