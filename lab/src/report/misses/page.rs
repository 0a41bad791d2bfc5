//! The page `docs/misses.md`: every published figure, ours, and the cause of the difference.

use std::fmt::Write as _;

use super::stored::{self, Stored};
use super::{
    Agreement, Basis, Beside, Counts, EQUAL_PERCENT, FACTOR, NO_CHANGE, by_thread, our_text,
    published_text, ratio_text, without_effect_text,
};
use crate::error::Error;
use crate::report::value::human_ratio;
use crate::report::{Report, markdown};
use crate::report::{Table, tabulate};

/// Makes the page from `figures`, with the runs and the values of `stored` at its end.
#[must_use]
fn page(figures: &[Beside], stored: &[Stored]) -> String {
    let mut page = intro();
    page.push_str(&markdown::render_tables(&[summary(figures)]));
    for (thread, of) in by_thread(figures) {
        let _ = write!(page, "\n## {}\n\n{}.\n\n", thread.title(), thread.posted());
        page.push_str(&markdown::render_tables(&[table(&of)]));
        page.push_str(&notes(&of));
    }
    page.push_str("\n## The runs\n\n");
    page.push_str(&wrap(
        "",
        "Our figures are medians over the seeds of these reports. The last column says whether the \
         prices of the simulated machine have changed since the report was made. If they have, \
         `plimsoll reproduce` may give other figures.",
    ));
    page.push('\n');
    page.push_str(&markdown::render_tables(&[runs(stored)]));
    page.push('\n');
    page.push_str(&stored::text(stored));
    page
}

/// Makes the page from the reports of a full run.
///
/// # Errors
/// If a figure is missing, because the reports do not come from a full run of all experiments.
pub fn of_reports(declared: Vec<Beside>, reports: &[Report]) -> Result<String, Error> {
    let with_figures = reports.iter().filter(|report| !report.figures.is_empty());
    let stored: Vec<Stored> = with_figures.map(Stored::of).collect();
    let mut filled = declared.clone();
    stored::fill(&mut filled, &stored)?;
    if let Some(lacking) = filled.iter().find(|figure| is_not_run(figure)) {
        return Err(Error::Invalid(format!(
            "{:?} was not measured: {}",
            lacking.what,
            stored::AGAIN
        )));
    }
    of_stored(declared, &stored)
}

/// Returns the page `committed` with new values. The values in `reports` replace the page's values
/// of the same experiments and machines.
///
/// # Errors
/// If the values at the end of the page are missing or cannot be read.
pub fn updated(
    committed: &str,
    declared: Vec<Beside>,
    reports: &[Report],
) -> Result<String, Error> {
    let mut kept = Stored::read(committed)?;
    let with_figures = reports.iter().filter(|report| !report.figures.is_empty());
    for new in with_figures.map(Stored::of) {
        let of = |stored: &&mut Stored| {
            stored.experiment == new.experiment && stored.machine == new.machine
        };
        match kept.iter_mut().find(of) {
            Some(there) => *there = new,
            None => kept.push(new),
        }
    }
    let kept = stored::still_declared(kept, &declared);
    of_stored(declared, &kept)
}

/// Makes the page again from the values that are stored at its end. A figure that was declared
/// after these values were measured counts as not measured.
///
/// The page shows the runs in the order in which their figures are declared, so the page does not
/// depend on the order in which the experiments ran.
///
/// # Errors
/// If a stored value belongs to a figure that is not declared.
pub fn of_stored(mut declared: Vec<Beside>, stored: &[Stored]) -> Result<String, Error> {
    stored::fill(&mut declared, stored)?;
    let mut stored = stored.to_vec();
    stored.sort_by_key(|run| first_figure(&declared, run));
    Ok(page(&declared, &stored))
}

/// Returns the index of the first declared figure that `run` can measure.
fn first_figure(declared: &[Beside], run: &Stored) -> Option<usize> {
    declared.iter().position(|figure| {
        let place = figure.place.as_ref();
        place
            .is_some_and(|place| place.experiment == run.experiment && place.machine == run.machine)
    })
}

/// Returns whether an experiment measures the figure, but has not run since the figure was
/// declared.
const fn is_not_run(figure: &Beside) -> bool {
    figure.place.is_some() && figure.ours.is_none()
}

fn intro() -> String {
    let about = "This page lists every figure that the four mailing-list threads published, beside \
                 ours. `plimsoll reproduce --misses docs/misses.md` writes the page, and a test \
                 compares it with the figures that the experiments declare. So do not edit it: the \
                 texts are in the experiments' files, `lab/experiments/*.toml`.";
    let rule = format!(
        "**A match** is a figure whose ratio of the patch to Linux is within a factor of {FACTOR} of \
         the published ratio. If only one value was published, the value itself must be within that \
         factor. Every other measured figure is a **miss**. The column *ours / published* has our \
         value divided by the published value, for Linux and for the patch. If a figure matches by \
         its ratio, but such a quotient is beyond the factor, the verdict says *ratio alone*."
    );
    let same = format!(
        "There is one exception. A published change below {} % counts as no change, and nearly \
         every simulation shows no change. So such a figure matches only if our values are within \
         the factor too, and the 95 % interval of our change lies within ±{EQUAL_PERCENT} %, the \
         largest variation between runs that was published. If our values are within the factor \
         but the interval is wider, the figure is **open**; if the whole interval is beyond {} %, \
         the figure is a miss.",
        100.0 * NO_CHANGE,
        100.0 * NO_CHANGE,
    );
    let given = "Some matches prove nothing about the patch. In the tables, *fitted* is a figure \
                 from which one of our prices was derived, and *construction* is a figure that \
                 follows from how the patch is built. The column *no effect* has the verdict that \
                 the figure would have if the patch had no effect in our runs: our value with Linux \
                 then stands for our value with the patch too. If this column says *match*, the \
                 match of our figure says nothing about the patch, but may say something about the \
                 values. The summary counts the matches that are of none of these three kinds.";
    let once = "Two published figures may be compared with one measurement of ours, for example \
                the figures of two postings. The column *measurements of ours* counts such a \
                measurement once.";
    let parts = [about, &rule, &same, given, once].map(|text| wrap("", text));
    format!("# Published figures, and ours\n\n{}\n", parts.join("\n"))
}

fn summary(figures: &[Beside]) -> Table {
    let mut rows: Vec<(String, Counts)> = by_thread(figures)
        .map(|(thread, of)| (thread.title().to_owned(), Counts::of(&of)))
        .collect();
    rows.push(("all".to_owned(), Counts::of(figures)));
    tabulate!(
        "",
        "",
        &rows,
        |(thread, counts)| {
            "thread" => thread,
            "figures" => counts.all,
            "measurements of ours" => counts.ours,
            "match" => counts.matches,
            "of these fitted or by construction" => counts.given,
            "of these also with no effect" => counts.without_effect,
            "of these neither" => counts.telling,
            "of these by the ratio alone" => counts.off,
            "miss" => counts.misses,
            "open" => counts.open,
            "not measured" => counts.not_measured,
        }
    )
}

fn table(figures: &[&Beside]) -> Table {
    let rows: Vec<(usize, &Beside)> = (1..).zip(figures.iter().copied()).collect();
    tabulate!(
        "",
        "",
        &rows,
        |(number, figure)| {
            "no." => number,
            "figure" => figure.what,
            "published" => published_text(figure),
            "ratio" => ratio_text(figure.published_ratio()),
            "ours" => our_text(figure),
            "our ratio" => our_ratio(figure),
            "ours / published" => levels(figure),
            "no effect" => without_effect_text(figure),
            "verdict" => verdict(figure),
        }
    )
}

fn our_ratio(figure: &Beside) -> String {
    let ratio = figure.ours.as_ref().and_then(|ours| ours.ratio);
    ratio.map_or_else(|| ratio_text(None), |ratio| human_ratio(&ratio))
}

fn levels(figure: &Beside) -> String {
    let off = figure.levels_off();
    if off.is_empty() {
        return ratio_text(None);
    }
    let texts: Vec<String> = off.into_iter().map(|off| ratio_text(Some(off))).collect();
    texts.join(", ")
}

fn verdict(figure: &Beside) -> String {
    if is_not_run(figure) {
        return "not run yet".to_owned();
    }
    let agreement = figure.agreement();
    let mut remarks = Vec::new();
    if figure.basis != Basis::Independent {
        remarks.push(figure.basis.name());
    }
    if agreement == Agreement::Match && figure.is_level_off() {
        remarks.push("ratio alone");
    }
    if remarks.is_empty() {
        agreement.word().to_owned()
    } else {
        format!("{} ({})", agreement.word(), remarks.join(", "))
    }
}

/// Makes a paragraph for each figure. The paragraph says where the figure was published, which
/// experiment measures our figure, and why the two figures differ. Successive figures share a
/// paragraph if all three statements are the same.
fn notes(figures: &[&Beside]) -> String {
    let same = |one: &&Beside, next: &&Beside| {
        let run = |figure: &Beside| {
            let place = figure.place.as_ref();
            place.map(|place| {
                (
                    place.experiment.clone(),
                    place.machine.clone(),
                    place.designs.clone(),
                )
            })
        };
        one.why == next.why && one.source == next.source && run(one) == run(next)
    };
    let mut number = 1;
    let mut text = String::new();
    for group in figures.chunk_by(|one, next| same(one, next)) {
        let last = number + group.len() - 1;
        let range = match group.len() {
            1 => format!("{number}"),
            2 => format!("{number} and {last}"),
            _ => format!("{number} to {last}"),
        };
        number = last + 1;
        let published = match group.len() {
            1 => "figure is",
            _ => "figures are",
        };
        let note = format!(
            "**{range}.** The published {published} from {}. {} {}",
            group[0].source,
            row_of(group),
            group[0].why
        );
        let _ = write!(text, "\n{}", wrap("", &note));
    }
    text
}

fn row_of(group: &[&Beside]) -> String {
    let Some(place) = &group[0].place else {
        let these = match group.len() {
            1 => "this figure",
            _ => "these figures",
        };
        return format!("We did not measure {these}.");
    };
    let mut metrics: Vec<String> = group
        .iter()
        .filter_map(|figure| figure.place.as_ref())
        .map(|place| format!("`{}`", place.metric))
        .collect();
    metrics.dedup();
    let designs = match place.designs.as_slice() {
        [linux, patch] => format!("designs `{linux}` (Linux) and `{patch}` (patch)"),
        others => format!("design `{}`", others.join("`, `")),
    };
    format!(
        "We measure {} in the experiment `{}` on the machine `{}`, with the {designs}.",
        metrics.join(", "),
        place.experiment,
        place.machine,
    )
}

fn runs(stored: &[Stored]) -> Table {
    tabulate!(
        "",
        "",
        stored,
        |run| {
            "experiment" => run.experiment,
            "machine" => run.machine,
            "seeds" => run.seeds,
            "hash" => format!("`{}`", run.hash),
            "prices" => if run.has_prices_of_now() { "those of now" } else { "older ones" },
        }
    )
}

/// The width of a line of the documentation pages, in characters.
const WIDTH: usize = 120;

/// Breaks `text` into lines of the width of the documentation pages. Each line begins with
/// `indent`.
fn wrap(indent: &str, text: &str) -> String {
    let mut wrapped = String::new();
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        let fits = line.chars().count() + 1 + word.chars().count() <= WIDTH;
        if line.trim().is_empty() {
            line.push_str(word);
        } else if fits {
            line.push(' ');
            line.push_str(word);
        } else {
            wrapped.push_str(&line);
            wrapped.push('\n');
            line = format!("{indent}{word}");
        }
    }
    wrapped + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::Card;

    #[test]
    fn a_page_has_a_summary_a_table_and_a_cause_for_each_figure() {
        let mut report = Report::new("drain", "bergamo-176", Card::Mid, &[1, 2], 7);
        report.figures = sample();
        let mut stored = Stored::of(&report);
        // A change of the machine's prices (the times of simulated steps) must not change this
        // snapshot.
        "0".clone_into(&mut stored.prices);
        let page = page(&report.figures, &[stored]);
        insta::assert_snapshot!(page);
    }

    /// If a run has not measured a declared figure, `docs/misses.md` is not made from the run's
    /// reports. A figure that was declared after the run is not called a miss.
    #[test]
    fn a_figure_that_has_not_run_is_named_and_is_no_miss() {
        let mut report = Report::new("drain", "bergamo-176", Card::Mid, &[1, 2], 7);
        report.figures = sample();
        let declared = || {
            let mut declared = sample();
            declared.iter_mut().for_each(|figure| figure.ours = None);
            declared
        };
        of_reports(declared(), std::slice::from_ref(&report)).unwrap();
        report.figures.remove(1);
        let error = of_reports(declared(), std::slice::from_ref(&report)).unwrap_err();
        assert!(
            error.to_string().starts_with("\"two\" was not measured"),
            "{error}"
        );
        let page = of_stored(declared(), &[Stored::of(&report)]).unwrap();
        let mut lines = page.lines().filter(|line| line.starts_with('|'));
        let row = lines.find(|line| line.contains("| two "));
        let row = row.expect("each figure has a row");
        assert!(row.contains("not run yet"), "{row}");
    }

    /// One experiment ran on two machines. New values of one machine replace only the values of
    /// that machine.
    #[test]
    fn new_values_replace_those_of_their_machine() {
        let of = |machine: &'static str, seeds: &[u64]| {
            let mut report = Report::new("drain", machine, Card::Mid, seeds, 7);
            report.figures = sample();
            for figure in &mut report.figures {
                if let Some(place) = &mut figure.place {
                    place.machine = machine.into();
                }
            }
            report
        };
        let both = [of("bergamo-176", &[1, 2]), of("turin-316", &[1, 2])];
        let declared = || {
            let mut declared: Vec<Beside> = both.iter().flat_map(|of| of.figures.clone()).collect();
            declared.iter_mut().for_each(|figure| figure.ours = None);
            declared
        };
        let page = of_reports(declared(), &both).unwrap();
        let [first, second] = both.clone();
        let other_order = of_reports(declared(), &[second, first]).unwrap();
        assert_eq!(page, other_order, "the order of the runs does not matter");
        let again = [of("turin-316", &[1, 2, 3])];
        let page = updated(&page, declared(), &again).unwrap();
        let kept = Stored::read(&page).unwrap();
        let kept: Vec<_> = kept.iter().map(|of| (&*of.machine, of.seeds)).collect();
        assert_eq!(kept, [("bergamo-176", 2), ("turin-316", 3)]);
    }

    #[test]
    fn lines_fit_the_documentation() {
        let text = "word ".repeat(60);
        let wrapped = wrap("", &text);
        assert!(wrapped.lines().all(|line| line.chars().count() <= WIDTH));
        assert_eq!(wrapped.split_whitespace().count(), 60);
    }
}
