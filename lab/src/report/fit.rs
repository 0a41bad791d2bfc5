//! Makes grids narrow enough for a width: splits a grid by its columns, or turns its rows into
//! short lists.

use super::layout::{Column, GAP, Grid};

/// A grid in a form that fits a width: parts of the grid or, if no split makes the grid narrow
/// enough, lists instead of the grid.
pub(super) enum Fitted {
    /// The parts of a grid, each of which fits the width. If the whole grid fits, it is the only
    /// part.
    Grids(Vec<Grid>),
    /// The caption of the grid, and a list for each row. A list has each cell of the row with the
    /// head of the cell's column.
    Lists(String, Vec<Vec<(String, String)>>),
}

/// Splits `grid` until each part is at most `width` characters wide when its cells break between
/// words. Each part repeats the first columns, by whose cells a reader can tell the rows apart.
pub(super) fn fit(grid: Grid, width: usize) -> Fitted {
    let least: Vec<usize> = (0..grid.columns.len())
        .map(|nth| longest_word(&grid, nth))
        .collect();
    if together(&least) <= width {
        return Fitted::Grids(vec![grid]);
    }
    let keys = keys(&grid);
    let widest = least[keys..].iter().copied().max().unwrap_or(0);
    if keys == least.len() || together(&least[..keys]) + GAP + widest > width {
        return Fitted::Lists(grid.caption.clone(), lists(&grid));
    }
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut used = usize::MAX;
    for (nth, needs) in least.iter().enumerate().skip(keys) {
        if used.saturating_add(GAP + needs) > width {
            groups.push((0..keys).collect());
            used = together(&least[..keys]);
        }
        used += GAP + needs;
        groups
            .last_mut()
            .expect("the first column opened a group")
            .push(nth);
    }
    let of_group = |(nth, columns): (usize, &Vec<usize>)| Grid {
        caption: if nth == 0 {
            grid.caption.clone()
        } else {
            String::new()
        },
        columns: columns
            .iter()
            .map(|&nth| grid.columns[nth].clone())
            .collect(),
        rows: grid
            .rows
            .iter()
            .map(|row| columns.iter().map(|&nth| row[nth].clone()).collect())
            .collect(),
        is_grouped: grid.is_grouped,
    };
    Fitted::Grids(groups.iter().enumerate().map(of_group).collect())
}

/// The width that columns of `widths` take together, including the gaps between the columns.
pub(super) fn together(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// The smallest number of leading columns whose cells differ between any two rows. If some rows are
/// equal, this is the number of all columns.
fn keys(grid: &Grid) -> usize {
    let tell_apart = |keys: &usize| {
        let mut rows: Vec<&[String]> = grid.rows.iter().map(|row| &row[..*keys]).collect();
        rows.sort_unstable();
        rows.windows(2).all(|pair| pair[0] != pair[1])
    };
    let columns = grid.columns.len();
    (1..columns).find(tell_apart).unwrap_or(columns)
}

fn lists(grid: &Grid) -> Vec<Vec<(String, String)>> {
    let pair = |(column, cell): (&Column, &String)| (column.head.clone(), cell.clone());
    let rows = grid.rows.iter();
    rows.map(|row| grid.columns.iter().zip(row).map(pair).collect())
        .collect()
}

/// The length in characters of the longest word in a column or in the column's head.
pub(super) fn longest_word(grid: &Grid, nth: usize) -> usize {
    let cells = grid.rows.iter().filter_map(|row| row.get(nth));
    let texts = cells.chain(grid.columns.get(nth).map(|column| &column.head));
    let words = texts.flat_map(|text| text.split_whitespace());
    words.map(|word| word.chars().count()).max().unwrap_or(0)
}

/// The length in characters of the longest line in a column or in the column's head.
pub(super) fn longest_line(grid: &Grid, nth: usize) -> usize {
    let cells = grid.rows.iter().filter_map(|row| row.get(nth));
    let texts = cells.chain(grid.columns.get(nth).map(|column| &column.head));
    let lines = texts.flat_map(|text| text.lines());
    lines.map(|line| line.chars().count()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::layout::Align;

    fn grid(heads: &[&str], rows: &[&[&str]]) -> Grid {
        Grid {
            caption: "waits".to_owned(),
            columns: heads
                .iter()
                .map(|head| Column {
                    head: (*head).to_owned(),
                    align: Align::Left,
                })
                .collect(),
            rows: rows
                .iter()
                .map(|row| row.iter().map(|cell| (*cell).to_owned()).collect())
                .collect(),
            is_grouped: false,
        }
    }

    #[test]
    fn parts_repeat_the_columns_that_tell_rows_apart() {
        let rows: &[&[&str]] = &[
            &["one", "a", "11111111", "22222222", "3"],
            &["one", "b", "44444444", "55555555", "6"],
        ];
        let of = |width| fit(grid(&["tasks", "design", "x", "y", "z"], rows), width);
        let heads = |grid: &Grid| -> Vec<String> {
            grid.columns
                .iter()
                .map(|column| column.head.clone())
                .collect()
        };
        let Fitted::Grids(whole) = of(80) else {
            panic!("it fits");
        };
        assert_eq!(whole.len(), 1);
        let Fitted::Grids(parts) = of(30) else {
            panic!("it can be split");
        };
        let parts: Vec<_> = parts
            .iter()
            .map(|part| (part.caption.as_str(), heads(part)))
            .collect();
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            parts,
            [
                ("waits", named(&["tasks", "design", "x"])),
                ("", named(&["tasks", "design", "y", "z"])),
            ]
        );
    }

    #[test]
    fn a_column_that_is_too_wide_makes_lists() {
        let rows: &[&[&str]] = &[&["a", "0123456789"], &["b", "1"]];
        let Fitted::Lists(caption, lists) = fit(grid(&["design", "hash"], rows), 12) else {
            panic!("no split fits");
        };
        assert_eq!(caption, "waits");
        assert_eq!(lists[0][1], ("hash".to_owned(), "0123456789".to_owned()));
    }
}
