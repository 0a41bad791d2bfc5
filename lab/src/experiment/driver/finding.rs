//! The conclusion of a report: the answer first, then the few numbers that support it.

use std::fmt;

use crate::measure::stats::Verdict;

/// The answer to the question in one sentence, further conclusions from the runs, and at most five
/// numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::experiment) struct Finding {
    answer: String,
    further: String,
    numbers: Vec<String>,
}

impl Finding {
    /// Makes the conclusion from the answer, which is one sentence, and from numbers with their
    /// labels.
    pub(in crate::experiment) fn of(answer: String, numbers: Vec<(&str, String)>) -> Self {
        let numbers = numbers.into_iter();
        Self {
            answer,
            further: String::new(),
            numbers: numbers
                .map(|(of, number)| format!("{of} {number}"))
                .collect(),
        }
    }

    /// Adds sentences after the answer.
    pub(in crate::experiment) fn further(mut self, sentences: impl Into<String>) -> Self {
        self.further = sentences.into();
        self
    }

    /// The answer alone.
    pub(in crate::experiment) fn answer(&self) -> &str {
        &self.answer
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.answer)?;
        if !self.further.is_empty() {
            write!(f, " {}", self.further)?;
        }
        if self.numbers.is_empty() {
            return Ok(());
        }
        write!(f, " In numbers: {}.", self.numbers.join("; "))
    }
}

/// The verb for `verdict`. It says how design B changes a metric, compared with design A.
pub(in crate::experiment) const fn effect(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Lower => "lowers",
        Verdict::Higher => "raises",
        Verdict::NoDifference => "does not measurably change",
        Verdict::Equal => "does not change",
        Verdict::TooFewSeeds => "may or may not change",
    }
}

/// The adjective for `verdict`. It says whether a metric is lower or higher with design B than with
/// design A.
pub(in crate::experiment) const fn level(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Lower => "lower",
        Verdict::Higher => "higher",
        Verdict::NoDifference => "not measurably different",
        Verdict::Equal => "equal",
        Verdict::TooFewSeeds => "unclear from so few seeds",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_verdict_of_lower_or_higher_is_said_to_be_one() {
        for verdict in [
            Verdict::Lower,
            Verdict::Higher,
            Verdict::NoDifference,
            Verdict::Equal,
            Verdict::TooFewSeeds,
        ] {
            let differs = matches!(verdict, Verdict::Lower | Verdict::Higher);
            let says = ["lowers", "raises"].contains(&effect(verdict));
            assert_eq!(says, differs, "{verdict:?}");
            let says = ["lower", "higher"].contains(&level(verdict));
            assert_eq!(says, differs, "{verdict:?}");
        }
    }

    #[test]
    fn further_sentences_follow_the_answer_and_are_no_part_of_it() {
        let finding = Finding::of("It helps.".to_owned(), vec![("time", "3 s".to_owned())])
            .further("It is new.");
        assert_eq!(finding.answer(), "It helps.");
        assert!(
            finding
                .to_string()
                .starts_with("It helps. It is new. In numbers: time 3 s")
        );
    }
}
