//! The answers of several reports in one table.

use super::answer::text::published;
use super::answer::words::verdicts;
use super::answer::{Answer, AnswerRow};
use super::value::{NOTHING, human};
use super::{Report, Table};

/// The table of the answers of all `reports`. A line with the experiment and its machine comes
/// before the lines of each report. The columns of values are Linux, the patch and ours, as in the
/// catalog's experiments. If a report compares other designs, the name of the design stands before
/// each value.
#[must_use]
pub fn table(reports: &[Report]) -> Table {
    let answered = reports
        .iter()
        .filter(|report| !report.answer.rows.is_empty());
    let rows = answered.flat_map(|report| {
        let mut name = vec![String::new(); SIDES.len() + 3];
        name[0] = format!("{} · {}", report.experiment, report.machine);
        let rows = report.answer.rows.iter();
        [name]
            .into_iter()
            .chain(rows.map(|row| cells(&report.answer, row)))
    });
    let columns = ["what"]
        .into_iter()
        .chain(SIDES)
        .chain(["published", "verdict"]);
    Table {
        title: "The answers of all experiments that ran".to_owned(),
        note: "Medians over the seeds. Published: the patch divided by Linux. A verdict compares \
               with Linux."
            .to_owned(),
        columns: columns.map(str::to_owned).collect(),
        rows: rows.collect(),
    }
}

/// The heads of the columns in the answers of the catalog's experiments.
pub(crate) const SIDES: [&str; 3] = ["Linux", "patch", "ours"];

fn cells(answer: &Answer, row: &AnswerRow) -> Vec<String> {
    let is_usual = answer.sides == SIDES;
    let mut values = values(row);
    if !is_usual {
        for (value, side) in values.iter_mut().zip(&answer.sides) {
            *value = format!("{side} {value}");
        }
    }
    values.resize(SIDES.len(), NOTHING.to_owned());
    let ends = [published(row), verdicts(&answer.sides, row)];
    [row.what.clone()]
        .into_iter()
        .chain(values)
        .chain(ends)
        .collect()
}

fn values(row: &AnswerRow) -> Vec<String> {
    let value = |cell: &Option<super::answer::AnswerCell>| {
        cell.as_ref().map_or_else(
            || NOTHING.to_owned(),
            |cell| human(cell.estimate.median, row.metric.unit),
        )
    };
    row.cells.iter().map(value).collect()
}

/// The table of one answer, with the verdicts in full words.
#[must_use]
pub fn of_answer(answer: &Answer) -> Table {
    let with_published = answer.rows.iter().any(|row| row.published_ratio.is_some());
    let with_verdict = answer.sides.len() > 1;
    let mut columns = vec!["what".to_owned()];
    columns.extend(answer.sides.iter().cloned());
    columns.extend(with_published.then(|| "published".to_owned()));
    columns.extend(with_verdict.then(|| "verdict".to_owned()));
    let row = |row: &AnswerRow| {
        let mut cells = vec![row.what.clone()];
        cells.extend(values(row));
        cells.extend(with_published.then(|| published(row)));
        cells.extend(with_verdict.then(|| verdicts(&answer.sides, row)));
        cells
    };
    Table {
        title: String::new(),
        note: String::new(),
        columns,
        rows: answer.rows.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{sample, table as terminal};

    #[test]
    fn each_report_has_a_line_with_its_name_and_a_line_for_each_row() {
        let mut reports = [sample(), sample()];
        reports[0].answer.sides = ["Linux", "ours"].map(str::to_owned).to_vec();
        let table = table(&reports);
        assert_eq!(table.rows.len(), 2 * (1 + 3));
        let columns = table.columns.len();
        assert!(table.rows.iter().all(|row| row.len() == columns));
        let text = terminal::render_tables(&[table], 80);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn a_report_without_an_answer_has_no_line() {
        let mut report = sample();
        report.answer = Answer::default();
        assert!(table(&[report]).rows.is_empty());
    }
}
