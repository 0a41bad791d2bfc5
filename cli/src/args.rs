//! The command-line arguments. Each command converts its own arguments to options of the lab or the
//! recorder.

#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
#[cfg(target_os = "linux")]
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use plimsoll_lab::Card;
use plimsoll_lab::bench::Size;
use plimsoll_lab::run::options::Jitter;

use crate::command::results::Results;
use crate::command::sweep::Sweep;
use crate::explain_args::Explain;
use crate::html::HtmlArgs;
#[cfg(target_os = "linux")]
use crate::linux_args::{Guest, Linux};
use crate::output::{Extent, Format, Output};
use crate::runs::Runs;
use crate::store::StoreArgs;
use crate::trace::TraceRun;

/// The memory manager of a many-core machine: reproduce published results, replay recordings,
/// compare designs.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs published experiments and prints each result beside the published one
    Reproduce(Reproduce),
    /// Finds the prices of the simulated machines that decide the headlines of experiments
    Sensitivity(Sensitivity),
    /// Compares designs under a workload: stress-vm, stress-vm-bursts, make-like, killed-apps, overcommit
    Compare(Compare),
    /// Runs the experiment that a file describes: designs, machines, a sweep, a timeline
    Run(Run),
    Sweep(Sweep),
    /// Writes a new experiment file with every key explained, which runs as it is
    New(NewExperiment),
    /// Lists the built-in experiments with their questions, and the experiment files of a folder
    List(ListExperiments),
    /// Checks an experiment file and says what it would run
    Check {
        /// The experiment file
        file: PathBuf,
    },
    /// Prints the JSON Schema of experiment files, with which editors complete them
    Schema,
    /// Runs a recording of page allocations again, on a machine of any size
    Replay(Replay),
    /// Shows a recording as tables, or two recordings side by side
    Show(Show),
    Results(Results),
    Explain(Explain),
    /// Records what this computer's kernel does with its memory (Linux only, as root)
    #[cfg(target_os = "linux")]
    Record(Record),
    /// Lists the simulated machines, or shows one with the source of every cost
    Machines(Machines),
    /// Lists the designs that can be compared
    Designs,
    /// Lists the knobs that can be set in a design
    Knobs,
    /// Shows what Plimsoll uses if it runs on this computer: CPUs, nodes, the kind of fronts
    Host,
    /// Measures how fast Plimsoll itself is
    Bench(Bench),
    /// Prints the completions of this command for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Writes the man pages of this command to a folder
    Man {
        /// An existing folder
        folder: PathBuf,
    },
    /// Boots a Linux kernel with many CPUs in QEMU and records it
    #[cfg(target_os = "linux")]
    Linux(Linux),
    /// Commands that run inside a booted kernel
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Guest(Guest),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Reproduce {
    /// The experiments to run; all of them if none is named
    pub(crate) experiment: Vec<String>,
    #[command(flatten)]
    pub(crate) runs: Runs,
    /// The cost card: prices at the low end, in the middle or at the high end of their ranges
    /// [default: the experiment's own]
    #[arg(long)]
    pub(crate) card: Option<CardName>,
    /// The state of free memory when a run begins, for experiments that can choose it (drain):
    /// fresh, aged or fragmented [default: the experiment's own]
    #[arg(long, value_name = "STATE")]
    pub(crate) memory: Option<String>,
    /// Measures less: shorter runs, and 2 seeds unless --seeds says otherwise
    #[arg(long)]
    pub(crate) quick: bool,
    /// Runs every case twice and fails if anything differs
    #[arg(long, conflicts_with = "resume")]
    pub(crate) check_determinism: bool,
    /// Writes every published figure beside ours, with the cause of the difference, to a page. If
    /// experiments are named, the page must exist, and only their figures are replaced
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "card", "memory"])]
    pub(crate) misses: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) jitter: WithJitter,
    /// Shows progress as a line a minute on standard error, for logs [default: a bar, if standard
    /// error is a terminal]
    #[arg(long, value_name = "FORM")]
    pub(crate) progress: Option<ProgressForm>,
    /// Writes the durations from which the time left is computed; only of this run's experiments
    #[arg(long, value_name = "FILE", hide = true, conflicts_with = "resume")]
    pub(crate) save_durations: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) extent: Extent,
    #[command(flatten)]
    pub(crate) html: HtmlArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Sensitivity {
    /// The experiments in which prices are varied; all of them if none is named
    pub(crate) experiment: Vec<String>,
    /// Varies only this price, such as work.fault; may be given several times
    #[arg(long, value_name = "PRICE", conflicts_with = "save")]
    pub(crate) price: Vec<String>,
    /// Runs every design with seeds 1 to N [default: 6, the fewest that give a verdict]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) seeds: Option<u64>,
    /// The number of cases that run at once [default: one per CPU]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Also writes the result to a data file; the file's results of other experiments are kept
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// The format of the tables
    #[arg(long, default_value = "table")]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Compare {
    /// The workload: stress-vm, stress-vm-bursts, make-like, killed-apps or overcommit
    pub(crate) workload: String,
    /// The machine to run it on: a name that `plimsoll machines` lists, or a profile file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) machine: String,
    /// The design to compare against; as linux@vm.stat_interval=5, it has a knob of its own
    #[arg(long, value_name = "DESIGN", default_value = "linux")]
    pub(crate) a: String,
    /// The designs to compare with A, each with knobs of its own as A
    #[arg(long, value_name = "DESIGN", default_value = "ours", num_args = 1..)]
    pub(crate) b: Vec<String>,
    /// Workers or jobs, at most 16384 [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) workers: Option<u32>,
    /// The state of free memory when a run begins: fresh, aged or fragmented. With this option,
    /// memory that the workload does not need is in use from the start [default: all memory is
    /// free]
    #[arg(long, value_name = "STATE")]
    pub(crate) memory: Option<String>,
    /// Sets a knob that `plimsoll knobs` lists in all designs; may be given several times
    #[arg(long, value_name = "KNOB=VALUE")]
    pub(crate) set: Vec<String>,
    /// Virtual milliseconds of each run [default: 1500, or five intervals of the vmstat work if the
    /// designs differ in it]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub(crate) length_ms: Option<u64>,
    #[command(flatten)]
    pub(crate) runs: Runs,
    /// The cost card: prices at the low end, in the middle or at the high end of their ranges
    #[arg(long, default_value = "mid")]
    pub(crate) card: CardName,
    #[command(flatten)]
    pub(crate) jitter: WithJitter,
    #[command(flatten)]
    pub(crate) record: RecordRun,
    #[command(flatten)]
    pub(crate) trace: TraceRun,
    #[command(flatten)]
    pub(crate) extent: Extent,
    #[command(flatten)]
    pub(crate) html: HtmlArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The experiment file; `plimsoll new` writes one
    pub(crate) file: PathBuf,
    /// Sets a knob that `plimsoll knobs` lists in all designs; may be given several times
    #[arg(long, value_name = "KNOB=VALUE")]
    pub(crate) set: Vec<String>,
    /// Measures less, as the file's table [quick] says, and with 2 seeds unless --seeds says
    /// otherwise; only for files with the workload of a built-in experiment
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) runs: Runs,
    #[command(flatten)]
    pub(crate) trace: TraceRun,
    #[command(flatten)]
    pub(crate) extent: Extent,
    #[command(flatten)]
    pub(crate) html: HtmlArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NewExperiment {
    /// The name of the experiment; the file is NAME.toml
    pub(crate) name: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListExperiments {
    /// A folder whose experiment files are listed too
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Replay {
    /// A `plimsoll record` file or `perf script` output (plain, .gz or .zst); - for stdin
    pub(crate) file: String,
    /// The machine to run it on: a name that `plimsoll machines` lists, or a profile file
    #[arg(long, value_name = "NAME|FILE", required_unless_present = "exact")]
    pub(crate) machine: Option<String>,
    /// Instead of simulating a machine, compares each decision of Plimsoll with the one that the
    /// recorded kernel made
    #[arg(long, conflicts_with_all = ["machine", "scale", "a", "b", "seed", "seeds", "jobs", "card", "verbose", "metric"])]
    #[arg(conflicts_with_all = ["store", "no_store", "resume", "html", "trace", "trace_window"])]
    pub(crate) exact: bool,
    /// With --exact: compares only this subject: page-lists, timers, counters, additions, kills,
    /// scores, reaping or watermarks
    #[arg(long, value_name = "SUBJECT", requires = "exact")]
    pub(crate) only: Option<String>,
    /// With --exact: the design to compare [default: that of the recorded kernel's version]
    #[arg(long, value_name = "DESIGN", requires = "exact")]
    pub(crate) design: Option<String>,
    /// The number of copies of the recording that run at once, each on its own CPUs
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) scale: NonZeroU32,
    /// The design to compare against [default: what Linux does]
    #[arg(long, value_name = "DESIGN")]
    pub(crate) a: Option<String>,
    /// The design to compare with A; without it, only A runs
    #[arg(long, value_name = "DESIGN")]
    pub(crate) b: Option<String>,
    /// Runs only this seed instead of seeds 1 to N
    #[arg(long, conflicts_with = "seeds")]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) runs: Runs,
    /// The cost card: prices at the low end, in the middle or at the high end of their ranges
    #[arg(long, default_value = "mid")]
    pub(crate) card: CardName,
    #[command(flatten)]
    pub(crate) record: RecordRun,
    #[command(flatten)]
    pub(crate) trace: TraceRun,
    #[command(flatten)]
    pub(crate) extent: Extent,
    #[command(flatten)]
    pub(crate) html: HtmlArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// A recording, or two to compare; - for stdin
    #[arg(required = true, num_args = 1..=2, value_name = "FILE")]
    pub(crate) files: Vec<String>,
    /// Shows only this table, with all its rows: contentions, moves, holds, cpus, firings,
    /// crowding, shepherd, reaping, victims or events
    #[arg(long, value_name = "NAME")]
    pub(crate) table: Option<String>,
    /// Counts only waits where the name of a function in the call chain contains this text; several
    /// texts are separated by commas, as for `perf lock contention -S`
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    pub(crate) caller: Vec<String>,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[cfg(target_os = "linux")]
#[derive(Debug, clap::Args)]
pub(crate) struct Record {
    /// The file to write the recording to; it may be a pipe or a device
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Stops after this many seconds [default: when the command ends, or on Ctrl-C]
    #[arg(long, value_name = "N", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// The size, in MiB, of the kernel's ring buffer of each CPU [default: 16, less if memory is
    /// short]
    #[arg(long, value_name = "MIB")]
    pub(crate) buffer_mb: Option<NonZeroU32>,
    /// The most memory, in MiB, for events that are not compressed yet
    #[arg(long, value_name = "MIB", default_value = "256")]
    pub(crate) memory_mb: NonZeroU32,
    /// Reads the ring buffers only after the load has ended, so that reading does not disturb it
    #[arg(long)]
    pub(crate) read_afterwards: bool,
    /// Records changes of resident pages too: one more event for most page faults
    #[arg(long)]
    pub(crate) rss: bool,
    /// Records where holds of a zone lock end, by a probe, so that `plimsoll show` can count pages per hold
    #[arg(long)]
    pub(crate) holds: bool,
    /// At the end, adds each file of this folder to the recording as a text; the environment
    /// variable PLIMSOLL_TEXTS tells the command the folder's name
    #[arg(long, value_name = "FOLDER")]
    pub(crate) texts: Option<PathBuf>,
    /// The command to run, and its arguments; notes that the command writes to the file whose name
    /// is in the environment variable PLIMSOLL_MARKER become part of the recording
    #[arg(last = true)]
    pub(crate) command: Vec<OsString>,
}

/// Parses a duration in seconds, with or without a fraction.
#[cfg(target_os = "linux")]
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    let within = seconds.filter(|seconds| (0.001..=604_800.0).contains(seconds));
    within
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected seconds, from 0.001 to 604800 (a week)".to_owned())
}

#[derive(Debug, clap::Args)]
pub(crate) struct Machines {
    /// The machine to show: a name or a profile file
    #[arg(value_name = "NAME|FILE")]
    pub(crate) machine: Option<String>,
    /// Copies the profile of the built-in machine NAME to this new file, for a machine of your own
    /// that has the name of the file
    #[arg(long, value_name = "FILE", requires = "machine")]
    pub(crate) copy: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// The part to measure: sim, counter, page, vma, space, reap, oom, soak or two-cpus
    pub(crate) name: String,
    /// reap: resident memory of the address space [default: 512]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=i64::from(Size::MIB_MAX)))]
    pub(crate) mib: Option<u32>,
    /// reap: threads that help the last user to empty the address space [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(Size::HELPERS_MAX)))]
    pub(crate) helpers: Option<u32>,
    /// reap: measurements of each case [default: 9]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: Option<u32>,
    /// soak: seconds to measure for [default: 60]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: Option<u32>,
    /// The format of the results; json is one object on one line
    #[arg(long, default_value = "table")]
    pub(crate) format: Format,
}

impl Bench {
    /// Returns the size of the benchmark, with defaults for options that are not given; `None` if
    /// no option is given.
    pub(crate) fn size(&self) -> Option<Size> {
        let chosen = [self.mib, self.helpers, self.rounds];
        let usual = Size::default();
        chosen.iter().any(Option::is_some).then(|| Size {
            mib: self.mib.unwrap_or(usual.mib),
            helpers: self.helpers.unwrap_or(usual.helpers),
            rounds: self.rounds.unwrap_or(usual.rounds),
        })
    }
}

/// Whether simulated CPUs are disturbed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct WithJitter {
    /// Runs without random disturbances of CPUs: interrupts, softirqs and stolen time
    #[arg(long)]
    pub(crate) no_jitter: bool,
}

impl From<WithJitter> for Jitter {
    fn from(given: WithJitter) -> Self {
        if given.no_jitter { Self::Off } else { Self::On }
    }
}

/// The option that turns a simulated run into a recording too.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RecordRun {
    /// Writes the run of the first seed to a file that `plimsoll show` reads; with several designs,
    /// one file each: make.ours.plr instead of make.plr
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
}

/// How progress is shown, other than as a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressForm {
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CardName {
    Low,
    Mid,
    High,
}

impl From<CardName> for Card {
    fn from(name: CardName) -> Self {
        match name {
            CardName::Low => Self::Low,
            CardName::Mid => Self::Mid,
            CardName::High => Self::High,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }
}
