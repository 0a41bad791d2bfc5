//! `plimsoll show`: shows a recording as tables, or two recordings side by side.

use plimsoll_lab::show::{self, ShowOptions, json};

use crate::args::Show;
use crate::output::{self, BadInput, Extent, Format, Sink};

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
    let mut sink = Sink::open(args.output, Extent::default())?;
    let mut recordings = Vec::new();
    for file in args.files {
        let (recording, warnings) = show::open(&file)?;
        output::warn(&warnings);
        recordings.push((file, recording));
    }
    let options = ShowOptions {
        table: args.table,
        callers: args.caller,
    };
    let shown = show::show(&recordings, &options)?;
    sink.write_text(|format, width| match format {
        Format::Json => json::render(&shown) + "\n",
        _ => format.tables("", &shown.tables(), width),
    })
}
