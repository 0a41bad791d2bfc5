//! `plimsoll record`: records the memory-management events of this computer's kernel.

use plimsoll_linux::record::{self, Holds, Options, Progress, Reading, Rss};
use std::io::{self, IsTerminal};

use crate::args::Record;

pub(crate) fn run(args: Record) -> anyhow::Result<()> {
    let options = Options {
        output: args.output,
        command: args.command,
        length: args.seconds,
        buffer_mib: args.buffer_mb,
        memory_mib: args.memory_mb,
        reading: if args.read_afterwards {
            Reading::Afterwards
        } else {
            Reading::Meanwhile
        },
        rss: if args.rss { Rss::Wanted } else { Rss::Spared },
        holds: if args.holds {
            Holds::Wanted
        } else {
            Holds::Spared
        },
        texts: args.texts,
    };
    // If a command runs, its output goes to the same terminal, and progress lines would interrupt
    // that output.
    let shown = io::stderr().is_terminal() && options.command.is_empty();
    let summary = record::record(&options, |progress| {
        if shown {
            show(progress);
        }
    });
    if shown {
        anstream::eprint!("\r\x1b[K");
    }
    anstream::eprintln!("{}", summary?);
    Ok(())
}

fn show(progress: Progress) {
    anstream::eprint!(
        "\r\x1b[K{} s: {} events, {:.1} MB, {} lost; Ctrl-C ends it",
        progress.elapsed.as_secs(),
        progress.events,
        progress.bytes as f64 / 1e6,
        progress.lost
    );
}
