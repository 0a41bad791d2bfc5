//! Draws the table of an answer as lines of text.
//!
//! Usually, the table has a row for each metric and a column for each side, that is, for each
//! compared design. If there are too many sides, the table has a row for each side and a column for
//! each metric, so that no side is left out.

use super::words::{APART, word};
use super::{Answer, AnswerCell, AnswerRow};
use crate::measure::stats::Verdict;
use crate::report::paint::Paint;
use crate::report::value::{NOTHING, human, ratio_of};
use crate::report::visible::visible;
use crate::report::wrap::wrap;

/// The spaces between two columns.
const GAP: &str = "  ";

/// The drawn table.
#[derive(Default)]
pub(super) struct Drawn {
    /// The line with the heads of the columns, and the rule below it.
    pub(super) head: Vec<String>,
    /// For each row of the table, the lines of text that show the row.
    pub(super) rows: Vec<Vec<String>>,
    /// True if the lines name every compared design, so that no legend is needed.
    pub(super) names_designs: bool,
}

/// Draws the table of `answer` in lines of at most `width` characters. The heads of the columns
/// have the names of the designs if there is room for all names. Otherwise, the heads are letters.
/// If the table with letters is also too wide, each row is printed as a sentence instead.
pub(super) fn draw(answer: &Answer, width: usize, paint: Paint) -> Drawn {
    if answer.rows.is_empty() {
        return Drawn::default();
    }
    let named = answer.named_sides();
    let of_sides = |sides: &[String]| {
        let grid = Grid::of(answer, sides);
        (grid.width() <= width).then(|| grid.drawn(paint))
    };
    if let Some(drawn) = of_sides(&named) {
        let names_designs = true;
        return Drawn {
            names_designs,
            ..drawn
        };
    }
    let sentences = || Drawn {
        rows: Grid::of(answer, &answer.sides).sentences(width),
        ..Drawn::default()
    };
    of_sides(&answer.sides).unwrap_or_else(sentences)
}

/// One cell of the table: a number or a text, with a word that comments on it.
struct Cell {
    text: String,
    word: &'static str,
    /// [`APART`] if the word rests on other seeds than the numbers. Otherwise empty.
    mark: &'static str,
    verdict: Option<Verdict>,
}

impl Cell {
    fn plain(text: impl Into<String>) -> Self {
        Self {
            text: visible(&text.into()).replace('\n', " "),
            word: "",
            mark: "",
            verdict: None,
        }
    }

    fn of(cell: Option<&AnswerCell>, row: &AnswerRow) -> Self {
        let Some(cell) = cell else {
            return Self::plain(NOTHING);
        };
        let verdict = cell.compared.map(|compared| compared.verdict);
        let word = verdict.map_or("", |verdict| word(verdict, &row.metric));
        Self {
            text: human(cell.estimate.median, row.metric.unit),
            word,
            mark: if row.is_apart(cell) && !word.is_empty() {
                APART
            } else {
                ""
            },
            verdict,
        }
    }

    /// The number of characters of the word and its mark.
    const fn word_width(&self) -> usize {
        self.word.len() + self.mark.len()
    }
}

/// The cells of a table, and the heads of its columns.
struct Grid {
    heads: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
}

impl Grid {
    /// Makes the table of `answer`. `sides` are the names of the sides (the compared designs).
    fn of(answer: &Answer, sides: &[String]) -> Self {
        if answer.has_rows_of_sides() {
            Self::of_sides(answer, sides)
        } else {
            Self::of_metrics(answer, sides)
        }
    }

    /// Makes a table with a row for each metric.
    fn of_metrics(answer: &Answer, sides: &[String]) -> Self {
        let with_published = answer.rows.iter().any(|row| row.published_ratio.is_some());
        let mut heads = vec![Cell::plain("")];
        heads.extend(sides.iter().map(Cell::plain));
        heads.extend(with_published.then(|| Cell::plain("published")));
        let row = |row: &AnswerRow| {
            let mut cells = vec![Cell::plain(&row.what)];
            cells.extend(row.cells.iter().map(|cell| Cell::of(cell.as_ref(), row)));
            cells.extend(with_published.then(|| Cell::plain(published(row))));
            cells
        };
        let rows = answer.rows.iter().map(row).collect();
        Self { heads, rows }
    }

    /// Makes a table with a row for each side (each compared design). It does not show published
    /// ratios, because a ratio belongs to a metric and not to a side. The full tables show them.
    fn of_sides(answer: &Answer, sides: &[String]) -> Self {
        let mut heads = vec![Cell::plain("")];
        heads.extend(answer.rows.iter().map(|row| Cell::plain(&row.what)));
        let row = |(nth, side): (usize, &String)| {
            let cell = |row: &AnswerRow| Cell::of(row.cells.get(nth).and_then(Option::as_ref), row);
            let cells = answer.rows.iter().map(cell);
            [Cell::plain(side)].into_iter().chain(cells).collect()
        };
        let rows = sides.iter().enumerate().map(row).collect();
        Self { heads, rows }
    }

    /// For each column, the width of its numbers and the width of the words after the numbers. The
    /// head of a column can extend over both.
    fn widths(&self) -> Vec<[usize; 2]> {
        let of_column = |nth: usize| {
            let cells = self.rows.iter().map(|row| &row[nth]);
            let text = cells.clone().map(|cell| cell.text.chars().count());
            let word = cells.map(Cell::word_width).max().unwrap_or(0);
            let head = self.heads[nth].text.chars().count();
            let head = head.saturating_sub(with_gap(word));
            [text.max().unwrap_or(0).max(head), word]
        };
        (0..self.heads.len()).map(of_column).collect()
    }

    fn width(&self) -> usize {
        let widths = self.widths();
        let columns = widths.iter().map(|[text, word]| text + with_gap(*word));
        columns.sum::<usize>() + GAP.len() * (widths.len() - 1)
    }

    fn drawn(&self, paint: Paint) -> Drawn {
        let widths = self.widths();
        let line = |cells: &[Cell]| draw_line(cells, &widths, paint);
        Drawn {
            head: vec![line(&self.heads), "-".repeat(self.width())],
            rows: self.rows.iter().map(|row| vec![line(row)]).collect(),
            names_designs: false,
        }
    }

    /// Makes a sentence from each row, in lines of at most `width` characters.
    fn sentences(&self, width: usize) -> Vec<Vec<String>> {
        let value = |(head, cell): (&Cell, &Cell)| match cell.verdict {
            Some(_) if !cell.word.is_empty() => {
                format!("{} {} ({}{})", head.text, cell.text, cell.word, cell.mark)
            }
            _ => format!("{} {}", head.text, cell.text),
        };
        let row = |cells: &Vec<Cell>| {
            let pairs = self.heads.iter().zip(cells).skip(1);
            let values: Vec<String> = pairs
                .filter(|(head, cell)| head.text != "published" || cell.text != NOTHING)
                .map(value)
                .collect();
            wrap(&format!("{}: {}", cells[0].text, values.join(", ")), width)
        };
        self.rows.iter().map(row).collect()
    }
}

/// How many characters a word of `word` characters takes after a number. This includes the space
/// before the word.
const fn with_gap(word: usize) -> usize {
    if word > 0 { word + 1 } else { 0 }
}

/// Draws one line of a table. The first column and the words after numbers are aligned left, and
/// the numbers are aligned right. If the head of a column is wider than its numbers, the head ends
/// where the words end.
fn draw_line(cells: &[Cell], widths: &[[usize; 2]], paint: Paint) -> String {
    let mut line = String::new();
    for (nth, (cell, [text, word])) in cells.iter().zip(widths).enumerate() {
        if nth == 0 {
            line.push_str(&format!("{:<text$}", cell.text));
            continue;
        }
        line.push_str(GAP);
        if cell.text.chars().count() > *text {
            let full = text + with_gap(*word);
            line.push_str(&format!("{:>full$}", cell.text));
            continue;
        }
        line.push_str(&format!("{:>text$}", cell.text));
        if *word > 0 {
            line.push(' ');
            line.push_str(&paint.word(cell.word));
            line.push_str(cell.mark);
            line.push_str(&" ".repeat(word - cell.word_width()));
        }
    }
    line.trim_end().to_owned()
}

/// The published ratio of the patch to Linux as text, such as `×0.134`.
pub(crate) fn published(row: &AnswerRow) -> String {
    let ratio = row.published_ratio;
    ratio.map_or_else(
        || NOTHING.to_owned(),
        |ratio| format!("×{}", ratio_of(1.0, ratio)),
    )
}
