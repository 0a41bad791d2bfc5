//! One report as HTML.

use super::text::{code, escape};
use crate::report::answer::remarks::remarks;
use crate::report::answer::text::published;
use crate::report::answer::words::{APART, word};
use crate::report::answer::{Answer, AnswerRow};
use crate::report::layout::{self, Align, Block, Grid};
use crate::report::value::{NOTHING, human, human_estimate};
use crate::report::{Report, Row, Table, misses};

/// Renders the report at index `nth`. If `several` is true, the page has several reports, and this
/// report ends with a link to all answers.
pub(super) fn article(nth: usize, report: &Report, several: bool) -> String {
    let Report { answer, .. } = report;
    let question = if answer.question.is_empty() {
        escape(&report.experiment)
    } else {
        code(&answer.question)
    };
    let mut html = format!(
        "<article class=\"report\" id=\"report-{nth}\">\n<p class=\"eyebrow\">{}</p>\n\
         <h2>{question}</h2>\n",
        escape(&layout::title(report))
    );
    html.push_str(&format!(
        "<p class=\"answer\">{}</p>\n",
        code(&answer.sentence)
    ));
    html.push_str(&answers(answer));
    let identical = answer.identical.iter().map(ToString::to_string);
    for remark in remarks(answer, report.seeds.len())
        .into_iter()
        .chain(identical)
    {
        html.push_str(&format!("<p class=\"remark\">{}</p>\n", code(&remark)));
    }
    // The finding (the conclusion of a report) begins with the sentence of the report's answer. Do
    // not show this sentence twice.
    let finding = report.finding.strip_prefix(&answer.sentence);
    let finding = finding.unwrap_or(&report.finding).trim();
    if !finding.is_empty() {
        html.push_str(&format!("<p class=\"finding\">{}</p>\n", code(finding)));
    }
    html.push_str(&format!(
        "<section id=\"charts-{nth}\" aria-label=\"Charts\"></section>\n"
    ));
    html.push_str("<h3>Tables</h3>\n");
    html.push_str(&folded_tables(report));
    if several {
        html.push_str("<p><a href=\"#main\">Back to all answers</a></p>\n");
    }
    html.push_str("</article>\n");
    html
}

/// Renders the table with which an experiment's answer begins. The table has a row for each metric
/// or, if there are many sides, a row for each side. The sides are the compared designs.
fn answers(answer: &Answer) -> String {
    if answer.rows.is_empty() {
        return String::new();
    }
    let sides = answer.named_sides();
    let head = |text: &String| format!("<th class=\"r\" scope=\"col\">{}</th>", escape(text));
    let name = |text: &String| format!("<th scope=\"row\">{}</th>", escape(text));
    let with_published = answer.rows.iter().any(|row| row.published_ratio.is_some());
    let mut heads = vec!["<th></th>".to_owned()];
    let mut rows = Vec::new();
    if answer.has_rows_of_sides() {
        heads.extend(answer.rows.iter().map(|row| head(&row.what)));
        for (nth, side) in sides.iter().enumerate() {
            let cells = answer.rows.iter().map(|row| cell(row, nth));
            rows.push([name(side)].into_iter().chain(cells).collect::<String>());
        }
    } else {
        heads.extend(sides.iter().map(head));
        heads.extend(with_published.then(|| head(&"published".to_owned())));
        for row in &answer.rows {
            let cells = (0..row.cells.len()).map(|nth| cell(row, nth));
            let published =
                with_published.then(|| format!("<td class=\"r\">{}</td>", published(row)));
            let cells = [name(&row.what)].into_iter().chain(cells).chain(published);
            rows.push(cells.collect::<String>());
        }
    }
    let rows: Vec<String> = rows.iter().map(|row| format!("<tr>{row}</tr>\n")).collect();
    wide(&format!(
        "<table class=\"answers\"><thead><tr>{}</tr></thead><tbody>\n{}</tbody></table>",
        heads.concat(),
        rows.concat()
    ))
}

/// Renders the cell with the value of the compared design at index `nth` for the metric of `row`.
fn cell(row: &AnswerRow, nth: usize) -> String {
    let Some(cell) = row.cells.get(nth).and_then(Option::as_ref) else {
        return format!("<td class=\"r\">{NOTHING}</td>");
    };
    let value = human(cell.estimate.median, row.metric.unit);
    let verdict = cell.compared.map(|compared| compared.verdict);
    let word = verdict.map_or("", |verdict| word(verdict, &row.metric));
    let word = if word.is_empty() {
        String::new()
    } else {
        let mark = if row.is_apart(cell) { APART } else { "" };
        format!("<span class=\"word {word}\">{word}{mark}</span>")
    };
    let design = escape(&cell.design);
    format!("<td class=\"r\" title=\"{design}\">{value}{word}</td>")
}

/// Renders all tables of a report. Each table is folded away under its title.
fn folded_tables(report: &Report) -> String {
    let mut html = String::new();
    if !report.rows.is_empty() {
        html.push_str(&folded("All metrics", &table(&metrics(report))));
    }
    let verdicts = layout::verdict_blocks(report);
    if !verdicts.is_empty() {
        html.push_str(&folded("All verdicts", &drawn(verdicts)));
    }
    if !report.figures.is_empty() {
        let figures = misses::table(&report.figures);
        html.push_str(&folded("Published figures, and ours", &table(&figures)));
    }
    if let Some(decided) = &report.decided {
        let lines = layout::decided(decided).into_iter();
        let lines: Vec<String> = lines
            .map(|line| format!("<p>{}</p>\n", code(&line)))
            .collect();
        html.push_str(&folded("Prices that decide the answer", &lines.concat()));
    }
    for of in &report.tables {
        let untitled = Table {
            title: String::new(),
            ..of.clone()
        };
        html.push_str(&folded(&code(&of.title), &table(&untitled)));
    }
    html
}

/// Makes a table with a row for each metric and a column for each design. There are more metrics
/// than designs, and a page has more room for rows than for columns.
fn metrics(report: &Report) -> Table {
    let mut designs: Vec<&str> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for row in &report.rows {
        for (name, names) in [
            (&*row.design, &mut designs),
            (&*row.metric.name, &mut names),
        ] {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let cell = |name: &str, design: &str| {
        let of = |row: &&Row| row.metric.name == name && row.design == design;
        report.rows.iter().find(of).map_or_else(
            || NOTHING.to_owned(),
            |row| {
                let unit = row.metric.unit;
                let value = human_estimate(&row.estimate, unit);
                row.published.map_or(value.clone(), |published| {
                    format!("{value}, published {}", human(published, unit))
                })
            },
        )
    };
    let row = |name: &&str| {
        let cells = designs.iter().map(|design| cell(name, design));
        std::iter::once((*name).to_owned()).chain(cells).collect()
    };
    let columns = std::iter::once("metric").chain(designs.iter().copied());
    Table {
        title: String::new(),
        note: "The median over the seeds, with its interval in brackets.".to_owned(),
        columns: columns.map(str::to_owned).collect(),
        rows: names.iter().map(row).collect(),
    }
}

/// Folds `content` away under `title`. It is hidden until the reader opens it.
pub(super) fn folded(title: &str, content: &str) -> String {
    format!("<details><summary>{title}</summary><div>{content}</div></details>\n")
}

/// Renders a table with its caption and its note.
pub(super) fn table(table: &Table) -> String {
    drawn(layout::tables(std::slice::from_ref(table)))
}

fn drawn(blocks: Vec<Block>) -> String {
    let draw = |block: Block| match block {
        Block::Text(text) => format!("<p class=\"note\">{}</p>\n", code(&text)),
        Block::Grid(grid) => wide(&draw_grid(&grid)),
    };
    blocks.into_iter().map(draw).collect()
}

/// Renders a table that is possibly wider than the page, so that it can be scrolled by itself.
fn wide(table: &str) -> String {
    format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"table\">{table}</div>\n"
    )
}

fn draw_grid(grid: &Grid) -> String {
    let class = |nth: usize| match grid.columns[nth].align {
        Align::Right => " class=\"r\"",
        Align::Left => "",
    };
    let mut html = "<table>".to_owned();
    if !grid.caption.is_empty() {
        html.push_str(&format!("<caption>{}</caption>", code(&grid.caption)));
    }
    html.push_str("<thead><tr>");
    for (nth, column) in grid.columns.iter().enumerate() {
        let head = code(&column.head).replace('\n', "<br>");
        html.push_str(&format!("<th scope=\"col\"{}>{head}</th>", class(nth)));
    }
    html.push_str("</tr></thead><tbody>\n");
    for row in &grid.drawn_rows() {
        html.push_str("<tr>");
        for (nth, cell) in row.iter().enumerate() {
            let cell = code(cell).replace('\n', "<br>");
            html.push_str(&format!("<td{}>{cell}</td>", class(nth)));
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody></table>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn an_answer_says_in_each_cell_what_is_better() {
        let html = answers(&sample().answer);
        assert!(
            html.contains("117<span class=\"word better\">better</span></td>"),
            "{html}"
        );
        assert!(html.contains("761 ns<span class=\"word worse\">worse</span></td>"));
        assert!(html.contains("<td class=\"r\">×0.134</td>"));
        assert_eq!(answers(&Answer::default()), "");
    }

    #[test]
    fn every_table_of_a_report_is_under_its_title() {
        let html = folded_tables(&sample());
        for title in ["All metrics", "All verdicts", "The longest waits"] {
            assert!(
                html.contains(&format!("<summary>{title}</summary>")),
                "{title}"
            );
        }
        assert_eq!(
            html.matches("<table").count(),
            html.matches("</table>").count()
        );
        assert!(html.contains("<td class=\"r\">35.76 ms</td>"));
    }
}
