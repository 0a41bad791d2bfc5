//! Tests of the answers with which the reports of experiments begin.

use super::{CATALOG, find};
use crate::report::answer::text::{self, LINES_MAX};
use crate::report::paint::Paint;
use crate::report::{Report, mail};
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;

/// The reports of a quick run with two seeds.
fn quick(experiment: &str) -> Vec<Report> {
    let options = Options {
        effort: Effort::Quick,
        ..Options::of_seeds(2)
    };
    let experiment = find(experiment).unwrap();
    experiment.run(&options, &Progress::hidden()).unwrap()
}

/// Checks that `report` begins with a complete answer whose lines fit a terminal and a mail.
fn check(report: &Report) {
    let name = format!("{} on {}", report.experiment, report.machine);
    let answer = &report.answer;
    assert!(answer.question.ends_with('?'), "{name}");
    assert!(answer.sentence.ends_with('.'), "{name}");
    assert!(!answer.rows.is_empty(), "{name}");
    for width in [80, 100] {
        let lines = text::lines(report, width, Paint::Plain);
        let text = lines.join("\n");
        assert!(lines.len() <= LINES_MAX, "{name}:\n{text}");
        let widest = lines.iter().map(|line| line.chars().count()).max();
        assert!(widest <= Some(width), "{name}:\n{text}");
        for row in &answer.rows {
            assert!(
                text.contains(&row.what),
                "{name} has no {}:\n{text}",
                row.what
            );
        }
        assert!(text.contains("too few for a verdict"), "{name}:\n{text}");
    }
    let mail = mail::render(report, "plimsoll reproduce --format mail");
    let widest = mail.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(mail::WIDTH), "{name}:\n{mail}");
}

#[test]
fn a_quick_report_begins_with_a_whole_answer() {
    for experiment in ["reaper", "rss-memory", "selftest"] {
        quick(experiment).iter().for_each(check);
    }
}

#[test]
#[ignore = "runs all experiments: minutes"]
fn every_quick_report_begins_with_a_whole_answer() {
    for experiment in CATALOG.iter() {
        quick(experiment.name()).iter().for_each(check);
    }
}
