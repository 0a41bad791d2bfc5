//! Tests that reports with any content fit into their width.

use proptest::prelude::*;

use super::answer::{Identical, of_designs};
use super::paint::Paint;
use super::pick::Detail;
use super::wrap::wrap;
use super::{Report, Table, csv, mail, markdown, sample, summary, table};
use crate::measure::stats::Verdict;

const VERDICTS: [Verdict; 5] = [
    Verdict::Lower,
    Verdict::Higher,
    Verdict::NoDifference,
    Verdict::Equal,
    Verdict::TooFewSeeds,
];

prop_compose! {
    /// Generates tables with short and long words. The longest words are as long as the name of a
    /// long function.
    fn any_table()(
        columns in 1..9_usize,
        rows in 0..6_usize,
    )(
        title in "[a-z]{1,9}( [a-z]{1,14}){0,16}",
        note in "[a-z]{1,9}( [a-z]{1,14}){0,30}",
        heads in prop::collection::vec("[a-z]{1,16}( [a-z]{1,9}){0,2}", columns),
        cells in prop::collection::vec(
            prop::collection::vec("([0-9]{1,9}|[a-z_]{1,44})( [a-z0-9]{1,12}){0,6}", columns),
            rows,
        ),
    ) -> Table {
        Table { title, note, columns: heads, rows: cells }
    }
}

prop_compose! {
    /// Generates reports: the sample with other designs, metrics, verdicts and tables.
    fn any_report()(
        designs in prop::array::uniform2("[a-z]{1,12}(\\+[a-z-]{1,18}){0,2}"),
        metrics in prop::array::uniform3("[a-z]{1,10}(_[a-z0-9]{1,8}){0,3}"),
        verdicts in prop::collection::vec(prop::sample::select(VERDICTS.to_vec()), 3),
        tables in prop::collection::vec(any_table(), 0..4),
    ) -> Report {
        let mut report = sample();
        for (nth, row) in report.rows.iter_mut().enumerate() {
            row.design.clone_from(&designs[nth / 3]);
            row.metric.name = metrics[nth % 3].clone().into();
        }
        for (nth, row) in report.verdicts.iter_mut().enumerate() {
            [row.a, row.b] = designs.clone();
            row.metric.name = metrics[nth].clone().into();
            row.comparison.verdict = verdicts[nth];
        }
        report.tables = tables;
        report
    }
}

prop_compose! {
    /// Generates reports as [`any_report`], but with names that are longer than a terminal, and that
    /// have control characters.
    fn report_of_hostile_names()(
        report in any_report(),
        names in prop::array::uniform4("[a-z+|\\-\x1b\x07\t\r\u{9b}\u{202e}]{1,260}"),
    ) -> Report {
        let mut report = report;
        let [a, b, metric, text] = names;
        let renamed = |old: &str| if old == "A" { a.clone() } else { b.clone() };
        for row in &mut report.rows {
            row.design = renamed(if row.design == report.verdicts[0].a { "A" } else { "B" });
        }
        for row in &mut report.verdicts {
            (row.a, row.b) = (a.clone(), b.clone());
        }
        let designs = [a, b];
        let metrics: Vec<String> = report.rows.iter().map(|row| row.metric.name.to_string()).collect();
        let metrics: Vec<&str> = metrics.iter().map(String::as_str).collect();
        let figures = (&report.rows[..], &report.verdicts[..]);
        let identical = vec![Identical { a: text.clone(), b: text.clone(), why: text.clone() }];
        report.answer = of_designs(text.clone(), &designs, &metrics, figures, identical);
        report.answer.unmeasured = vec![metric.clone()];
        for of in report.answer.rows.iter_mut().take(1) {
            of.what.clone_from(&metric);
        }
        report.experiment.clone_from(&text);
        report.machine.clone_from(&text);
        for table in &mut report.tables {
            for cell in table.rows.iter_mut().flatten().chain(&mut table.columns) {
                cell.push_str(&text);
            }
        }
        report
    }
}

/// Returns the first line of `text` that is longer than `width` characters.
fn too_long(text: &str, width: usize) -> Option<&str> {
    text.lines().find(|line| line.chars().count() > width)
}

proptest! {
    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_word_is_broken(
        report in any_report(),
        width in 80..161_usize,
    ) {
        for detail in [Detail::Answer, Detail::Whole] {
            let text = table::render(&report, width, detail, Paint::Plain);
            prop_assert_eq!(too_long(&text, width), None);
        }
        let text = table::render(&report, width, Detail::Whole, Paint::Plain);
        let shown: Vec<&str> = text.split_whitespace().collect();
        let cells = report.tables.iter().flat_map(|table| table.rows.iter().flatten());
        for word in cells.flat_map(|cell| cell.split_whitespace()) {
            prop_assert!(shown.contains(&word), "{} is lost or broken in\n{}", word, text);
        }
    }

    #[test]
    fn names_of_any_length_fit_and_their_control_characters_are_visible(
        report in report_of_hostile_names(),
        width in 60..161_usize,
    ) {
        let obeyed = |c: char| c != '\n' && c.is_control() || "\u{9b}\u{202e}".contains(c);
        for detail in [Detail::Answer, Detail::Whole] {
            let text = table::render(&report, width, detail, Paint::Plain);
            prop_assert_eq!(too_long(&text, width), None);
            prop_assert!(!text.contains(obeyed), "{:?}", text);
            prop_assert!(!markdown::render(&report, detail).contains(obeyed));
        }
        let text = mail::render(&report, "plimsoll compare");
        prop_assert_eq!(too_long(&text, mail::WIDTH), None);
        prop_assert!(!text.contains(obeyed), "{:?}", text);
        prop_assert!(!csv::render(&report, Detail::Answer).contains(obeyed));
        let summary = [summary::table(std::slice::from_ref(&report))];
        let text = table::render_tables(&summary, width);
        prop_assert_eq!(too_long(&text, width), None);
        prop_assert!(!text.contains(obeyed), "{:?}", text);
    }

    #[test]
    fn a_mail_and_the_table_of_all_answers_fit_their_widths(reports in
        prop::collection::vec(any_report(), 1..4)
    ) {
        for report in &reports {
            let text = mail::render(report, "plimsoll reproduce vmstat --format mail");
            prop_assert_eq!(too_long(&text, mail::WIDTH), None);
        }
        let summary = [summary::table(&reports)];
        for width in [mail::WIDTH, 80, 110] {
            let text = table::render_tables(&summary, width);
            prop_assert_eq!(too_long(&text, width), None);
        }
    }

    #[test]
    fn a_table_alone_fits_a_mail(table in any_table()) {
        let text = mail::render_tables(std::slice::from_ref(&table));
        prop_assert_eq!(too_long(&text, mail::WIDTH), None);
        let flat = wrap(&text, usize::MAX).join(" ");
        prop_assert!(flat.contains(&table.note));
    }
}
