//! The results of `bench page`, as tables and as numbers.

use super::timing::{ALONE, TOGETHER};
use super::{Cell, Column, Subject};
use crate::bench::{Row, table};
use crate::measure::stats::Estimate;
use crate::report::Table;
use crate::report::value::NOTHING;

/// The titles of the tables, each with the number of loads that the table shows.
const TABLES: [(&str, usize); 4] = [
    ("Frames that are allocated and soon freed, ns per pair", 3),
    ("65,536 frames, ns per frame", 4),
    ("Blocks of 512 frames, ns per block or pair", 3),
    ("Two threads, ns per pair of one thread, or per frame", 3),
];

const _: () = {
    let [alone, two] = [TABLES[0].1 + TABLES[1].1 + TABLES[2].1, TABLES[3].1];
    assert!(
        alone == ALONE.len() && two == TOGETHER.len(),
        "the tables show every load"
    );
};

/// Makes the tables of all loads (patterns of allocations and frees). `columns` has the measured
/// times of each load. If `columns` has no loads with two threads, the last table is left out.
pub(super) fn tables(subjects: &[Box<dyn Subject>], columns: &[Column]) -> Vec<Table> {
    let mut rest = columns;
    let mut tables = Vec::new();
    for (title, loads) in TABLES {
        if rest.is_empty() {
            break;
        }
        let (shown, further) = rest.split_at(loads);
        rest = further;
        let mut heads = vec!["allocator"];
        heads.extend(shown.iter().flat_map(|column| [column.load, "×"]));
        let row = |nth: usize| {
            let mut row = vec![subjects[nth].name()];
            for column in shown {
                let Cell { ns, ratio, .. } = &column.cells[nth];
                row.push(ns.map_or(NOTHING.to_owned(), |ns| format!("{:.1}", ns.median)));
                row.push(ratio.as_ref().map_or(NOTHING.to_owned(), shown_ratio));
            }
            row
        };
        let rows = (0..subjects.len()).map(row).collect();
        tables.push(table(title, &heads, rows));
    }
    tables
}

fn shown_ratio(ratio: &Estimate) -> String {
    let Estimate { median, low, high } = ratio;
    format!("{median:.2} {low:.2}–{high:.2}")
}

/// One row for each measured time of each subject (a measured allocator), for programs to read.
pub(super) fn rows(subjects: &[Box<dyn Subject>], columns: &[Column]) -> Vec<Row> {
    let of_column = |column: &Column| {
        let load = column.load;
        let row = |(subject, cell): (&dyn Subject, &Cell)| {
            let ns = cell.ns?;
            let end = |end: fn(&Estimate) -> f64| {
                let end = cell.ratio.as_ref().map(end);
                end.filter(|end| end.is_finite())
            };
            Some(Row {
                machine: "host".to_owned(),
                load: load.to_owned(),
                case: subject.name(),
                metric: "operation_ns",
                median: ns.median,
                low: ns.low,
                high: ns.high,
                ratio: end(|ratio| ratio.median),
                ratio_low: end(|ratio| ratio.low),
                ratio_high: end(|ratio| ratio.high),
                rounds: cell.rounds,
                disturbed: cell.disturbed,
            })
        };
        let subjects = subjects.iter().map(AsRef::as_ref);
        let rows = subjects.zip(&column.cells).filter_map(row);
        rows.collect::<Vec<_>>()
    };
    columns.iter().flat_map(of_column).collect()
}
