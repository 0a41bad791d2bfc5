//! Counters: compares the resident pages that the kernel reports to a process with Plimsoll's
//! `flat` counter, which works like `percpu_counter`.
//!
//! The recorded program moves from CPU to CPU, and logs each step with the kernel's reading after
//! that step. The comparison performs the same additions on the flat counter of `mm`, on the same
//! number of CPUs. It compares every reading of this counter with the logged reading.
//!
//! `log` reads the program's log, and `replay` performs its steps on a counter. `beside` reports
//! the errors that tree counters would have had. `additions` compares the recorded additions with
//! the log.

mod additions;
mod beside;
mod log;
mod replay;

use plimsoll_host::Host;
use plimsoll_mm::counter::{Batch, Counters, Counting, Plan};
use plimsoll_mm::topology::Topology;
use plimsoll_recording::{Header, Recording};

pub use self::additions::Additions;
use self::log::Run;
use self::replay::{Cuts, Replay, Replayed};
use super::{Judge, Judgement};
use crate::report::Table;

/// The names under which a recording can hold the log of the recorded program.
const LOGS: [&str; 2] = ["counter log", "hop"];

/// Compares the readings of resident pages in a program's log with the readings of Plimsoll's flat
/// counter, which works like Linux's `percpu_counter`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readings;

impl Judge for Readings {
    fn name(&self) -> &'static str {
        "counters"
    }

    fn judge(&self, recording: &Recording) -> Option<Judgement> {
        let runs = runs(&recording.header)?;
        let replayed: Vec<Replayed> = runs
            .iter()
            .map(|run| replay_on(run, Counting::Flat, Cuts::AsRead))
            .collect();
        let mut judgement = sum_up(&runs, &replayed);
        judgement.tables.push(readings(&runs, &replayed));
        judgement.tables.push(beside::table(&runs, &replayed));
        Some(judgement)
    }
}

/// Replays each run of a recording's log on a counter that `make` builds for a host. The host has
/// as many CPUs as the run. A test can pass a `make` whose counter works by another rule than
/// Plimsoll's. Returns `None` if the recording has no log.
pub fn judge_with<C: Counters<Host>>(
    recording: &Recording,
    make: impl Fn(&Host) -> C,
) -> Option<Judgement> {
    let runs = runs(&recording.header)?;
    let replay = |run: &Run| {
        let host = Host::with_topology(Topology::flat(run.cpus));
        let counter = make(&host);
        Replay::new(&host, &counter, run, Cuts::AsRead).perform(run)
    };
    let replayed: Vec<Replayed> = runs.iter().map(replay).collect();
    Some(sum_up(&runs, &replayed))
}

/// Returns the runs of the program that the recording's log describes. `None` if the recording has
/// no log, or if the log describes no run.
fn runs(header: &Header) -> Option<Vec<Run>> {
    let text = LOGS.iter().find_map(|name| header.text(name))?;
    let runs = log::parse(text);
    (!runs.is_empty()).then_some(runs)
}

fn replay_on(run: &Run, counting: Counting, cuts: Cuts<'_>) -> Replayed {
    let host = Host::with_topology(Topology::flat(run.cpus));
    let plan = Plan::new(&host, counting, 1, Batch::RSS).expect("one counter, at most 4096 CPUs");
    let counter = plan.init_many(&host);
    let counter = counter.expect("the host has memory for one counter");
    Replay::new(&host, &counter, run, cuts).perform(run)
}

fn sum_up(runs: &[Run], replayed: &[Replayed]) -> Judgement {
    let sum = |of: fn(&Replayed) -> u64| replayed.iter().map(of).sum::<u64>();
    let (unmappings, cuts) = (
        sum(|program| program.unmappings),
        sum(|program| program.cuts.len() as u64),
    );
    let (precise, right) = (
        sum(|program| program.precise),
        sum(|program| program.precise_right),
    );
    let mut notes = vec![format!(
        "Of {unmappings} unmappings, {cuts} match only if they are counted in one part more than \
             they have page tables, as Linux does if it has to reschedule in between; only the \
             reading shows where."
    )];
    notes.push(format!(
        "Of {precise} precise readings, {right} are equal to the sum of all parts, to the page \
         tables and to the program's own count."
    ));
    notes.extend(runs.iter().filter_map(Run::trouble));
    Judgement {
        subject: "resident pages".to_owned(),
        unit: "readings",
        compared: sum(|program| program.readings),
        identical: sum(|program| program.equal),
        set_aside: runs.iter().map(|run| run.set_aside).sum(),
        first_difference: replayed
            .iter()
            .map(|program| program.first_difference.clone())
            .find(|lines| !lines.is_empty())
            .unwrap_or_default(),
        tables: vec![],
        notes,
    }
}

fn readings(runs: &[Run], replayed: &[Replayed]) -> Table {
    let row = |(run, program): (&Run, &Replayed)| {
        let numbers = [
            program.readings,
            program.equal,
            program.unmappings,
            program.cuts.len() as u64,
            program.precise,
            program.precise_right,
        ];
        let mut row = vec![run.name()];
        row.extend(numbers.map(|number| number.to_string()));
        row
    };
    Table {
        title: "Readings of resident pages, by program".to_owned(),
        note: "Cheap readings are field 24 of /proc/PID/stat, precise ones /proc/PID/status."
            .to_owned(),
        columns: [
            "program",
            "readings",
            "equal",
            "unmappings",
            "cut",
            "precise",
            "equal",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: runs.iter().zip(replayed).map(row).collect(),
    }
}

#[cfg(test)]
mod tests;
