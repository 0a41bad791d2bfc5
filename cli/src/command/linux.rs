//! `plimsoll linux`: boots a kernel with many CPUs in an emulator and records it.

use std::env;
use std::time::Duration;

use comfy_table::presets;
use comfy_table::{ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_linux::boot::doctor::{self, State};
use plimsoll_linux::boot::{self, KernelChoice, LoadChoice, Options, Outcome};
use plimsoll_linux::guest::load::LOADS;
use plimsoll_linux::record::{Holds, Rss};

use super::linux_build;
use crate::linux_args::{Linux, LinuxCommand};
use crate::output::{self, BadInput};

pub(crate) fn run(args: Linux) -> anyhow::Result<()> {
    match args.command {
        Some(LinuxCommand::Doctor) => diagnose(),
        Some(LinuxCommand::Loads) => output::print(&loads(output::width())),
        Some(LinuxCommand::Build(args)) => linux_build::run(&args),
        None => record(args),
    }
}

fn record(args: Linux) -> anyhow::Result<()> {
    let options = options(args)?;
    output::writable(&options.output, "--output")?;
    let spinner = spinner();
    let mut told = |text: &str| {
        let text = text.to_owned();
        spinner.set_message(text);
    };
    let outcome = boot::run(&options, &mut told);
    spinner.finish_and_clear();
    output::print(&summary(&options, &outcome?))
}

fn options(args: Linux) -> anyhow::Result<Options> {
    // clap requires `--load` and `--output` unless there is a subcommand.
    let load = args.load.expect("clap insists on a load");
    let output = args.output.expect("clap insists on an output");
    let kernel = match (args.kernel, args.hz) {
        (Some(file), _) => KernelChoice::File(file),
        (None, Some(hz)) => KernelChoice::Hz(hz),
        (None, None) => KernelChoice::Series(args.series),
    };
    Ok(Options {
        cpus: args.cpus,
        memory: args.memory,
        nodes: args.nodes,
        kernel,
        load: LoadChoice::find(&load)?,
        told: args.told,
        modules: args.module,
        append: args.append,
        rss: if args.rss { Rss::Wanted } else { Rss::Spared },
        holds: if args.holds {
            Holds::Wanted
        } else {
            Holds::Spared
        },
        timeout: Duration::from_secs(args.timeout),
        output,
        console: args.console,
        command: command_line(),
    })
}

/// Returns the command line as the user typed it, without the folder of this program.
fn command_line() -> String {
    let words: Vec<String> = env::args().skip(1).collect();
    format!("plimsoll {}", words.join(" "))
}

fn spinner() -> ProgressBar {
    // The spinner draws on standard error. indicatif hides the spinner if standard error is not a
    // terminal.
    let spinner = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed} elapsed");
    spinner.set_style(style.expect("a constant that a test renders"));
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}

fn summary(options: &Options, outcome: &Outcome) -> String {
    let cpu = match outcome.cpu_seconds {
        Some(seconds) => format!(", {seconds:.0} s of CPU time"),
        None => String::new(),
    };
    format!(
        "{}: {:.1} MiB\nguest: {}\nthis computer: {:.0} s{cpu}\n",
        options.output.display(),
        to_mib(outcome.bytes),
        outcome.up,
        outcome.wall.as_secs_f64(),
    )
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn to_mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn diagnose() -> anyhow::Result<()> {
    let diagnosis = doctor::diagnose();
    let mut table = table(output::width());
    for finding in &diagnosis.findings {
        let (mark, text) = match &finding.state {
            State::There(text) => ("ok", text),
            State::Optional(text) => ("-", text),
            State::Missing(text) => ("missing", text),
        };
        table.add_row([finding.what, mark, text.as_str()]);
    }
    let mut text = format!("{}\n", table.trim_fmt());
    let remedy = diagnosis.remedy(is_root());
    if let Some(remedy) = &remedy {
        text += &format!("\nThis installs what is missing:\n\n    {remedy}\n");
    }
    output::print(&text)?;
    if diagnosis.is_well() {
        return Ok(());
    }
    let why = match remedy {
        Some(_) => "a kernel cannot be booted here yet",
        None => "a kernel cannot be booted on this computer",
    };
    Err(BadInput(why.to_owned()).into())
}

fn is_root() -> bool {
    plimsoll_linux::is_root()
}

fn loads(width: usize) -> String {
    let mut text = String::new();
    for load in LOADS {
        let mut table = table(width);
        table.add_row([load.name, load.about]);
        text += &format!("{}\n", table.trim_fmt());
        let mut told = self::table(width);
        for parameter in load.all_parameters() {
            let said = format!("    {}={}", parameter.name, parameter.default());
            told.add_row([said.as_str(), parameter.about]);
        }
        text += &format!("{}\n\n", told.trim_fmt());
    }
    text + "Set parameters with `-- name=value ...` at the end of the command.\n"
}

fn table(width: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spinner_has_a_style() {
        spinner().finish_and_clear();
    }

    #[test]
    fn loads_fit_a_terminal() {
        let text = loads(80);
        for load in LOADS {
            assert!(text.contains(load.name));
        }
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
