//! The command-line interface, as clap knows it. Besides the arguments, its help shows examples for
//! each command, the names of the experiments, and the exit codes.

use clap::{CommandFactory, FromArgMatches};
use plimsoll_lab::experiment::CATALOG;

use crate::args::Args;

/// The examples of one command: command lines, each with a description of its effect.
struct Examples {
    command: &'static str,
    lines: &'static [(&'static str, &'static str)],
}

/// The examples that the help shows. A unit test parses every command line.
static EXAMPLES: &[Examples] = &[
    Examples {
        command: "reproduce",
        lines: &[
            ("plimsoll reproduce", "all experiments, as in the README"),
            (
                "plimsoll reproduce vmstat --quick",
                "a first look at one experiment",
            ),
            (
                "plimsoll reproduce drain --memory aged --format json -o drain.json",
                "one experiment on aged memory, as JSON in a file",
            ),
        ],
    },
    Examples {
        command: "sensitivity",
        lines: &[(
            "plimsoll sensitivity drain --price work.buddy_alloc",
            "what changes if one price is halved or doubled",
        )],
    },
    Examples {
        command: "compare",
        lines: &[
            (
                "plimsoll compare make-like --machine grace-72",
                "ours against Linux",
            ),
            (
                "plimsoll compare stress-vm --machine grace-72 --b linux+phased patched",
                "one variant in place of Linux's, and the posted patches",
            ),
            (
                "plimsoll compare make-like --machine grace-72 --b linux@vm.stat_interval=5",
                "Linux with another interval of the vmstat work",
            ),
            (
                "plimsoll compare stress-vm-bursts --machine grace-72 --html bursts.html",
                "also a page with charts of one run of each design",
            ),
            (
                "plimsoll compare stress-vm-bursts --machine grace-72 --trace bursts.pftrace",
                "also a file for https://ui.perfetto.dev, with a track for each CPU",
            ),
        ],
    },
    Examples {
        command: "run",
        lines: &[
            (
                "plimsoll run experiments/stat-interval.toml",
                "every point of the sweep in the file",
            ),
            (
                "plimsoll run mine.toml --seeds 12 --set vm.stat_interval=5",
                "with more seeds and another knob than the file",
            ),
        ],
    },
    Examples {
        command: "sweep",
        lines: &[
            (
                "plimsoll sweep experiments/stat-interval.toml -o points.parquet",
                "every point of the sweep; the table is for DuckDB, polars or pandas",
            ),
            (
                "plimsoll sweep mine.toml --random 1000 --part 3/16 -o 3.parquet",
                "1000 random points, of which this computer runs a sixteenth",
            ),
        ],
    },
    Examples {
        command: "explain",
        lines: &[
            (
                "plimsoll explain last",
                "the ten longest waits of the newest run, for each design",
            ),
            (
                "plimsoll explain 20261123-2315 --format json",
                "those of an earlier run, for a program",
            ),
        ],
    },
    Examples {
        command: "new",
        lines: &[("plimsoll new mine", "mine.toml, which runs as it is")],
    },
    Examples {
        command: "list",
        lines: &[("plimsoll list experiments", "also those of this folder")],
    },
    Examples {
        command: "check",
        lines: &[(
            "plimsoll check mine.toml",
            "mistakes, or what the file would run",
        )],
    },
    Examples {
        command: "schema",
        lines: &[(
            "plimsoll schema > plimsoll.schema.json",
            "for the settings of an editor",
        )],
    },
    Examples {
        command: "replay",
        lines: &[
            (
                "plimsoll replay run.plr --machine grace-72 --scale 18 --b ours",
                "18 copies of a recording on 72 simulated CPUs, under two designs",
            ),
            (
                "plimsoll replay run.plr --exact",
                "whether Plimsoll decides as the recorded kernel did",
            ),
        ],
    },
    Examples {
        command: "show",
        lines: &[
            ("plimsoll show run.plr", "one recording as tables"),
            ("plimsoll show before.plr after.plr", "two side by side"),
        ],
    },
    Examples {
        command: "results",
        lines: &[
            ("plimsoll results", "all runs whose results were kept"),
            (
                "plimsoll results show last --format markdown",
                "the report of the newest run again, in another format",
            ),
            (
                "plimsoll results diff 20261123-2315 last",
                "the newest run beside an earlier one",
            ),
            (
                "plimsoll results export last -o samples.parquet",
                "the values of each seed, for DuckDB, polars or pandas",
            ),
        ],
    },
    Examples {
        command: "machines",
        lines: &[
            ("plimsoll machines", "all built-in machines"),
            (
                "plimsoll machines grace-72",
                "one machine, with the source of every cost",
            ),
            (
                "plimsoll machines grace-72 --copy mine.toml",
                "a copy of its profile, to describe a machine of your own",
            ),
        ],
    },
    Examples {
        command: "bench",
        lines: &[("plimsoll bench counter", "the counters beside their peers")],
    },
    Examples {
        command: "completions",
        lines: &[("plimsoll completions bash > ~/.bash_completion", "for bash")],
    },
    Examples {
        command: "man",
        lines: &[(
            "plimsoll man ~/.local/share/man/man1",
            "then `man plimsoll-compare` shows a page",
        )],
    },
];

const EXIT_CODES: &str = "\
Exit codes:
  0  success; also if the program that reads the output closes the pipe
  1  a fault of Plimsoll
  2  an error that you can correct, such as an unknown name; see the message";

/// Parses the program's arguments. If they are wrong or ask for help, prints the error or the help,
/// and exits.
pub(crate) fn parse() -> Args {
    let matches = command().get_matches();
    // `command` is derived from `Args`, so the matches have all arguments of `Args`.
    Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Returns the command-line interface with all help texts: the arguments, the exit codes, and
/// examples for each command.
pub(crate) fn command() -> clap::Command {
    let described = Args::command().after_help(EXIT_CODES);
    EXAMPLES.iter().fold(described, |command, examples| {
        let after = after_help(examples);
        command.mut_subcommand(examples.command, |of| of.after_help(after))
    })
}

fn after_help(examples: &Examples) -> String {
    let lines = examples.lines.iter();
    let lines: Vec<String> = lines
        .map(|(line, does)| format!("  {line}\n      {does}"))
        .collect();
    let examples_text = format!("Examples:\n{}", lines.join("\n"));
    if examples.command == "reproduce" {
        format!("{}\n\n{examples_text}", experiments())
    } else {
        examples_text
    }
}

/// Returns the part of the help that lists the experiments of the catalog, each with its question.
fn experiments() -> String {
    let of = CATALOG.iter();
    let lines = of.map(|of| format!("  {}\n      {}", of.name(), of.question()));
    format!("Experiments:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn every_example_is_a_command_line_that_the_program_accepts() {
        for examples in EXAMPLES {
            for (line, _) in examples.lines {
                let of_shell = line.split(" > ").next().unwrap_or(line);
                let parsed = Args::try_parse_from(of_shell.split_whitespace());
                parsed.unwrap_or_else(|error| panic!("{line}: {error}"));
                let named = format!("plimsoll {}", examples.command);
                assert!(line.starts_with(&named), "{line} is under {named}");
            }
        }
    }

    #[test]
    fn every_line_of_the_added_help_fits_80_columns() {
        for examples in EXAMPLES {
            for line in after_help(examples).lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
        assert!(EXIT_CODES.lines().all(|line| line.len() <= 80));
    }
}
