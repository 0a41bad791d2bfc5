//! The answers of several reports in one table.

use super::answer::text::published;
use super::answer::words::{marked, verdicts};
use super::answer::{Answer, AnswerRow};
use super::value::{NOTHING, human};
use super::{Report, Table};

/// Makes the table of the answers of all `reports`. Before the lines of each report is a line with
/// the experiment and its machine. The columns of values are Linux, the patch and ours if all
/// reports compare these, as in the catalog's experiments. Otherwise, the columns have no names of
/// designs, and the name of the design stands before each value.
#[must_use]
pub fn table(reports: &[Report]) -> Table {
    let answered = reports
        .iter()
        .filter(|report| !report.answer.rows.is_empty());
    let is_usual = answered.clone().all(|report| report.answer.sides == SIDES);
    let rows = answered.flat_map(|report| {
        let mut name = vec![String::new(); SIDES.len() + 3];
        name[0] = format!("{} · {}", report.experiment, report.machine);
        let rows = report.answer.rows.iter();
        [name]
            .into_iter()
            .chain(rows.flat_map(|row| lines(&report.answer, row, is_usual)))
    });
    let (heads, note) = if is_usual {
        let note = "Published: the patch divided by Linux. A verdict compares with Linux.";
        (SIDES, note)
    } else {
        let note = "Published: the second design divided by the first. A verdict compares with \
                    the first design.";
        (["design"; SIDES.len()], note)
    };
    let columns = ["what"]
        .into_iter()
        .chain(heads)
        .chain(["published", "verdict"]);
    Table {
        title: "The answers of all experiments that ran".to_owned(),
        note: format!("Medians over the seeds. {note}"),
        columns: columns.map(str::to_owned).collect(),
        rows: rows.collect(),
    }
}

/// The heads of the columns in the answers of the catalog's experiments.
pub(crate) const SIDES: [&str; 3] = ["Linux", "patch", "ours"];

/// Makes the lines of one metric. The table has as many columns of values as there are [`SIDES`].
/// If an answer compares more designs, a metric takes several lines, and the first of them names
/// the metric. If `is_usual` is false, the name of its design stands before each value.
fn lines(answer: &Answer, row: &AnswerRow, is_usual: bool) -> Vec<Vec<String>> {
    let mut values = values(row);
    if !is_usual {
        for (value, side) in values.iter_mut().zip(answer.named_sides()) {
            *value = format!("{side} {value}");
        }
    }
    let line = |(nth, values): (usize, &[String])| {
        let mut values = values.to_vec();
        let [what, published, verdict] = if nth == 0 {
            values.resize(SIDES.len(), NOTHING.to_owned());
            let ends = [published(row), verdicts(&answer.sides, row)];
            let [published, verdict] = ends;
            [row.what.clone(), published, verdict]
        } else {
            values.resize(SIDES.len(), String::new());
            [const { String::new() }; 3]
        };
        [vec![what], values, vec![published, verdict]].concat()
    };
    values.chunks(SIDES.len()).enumerate().map(line).collect()
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
    if answer.has_rows_of_sides() {
        return of_sides(answer);
    }
    let with_published = answer.rows.iter().any(|row| row.published_ratio.is_some());
    let with_verdict = answer.sides.len() > 1;
    let mut columns = vec!["what".to_owned()];
    columns.extend(answer.named_sides());
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

/// Makes the table of an answer that compares many designs. It has a row for each design. For each
/// metric, it has a column with the value and a column with the verdict.
fn of_sides(answer: &Answer) -> Table {
    let heads = answer.rows.iter().map(|row| row.what.clone());
    let heads = heads.flat_map(|what| [what, "verdict".to_owned()]);
    let values: Vec<Vec<String>> = answer.rows.iter().map(values).collect();
    let row = |(nth, side): (usize, String)| {
        let of_metric = |(row, values): (&AnswerRow, &Vec<String>)| {
            let mut compared = row.compared();
            let compared = compared.find(|(at, ..)| *at == nth);
            let verdict = compared.map(|(_, cell, of)| marked(row, cell, of));
            let value = values.get(nth).map_or(NOTHING, String::as_str);
            [value.to_owned(), verdict.unwrap_or_default()]
        };
        let cells = answer.rows.iter().zip(&values).flat_map(of_metric);
        [side].into_iter().chain(cells).collect()
    };
    Table {
        title: String::new(),
        note: String::new(),
        columns: ["design".to_owned()].into_iter().chain(heads).collect(),
        rows: answer
            .named_sides()
            .into_iter()
            .enumerate()
            .map(row)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{many_designs, sample, table as terminal};

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
    fn no_side_is_left_out_if_there_are_more_than_columns() {
        let report = many_designs();
        let whole = table(std::slice::from_ref(&report));
        let text = terminal::render_tables(&[whole], 80);
        for (nth, side) in ["A", "B1", "B2", "B3", "B4"].into_iter().enumerate() {
            let named = format!("{side}: design-{nth}");
            assert!(text.contains(&named), "{named} in\n{text}");
        }
        let of_answer = of_answer(&report.answer);
        assert_eq!(of_answer.rows.len(), 5);
        assert_eq!(of_answer.columns.len(), 1 + 2 * 3);
        assert_eq!(of_answer.rows[4][0], "B4: design-4");
        assert_eq!(of_answer.rows[4][1..3], ["4", "better"]);
    }

    #[test]
    fn only_answers_on_linux_the_patch_and_ours_stand_under_these_heads() {
        let mut reports = [sample(), sample()];
        for (report, side) in reports.iter_mut().zip([2, 3]) {
            report.answer.sides = SIDES[..side].iter().map(|&name| name.to_owned()).collect();
        }
        let heads = |reports: &[Report]| table(reports).columns[1..4].to_vec();
        assert_eq!(heads(&reports[1..]), SIDES);
        assert_eq!(heads(&reports), ["design"; 3]);
        let table = table(&reports);
        assert_eq!(table.rows[1][1..3], ["Linux 872", "patch 117"]);
        assert!(!table.note.contains("Linux"), "{}", table.note);
    }

    #[test]
    fn a_report_without_an_answer_has_no_line() {
        let mut report = sample();
        report.answer = Answer::default();
        assert!(table(&[report]).rows.is_empty());
    }
}
