//! The table of all runs of a store.

use serde::Serialize;

use super::head::{End, Head, Machine};
use super::run::{Kept, State};
use crate::report::{Table, tabulate};

/// A table with a line for each of `runs`.
#[must_use]
pub fn list(runs: &[Kept]) -> Table {
    let unfinished = |run: &Kept| run.state() == State::BrokenOff;
    let note = if runs.iter().any(unfinished) {
        "The same command with --resume=ID goes on with a run that was broken off."
    } else {
        ""
    };
    tabulate!("", note, runs, |run| {
        "id" => run.head.id,
        "when (UTC)" => minute(&run.head.started),
        "command" => run.head.command_line(),
        "machine" => machines(&run.head.machines),
        "verdict" => verdict(run),
    })
}

/// A JSON object for each of `runs`, one on each line.
///
/// # Panics
/// Never: text and numbers can always be written as JSON.
#[must_use]
pub fn list_json(runs: &[Kept]) -> String {
    let line = |run: &Kept| {
        let state = match run.state() {
            State::Finished => "finished",
            State::Running => "running",
            State::BrokenOff => "broken-off",
        };
        let line = Line {
            head: &run.head,
            state,
            end: run.end.as_ref(),
        };
        serde_json::to_string(&line).expect("text and numbers always serialise") + "\n"
    };
    runs.iter().map(line).collect()
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    head: &'a Head,
    state: &'static str,
    end: Option<&'a End>,
}

/// The date and the time, to the minute.
fn minute(started: &str) -> String {
    let text: String = started.chars().take("2026-11-23T23:15".len()).collect();
    text.replace('T', " ")
}

/// The name of the first machine, and the number of other machines.
fn machines(all: &[Machine]) -> String {
    match all {
        [] => String::new(),
        [one] => one.name.clone(),
        [first, others @ ..] => format!("{} and {} more", first.name, others.len()),
    }
}

fn verdict(run: &Kept) -> String {
    match (run.state(), &run.end) {
        (State::Finished, Some(end)) => end.verdict.clone(),
        (State::Running, _) => "still running".to_owned(),
        _ => "broken off".to_owned(),
    }
}
