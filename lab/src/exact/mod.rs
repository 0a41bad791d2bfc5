//! Exact replay: the operations of a recording once more, in recorded order, and each decision of
//! Plimsoll compared with the kernel's.
//!
//! A [`Judge`] takes one subject from a recording: page lists, timers, counters, kills. A recording
//! that has nothing of a subject has no [`Judgement`] of it. [`judges`] lists them all.

pub mod counters;
pub mod kills;
mod outcome;
pub mod pages;
pub mod reaping;
pub mod timers;
pub mod watermarks;

use plimsoll_recording::Recording;

pub use self::outcome::Outcome;
use crate::catalog::designs;
use crate::error::Error;
use crate::report::Table;
use crate::run::progress::Progress;

/// The result of one subject.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// What was compared, as a row of a table is called: `page lists`, `timer wheel`.
    pub subject: String,
    /// What one comparison is of: `moves`, `firings`, `readings`, `kills`.
    pub unit: &'static str,
    /// How many were compared.
    pub compared: u64,
    /// How many are identical.
    pub identical: u64,
    /// How many were seen but depend on what the recording cannot tell, so that they are not
    /// among those compared; a note says why.
    pub set_aside: u64,
    /// The first difference with its surroundings, as lines of at most 80 characters.
    pub first_difference: Vec<String>,
    /// Totals: per CPU, per kind.
    pub tables: Vec<Table>,
    /// What a reader must know to judge the figures, one sentence each.
    pub notes: Vec<String>,
}

/// One subject.
pub trait Judge {
    /// Its name, as `--only` takes it.
    fn name(&self) -> &'static str;

    /// Compares everything of this subject, or `None` if the recording has nothing of it.
    fn judge(&self, recording: &Recording) -> Option<Judgement>;
}

/// The user's options of an exact replay.
#[derive(Clone, Debug, Default)]
pub struct ExactOptions {
    /// The recording, or `-` for standard input.
    pub file: String,
    /// The only subject to judge, or all of them.
    pub only: Option<String>,
    /// The design to judge with, or that of the recorded kernel's version.
    pub design: Option<String>,
}

/// Every subject, in the order of the report.
#[must_use]
pub fn judges(design: Option<designs::Named>) -> Vec<Box<dyn Judge>> {
    let design = design.map(|named| named.design);
    vec![
        Box::new(pages::PageLists { design }),
        Box::new(timers::Timers::OURS),
        Box::new(counters::Readings),
        Box::new(counters::Additions),
        Box::new(kills::Kills {
            selecting: design.as_ref().map(|design| design.selecting),
        }),
        Box::new(kills::Scores),
        Box::new(reaping::Reaping {
            reaping: design.as_ref().map(|design| design.reaping),
        }),
        Box::new(watermarks::Watermarks),
    ]
}

/// Judges every subject of a recording, or the one that was asked for.
///
/// # Errors
/// If the recording cannot be read, a name is unknown, or the recording has nothing that can be
/// judged.
pub fn run(options: &ExactOptions, progress: &Progress) -> Result<Outcome, Error> {
    // Names first: a slip must not cost the time to read a recording.
    let design = options.design.as_deref().map(designs::find).transpose()?;
    let judges = chosen(judges(design), options.only.as_deref())?;
    progress.start(format!("reading {}", options.file));
    let contents = Recording::read(&options.file)?;
    let recording = &contents.recording;
    progress.start("exact replay");
    progress.expect(judges.len());
    let mut judgements = Vec::new();
    for judge in &judges {
        judgements.extend(judge.judge(recording));
        progress.step();
    }
    if judgements.is_empty() {
        let names: Vec<&str> = judges.iter().map(|judge| judge.name()).collect();
        let nothing = nothing_to_judge(&options.file, &names, recording);
        return Err(Error::Invalid(contents.with_warnings(nothing)));
    }
    let mut outcome = Outcome::new(&options.file, recording, judgements);
    outcome
        .warnings
        .extend(contents.warnings.iter().map(ToString::to_string));
    Ok(outcome)
}

fn chosen(all: Vec<Box<dyn Judge>>, only: Option<&str>) -> Result<Vec<Box<dyn Judge>>, Error> {
    let Some(only) = only else { return Ok(all) };
    let names: Vec<&'static str> = all.iter().map(|judge| judge.name()).collect();
    if !names.contains(&only) {
        return Err(Error::unknown("subject", only, &names));
    }
    Ok(all
        .into_iter()
        .filter(|judge| judge.name() == only)
        .collect())
}

fn nothing_to_judge(file: &str, subjects: &[&str], recording: &Recording) -> String {
    let missing = recording.header.missing.join(" ");
    let text = format!(
        "{file} has nothing that can be replayed exactly (looked for: {}); page lists need \
                 the /proc/zoneinfo of the beginning, which `plimsoll record` and `plimsoll linux` \
                 keep and the output of `perf script` lacks",
        subjects.join(", ")
    );
    if missing.is_empty() {
        text
    } else {
        format!("{text}. {missing}")
    }
}
