//! The conclusion of a report: the answer first, then the few numbers that support it.

use std::fmt;

use crate::measure::stats::Verdict;

/// The answer to the question in one sentence, and at most five numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::experiment) struct Finding {
    answer: String,
    numbers: Vec<String>,
}

impl Finding {
    /// Makes a finding from a sentence and at most five numbers. Each number follows a label that
    /// says what was measured.
    pub(in crate::experiment) fn new<const N: usize>(
        answer: impl Into<String>,
        numbers: [(&str, String); N],
    ) -> Self {
        const { assert!(N <= 5, "a finding has at most five numbers") };
        Self {
            answer: answer.into(),
            numbers: numbers
                .map(|(of, number)| format!("{of} {number}"))
                .to_vec(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.answer)?;
        if self.numbers.is_empty() {
            return Ok(());
        }
        write!(f, " In numbers: {}.", self.numbers.join("; "))
    }
}

/// The verb that says what design B does to a metric, compared with design A.
pub(in crate::experiment) const fn effect(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Lower => "lowers",
        Verdict::Higher => "raises",
        Verdict::NoDifference => "does not measurably change",
        Verdict::Equal => "does not change",
        Verdict::TooFewSeeds => "cannot be said, on so few seeds, to change",
    }
}

/// The adjective that says how high a metric is with design B, compared with design A.
pub(in crate::experiment) const fn level(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Lower => "lower",
        Verdict::Higher => "higher",
        Verdict::NoDifference => "not measurably different",
        Verdict::Equal => "equal",
        Verdict::TooFewSeeds => "unclear from so few seeds",
    }
}
