//! A report for a terminal. There are no vertical lines between columns, so that the text can be
//! pasted into a mail and quoted.

use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Row, Table, Width,
    presets,
};

use super::Report;
use super::answer::{short, text};
use super::fit::{Fitted, fit, longest_line, longest_word, together};
use super::layout::{self, Align, Block, Grid, blocks};
use super::paint::Paint;
use super::pick::{Detail, metrics};
use super::wrap::{hanging, wrap};

/// Renders `report`, with a newline at the end. Lines have at most `width` characters, unless a
/// single word is longer. The report begins with its answer, and `detail` says what follows.
#[must_use]
pub fn render(report: &Report, width: usize, detail: Detail<'_>, paint: Paint) -> String {
    let answer = text::lines(report, width, paint).join("\n");
    let rest = match detail {
        // A report without an answer, such as one on many combinations of settings, has only its
        // tables.
        Detail::Answer if report.answer.rows.is_empty() => blocks(report, width),
        Detail::Answer => {
            let counts = short::grid(report).map(Block::Grid);
            counts
                .into_iter()
                .chain([Block::Text(more(report))])
                .collect()
        }
        Detail::Whole => blocks(report, width),
        Detail::Metrics(_) => layout::rows_and_verdicts(&detail.of_report(report), width),
    };
    let rest = rest
        .into_iter()
        .map(|block| draw_block(block, width, paint));
    [answer]
        .into_iter()
        .chain(rest)
        .collect::<Vec<_>>()
        .join("\n\n")
        + "\n"
}

/// The sentence that says how to see the parts of the report that the answer leaves out.
fn more(report: &Report) -> String {
    let count = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    format!(
        "`--verbose` shows everything: {}, {}, {}. `--metric NAME` shows one metric.",
        count(metrics(report).len(), "metric"),
        count(report.verdicts.len(), "verdict"),
        count(report.tables.len(), "further table"),
    )
}

/// Renders a paragraph in lines of at most `width` characters, with a newline at the end.
#[must_use]
pub fn render_text(text: &str, width: usize) -> String {
    wrap(text, width).join("\n") + "\n"
}

/// Renders tables without a report around them.
#[must_use]
pub fn render_tables(tables: &[super::Table], width: usize) -> String {
    let blocks = layout::tables(tables).into_iter();
    let blocks = blocks.map(|block| draw_block(block, width, Paint::Plain));
    blocks.collect::<Vec<_>>().join("\n\n") + "\n"
}

fn draw_block(block: Block, width: usize, paint: Paint) -> String {
    let grid = match block {
        Block::Text(text) => return wrap(&text, width).join("\n"),
        Block::Grid(grid) => grid.visible(),
    };
    match fit(grid, width) {
        Fitted::Grids(grids) => {
            let drawn = grids.iter().map(|grid| draw(grid, width, paint));
            drawn.collect::<Vec<_>>().join("\n\n")
        }
        Fitted::Lists(caption, rows) => lists(&caption, &rows, width, paint),
    }
}

/// Renders each row as a list, with a line for each cell that is not empty. The line has the head
/// of the cell's column, and the cell. Blank lines separate the lists.
fn lists(caption: &str, rows: &[Vec<(String, String)>], width: usize, paint: Paint) -> String {
    let list = |row: &Vec<(String, String)>| {
        let lines = row.iter().filter(|(_, cell)| !cell.is_empty());
        let lines = lines.flat_map(|(head, cell)| hanging("  ", &format!("{head}: {cell}"), width));
        lines.collect::<Vec<_>>().join("\n")
    };
    let caption = wrap(caption, width)
        .into_iter()
        .map(|line| paint.bold(&line));
    let lists: Vec<String> = rows.iter().map(list).collect();
    let parts = caption.chain([lists.join("\n\n")]);
    parts.collect::<Vec<_>>().join("\n")
}

fn draw(grid: &Grid, width: usize, paint: Paint) -> String {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('-');
    table.load_style(presets::NOTHING.header_separator(rule));
    let lines: Vec<usize> = (0..grid.columns.len())
        .map(|nth| longest_line(grid, nth))
        .collect();
    // The dynamic arrangement can break the lines of a cell although the whole table fits.
    table.set_content_arrangement(if together(&lines) <= width {
        ContentArrangement::Disabled
    } else {
        ContentArrangement::Dynamic
    });
    // The table is two characters wider than `width`, because this function then removes the
    // padding of the last column.
    table.set_width(u16::try_from(width + 2).unwrap_or(u16::MAX));
    table.set_header(
        grid.columns
            .iter()
            .map(|column| Cell::new(&column.head).set_alignment(alignment(column.align))),
    );
    for cells in &grid.drawn_rows() {
        let cells = cells.iter().zip(&grid.columns);
        table.add_row(Row::from(cells.map(|(cell, column)| {
            Cell::new(cell).set_alignment(alignment(column.align))
        })));
    }
    for (nth, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        // Lines break only between words. A line can therefore be longer than the width.
        let word = u16::try_from(longest_word(grid, nth) + 2).unwrap_or(u16::MAX);
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(word)));
    }
    // The horizontal rule also covers the padding that was removed, so it has to be shortened by
    // two dashes.
    let rule_end = |line: &str| {
        line.strip_suffix("----------")
            .map(|rest| format!("{rest}--------"))
    };
    let lines = table.lines().map(|line| {
        let line = line.trim_end();
        rule_end(line).unwrap_or_else(|| line.to_owned())
    });
    let caption = wrap(&grid.caption, width).into_iter();
    let caption = caption.map(|line| paint.bold(&line));
    let lines = lines.map(|line| paint.line(&line));
    caption.chain(lines).collect::<Vec<_>>().join("\n")
}

fn alignment(align: Align) -> CellAlignment {
    match align {
        Align::Left => CellAlignment::Left,
        Align::Right => CellAlignment::Right,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn whole(width: usize) -> String {
        render(&sample(), width, Detail::Whole, Paint::Plain)
    }

    #[test]
    fn a_report_reads_well_on_a_wide_terminal() {
        insta::assert_snapshot!(whole(120), @r"
        vmstat · grace-72 · card mid · 8 seeds (1–8) · hash 00123456789abcde
        What do phases of the vmstat work gain?

        Compared with `aligned`, `phased+shepherd-phased` lowers contentions (better), raises total wait (worse) and shows no
        difference in pages per s.

                     A: aligned  B: phased+shepherd-phased  published
        -------------------------------------------------------------
        contentions         872                 117 better     ×0.134
        total wait    199.43 ms              761 ns worse           –
        pages per s  12,345,678          12,345,999                 –
        No difference seen: pages per s (B).

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
        let text = whole(80);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        insta::assert_snapshot!(text, @r"
        vmstat · grace-72 · card mid · 8 seeds (1–8) · hash 00123456789abcde
        What do phases of the vmstat work gain?

        Compared with `aligned`, `phased+shepherd-phased` lowers contentions (better),
        raises total wait (worse) and shows no difference in pages per s.

                     A: aligned  B: phased+shepherd-phased  published
        -------------------------------------------------------------
        contentions         872                 117 better     ×0.134
        total wait    199.43 ms              761 ns worse           –
        pages per s  12,345,678          12,345,999                 –
        No difference seen: pages per s (B).

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
    fn every_list_of_verdicts_names_its_design() {
        let mut report = sample();
        let long = "linux+phased+shepherd-phased+bounded-pages+tree@vm.stat_interval=2";
        for row in &mut report.verdicts {
            row.b = long.to_owned();
        }
        let text = render(&report, 80, Detail::Whole, Paint::Plain);
        let lists = text.matches(&format!("B: {long}")).count();
        assert_eq!(lists, report.verdicts.len(), "{text}");
    }

    #[test]
    fn no_line_breaks_in_a_table_that_fits() {
        let widths = [6, 31, 11, 16, 17, 17];
        let cell = |width: &usize| {
            let word = "0".repeat(*width / 3);
            format!("{word} {}", "0".repeat(*width - word.len() - 1))
        };
        let cells: Vec<String> = widths.iter().map(cell).collect();
        let table = crate::report::Table {
            title: String::new(),
            note: String::new(),
            columns: ["a", "b", "c", "d", "e", "f"].map(str::to_owned).to_vec(),
            rows: vec![cells],
        };
        let whole = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
        for width in whole..whole + 8 {
            let text = render_tables(std::slice::from_ref(&table), width);
            assert_eq!(text.lines().count(), 3, "{width}:\n{text}");
        }
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
}
