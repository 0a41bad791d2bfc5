//! A report as a sequence of texts and grids, which the renderers for the terminal and for Markdown
//! draw.
//!
//! The results by design and metric are split into grids that fit a width. The column of a metric
//! and the column of its published values stay in one grid. Every grid repeats the names of the
//! designs.

use std::borrow::Cow;

use super::value::{NOTHING, human, human_estimate, human_ratio};
use super::visible::visible;
use super::{Decided, DecidedHeadline, DecidingPrice, Report, Row, Table, VerdictRow};
use crate::measure::metric::{Better, Metric, Unit};
use crate::measure::stats::Verdict;

/// One element to draw.
pub(crate) enum Block {
    /// A paragraph, which the renderer wraps.
    Text(String),
    /// A table with a caption.
    Grid(Grid),
}

/// A table before it is drawn.
#[derive(Default)]
pub(crate) struct Grid {
    pub(crate) caption: String,
    pub(crate) columns: Vec<Column>,
    /// The rows. Each has as many cells as there are columns.
    pub(crate) rows: Vec<Vec<String>>,
    /// True if the first cells of the rows are the names of groups. A drawn table has such a name
    /// only in the first row of its group.
    pub(crate) is_grouped: bool,
}

impl Grid {
    /// This table with visible control characters in all its texts.
    pub(crate) fn visible(mut self) -> Self {
        let heads = self.columns.iter_mut().map(|column| &mut column.head);
        let texts = heads.chain(self.rows.iter_mut().flatten());
        for text in texts.chain([&mut self.caption]) {
            if let Cow::Owned(shown) = visible(text) {
                *text = shown;
            }
        }
        self
    }

    /// The rows as a table shows them: a name that the row above has, too, is empty.
    pub(crate) fn drawn_rows(&self) -> Vec<Vec<String>> {
        let mut rows = self.rows.clone();
        for (nth, row) in rows.iter_mut().enumerate().skip(1) {
            if self.is_grouped && self.rows[nth].first() == self.rows[nth - 1].first() {
                row[0].clear();
            }
        }
        rows
    }
}

/// The head of a column, and the side on which its cells are aligned.
#[derive(Clone)]
pub(crate) struct Column {
    pub(crate) head: String,
    pub(crate) align: Align,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// The number of characters between two columns.
pub(super) const GAP: usize = 2;

/// Everything that `report` shows below its answer. If possible, grids are at most `width`
/// characters wide.
pub(super) fn blocks(report: &Report, width: usize) -> Vec<Block> {
    let mut blocks = rows_and_verdicts(report, width);
    blocks.extend(tables(&report.tables));
    if !report.finding.is_empty() {
        blocks.push(Block::Text(report.finding.clone()));
    }
    let decided = report.decided.iter().flat_map(decided);
    blocks.extend(decided.map(Block::Text));
    blocks
}

/// The rows and the verdicts of `report`, as grids.
pub(super) fn rows_and_verdicts(report: &Report, width: usize) -> Vec<Block> {
    let rows = design_by_metric(&report.rows, width);
    let rows = rows.into_iter().map(Block::Grid);
    let fewer = fewer_seeds(report).map(Block::Text);
    rows.chain(fewer).chain(verdict_blocks(report)).collect()
}

/// Says which rows of `report` come from fewer seeds than the report has. `None` if there is no such
/// row.
fn fewer_seeds(report: &Report) -> Option<String> {
    let all = report.seeds.len();
    let fewer = |row: &&Row| (1..all).contains(&row.seeds);
    let fewer: Vec<&Row> = report.rows.iter().filter(fewer).collect();
    let names = first_seen(fewer.iter().map(|row| &*row.metric.name));
    let of_metric = |name: &&str| {
        let of = fewer.iter().filter(|row| row.metric.name == *name);
        let of: Vec<String> = of
            .map(|row| format!("{} with {}", row.seeds, row.design))
            .collect();
        format!("{name} ({})", of.join(", "))
    };
    let metrics: Vec<String> = names.iter().map(of_metric).collect();
    let head = format!("Measured on fewer than {all} seeds");
    (!metrics.is_empty()).then(|| format!("{head}: {}.", metrics.join("; ")))
}

/// The verdicts of `report` as grids. If a verdict shows no difference, advice follows.
pub(crate) fn verdict_blocks(report: &Report) -> Vec<Block> {
    let grids = verdicts(report).into_iter();
    let mut blocks: Vec<Block> = grids.map(Block::Grid).collect();
    let unsure = |row: &VerdictRow| row.comparison.verdict == Verdict::NoDifference;
    let unsure_count = report.verdicts.iter().filter(|row| unsure(row)).count();
    if unsure_count > 0 {
        let more = report.seeds.len() * 2;
        blocks.push(Block::Text(format!(
            "Where no difference is seen, run again with `--seeds {more}` to detect smaller \
             differences."
        )));
    }
    blocks
}

/// For each headline (a comparison that people quote), one line with the prices of simulated steps
/// that decide it. If the sensitivity table was made on another machine than the report, or with
/// other prices, the first line says so.
pub(crate) fn decided(decided: &Decided) -> Vec<String> {
    let note = (!decided.note.is_empty()).then(|| format!("Deciding prices: {}.", decided.note));
    let line = |headline: &DecidedHeadline| {
        let DecidedHeadline { a, b, metric, .. } = headline;
        let price = |price: &DecidingPrice| {
            let fitted = if price.fitted { ", fitted" } else { "" };
            format!("{} ({}{fitted})", price.key, price.effect)
        };
        let prices: Vec<String> = headline.prices.iter().map(price).collect();
        let more = if prices.is_empty() { "" } else { " more" };
        let noisy = match headline.within_noise {
            0 => String::new(),
            1 => format!(
                " 1{more} price changes {WITHIN_NOISE} {} seeds.",
                decided.seeds
            ),
            count => format!(
                " {count}{more} prices change {WITHIN_NOISE} {} seeds.",
                decided.seeds
            ),
        };
        let what = if prices.is_empty() && noisy.is_empty() {
            "no price flips the verdict or changes the ratio by more than a factor of two"
                .to_owned()
        } else if prices.is_empty() {
            "no single price decides".to_owned()
        } else {
            format!("decided by {}", prices.join("; "))
        };
        format!("{metric}, {b} over {a}: {what}.{noisy}")
    };
    let headlines = decided.headlines.iter().map(line);
    note.into_iter().chain(headlines).collect()
}

/// The middle of a sentence about prices whose effect may be only noise. The number of seeds
/// follows.
const WITHIN_NOISE: &str = "the verdict or the ratio, but within the noise of";

/// Makes a grid of each table. The note of the table follows the grid.
pub(crate) fn tables(tables: &[Table]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for table in tables {
        blocks.push(Block::Grid(Grid {
            caption: table.title.clone(),
            columns: columns(table),
            rows: table.rows.clone(),
            is_grouped: false,
        }));
        if !table.note.is_empty() {
            blocks.push(Block::Text(table.note.clone()));
        }
    }
    blocks
}

pub(crate) fn title(report: &Report) -> String {
    let Report {
        experiment,
        machine,
        card,
        hash,
        ..
    } = report;
    let seeds = seed_list(&report.seeds);
    format!("{experiment} · {machine} · card {card} · {seeds} · hash {hash:016x}")
}

/// Formats consecutive seeds as `8 seeds (1–8)`, and other seeds as `2 seeds (3, 9)`.
pub(super) fn seed_list(seeds: &[u64]) -> String {
    let consecutive = seeds.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    match seeds {
        [] => "no seeds".to_owned(),
        [only] => format!("seed {only}"),
        [first, .., last] if consecutive => format!("{} seeds ({first}–{last})", seeds.len()),
        _ => {
            let seeds_text: Vec<String> = seeds.iter().map(ToString::to_string).collect();
            format!("{} seeds ({})", seeds.len(), seeds_text.join(", "))
        }
    }
}

/// The head and alignment of each column. The first column usually names the rows, and is aligned
/// left. If the first column has only numbers and the last column names the rows, the first column
/// is aligned right.
fn columns(table: &Table) -> Vec<Column> {
    let columns = table.columns.iter().enumerate();
    let mut columns: Vec<Column> = columns.map(text_column(&table.rows)).collect();
    let named_last = columns.len() > 1
        && columns
            .last()
            .is_some_and(|column| column.align == Align::Left);
    let all_digits = |row: &Vec<String>| {
        let cell = row.first().map_or("", String::as_str);
        cell.starts_with(|c: char| c.is_ascii_digit())
    };
    if named_last && table.rows.iter().all(all_digits) {
        columns[0].align = Align::Right;
    }
    columns
}

/// Returns a function that makes a column from its index and its head. A column is aligned right if
/// all its cells are numbers, so that the digits line up. The first column is always aligned left,
/// and so are columns with text.
fn text_column(rows: &[Vec<String>]) -> impl Fn((usize, &String)) -> Column {
    move |(nth, head)| {
        let cells = rows.iter().filter_map(|row| row.get(nth));
        let starts_with_digit =
            |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit() || "-+–∞".contains(c));
        let mut cells = cells.filter(|cell| !cell.is_empty()).peekable();
        let numeric = nth > 0 && cells.peek().is_some() && cells.all(starts_with_digit);
        let align = if numeric { Align::Right } else { Align::Left };
        Column {
            head: head.clone(),
            align,
        }
    }
}

fn design_by_metric(rows: &[Row], width: usize) -> Vec<Grid> {
    let designs = first_seen(rows.iter().map(|row| row.design.as_str()));
    let names = first_seen(rows.iter().map(|row| &*row.metric.name));
    let design_width = designs
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    let design_column = || -> (Column, Vec<String>) {
        let column = Column {
            head: "design".to_owned(),
            align: Align::Left,
        };
        (
            column,
            designs.iter().map(|name| (*name).to_owned()).collect(),
        )
    };
    let mut groups: Vec<Vec<(Column, Vec<String>)>> = Vec::new();
    let mut used = usize::MAX;
    for name in names {
        let columns = metric_columns(rows, &designs, name);
        let needs: usize = columns.iter().map(column_width).sum();
        if used.saturating_add(needs) > width {
            groups.push(vec![design_column()]);
            used = design_width.max("design".len()) + GAP;
        }
        used += needs;
        groups
            .last_mut()
            .expect("the first metric opened a group")
            .extend(columns);
    }
    groups.into_iter().map(transpose).collect()
}

/// Makes the column of a metric, and the column of the metric's published values if there are any.
fn metric_columns(rows: &[Row], designs: &[&str], name: &str) -> Vec<(Column, Vec<String>)> {
    let row_of = |design: &str| {
        rows.iter()
            .find(|row| row.design == design && row.metric.name == name)
    };
    let cells = |text: &dyn Fn(&Row) -> String| -> Vec<String> {
        let cell = |design: &&str| row_of(design).map_or(NOTHING.to_owned(), text);
        designs.iter().map(cell).collect()
    };
    let mut of_metric = rows.iter().filter(|row| row.metric.name == name).peekable();
    let metric = &of_metric.peek().expect("the name came from a row").metric;
    let column = |head| Column {
        head,
        align: Align::Right,
    };
    let measured = cells(&|row| human_estimate(&row.estimate, row.metric.unit));
    let mut columns = vec![(column(metric_head(metric)), measured)];
    if of_metric.any(|row| row.published.is_some()) {
        let text = |row: &Row| {
            row.published
                .map_or(NOTHING.to_owned(), |value| human(value, row.metric.unit))
        };
        columns.push((column("published".to_owned()), cells(&text)));
    }
    columns
}

/// The name of a metric for the head of a column. The unit is added if neither the name nor the
/// values show the unit.
fn metric_head(metric: &Metric) -> String {
    match metric.unit {
        Unit::Nanos => metric
            .name
            .strip_suffix("_ns")
            .unwrap_or(&metric.name)
            .to_owned(),
        Unit::Pages if !metric.name.contains("pages") => format!("{} (pages)", metric.name),
        _ => metric.name.to_string(),
    }
}

fn column_width((column, cells): &(Column, Vec<String>)) -> usize {
    let widest = cells
        .iter()
        .map(|cell| cell.chars().count())
        .max()
        .unwrap_or(0);
    GAP + widest.max(column.head.chars().count())
}

fn transpose(columns: Vec<(Column, Vec<String>)>) -> Grid {
    let row_count = columns.first().map_or(0, |(_, cells)| cells.len());
    let row = |nth: usize| {
        columns
            .iter()
            .map(|(_, cells)| cells[nth].clone())
            .collect()
    };
    let rows = (0..row_count).map(row).collect();
    let columns = columns.into_iter().map(|(column, _)| column).collect();
    Grid {
        caption: String::new(),
        columns,
        rows,
        is_grouped: false,
    }
}

/// Returns one grid for each design A. The rows of the grid compare designs B with A, and the rows
/// of a design B are a group.
fn verdicts(report: &Report) -> Vec<Grid> {
    let rows = &report.verdicts;
    let against = first_seen(rows.iter().map(|row| row.a.as_str()));
    let grid = |a: &str| {
        let of_a = rows.iter().filter(|row| row.a == a);
        let cells = of_a.map(|row| {
            vec![
                row.b.clone(),
                metric_head(&row.metric),
                human_ratio(&row.comparison.ratio),
                words_and_pairs(row, report.seeds.len()),
            ]
        });
        let heads = ["B", "metric", "B / A", "verdict"];
        let aligns = [Align::Left, Align::Left, Align::Right, Align::Left];
        let columns = heads.into_iter().zip(aligns);
        Grid {
            caption: format!("A is {a}"),
            rows: cells.collect(),
            is_grouped: true,
            columns: columns
                .map(|(head, align)| Column {
                    head: head.to_owned(),
                    align,
                })
                .collect(),
        }
    };
    against.into_iter().map(grid).collect()
}

/// The verdict in a few words, as [`words`]. If fewer than all `seeds` have measured both designs,
/// the text says how many.
fn words_and_pairs(row: &VerdictRow, seeds: usize) -> String {
    let words = words(row);
    let pairs = row.pairs;
    if !(1..seeds).contains(&pairs) {
        return words;
    }
    match words.split_once(" (") {
        Some((verdict, is)) => format!("{verdict} on {pairs} of {seeds} seeds ({is}"),
        None => format!("{words} ({pairs} of {seeds})"),
    }
}

/// The verdict in a few words. If B is better or worse than A by this verdict, the words say so.
pub(crate) fn words(row: &VerdictRow) -> String {
    let lower_is = |better| {
        if row.metric.better == better {
            " (better)"
        } else {
            " (worse)"
        }
    };
    let judged = row.metric.better != Better::Neither;
    match row.comparison.verdict {
        Verdict::Lower if judged => format!("B is lower{}", lower_is(Better::Lower)),
        Verdict::Higher if judged => format!("B is higher{}", lower_is(Better::Higher)),
        Verdict::Lower => "B is lower".to_owned(),
        Verdict::Higher => "B is higher".to_owned(),
        Verdict::NoDifference => "no difference seen".to_owned(),
        Verdict::Equal => Verdict::Equal.words().to_owned(),
        Verdict::TooFewSeeds => "too few seeds".to_owned(),
    }
}

fn first_seen<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_narrow_page_gets_more_grids_and_every_grid_names_the_designs() {
        let rows = sample().rows;
        let counts = [200, 120, 80].map(|width| design_by_metric(&rows, width).len());
        assert_eq!(counts, [1, 2, 3]);
        for grid in design_by_metric(&rows, 10) {
            assert_eq!(grid.rows[1][0], "phased+shepherd-phased");
        }
    }

    #[test]
    fn a_table_says_which_rows_and_verdicts_have_fewer_seeds() {
        let mut report = sample();
        assert_eq!(fewer_seeds(&report), None);
        (report.rows[1].seeds, report.rows[4].seeds) = (7, 6);
        report.verdicts[0].pairs = 7;
        report.verdicts[2].pairs = 6;
        assert_eq!(
            fewer_seeds(&report).expect("two rows have fewer seeds"),
            "Measured on fewer than 8 seeds: total_wait_ns (7 with aligned, 6 with \
             phased+shepherd-phased)."
        );
        let grids = verdicts(&report);
        let words: Vec<&str> = grids[0].rows.iter().map(|row| &*row[3]).collect();
        assert_eq!(
            words,
            [
                "B is lower on 7 of 8 seeds (better)",
                "B is higher (worse)",
                "no difference seen (6 of 8)"
            ]
        );
    }

    #[test]
    fn seeds_print_as_a_range_where_they_are_one() {
        assert_eq!(seed_list(&[1, 2, 3]), "3 seeds (1–3)");
        assert_eq!(seed_list(&[3, 9]), "2 seeds (3, 9)");
        assert_eq!(
            (seed_list(&[4]), seed_list(&[])),
            ("seed 4".into(), "no seeds".into())
        );
    }
}
