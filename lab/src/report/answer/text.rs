//! An answer as lines of text, for terminals and for mails.

use super::words::{remarks, word};
use super::{Answer, AnswerRow};
use crate::measure::stats::Verdict;
use crate::report::Report;
use crate::report::layout::title;
use crate::report::paint::Paint;
use crate::report::value::{NOTHING, human, ratio_of};
use crate::report::wrap::wrap;

/// The largest number of lines with which a report begins.
pub const LINES_MAX: usize = 12;

/// The characters between two columns.
const GAP: &str = "  ";

/// The first lines of `report`: its title, its question, its answer, and the table of the answer.
/// There are at most [`LINES_MAX`] lines. Each has at most `width` characters, unless a single word
/// is longer. If this is too little room, the function leaves out blank lines first, and then the
/// last rows of the table. The full tables below the answer have these rows too.
#[must_use]
pub fn lines(report: &Report, width: usize, paint: Paint) -> Vec<String> {
    let title = wrap(&title(report), width).into_iter();
    below(
        title.map(|line| paint.bold(&line)).collect(),
        report,
        width,
        paint,
    )
}

/// The first lines of `report` as [`lines`] makes them, but without the title and without colours.
pub(crate) fn untitled(report: &Report, width: usize) -> Vec<String> {
    below(Vec::new(), report, width, Paint::Plain)
}

/// Puts the question and the answer below `head`.
fn below(mut head: Vec<String>, report: &Report, width: usize, paint: Paint) -> Vec<String> {
    let answer = &report.answer;
    head.extend(wrap(&answer.question, width));
    let sentence = wrap(&answer.sentence, width);
    let remarks = remarks(answer, report.seeds.len());
    let remarks: Vec<String> = remarks.iter().flat_map(|text| wrap(text, width)).collect();
    let fixed = head.len() + sentence.len() + remarks.len();
    let table = table(answer, width, LINES_MAX.saturating_sub(fixed), paint);
    let parts = [head, sentence, [table, remarks].concat()];
    let parts: Vec<Vec<String>> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let filled: usize = parts.iter().map(Vec::len).sum();
    let blank = if filled + parts.len() <= LINES_MAX + 1 {
        vec![String::new()]
    } else {
        Vec::new()
    };
    let mut all = parts.join(&blank[..]);
    all.truncate(LINES_MAX);
    all
}

/// One cell of the table: a number or a text, and a word about it.
struct Cell {
    text: String,
    word: &'static str,
    verdict: Option<Verdict>,
}

impl Cell {
    fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            word: "",
            verdict: None,
        }
    }
}

/// The table of the answer in at most `room` lines. If a row is too long for `width`, each row is
/// printed as a sentence instead.
fn table(answer: &Answer, width: usize, room: usize, paint: Paint) -> Vec<String> {
    if answer.rows.is_empty() {
        return Vec::new();
    }
    let with_published = answer.rows.iter().any(|row| row.published_ratio.is_some());
    let mut heads: Vec<Cell> = [Cell::plain("")].into();
    heads.extend(answer.sides.iter().map(Cell::plain));
    heads.extend(with_published.then(|| Cell::plain("published")));
    let rows = answer.rows.iter();
    let rows: Vec<Vec<Cell>> = rows.map(|row| cells(row, with_published)).collect();
    let columns = heads.len();
    let widths: Vec<[usize; 2]> = (0..columns)
        .map(|nth| {
            let of_column = rows.iter().chain([&heads]).map(|row| &row[nth]);
            let text = of_column.clone().map(|cell| cell.text.chars().count());
            let word = of_column.map(|cell| cell.word.len());
            [text.max().unwrap_or(0), word.max().unwrap_or(0)]
        })
        .collect();
    let full = |[text, word]: &[usize; 2]| text + word + usize::from(*word > 0);
    let total = widths.iter().map(full).sum::<usize>() + GAP.len() * (columns - 1);
    if total > width {
        let sentences = answer.rows.iter();
        let sentences = sentences.map(|row| wrap(&stacked(answer, row), width));
        return within(sentences, room);
    }
    let rule = "-".repeat(total);
    let head = [draw(&heads, &widths, paint), rule];
    let drawn = rows.iter().map(|row| vec![draw(row, &widths, paint)]);
    let rows = within(drawn, room.saturating_sub(head.len()));
    if rows.is_empty() {
        return rows;
    }
    [head.into(), rows].concat()
}

/// Joins the lines of `parts`, from the first part on, and stops before the part that would exceed
/// `room` lines.
fn within(parts: impl Iterator<Item = Vec<String>>, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for part in parts {
        if lines.len() + part.len() > room {
            break;
        }
        lines.extend(part);
    }
    lines
}

fn cells(row: &AnswerRow, with_published: bool) -> Vec<Cell> {
    let mut cells = vec![Cell::plain(&row.what)];
    cells.extend(row.cells.iter().map(|cell| match cell {
        None => Cell::plain(NOTHING),
        Some(cell) => {
            let verdict = cell.compared.map(|compared| compared.verdict);
            Cell {
                text: human(cell.estimate.median, row.metric.unit),
                word: verdict.map_or("", |verdict| word(verdict, &row.metric)),
                verdict,
            }
        }
    }));
    if with_published {
        cells.push(Cell::plain(published(row)));
    }
    cells
}

/// The published ratio of the patch to Linux: `×0.134`.
pub(crate) fn published(row: &AnswerRow) -> String {
    let ratio = row.published_ratio;
    ratio.map_or_else(
        || NOTHING.to_owned(),
        |ratio| format!("×{}", ratio_of(1.0, ratio)),
    )
}

/// Draws one line. The first column and the words after numbers are aligned left, and the numbers
/// are aligned right.
fn draw(cells: &[Cell], widths: &[[usize; 2]], paint: Paint) -> String {
    let mut line = String::new();
    for (nth, (cell, [text, word])) in cells.iter().zip(widths).enumerate() {
        if nth == 0 {
            line.push_str(&format!("{:<text$}", cell.text));
            continue;
        }
        line.push_str(GAP);
        line.push_str(&format!("{:>text$}", cell.text));
        if *word > 0 {
            line.push(' ');
            line.push_str(&paint.word(cell.word));
            line.push_str(&" ".repeat(word - cell.word.len()));
        }
    }
    line.trim_end().to_owned()
}

/// A row as a sentence, for a width that has no room for its table.
fn stacked(answer: &Answer, row: &AnswerRow) -> String {
    let of_side = |(side, cell): (&String, Cell)| match cell.verdict {
        Some(_) if !cell.word.is_empty() => format!("{side} {} ({})", cell.text, cell.word),
        _ => format!("{side} {}", cell.text),
    };
    let values = cells(row, false).into_iter().skip(1);
    let mut parts: Vec<String> = answer.sides.iter().zip(values).map(of_side).collect();
    if row.published_ratio.is_some() {
        parts.push(format!("published {}", published(row)));
    }
    format!("{}: {}", row.what, parts.join(", "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::AnswerCell;
    use super::*;
    use crate::measure::metric::{Metric, Unit};
    use crate::measure::stats::{Comparison, Estimate};
    use crate::report::sample;

    fn estimate(median: f64) -> Estimate {
        Estimate {
            median,
            low: median,
            high: median,
        }
    }

    #[test]
    fn the_sample_begins_with_its_answer() {
        let text = lines(&sample(), 80, Paint::Plain).join("\n");
        insta::assert_snapshot!(text, @r"
        vmstat · grace-72 · card mid · 8 seeds (1–8) · hash 00123456789abcde
        What do phases of the vmstat work gain?

        Compared with `aligned`, `phased+shepherd-phased` lowers contentions (better),
        raises total wait (worse) and shows no difference in pages per s.

                              A           B         published
        -----------------------------------------------------
        contentions         872         117 better     ×0.134
        total wait    199.43 ms      761 ns worse           –
        pages per s  12,345,678  12,345,999                 –
        No difference seen: pages per s (B).
        ");
    }

    #[test]
    fn a_table_that_is_too_wide_becomes_sentences() {
        let text = lines(&sample(), 50, Paint::Plain).join("\n");
        insta::assert_snapshot!(text, @r"
        vmstat · grace-72 · card mid · 8 seeds (1–8) ·
        hash 00123456789abcde
        What do phases of the vmstat work gain?
        Compared with `aligned`, `phased+shepherd-phased`
        lowers contentions (better), raises total wait
        (worse) and shows no difference in pages per s.
        contentions: A 872, B 117 (better), published
        ×0.134
        total wait: A 199.43 ms, B 761 ns (worse)
        pages per s: A 12,345,678, B 12,345,999
        No difference seen: pages per s (B).
        ");
    }

    #[test]
    fn colours_do_not_move_a_column() {
        let plain = lines(&sample(), 80, Paint::Plain).join("\n");
        let coloured = lines(&sample(), 80, Paint::Colour).join("\n");
        assert_ne!(plain, coloured);
        let mut stripped = String::new();
        let mut parts = coloured.split('\x1b');
        stripped.push_str(parts.next().unwrap_or(""));
        for part in parts {
            stripped.push_str(part.split_once('m').map_or("", |(_, rest)| rest));
        }
        assert_eq!(stripped, plain);
    }

    const VERDICTS: [Verdict; 5] = [
        Verdict::Lower,
        Verdict::Higher,
        Verdict::NoDifference,
        Verdict::Equal,
        Verdict::TooFewSeeds,
    ];

    prop_compose! {
        /// Generates rows with values of every size, in one of the units, with any verdict.
        fn any_row()(
            what in "[a-z]{1,12}( [a-z]{1,7}){0,1}",
            values in prop::collection::vec(0.0..1e13, 3),
            unit in prop::sample::select(vec![
                Unit::Count, Unit::Nanos, Unit::Pages, Unit::Bytes, Unit::Percent, Unit::PerSecond,
            ]),
            verdicts in prop::collection::vec(prop::sample::select(VERDICTS.to_vec()), 2),
            missing in any::<bool>(),
            published_ratio in prop::option::of(0.0..5000.0),
        ) -> AnswerRow {
            let cell = |nth: usize| (nth != 1 || !missing).then(|| AnswerCell {
                design: format!("design-{nth}"),
                estimate: estimate(values[nth]),
                compared: (nth > 0).then(|| Comparison {
                    ratio: estimate(values[nth] / values[0].max(1.0)),
                    verdict: verdicts[nth - 1],
                }),
            });
            AnswerRow {
                what,
                metric: Metric::lower("waits", unit),
                cells: (0..3).map(cell).collect(),
                published_ratio,
            }
        }
    }

    proptest! {
        #[test]
        fn any_answer_fits_its_width_and_its_lines(
            rows in prop::collection::vec(any_row(), 0..4),
            question in "[a-z]{1,9}( [a-z]{1,9}){1,11}",
            sentence in "[a-z]{1,9}( [a-z]{1,9}){1,26}",
            seeds in 1..40_usize,
            width in 72..161_usize,
        ) {
            let mut report = sample();
            report.seeds = (0..seeds as u64).collect();
            report.answer = Answer {
                question,
                sentence: sentence.clone(),
                sides: ["Linux", "patch", "ours"].map(str::to_owned).to_vec(),
                rows,
            };
            let lines = lines(&report, width, Paint::Plain);
            prop_assert!(lines.len() <= LINES_MAX, "{lines:?}");
            for line in &lines {
                prop_assert!(line.chars().count() <= width, "{line}");
            }
            let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
            for word in sentence.split_whitespace() {
                prop_assert!(words.contains(&word), "{word} is lost or broken");
            }
        }
    }
}
