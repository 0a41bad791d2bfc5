//! The rows of reports as comma-separated values (RFC 4180), with a line for each experiment,
//! machine, design and metric. CSV leaves out the other tables of a report, which are text for
//! people. The report as JSON has these tables.

use super::pick::Detail;
use super::visible::visible;
use super::{Report, Row, Table};

/// The names of the columns, as the first line of a file.
pub const HEAD: &str =
    "experiment,machine,card,seeds,design,metric,unit,median,low,high,published\n";

/// Renders the rows of `report` without the line of column names. If a number is not finite, or a
/// value was not published, its field is empty.
#[must_use]
pub fn render(report: &Report, detail: Detail<'_>) -> String {
    let shown = detail.of_report(report);
    shown.rows.iter().map(|row| line(report, row)).collect()
}

fn line(report: &Report, row: &Row) -> String {
    let number = |value: f64| {
        if value.is_finite() {
            value.to_string()
        } else {
            String::new()
        }
    };
    // A report that an older version of Plimsoll has kept has only the seeds of all rows.
    let seeds = match row.seeds {
        0 => report.seeds.len(),
        seeds => seeds,
    };
    let fields = [
        field(&report.experiment),
        field(&report.machine),
        field(&report.card),
        seeds.to_string(),
        field(&row.design),
        field(&row.metric.name),
        field(row.metric.unit.symbol()),
        number(row.estimate.median),
        number(row.estimate.low),
        number(row.estimate.high),
        row.published.map(number).unwrap_or_default(),
    ];
    fields.join(",") + "\n"
}

/// Renders tables that belong to no report, with a line for each cell. A line has the table's
/// title, the number of the row (the first is 1), the column's head, and the cell. So one file can
/// have tables with different columns.
#[must_use]
pub fn render_tables(tables: &[Table]) -> String {
    let of_table = |table: &Table| -> String {
        let rows = table.rows.iter().enumerate();
        let cells = rows.flat_map(|(nth, row)| {
            let cells = table.columns.iter().zip(row);
            cells.map(move |(column, cell)| (nth + 1, column, cell))
        });
        let lines = cells.map(|(nth, column, cell)| {
            let title = field(&table.title);
            format!("{title},{nth},{},{}\n", field(column), field(cell))
        });
        lines.collect()
    };
    let lines = tables.iter().map(of_table);
    ["table,row,column,cell\n".to_owned()]
        .into_iter()
        .chain(lines)
        .collect()
}

/// Puts a text in quotation marks if one of its characters would end the field. Control characters
/// become visible, because CSV is printed to terminals, too.
fn field(text: &str) -> String {
    let text = visible(text);
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn each_row_is_a_line_with_a_field_for_each_column() {
        let text = render(&sample(), Detail::Answer);
        let columns = HEAD.split(',').count();
        assert_eq!(text.lines().count(), sample().rows.len());
        assert!(text.lines().all(|line| line.split(',').count() == columns));
        assert_eq!(
            text.lines().next(),
            Some("vmstat,grace-72,mid,8,aligned,contentions,1,872,784.8000000000001,959.2,872")
        );
    }

    #[test]
    fn a_comma_in_a_name_and_a_number_that_is_none_keep_the_columns() {
        let mut report = sample();
        report.rows.truncate(1);
        report.rows[0].design = "ascending, \"1\" helper".to_owned();
        report.rows[0].estimate.high = f64::INFINITY;
        report.rows[0].published = None;
        let text = render(&report, Detail::Answer);
        assert!(
            text.contains(",\"ascending, \"\"1\"\" helper\",contentions,"),
            "{text}"
        );
        assert!(text.ends_with(",784.8000000000001,,\n"), "{text}");
    }

    #[test]
    fn a_line_has_the_number_of_seeds_that_measured_its_metric() {
        let mut report = sample();
        report.rows.truncate(2);
        (report.rows[0].seeds, report.rows[1].seeds) = (7, 0);
        let text = render(&report, Detail::Answer);
        let seeds = text
            .lines()
            .map(|line| line.split(',').nth(3).unwrap_or(""));
        assert_eq!(seeds.collect::<Vec<_>>(), ["7", "8"]);
    }

    #[test]
    fn tables_have_a_line_for_each_cell() {
        assert_eq!(
            render_tables(&sample().tables),
            "table,row,column,cell\n\
             The longest waits,1,caller,free_pcppages_bulk\n\
             The longest waits,1,max wait,35.76 ms\n\
             The longest waits,2,caller,rmqueue|bulk\n\
             The longest waits,2,max wait,4.19 ms\n"
        );
    }

    #[test]
    fn only_the_named_metrics_have_lines() {
        let names = ["pages_per_s".to_owned()];
        let text = render(&sample(), Detail::of(false, &names));
        assert_eq!(text.lines().count(), 2);
        assert!(
            text.lines().all(|line| line.contains(",pages_per_s,")),
            "{text}"
        );
    }
}
