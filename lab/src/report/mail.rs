//! A report as plain text for a mail, such as a cover letter: the question, the answer, the table,
//! how the experiment ran, and the limits of the result.

use super::answer::text;
use super::layout::decided;
use super::misses::{Agreement, Beside};
use super::paint::Paint;
use super::pick::Detail;
use super::value::ratio_of;
use super::wrap::hanging;
use super::{Report, Table, table};

/// The largest number of characters in a line.
pub const WIDTH: usize = 72;

/// The version of Plimsoll.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Renders `report` with a newline at the end: the answer of the report or, if the report has no
/// answer, all its tables. `command` is the command line that made the report.
#[must_use]
pub fn render(report: &Report, command: &str) -> String {
    if report.answer.rows.is_empty() {
        return table::render(report, WIDTH, Detail::Whole, Paint::Plain);
    }
    let answer = text::untitled(report, WIDTH);
    let run = section("How it was run", &how(report, command));
    let caveats = section("Caveats", &caveats(report));
    [answer, run, caveats]
        .map(|part| part.join("\n"))
        .join("\n\n")
        + "\n"
}

/// Renders tables without a report around them, with a newline at the end.
#[must_use]
pub fn render_tables(tables: &[Table]) -> String {
    table::render_tables(tables, WIDTH)
}

/// Makes one section of the e-mail: its heading, and its points as a list.
fn section(heading: &str, points: &[String]) -> Vec<String> {
    let points = points.iter().flat_map(|point| hanging("* ", point, WIDTH));
    [format!("{heading}:")].into_iter().chain(points).collect()
}

fn how(report: &Report, command: &str) -> Vec<String> {
    let machine = &report.machine;
    let machine = if report.is_simulated {
        format!(
            "Machine: {machine}, simulated, with the prices of card {}.",
            report.card
        )
    } else {
        format!("Machine: {machine}; times are real times.")
    };
    let hash = report.hash;
    vec![
        format!("Command: {command}"),
        format!("Designs: {}.", report.answer.legend()),
        machine,
        format!(
            "Runs: {}; hash {hash:016x}.",
            super::layout::seed_list(&report.seeds)
        ),
        format!("Version: plimsoll {VERSION}."),
    ]
}

fn caveats(report: &Report) -> Vec<String> {
    let mut caveats = Vec::new();
    if report.is_simulated {
        caveats.push(
            "All times are virtual: the machine is simulated, and each step of its CPUs has a \
             price."
                .to_owned(),
        );
    }
    caveats.push(
        "Figures are medians over the seeds. `better` and `worse` are said only if the whole 95 % \
         interval of the ratios agrees."
            .to_owned(),
    );
    let rows = &report.answer.rows;
    let has_published = rows.iter().any(|row| row.published_ratio.is_some());
    if has_published && !report.answer.has_rows_of_sides() {
        let sides = &report.answer.sides;
        caveats.push(format!(
            "`published` is what was published for {}, divided by what was published for {}.",
            sides[1], sides[0]
        ));
    }
    caveats.extend(report.decided.iter().flat_map(decided));
    let misses = report
        .figures
        .iter()
        .filter(|figure| figure.agreement() == Agreement::Miss);
    caveats.extend(misses.map(miss));
    caveats
}

/// Makes a sentence about a published figure that does not match ours.
fn miss(figure: &Beside) -> String {
    let ratios = figure.published_ratio().zip(figure.our_ratio());
    let ratios = ratios.map_or_else(String::new, |(published, ours)| {
        let [published, ours] = [published, ours].map(|ratio| ratio_of(1.0, ratio));
        format!(" (patch to Linux: published {published}, ours {ours})")
    });
    format!(
        "Ours does not match what was published: {}{ratios}.",
        figure.what
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::{misses, sample, wrap};

    #[test]
    fn a_mail_says_how_it_was_run_and_what_limits_it() {
        let mut report = sample();
        report.figures = misses::sample();
        let text = render(&report, "plimsoll reproduce vmstat --format mail");
        let text = text.replace(&format!("plimsoll {VERSION}."), "plimsoll VERSION.");
        insta::assert_snapshot!(text, @r"
        What do phases of the vmstat work gain?

        Compared with `aligned`, `phased+shepherd-phased` lowers contentions
        (better), raises total wait (worse) and shows no difference in pages per
        s.

                     A: aligned  B: phased+shepherd-phased  published
        -------------------------------------------------------------
        contentions         872                 117 better     ×0.134
        total wait    199.43 ms              761 ns worse           –
        pages per s  12,345,678          12,345,999                 –
        No difference seen: pages per s (B).

        How it was run:
        * Command: plimsoll reproduce vmstat --format mail
        * Designs: A is `aligned`; B is `phased+shepherd-phased`.
        * Machine: grace-72, simulated, with the prices of card mid.
        * Runs: 8 seeds (1–8); hash 00123456789abcde.
        * Version: plimsoll VERSION.

        Caveats:
        * All times are virtual: the machine is simulated, and each step of its
          CPUs has a price.
        * Figures are medians over the seeds. `better` and `worse` are said only
          if the whole 95 % interval of the ratios agrees.
        * `published` is what was published for B, divided by what was published
          for A.
        * Ours does not match what was published: one.
        * Ours does not match what was published: three (patch to Linux:
          published 0.500, ours 1.010).
        ");
    }

    #[test]
    fn a_mail_explains_published_only_if_its_table_has_this_column() {
        let mut report = crate::report::many_designs();
        report.answer.rows[0].published_ratio = Some(0.5);
        let text = render(&report, "plimsoll run five.toml --format mail");
        assert!(!text.contains("published"), "{text}");
    }

    #[test]
    fn real_times_are_not_called_virtual() {
        let mut report = sample();
        report.is_simulated = false;
        let text = render(&report, "plimsoll reproduce rss-memory");
        assert!(
            text.contains("real times") && !text.contains("virtual"),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn no_line_of_a_mail_is_longer_than_its_width(
            command in "[a-z]{1,20}( [a-z-]{1,20}){0,20}",
            note in "[a-z]{1,20}( [a-z]{1,20}){0,20}",
        ) {
            let mut report = sample();
            report.figures = misses::sample();
            report.decided = Some(crate::report::Decided {
                note: note.clone(),
                seeds: 6,
                headlines: Vec::new(),
            });
            let text = render(&report, &command);
            prop_assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
            let flat = wrap::wrap(&text, usize::MAX).join(" ");
            prop_assert!(flat.contains(&note), "{text}");
        }
    }
}
