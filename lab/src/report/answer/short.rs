//! Counts the verdicts of a report: how often each design is better or worse than another.

use super::words::full;
use crate::report::layout::{Align, Column, Grid};
use crate::report::{Report, VerdictRow};

/// The heads of the columns, which are the words of the verdicts.
const WORDS: [&str; 7] = [
    "better",
    "worse",
    "lower",
    "higher",
    "no difference seen",
    "equal on every seed",
    "too few seeds",
];

/// Makes a grid with a row for each pair of designs. A row shows how many metrics have each
/// verdict. If no metric has a certain verdict, the grid has no column for this verdict. Returns
/// `None` if the report has no verdicts.
pub(crate) fn grid(report: &Report) -> Option<Grid> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for row in &report.verdicts {
        if !pairs.contains(&(&row.a, &row.b)) {
            pairs.push((&row.a, &row.b));
        }
    }
    let count = |pair: (&str, &str), word: &str| {
        let of = |row: &&VerdictRow| {
            (&*row.a, &*row.b) == pair && full(row.comparison.verdict, &row.metric) == word
        };
        report.verdicts.iter().filter(of).count()
    };
    let is_used = |word: &&str| pairs.iter().any(|pair| count(*pair, word) > 0);
    let words: Vec<&str> = WORDS.into_iter().filter(is_used).collect();
    let row = |(a, b): &(&str, &str)| {
        let counts = words.iter().map(|word| match count((a, b), word) {
            0 => String::new(),
            count => count.to_string(),
        });
        [format!("{b} against {a}")]
            .into_iter()
            .chain(counts)
            .collect()
    };
    let column = |head: &str, align| Column {
        head: head.to_owned(),
        align,
    };
    let counts = words.iter().map(|word| column(word, Align::Right));
    (!pairs.is_empty()).then(|| Grid {
        caption: String::new(),
        rows: pairs.iter().map(row).collect(),
        is_grouped: false,
        columns: [column("metrics by verdict", Align::Left)]
            .into_iter()
            .chain(counts)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::stats::Verdict;
    use crate::report::sample;

    #[test]
    fn every_verdict_is_counted_once() {
        let mut report = sample();
        let grid = grid(&report).expect("the sample has verdicts");
        let heads: Vec<&str> = grid.columns.iter().map(|column| &*column.head).collect();
        assert_eq!(
            heads,
            [
                "metrics by verdict",
                "better",
                "worse",
                "no difference seen"
            ]
        );
        assert_eq!(
            grid.rows,
            [["phased+shepherd-phased against aligned", "1", "1", "1"]]
        );
        report.verdicts.clear();
        assert!(super::grid(&report).is_none());
    }

    #[test]
    fn every_verdict_has_a_column() {
        let mut report = sample();
        for verdict in [
            Verdict::Lower,
            Verdict::Higher,
            Verdict::NoDifference,
            Verdict::Equal,
            Verdict::TooFewSeeds,
        ] {
            for row in &mut report.verdicts {
                row.comparison.verdict = verdict;
            }
            let grid = grid(&report).expect("the sample has verdicts");
            let counted = grid.rows[0].iter().skip(1);
            let counted = counted.map(|cell| cell.parse().unwrap_or(0));
            assert_eq!(counted.sum::<usize>(), report.verdicts.len(), "{verdict:?}");
        }
    }
}
