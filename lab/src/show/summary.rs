//! A summary of a recording in at most twelve lines, and its events by kind.

use std::collections::BTreeMap;

use plimsoll_recording::{Recording, What};

use crate::measure::metric::Unit;
use crate::report::Table;
use crate::report::figures::{Figures, Line, Measure, Stand};
use crate::report::value::human;

/// How many kinds of events the summary names at most. The table `events` lists all kinds.
const KINDS_MAX: usize = 6;

/// A table of facts about a recording: its subject, its length, the number of its events, and the
/// data that it lacks. `file` is the recording's name.
#[must_use]
pub fn table(file: &str, recording: &Recording) -> Table {
    let header = &recording.header;
    let mut rows = vec![("kernel", kernel(recording))];
    if !header.command.is_empty() {
        rows.push(("command", header.command.clone()));
    }
    rows.push(("length", length(recording)));
    rows.push(("events", events(recording)));
    let lost: u64 = header.lost.iter().map(|(_, count)| count).sum();
    if lost > 0 {
        let (count, cpus) = (human(lost as f64, Unit::Count), header.lost.iter());
        let cpus = cpus.filter(|(_, count)| *count > 0).count();
        let cpus = if cpus == 1 {
            "1 CPU".to_owned()
        } else {
            format!("{cpus} CPUs")
        };
        rows.push((
            "lost",
            format!("{count} events on {cpus}: every count is too low"),
        ));
    }
    if let Some(first) = header.missing.first() {
        let more = header.missing.len() - 1;
        let more = if more > 0 {
            format!(" (and {more} more)")
        } else {
            String::new()
        };
        rows.push(("missing", format!("{first}{more}")));
    }
    Table {
        title: file.to_owned(),
        note: String::new(),
        columns: ["what", "how much"].map(str::to_owned).to_vec(),
        rows: rows
            .into_iter()
            .map(|(what, text)| vec![what.to_owned(), text])
            .collect(),
    }
}

fn kernel(Recording { header, events }: &Recording) -> String {
    let or_unknown = |text: &str| {
        if text.is_empty() {
            "unknown".to_owned()
        } else {
            text.to_owned()
        }
    };
    let mut parts = vec![or_unknown(&header.release)];
    if !header.machine.is_empty() {
        parts.push(header.machine.clone());
    }
    parts.push(match header.cpus {
        0 => {
            let seen: std::collections::BTreeSet<u32> =
                events.iter().map(|event| event.cpu).collect();
            format!("{} CPUs in events", seen.len())
        }
        1 => "1 CPU".to_owned(),
        cpus => format!("{cpus} CPUs"),
    });
    if header.hz > 0 {
        parts.push(format!("HZ {}", header.hz));
    }
    parts.join(", ")
}

fn length(recording: &Recording) -> String {
    let (first, last) = (recording.events.first(), recording.events.last());
    let length_ns = first
        .zip(last)
        .map_or(0, |(first, last)| last.time_ns - first.time_ns);
    human(length_ns as f64, Unit::Nanos)
}

fn events(recording: &Recording) -> String {
    let mut kinds: Vec<(&str, u64)> = kinds(recording).into_iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let count = |count: u64| human(count as f64, Unit::Count);
    let shown = kinds
        .iter()
        .take(KINDS_MAX)
        .map(|(name, of)| format!("{} {name}", count(*of)));
    let mut shown: Vec<String> = shown.collect();
    if kinds.len() > KINDS_MAX {
        shown.push(format!("{} other kinds", kinds.len() - KINDS_MAX));
    }
    format!(
        "{}: {}",
        count(recording.events.len() as u64),
        shown.join(", ")
    )
}

/// A table of the number of events of each kind, the most frequent kind first.
#[must_use]
pub fn by_kind(recording: &Recording) -> Figures {
    let mut kinds: Vec<(&str, u64)> = kinds(recording).into_iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let line = |(name, count): (&str, u64)| Line::full(vec![name.to_owned()], [count as f64]);
    Figures {
        name: "events",
        title: "Events by kind",
        note: String::new(),
        keys: vec!["event"],
        same: 1,
        keys_stand: Stand::Before,
        measures: vec![Measure::new("how many", "events", Unit::Count)],
        lines: kinds.into_iter().map(line).collect(),
    }
}

fn kinds(recording: &Recording) -> BTreeMap<&'static str, u64> {
    let mut kinds = BTreeMap::new();
    for event in &recording.events {
        *kinds.entry(name(&event.what)).or_default() += 1;
    }
    kinds
}

/// The name of the event's tracepoint without the subsystem: `sched_switch` for
/// `sched:sched_switch`.
fn name(what: &What) -> &'static str {
    let tracepoint = what.tracepoint();
    tracepoint
        .split_once(':')
        .map_or(tracepoint, |(_, name)| name)
}
