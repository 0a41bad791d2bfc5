//! The tables that `plimsoll show` derives from a recording: its locks, page lists, periodic work
//! and kills.
//!
//! The same code handles recordings of a kernel and of a simulated run, so that the two can be
//! compared side by side.
//!
//! ```text
//! events ─┬─ waits ───── contentions            (locks)
//!         ├─ moves ───── pages at once, by CPU  (pages)
//!         ├─ firings ─── by CPU, at once, shepherd
//!         ├─ kills ───── victims, reaping
//!         └─ summary
//! ```

pub mod firings;
pub mod json;
pub mod kills;
pub mod moves;
pub mod pages;
pub mod summary;
pub mod waits;
pub mod zones;

use plimsoll_recording::Recording;

use self::firings::Firings;
use self::waits::Contentions;
use crate::error::Error;
use crate::measure::locks;
use crate::report::Table;
use crate::report::figures::{Figures, ROWS_MAX};

/// The names of the tables of `plimsoll show`, in the order in which they are shown.
pub const TABLES: [&str; 10] = [
    "contentions",
    "moves",
    "holds",
    "cpus",
    "firings",
    "crowding",
    "shepherd",
    "reaping",
    "victims",
    "events",
];

/// Reads the recording in `file`, or from standard input if `file` is `-`. Also returns warnings
/// about the recording.
///
/// # Errors
/// If the file cannot be read, is not a recording, or has no event.
pub fn open(file: &str) -> Result<(Recording, Vec<String>), Error> {
    let contents = Recording::read(file)?;
    if contents.recording.events.is_empty() {
        let nothing = format!("{file} has no events that can be shown");
        return Err(Error::Invalid(contents.with_warnings(nothing)));
    }
    let mut recording = contents.recording;
    let left_out = contents.ignored.iter();
    let left_out = left_out.map(|(name, count)| {
        format!("{count} events {name} are of no known kind and were left out.")
    });
    recording.header.missing.extend(left_out);
    let warnings = contents.warnings.iter().map(ToString::to_string);
    Ok((recording, warnings.collect()))
}

/// The user's choice of the tables and waits to show.
#[derive(Clone, Debug, Default)]
pub struct ShowOptions {
    /// The name of the only table to show, with all its rows. `None` shows every table that has
    /// rows.
    pub table: Option<String>,
    /// Texts that select waits. The table shows a wait if the name of a function in its call chain
    /// contains one of the texts. If there are no texts, the table shows all waits.
    pub callers: Vec<String>,
}

/// The tables of one recording, or of two side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// The tables of each recording.
    pub figures: Vec<OfRecording>,
    /// How many rows of a table are shown at most.
    rows_max: usize,
    /// True if the table `events`, which counts the events of each kind, is shown.
    with_events: bool,
}

/// The tables of one recording.
#[derive(Clone, Debug, PartialEq)]
pub struct OfRecording {
    /// The recording's name.
    pub file: String,
    /// The summary: a table of facts about the recording and the recorded machine.
    pub summary: Table,
    /// The chosen tables as numbers, with all rows. Some tables may have no rows.
    pub figures: Vec<Figures>,
}

/// Shows one recording, or two side by side, each with its name.
///
/// # Errors
/// If the chosen table does not exist, or is empty for every recording.
pub fn show(recordings: &[(String, Recording)], options: &ShowOptions) -> Result<Shown, Error> {
    let wanted = options.table.as_deref();
    if let Some(name) = wanted.filter(|name| !TABLES.contains(name)) {
        return Err(Error::unknown("table", name, &TABLES));
    }
    let of_recording = |(file, recording): &(String, Recording)| {
        let mut figures = figures(recording, &options.callers);
        figures.retain(|of| wanted.is_none_or(|name| name == of.name));
        OfRecording {
            file: file.clone(),
            summary: summary::table(file, recording),
            figures,
        }
    };
    let figures: Vec<OfRecording> = recordings.iter().map(of_recording).collect();
    let empty = |of: &OfRecording| of.figures.iter().all(|of| of.lines.is_empty());
    if let Some(name) = wanted.filter(|_| figures.iter().all(empty)) {
        return Err(Error::Invalid(nothing_to_show(
            name,
            recordings,
            &options.callers,
        )));
    }
    Ok(Shown {
        figures,
        rows_max: if wanted.is_some() {
            usize::MAX
        } else {
            ROWS_MAX
        },
        with_events: wanted.is_some(),
    })
}

impl Shown {
    /// Returns the summary of each recording, and then every table that has rows. If there are two
    /// recordings, the tables show them side by side.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let mut tables: Vec<Table> = self.figures.iter().map(|of| of.summary.clone()).collect();
        // The summary already counts the most frequent kinds of events, so the table `events` is
        // printed only on request.
        let listed = |figures: &&Figures| self.with_events || figures.name != "events";
        match self.figures.as_slice() {
            [a, b] => {
                for (table, name) in tables.iter_mut().zip(["A", "B"]) {
                    table.title = format!("{name}: {}", table.title);
                }
                let pairs = a.figures.iter().zip(&b.figures).filter(|(a, _)| listed(a));
                let filled = pairs.filter(|(a, b)| !(a.lines.is_empty() && b.lines.is_empty()));
                tables.extend(filled.map(|(a, b)| a.beside(b, self.rows_max)));
            }
            each => {
                let figures = each.iter().flat_map(|of| &of.figures).filter(listed);
                let filled = figures.filter(|of| !of.lines.is_empty());
                tables.extend(filled.map(|of| of.table(self.rows_max)));
            }
        }
        tables
    }
}

/// Makes every table of a recording as numbers, in the order of [`TABLES`]. Some tables may have no
/// rows.
#[must_use]
pub fn figures(recording: &Recording, callers: &[String]) -> Vec<Figures> {
    let waits = Contentions::of(recording, callers);
    let moves = moves::moves(recording);
    let firings = Firings::of(recording);
    let victims = kills::victims(recording);
    let start_ns = recording.events.first().map_or(0, |event| event.time_ns);
    let figures = vec![
        Figures {
            note: waits.note(),
            ..locks::contentions(&waits.rows)
        },
        pages::by_path(&moves, !firings.firings.is_empty()),
        pages::by_hold(&moves),
        pages::by_cpu(&moves),
        firings.by_cpu(),
        firings.crowding(),
        firings.shepherd(),
        kills::timeline(&victims),
        kills::in_order(&victims, start_ns),
        summary::by_kind(recording),
    ];
    debug_assert!(figures.iter().map(|of| of.name).eq(TABLES), "one order");
    figures
}

fn nothing_to_show(table: &str, recordings: &[(String, Recording)], callers: &[String]) -> String {
    let events = match table {
        "contentions" if !callers.is_empty() => {
            let callers = callers.join(", ");
            return format!("no wait for a lock has {callers} in its call chain");
        }
        "contentions" => "lock:contention_begin and lock:contention_end",
        "moves" | "cpus" => "kmem:mm_page_alloc_zone_locked and kmem:mm_page_pcpu_drain",
        "holds" => "notes where the zone lock is released, as simulated runs write them",
        "firings" | "crowding" => "workqueue:workqueue_execute_start of vmstat_update",
        "shepherd" => "workqueue:workqueue_execute_start of vmstat_shepherd",
        "reaping" | "victims" => "oom:mark_victim",
        _ => "any events",
    };
    let names: Vec<&str> = recordings.iter().map(|(name, _)| name.as_str()).collect();
    format!(
        "{} has no table {table}: it has no {events}",
        names.join(" or ")
    )
}
