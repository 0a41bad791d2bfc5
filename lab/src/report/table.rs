//! A report for a terminal. Columns have no vertical rules, so that the text can be pasted into a
//! mail and quoted.

use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Row, Table, Width,
    presets,
};

use super::Report;
use super::layout::{self, Align, Block, Grid, blocks};

/// Renders `report` in lines of about `width` characters, with a newline at the end.
#[must_use]
pub fn render(report: &Report, width: usize) -> String {
    render_blocks(blocks(report, width), width)
}

/// Renders tables without a report around them.
#[must_use]
pub fn render_tables(tables: &[super::Table], width: usize) -> String {
    render_blocks(layout::tables(tables), width)
}

fn render_blocks(blocks: Vec<Block>, width: usize) -> String {
    let render = |block| match block {
        Block::Title(title) => title,
        Block::Text(text) => wrap(&text, width),
        Block::Grid(grid) => draw(&grid, width),
    };
    blocks
        .into_iter()
        .map(render)
        .collect::<Vec<_>>()
        .join("\n\n")
        + "\n"
}

fn draw(grid: &Grid, width: usize) -> String {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('-');
    table.load_style(presets::NOTHING.header_separator(rule));
    table.set_content_arrangement(ContentArrangement::Dynamic);
    // The table is two characters wider than `width`, because the padding of its last column is
    // removed below.
    table.set_width(u16::try_from(width + 2).unwrap_or(u16::MAX));
    table.set_header(
        grid.columns
            .iter()
            .map(|column| Cell::new(&column.head).set_alignment(alignment(column.align))),
    );
    for cells in &grid.rows {
        let cells = cells.iter().zip(&grid.columns);
        table.add_row(Row::from(cells.map(|(cell, column)| {
            Cell::new(cell).set_alignment(alignment(column.align))
        })));
    }
    for (nth, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        // Lines break only between words, even if a line then exceeds the width.
        let word = u16::try_from(longest_word(grid, nth) + 2).unwrap_or(u16::MAX);
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(word)));
    }
    // The horizontal rule also covers the removed padding, so it is shortened by two dashes.
    let rule_end = |line: &str| {
        line.strip_suffix("----------")
            .map(|rest| format!("{rest}--------"))
    };
    let lines = table.lines().map(|line| {
        let line = line.trim_end();
        rule_end(line).unwrap_or_else(|| line.to_owned())
    });
    let caption = (!grid.caption.is_empty()).then(|| grid.caption.clone());
    caption
        .into_iter()
        .chain(lines)
        .collect::<Vec<_>>()
        .join("\n")
}

/// The length in characters of the longest word in a column or in the column's head.
fn longest_word(grid: &Grid, nth: usize) -> usize {
    let cells = grid.rows.iter().filter_map(|row| row.get(nth));
    let texts = cells.chain(grid.columns.get(nth).map(|column| &column.head));
    let words = texts.flat_map(|text| text.split_whitespace());
    words.map(|word| word.chars().count()).max().unwrap_or(0)
}

fn alignment(align: Align) -> CellAlignment {
    match align {
        Align::Left => CellAlignment::Left,
        Align::Right => CellAlignment::Right,
    }
}

/// Breaks `text` between words. Only a line with a single word may exceed `width`.
fn wrap(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_report_reads_well_on_a_wide_terminal() {
        insta::assert_snapshot!(render(&sample(), 120), @r"
        vmstat · grace-72 · card mid · 8 seeds (1–8) · hash 00123456789abcde

        design                        contentions  published                 total_wait  published
        ------------------------------------------------------------------------------------------
        aligned                 872 [784.8–959.2]        872  199.43 ms [179.49–219.37]  199.43 ms
        phased+shepherd-phased  117 [105.3–128.7]          –       761 ns [684.9–837.1]          –

        design                                         pages_per_s
        ----------------------------------------------------------
        aligned                 12,345,678 [11,111,110–13,580,246]
        phased+shepherd-phased  12,345,999 [11,111,399–13,580,599]

        A is aligned
        B                       metric                     B / A  verdict
        -----------------------------------------------------------------------------
        phased+shepherd-phased  contentions  0.134 [0.121–0.147]  B is lower (better)
                                total_wait               ∞ [∞–∞]  B is higher (worse)
                                pages_per_s  1.000 [0.900–1.100]  no difference seen

        Where no difference is seen, run again with `--seeds 16` to detect smaller differences.

        The longest waits
        caller              max wait
        ----------------------------
        free_pcppages_bulk  35.76 ms
        rmqueue|bulk         4.19 ms

        One row per caller.

        Most of the gain is due to the phase: with the same period and the shepherd left alone, contentions fall as far as with
        all three changes together.
        ");
    }

    #[test]
    fn a_report_fits_a_narrow_terminal() {
        let text = render(&sample(), 80);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        insta::assert_snapshot!(text, @r"
        vmstat · grace-72 · card mid · 8 seeds (1–8) · hash 00123456789abcde

        design                        contentions  published
        ----------------------------------------------------
        aligned                 872 [784.8–959.2]        872
        phased+shepherd-phased  117 [105.3–128.7]          –

        design                                 total_wait  published
        ------------------------------------------------------------
        aligned                 199.43 ms [179.49–219.37]  199.43 ms
        phased+shepherd-phased       761 ns [684.9–837.1]          –

        design                                         pages_per_s
        ----------------------------------------------------------
        aligned                 12,345,678 [11,111,110–13,580,246]
        phased+shepherd-phased  12,345,999 [11,111,399–13,580,599]

        A is aligned
        B                       metric                     B / A  verdict
        -----------------------------------------------------------------------------
        phased+shepherd-phased  contentions  0.134 [0.121–0.147]  B is lower (better)
                                total_wait               ∞ [∞–∞]  B is higher (worse)
                                pages_per_s  1.000 [0.900–1.100]  no difference seen

        Where no difference is seen, run again with `--seeds 16` to detect smaller
        differences.

        The longest waits
        caller              max wait
        ----------------------------
        free_pcppages_bulk  35.76 ms
        rmqueue|bulk         4.19 ms

        One row per caller.

        Most of the gain is due to the phase: with the same period and the shepherd left
        alone, contentions fall as far as with all three changes together.
        ");
    }

    #[test]
    fn a_table_that_is_too_wide_breaks_between_words_only() {
        let word = "free_frozen_page_commit".repeat(2);
        let row = |text: &str| vec!["some words to wrap".to_owned(), text.to_owned()];
        let wide = crate::report::Table {
            title: String::new(),
            note: String::new(),
            columns: ["what", "caller"].map(str::to_owned).to_vec(),
            rows: vec![row(&word), row("short")],
        };
        let text = render_tables(&[wide], 50);
        assert!(text.contains(&word), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 56),
            "{text}"
        );
    }

    #[test]
    fn words_wrap_and_a_long_word_keeps_its_line() {
        assert_eq!(wrap("a bb  ccc\ndddddddd e", 5), "a bb\nccc\ndddddddd\ne");
        assert_eq!(wrap("", 5), "");
    }
}
