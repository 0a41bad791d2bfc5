//! The `plimsoll` command.
//!
//! Exit codes: 0 for success, 1 for a fault of Plimsoll, 2 for an error that the user can correct.
//! A closed pipe is not an error: a program that reads the output may stop before the end.

mod args;
mod command;
mod explain_args;
mod help;
mod html;
#[cfg(target_os = "linux")]
mod linux_args;
mod output;
mod recordings;
mod runs;
mod samples;
mod store;
mod trace;

use std::any::Any;
use std::fmt::Display;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use plimsoll_lab::NoStack;
use plimsoll_lab::report::visible::visible;

use crate::args::{Args, Command};
use crate::output::BadInput;

const OUR_FAULT: u8 = 1;
const BAD_INPUT: u8 = 2;

fn main() -> ExitCode {
    let args = help::parse();
    // The panic hook has already printed the panic, so this code only sets the exit code.
    match panic::catch_unwind(AssertUnwindSafe(|| run(args))) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            print_error(&error);
            ExitCode::from(if is_bad_input(&error) {
                BAD_INPUT
            } else {
                OUR_FAULT
            })
        }
        Err(cause) => ExitCode::from(code_of_panic(&*cause)),
    }
}

/// Returns the exit code after a panic. Prints a panic that is not a fault of Plimsoll, because the
/// panic hook does not print it.
fn code_of_panic(cause: &(dyn Any + Send)) -> u8 {
    let Some(refused) = cause.downcast_ref::<NoStack>() else {
        return OUR_FAULT;
    };
    print_error(refused);
    BAD_INPUT
}

fn print_error(error: &dyn Display) {
    let bold_red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let text = format!("{error:#}");
    // The text can have names from the command line, from files and from recordings.
    let text = visible(&text);
    anstream::eprintln!("{bold_red}error:{bold_red:#} {text}");
}

fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Reproduce(args) => command::reproduce::run(args),
        Command::Sensitivity(args) => command::sensitivity::run(&args),
        Command::Compare(args) => command::compare::run(args),
        Command::Run(args) => command::experiment::run(args),
        Command::Sweep(args) => command::sweep::run(&args),
        Command::New(args) => command::experiment::new(&args),
        Command::List(args) => command::experiment::list(&args),
        Command::Check { file } => command::experiment::check(&file),
        Command::Schema => command::experiment::schema(),
        Command::Replay(args) => command::replay::run(args),
        Command::Show(args) => command::show::run(args),
        Command::Results(args) => command::results::run(args),
        Command::Explain(args) => command::explain::run(args),
        #[cfg(target_os = "linux")]
        Command::Record(args) => command::record::run(args),
        Command::Machines(args) => command::machines::run(&args),
        Command::Designs => command::designs::run(),
        Command::Knobs => command::designs::knobs(),
        Command::Host => command::designs::host(),
        Command::Bench(args) => command::bench::run(&args),
        Command::Completions { shell } => command::shell::completions(shell),
        Command::Man { folder } => command::shell::man(&folder),
        #[cfg(target_os = "linux")]
        Command::Linux(args) => command::linux::run(args),
        #[cfg(target_os = "linux")]
        Command::Guest(args) => command::guest::run(args),
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(closed))
}

fn is_bad_input(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let lab = cause.downcast_ref::<plimsoll_lab::Error>();
        cause.is::<BadInput>()
            || lab.is_some_and(plimsoll_lab::Error::is_bad_input)
            || is_refused_recording(cause)
    })
}

#[cfg(target_os = "linux")]
fn is_refused_recording(cause: &(dyn std::error::Error + 'static)) -> bool {
    let refused = cause.downcast_ref::<plimsoll_linux::record::RecordError>();
    let boot = cause.downcast_ref::<plimsoll_linux::boot::Error>();
    refused.is_some_and(plimsoll_linux::record::RecordError::is_bad_input)
        || boot.is_some_and(plimsoll_linux::boot::Error::is_bad_input)
}

#[cfg(not(target_os = "linux"))]
fn is_refused_recording(_: &(dyn std::error::Error + 'static)) -> bool {
    false
}
