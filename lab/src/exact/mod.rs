//! Exact replay: the operations of a recording once more, in recorded order, and each decision of
//! Plimsoll beside the kernel's.
//!
//! A [`Judge`] takes one subject from a recording: page lists, timers, counters, kills. A recording
//! that has nothing of a subject has no [`Judgement`] of it.

use plimsoll_recording::Recording;

/// What one subject came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// What was compared, as a row of a table is called: `page lists`, `timer wheel`.
    pub subject: String,
    /// What one comparison is of: `moves`, `firings`, `readings`, `kills`.
    pub unit: &'static str,
    /// How many were compared.
    pub compared: u64,
    /// How many are identical.
    pub identical: u64,
    /// The first difference with its surroundings, as lines of text.
    pub first_difference: Vec<String>,
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
