//! Writes simulated runs to a file that Perfetto shows.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context;
use plimsoll_lab::perfetto;
use plimsoll_lab::slices::{Limits, SLICES_MAX, SLICES_MOST, Slices, Traces, Window};
use tempfile::NamedTempFile;

use crate::output::{folder, make_public, writable};
use crate::store::warn;

/// The options that write a trace of a simulated run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TraceRun {
    /// Writes what each CPU ran, held and waited for to a file that <https://ui.perfetto.dev>
    /// shows: the run of the first seed of each design
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Traces only this part of the virtual time, such as 100ms..150ms [default: the first 250,000
    /// slices of each design]
    #[arg(long, value_name = "FROM..UNTIL", requires = "trace", value_parser = Window::parse)]
    trace_window: Option<Window>,
}

impl TraceRun {
    /// Returns whether a trace was asked for.
    pub(crate) fn is_wanted(&self) -> bool {
        self.trace.is_some()
    }
}

/// The file to which the traced runs of one command are written; there is none without `--trace`.
pub(crate) struct TraceFile {
    file: Option<(PathBuf, Traces)>,
}

impl TraceFile {
    /// Checks the file. If it cannot be written, this fails now, and not after minutes of
    /// measuring.
    pub(crate) fn open(args: TraceRun) -> anyhow::Result<Self> {
        let Some(file) = args.trace else {
            return Ok(Self { file: None });
        };
        writable(&file, "--trace")?;
        let traces = Traces::new(Limits {
            windows: vec![args.trace_window.unwrap_or(Window::ALL)],
            slices_max: args.trace_window.map_or(SLICES_MAX, |_| SLICES_MOST),
        });
        Ok(Self {
            file: Some((file, traces)),
        })
    }

    /// Where the runs put their slices (what a CPU did, and when); `None` if no run is traced.
    pub(crate) fn traces(&self) -> Option<Traces> {
        self.file.as_ref().map(|(_, traces)| traces.clone())
    }

    /// Writes the trace completely or not at all. Prints which designs the trace has, and how many
    /// events.
    pub(crate) fn write(&self) -> anyhow::Result<()> {
        let Some((file, traces)) = &self.file else {
            return Ok(());
        };
        let runs = traces.take();
        let write = || -> anyhow::Result<usize> {
            let mut draft = NamedTempFile::new_in(folder(file))?;
            let mut out = BufWriter::new(draft.as_file_mut());
            let events = perfetto::write(&runs, &mut out)?;
            let out: &mut File = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            out.flush()?;
            make_public(draft.as_file(), file)?;
            draft.persist(file)?;
            Ok(events)
        };
        let events = write().with_context(|| format!("cannot write {}", file.display()))?;
        runs.iter().for_each(warn_of_gaps);
        let names: Vec<&str> = runs.iter().map(|run| run.design.as_str()).collect();
        anstream::eprintln!(
            "traced {} in {}: {events} events; open it at https://ui.perfetto.dev",
            names.join(" and "),
            file.display()
        );
        Ok(())
    }
}

/// Warns if the trace became full before the end of its window, or if nothing happened in the
/// window.
fn warn_of_gaps(run: &Slices) {
    let ms = |ns: u64| format!("{:.3} ms", ns as f64 / 1e6);
    let (name, ended) = (&run.design, ms(run.ended.0));
    if let Some(cut) = run.cut {
        warn(&format_args!(
            "the trace of {name} ends at {} of {ended}, because it is full; choose a part with \
             --trace-window, such as {}ms..{}ms",
            ms(cut.0),
            cut.0 / 1_000_000,
            cut.0 / 1_000_000 + 10
        ));
    } else if run.is_empty() {
        warn(&format_args!(
            "the trace of {name} is empty: nothing happened in the window; the run took {ended}"
        ));
    }
}
