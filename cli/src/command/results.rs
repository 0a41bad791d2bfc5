//! `plimsoll results`: lists the runs of a store, and shows or removes them.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use plimsoll_lab::store::diff::Diff;
use plimsoll_lab::store::export::Rows;
use plimsoll_lab::store::{self, Printed, State, Store};

use crate::command::ending;
use crate::html::{HtmlArgs, HtmlFile};
use crate::output::{self, Extent, Format, Output, Sink};
use crate::samples::{self, TableFormat};
use crate::store::{folder, warn};

/// Lists the runs whose results were kept, and shows, compares or exports them
#[derive(Debug, clap::Args)]
pub(crate) struct Results {
    /// The folder of the store [default: the folder that the environment variable PLIMSOLL_STORE
    /// names, or .plimsoll]
    #[arg(long, value_name = "DIR", global = true)]
    store: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<ResultsCommand>,
}

#[derive(Debug, Subcommand)]
enum ResultsCommand {
    /// Lists the runs, the newest last
    List {
        /// The format of the list; json is one object per line, one line per run
        #[arg(long, default_value = "table")]
        format: Format,
    },
    /// Prints what a run has printed
    Show {
        /// The id of the run, its beginning, or `last`
        id: String,
        #[command(flatten)]
        extent: Extent,
        #[command(flatten)]
        html: HtmlArgs,
        #[command(flatten)]
        output: Output,
    },
    /// Compares run B with run A: of two commits, two machines, or two settings
    Diff {
        /// The id of run A, its beginning, or `last`
        a: String,
        /// The id of run B
        b: String,
        /// Shows only this metric of both runs; may be given several times [default: all metrics
        /// that both runs have]
        #[arg(long, value_name = "NAME")]
        metric: Vec<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Writes the samples of runs as one table: a row for each case and metric
    Export {
        /// The ids of the runs, their beginnings, or `last`
        #[arg(required = true)]
        id: Vec<String>,
        /// The file; without it, CSV or JSON is printed
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// The format; json is one object per line, one line per row [default: that of the ending
        /// of FILE]
        #[arg(long)]
        format: Option<TableFormat>,
    },
    /// Removes runs from the store
    Remove {
        /// The ids of the runs, their beginnings, or `last`
        #[arg(required = true)]
        id: Vec<String>,
    },
}

pub(crate) fn run(args: Results) -> anyhow::Result<()> {
    let store = Store::open(&folder(args.store))?;
    match args.command {
        None => list(&store, Format::Table),
        Some(ResultsCommand::List { format }) => list(&store, format),
        Some(ResultsCommand::Show {
            id,
            extent,
            html,
            output,
        }) => show(&store, &id, extent, html, output),
        Some(ResultsCommand::Diff {
            a,
            b,
            metric,
            output,
        }) => diff(&store, [&a, &b], &metric, output),
        Some(ResultsCommand::Export { id, output, format }) => {
            export(&store, &id, output.as_deref(), format)
        }
        Some(ResultsCommand::Remove { id }) => id.iter().try_for_each(|id| {
            let removed = store.remove(id)?;
            output::print(&format!("removed {removed}\n"))
        }),
    }
}

fn list(store: &Store, format: Format) -> anyhow::Result<()> {
    let runs = store.runs()?;
    let tables = || [store::list(&runs)];
    output::print(&match format {
        Format::Json => store::list_json(&runs),
        _ => format.tables("", &tables(), output::width()),
    })
}

fn show(
    store: &Store,
    id: &str,
    extent: Extent,
    html: HtmlArgs,
    output: Output,
) -> anyhow::Result<()> {
    let run = store.find(id)?;
    let page = HtmlFile::open(html, Vec::new())?;
    let mut sink = Sink::open(output, extent)?.of_command(run.head.command_line());
    let (mut reports, mut figures) = (Vec::new(), None);
    for printed in run.printed()? {
        match printed {
            Printed::Report(report) => {
                sink.write(&report)?;
                reports.push(*report);
            }
            Printed::Table(table) => figures = Some(table),
        }
    }
    ending::write(&mut sink, &reports, figures.as_ref())?;
    let page = page.of_kept(run.head.command_line(), run.courses()?);
    page.draw(&reports, figures.as_ref())?;
    sink.check_metrics(&reports)?;
    let id = &run.head.id;
    match run.state() {
        State::Finished => {}
        State::Running => warn(&format_args!("{id} is still running")),
        State::BrokenOff => warn(&format_args!(
            "{id} was broken off; `{} --resume={id}` goes on with it",
            run.head.command_line()
        )),
    }
    Ok(())
}

fn diff(store: &Store, ids: [&str; 2], metrics: &[String], output: Output) -> anyhow::Result<()> {
    let mut sink = Sink::open(output, Extent::default())?;
    let [a, b] = ids.map(|id| store.find(id));
    let (a, b) = (a?, b?);
    for run in [&a, &b] {
        if run.state() != State::Finished {
            warn(&format_args!("{} has not finished", run.head.id));
        }
    }
    let diff = Diff::of(&a, &b)?.only_metrics(metrics)?;
    sink.write_text(|format, width| match format {
        Format::Json => diff.json() + "\n",
        _ => format.tables("", &diff.tables(), width),
    })
}

fn export(
    store: &Store,
    ids: &[String],
    file: Option<&Path>,
    format: Option<TableFormat>,
) -> anyhow::Result<()> {
    let format = samples::format(file, format)?;
    let mut rows = Rows::default();
    let mut added: Vec<String> = Vec::new();
    for id in ids {
        let run = store.find(id)?;
        // A run that is named twice is in the table once.
        if !added.contains(&run.head.id) {
            rows.add(&run)?;
            added.push(run.head.id);
        }
    }
    samples::write(&rows, format, file)
}
