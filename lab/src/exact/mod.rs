//! Exact replay: performs the operations of a recording again, in recorded order, and compares each
//! decision of Plimsoll with the kernel's.
//!
//! A [`Judge`] judges one subject of a recording, such as page lists, timers, counters or kills. A
//! judge returns no [`Judgement`] if the recording has nothing about its subject. [`judges`] lists
//! all judges.

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

/// The result of an exact replay for one subject, such as page lists: how many of the kernel's
/// decisions Plimsoll makes in the same way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// The name of the subject as a table row shows it, such as `page lists` or `timer wheel`.
    pub subject: String,
    /// The plural noun for the things that are compared, such as `moves`, `firings`, `readings` or
    /// `kills`.
    pub unit: &'static str,
    /// The number of the kernel's decisions that were compared with Plimsoll's.
    pub compared: u64,
    /// The number of compared decisions in which Plimsoll and the kernel agree.
    pub identical: u64,
    /// How many recorded decisions were not compared, because they depend on something that the
    /// recording does not show. A note says what this is.
    pub set_aside: u64,
    /// The first difference between the kernel and Plimsoll, and what precedes and follows it, as
    /// lines of at most 80 characters.
    pub first_difference: Vec<String>,
    /// Tables that count the compared and the identical decisions, for example by CPU or by kind.
    pub tables: Vec<Table>,
    /// Sentences that state what a reader needs to interpret the figures.
    pub notes: Vec<String>,
}

/// Compares Plimsoll with the kernel in one subject, such as page lists or timers.
pub trait Judge {
    /// The subject's name, as the option `--only` accepts it.
    fn name(&self) -> &'static str;

    /// Compares Plimsoll with the recorded kernel in this judge's subject, such as page lists.
    /// Returns `None` if the recording has nothing about the subject.
    fn judge(&self, recording: &Recording) -> Option<Judgement>;
}

/// The user's options for an exact replay.
#[derive(Clone, Debug, Default)]
pub struct ExactOptions {
    /// The recording, or `-` for standard input.
    pub file: String,
    /// The name of the only subject to judge, such as page lists. `None` stands for all subjects.
    pub only: Option<String>,
    /// The name of the design (one variant of each mechanism) with which to replay. `None` stands
    /// for the design of the recorded kernel's version.
    pub design: Option<String>,
}

/// The judges, one for each subject such as page lists or timers, in the order of the report. They
/// replay with `design` or, if `design` is `None`, with the design of the recorded kernel's
/// version.
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

/// Judges every subject of a recording, or only the subject that `options.only` names.
///
/// # Errors
/// If the recording cannot be read, a name is unknown, or the recording has nothing to judge.
pub fn run(options: &ExactOptions, progress: &Progress) -> Result<Outcome, Error> {
    // Check the names before reading the recording, so that a misspelt name is reported at once.
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
