//! The result of an exact replay, and its rendering for a terminal and as Markdown.

use plimsoll_recording::Recording;

use super::Judgement;
use crate::measure::metric::Unit;
use crate::report::value::human;
use crate::report::visible::visible;
use crate::report::wrap::wrap;
use crate::report::{Table, markdown, table};

/// The result of an exact replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// One line with the name of the file, the recorded kernel, and how many CPUs and events the
    /// recording has.
    pub title: String,
    /// The judgements, one for each subject in the recording.
    pub judgements: Vec<Judgement>,
    /// Warnings about the recording, which are printed to standard error.
    pub warnings: Vec<String>,
}

impl Outcome {
    /// Makes the outcome of an exact replay of the recording in `file` from its `judgements`. Adds
    /// a warning for each CPU that lost some of its events.
    pub(super) fn new(file: &str, recording: &Recording, judgements: Vec<Judgement>) -> Self {
        let header = &recording.header;
        let release = if header.release.is_empty() {
            "an unknown kernel"
        } else {
            &header.release
        };
        let title = format!(
            "exact replay of {file}: {release}, {} CPUs, {} events",
            header.cpus,
            human(recording.events.len() as f64, Unit::Count)
        );
        let lost = header.lost.iter().filter(|(_, events)| *events > 0);
        let warnings = lost
            .map(|(cpu, events)| {
                format!(
                    "CPU {cpu} lost {events} events, and differences after them on this CPU may be due to that \
                 alone; record again with larger buffers"
                )
            })
            .collect();
        Self {
            title,
            judgements,
            warnings,
        }
    }

    /// Renders the outcome for a terminal of `width` columns.
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        let mut text = wrap(&self.title, width).join("\n") + "\n\n";
        text.push_str(&table::render_tables(&[self.summary()], width));
        for judgement in &self.judgements {
            if !judgement.tables.is_empty() {
                text.push('\n');
                text.push_str(&table::render_tables(&judgement.tables, width));
            }
            text.push_str(&difference(judgement));
        }
        text
    }

    /// Renders the outcome as Markdown.
    #[must_use]
    pub fn render_markdown(&self) -> String {
        let mut text = format!("## {}\n\n", visible(&self.title));
        text.push_str(&markdown::render_tables(&[self.summary()]));
        for judgement in &self.judgements {
            if !judgement.tables.is_empty() {
                text.push('\n');
                text.push_str(&markdown::render_tables(&judgement.tables));
            }
            let difference = difference(judgement);
            if !difference.is_empty() {
                text.push_str(&format!("\n```text{difference}```\n"));
            }
        }
        text
    }

    /// The summary and all other tables.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let of_subjects = self
            .judgements
            .iter()
            .flat_map(|judgement| judgement.tables.clone());
        [self.summary()].into_iter().chain(of_subjects).collect()
    }

    fn summary(&self) -> Table {
        let row = |judgement: &Judgement| {
            let mut row = vec![judgement.subject.clone(), judgement.unit.to_owned()];
            row.extend(
                [judgement.compared, judgement.identical].map(|n| human(n as f64, Unit::Count)),
            );
            row.push(share(judgement.identical, judgement.compared));
            row.push(human(judgement.set_aside as f64, Unit::Count));
            row
        };
        let heads = [
            "subject",
            "unit",
            "compared",
            "identical",
            "share",
            "set aside",
        ];
        let notes: Vec<&str> = self
            .judgements
            .iter()
            .flat_map(|judgement| judgement.notes.iter().map(String::as_str))
            .collect();
        Table {
            title: "Plimsoll compared with the kernel".to_owned(),
            note: notes.join(" "),
            columns: heads.map(str::to_owned).to_vec(),
            rows: self.judgements.iter().map(row).collect(),
        }
    }
}

/// The percentage of comparisons with an identical result. It is rounded down, so it is 100 % only
/// if all comparisons are identical.
pub(super) fn share(identical: u64, compared: u64) -> String {
    if compared == 0 {
        return crate::report::value::NOTHING.to_owned();
    }
    let hundredths = identical.saturating_mul(10_000) / compared;
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

fn difference(judgement: &Judgement) -> String {
    if judgement.first_difference.is_empty() {
        return String::new();
    }
    let head = format!("\nThe first difference of {}:\n", judgement.subject);
    let lines = judgement.first_difference.iter();
    lines.fold(head, |text, line| text + "  " + &visible(line) + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_cut_and_not_rounded_up() {
        assert_eq!(share(99_999, 100_000), "99.99 %");
        assert_eq!(share(55, 55), "100.00 %");
        assert_eq!(share(0, 0), "–");
    }

    #[test]
    fn a_person_sees_one_row_per_subject_and_the_first_difference() {
        let judgement = Judgement {
            subject: "page lists".to_owned(),
            unit: "moves",
            compared: 55,
            identical: 54,
            set_aside: 2,
            first_difference: vec!["1.000 CPU 1 refill: 63, not 126".to_owned()],
            notes: vec!["Two moves came first.".to_owned()],
            ..Judgement::default()
        };
        let outcome = Outcome::new("f.plr", &Recording::default(), vec![judgement]);
        let text = outcome.render(80);
        assert!(text.contains("page lists  moves"), "{text}");
        assert!(text.contains("98.18 %"), "{text}");
        assert!(
            text.contains("The first difference of page lists:\n  1.000"),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
