//! The lines below the table of an answer: what the words beside the values leave open.

use super::words::{list, plain_name};
use super::{Answer, AnswerCell, AnswerRow};
use crate::measure::stats::{Comparison, SEEDS_MIN, Verdict};
use crate::report::value::human_ratio;

/// The lines below an answer's table. They state the verdicts that the cells do not show, and what
/// [`caveats`] says. `seeds` is the number of seeds of the report.
pub(crate) fn remarks(answer: &Answer, seeds: usize) -> Vec<String> {
    let each = |text: &dyn Fn(&AnswerRow) -> Option<String>| -> Vec<String> {
        answer.rows.iter().filter_map(text).collect()
    };
    let zero = each(&|row| row.is_all_zero().then(|| row.what.clone()));
    let unseen = each(&|row| {
        let is_unseen = |cell: &AnswerCell| {
            let verdict = cell.compared.map(|of| of.verdict);
            verdict == Some(Verdict::NoDifference)
        };
        with(row, &answer.names(row, is_unseen))
    });
    let mut remarks = Vec::new();
    remarks.extend(too_few(answer, seeds));
    remarks.extend(line("0 with every design", &zero, ", "));
    remarks.extend(line("No difference seen", &unseen, "; "));
    remarks.extend(not_whole(answer, seeds));
    remarks
}

/// A line of a `head` and `parts`. `None` if there are no parts.
fn line(head: &str, parts: &[String], between: &str) -> Option<String> {
    (!parts.is_empty()).then(|| format!("{head}: {}.", parts.join(between)))
}

/// The lines that say on which seeds the values and verdicts of an answer rest: whether the `seeds`
/// of the report are too few for a verdict, and which metrics were measured on fewer seeds than
/// these, or on none.
pub(crate) fn caveats(answer: &Answer, seeds: usize) -> Vec<String> {
    let too_few = too_few(answer, seeds).into_iter();
    too_few.chain(not_whole(answer, seeds)).collect()
}

/// The lines about metrics that were measured on fewer seeds than the `seeds` of the report, or on
/// none.
fn not_whole(answer: &Answer, seeds: usize) -> Vec<String> {
    let each = |text: &dyn Fn(&AnswerRow) -> Option<String>| -> Vec<String> {
        answer.rows.iter().filter_map(text).collect()
    };
    let nowhere = answer.unmeasured.iter();
    let nowhere: Vec<String> = nowhere.map(|name| plain_name(name)).collect();
    // If the sides of an answer have no list of designs, a metric can be meant for some sides only.
    let unmeasured = each(&|row| with(row, &answer.names_unmeasured(row)));
    let fewer = each(&|row| {
        let of = |(side, cell): (&String, &Option<AnswerCell>)| {
            let measured = cell.as_ref().map(|cell| cell.seeds)?;
            (0 < measured && measured < seeds).then(|| format!("{measured} with {side}"))
        };
        let of: Vec<String> = answer.sides.iter().zip(&row.cells).filter_map(of).collect();
        with(row, &of)
    });
    let nowhere = line("Not measured with any design", &nowhere, ", ");
    let unmeasured = line("Not measured", &unmeasured, "; ");
    let head = format!("Measured on fewer than {seeds} seeds");
    let fewer = line(&head, &fewer, "; ");
    let mut lines: Vec<String> = [nowhere, unmeasured, fewer].into_iter().flatten().collect();
    let head = "Verdicts with * are over the seeds that measured both designs, and not over all seeds \
                of the medians";
    lines.extend(line(head, &each(&|row| apart(answer, row)), "; "));
    lines.extend(each(&|row| unpaired(answer, row, seeds)));
    lines
}

impl Answer {
    /// The heads of those sides whose cell in `row` is one for which `is_meant` returns true.
    fn names(&self, row: &AnswerRow, is_meant: impl Fn(&AnswerCell) -> bool) -> Vec<String> {
        let cells = self.sides.iter().zip(&row.cells);
        let meant = cells.filter(|(_, cell)| cell.as_ref().is_some_and(&is_meant));
        meant.map(|(side, _)| side.clone()).collect()
    }

    /// The heads of those sides that should have measured the metric of `row`, but have not.
    fn names_unmeasured(&self, row: &AnswerRow) -> Vec<String> {
        let sides = self.sides.iter().zip(&row.cells).zip(&self.designs);
        let unmeasured = sides.filter(|((_, cell), _)| cell.is_none());
        unmeasured.map(|((side, _), _)| side.clone()).collect()
    }
}

/// The name of the metric of `row`, with `parts` in parentheses. `None` if there are no parts.
fn with(row: &AnswerRow, parts: &[String]) -> Option<String> {
    (!parts.is_empty()).then(|| format!("{} ({})", row.what, parts.join(", ")))
}

/// Returns whether a design has too few seeds for a verdict on a metric although all seeds have
/// measured the metric, so that more seeds give a verdict. Identical runs need none.
fn has_few(answer: &Answer, seeds: usize) -> bool {
    let mut compared = answer.rows.iter().flat_map(AnswerRow::compared);
    compared.any(|(_, cell, of)| {
        // A report of an older version has no number of pairs.
        let is_whole = cell.pairs == 0 || cell.pairs >= seeds;
        of.verdict == Verdict::TooFewSeeds && is_whole && !answer.is_identical(&cell.design)
    })
}

/// Says that the `seeds` of the report are too few for a verdict, if so.
fn too_few(answer: &Answer, seeds: usize) -> Option<String> {
    let said = match seeds {
        1 => "1 seed is".to_owned(),
        seeds => format!("{seeds} seeds are"),
    };
    let advice = format!("{said} too few for a verdict; `--seeds {SEEDS_MIN}` gives one.");
    has_few(answer, seeds).then_some(advice)
}

/// The verdicts on the metric of `row` that rest on other seeds than the medians, with the ratios of
/// these verdicts. `None` if there is no such verdict.
fn apart(answer: &Answer, row: &AnswerRow) -> Option<String> {
    let of = |(nth, cell, of): (usize, &AnswerCell, Comparison)| {
        row.is_apart(cell).then(|| {
            let (a, b) = (&answer.sides[0], &answer.sides[nth]);
            let ratio = human_ratio(&of.ratio);
            format!("{} seeds, {b} / {a} = {ratio}", cell.pairs)
        })
    };
    let verdicts: Vec<String> = row.compared().filter_map(of).collect();
    with(row, &verdicts)
}

/// Says which designs have no verdict on the metric of `row` because too few of the `seeds` have
/// measured both the first design and this design. Returns `None` if there is no such design.
fn unpaired(answer: &Answer, row: &AnswerRow, seeds: usize) -> Option<String> {
    let first = row.cells.first()?.as_ref()?;
    let of = |(side, cell): (&String, &Option<AnswerCell>)| {
        let cell = cell.as_ref()?;
        let is_apart = match cell.compared {
            None => first.seeds > 0,
            Some(of) => of.verdict == Verdict::TooFewSeeds && (1..seeds).contains(&cell.pairs),
        };
        let is_meant = is_apart && !answer.is_identical(&cell.design);
        is_meant.then(|| {
            format!(
                "{} measured both {} and {side}",
                cell.pairs, answer.sides[0]
            )
        })
    };
    let pairs = answer.sides.iter().zip(&row.cells).skip(1);
    let pairs: Vec<String> = pairs.filter_map(of).collect();
    (!pairs.is_empty()).then(|| {
        format!(
            "No verdict on {}: of {seeds} seeds, {}; a verdict needs {SEEDS_MIN}.",
            row.what,
            list(&pairs)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::Identical;
    use super::*;
    use crate::measure::metric::{Metric, Unit};
    use crate::measure::stats::Estimate;

    /// A row with two cells. Each cell has its value, and the number of seeds that measured it.
    fn row(what: &str, cells: [(f64, usize); 2], (verdict, pairs): (Verdict, usize)) -> AnswerRow {
        let cell = |nth: usize| {
            let (value, seeds) = cells[nth];
            let compared = Comparison {
                ratio: Estimate::exactly(1.0),
                verdict,
            };
            AnswerCell {
                design: ["linux", "tree"][nth].to_owned(),
                estimate: Estimate::exactly(value),
                seeds,
                is_zero: value == 0.0,
                compared: (nth > 0 && pairs > 0).then_some(compared),
                pairs: if nth > 0 { pairs } else { 0 },
            }
        };
        AnswerRow {
            what: what.to_owned(),
            metric: Metric::lower("waits", Unit::Count),
            cells: vec![Some(cell(0)), Some(cell(1))],
            published_ratio: None,
        }
    }

    fn answer(rows: Vec<AnswerRow>) -> Answer {
        Answer {
            sides: ["A", "B"].map(str::to_owned).to_vec(),
            designs: ["linux", "tree"].map(str::to_owned).to_vec(),
            rows,
            ..Answer::default()
        }
    }

    #[test]
    fn remarks_say_what_a_cell_leaves_open() {
        let few = row("waits", [(2.0, 2), (1.0, 2)], (Verdict::TooFewSeeds, 2));
        assert_eq!(
            remarks(&answer(vec![few]), 2),
            ["2 seeds are too few for a verdict; `--seeds 6` gives one."]
        );
        let rows = vec![
            row("kicks", [(0.0, 6), (0.0, 6)], (Verdict::Equal, 6)),
            row("rate", [(2.0, 6), (2.1, 6)], (Verdict::NoDifference, 6)),
            row("waits", [(2.0, 6), (1.0, 6)], (Verdict::Lower, 6)),
        ];
        assert_eq!(
            remarks(&answer(rows), 6),
            [
                "0 with every design: kicks.",
                "No difference seen: rate (B)."
            ]
        );
    }

    #[test]
    fn identical_runs_need_no_more_seeds() {
        let few = row("waits", [(2.0, 2), (2.0, 2)], (Verdict::TooFewSeeds, 2));
        let mut answer = answer(vec![few]);
        assert_eq!(remarks(&answer, 2).len(), 1);
        answer.identical = vec![Identical {
            a: "linux".to_owned(),
            b: "tree".to_owned(),
            why: "nothing depends on it".to_owned(),
        }];
        assert_eq!(remarks(&answer, 2), [""; 0]);
    }

    #[test]
    fn a_metric_that_no_design_measured_is_named() {
        let row = row("waits", [(2.0, 2), (1.0, 2)], (Verdict::TooFewSeeds, 2));
        let mut answer = answer(vec![row]);
        answer.unmeasured = ["task_time_mean_ns", "kills"].map(str::to_owned).to_vec();
        assert_eq!(
            remarks(&answer, 2),
            [
                "2 seeds are too few for a verdict; `--seeds 6` gives one.",
                "Not measured with any design: task time mean, kills."
            ]
        );
    }

    #[test]
    fn a_side_that_measured_nothing_is_named() {
        let mut row = row("task time", [(2.0, 6), (1.0, 6)], (Verdict::Lower, 6));
        row.cells[0] = None;
        let said = remarks(&answer(vec![row]), 6);
        assert_eq!(said, ["Not measured: task time (A)."]);
    }

    /// `--seeds 6` cannot be the advice if there are more seeds already.
    #[test]
    fn the_seeds_of_a_verdict_are_those_that_measured_both_designs() {
        let few = row(
            "task time",
            [(5.0, 3), (4.0, 12)],
            (Verdict::TooFewSeeds, 3),
        );
        assert_eq!(
            remarks(&answer(vec![few]), 12),
            [
                "Measured on fewer than 12 seeds: task time (3 with A).",
                "No verdict on task time: of 12 seeds, 3 measured both A and B; a verdict needs 6."
            ]
        );
        let apart = row("task time", [(5.0, 3), (4.0, 9)], (Verdict::TooFewSeeds, 0));
        let said = remarks(&answer(vec![apart]), 12);
        assert_eq!(
            said[1],
            "No verdict on task time: of 12 seeds, 0 measured both A and B; a verdict needs 6."
        );
        let enough = row("task time", [(5.0, 7), (4.0, 12)], (Verdict::Lower, 7));
        assert_eq!(
            remarks(&answer(vec![enough]), 12),
            [
                "Measured on fewer than 12 seeds: task time (7 with A).",
                "Verdicts with * are over the seeds that measured both designs, and not over all \
                 seeds of the medians: task time (7 seeds, B / A = 1.000 [1.000–1.000])."
            ]
        );
        let same = row("task time", [(5.0, 7), (4.0, 7)], (Verdict::Lower, 7));
        assert_eq!(
            remarks(&answer(vec![same]), 12),
            ["Measured on fewer than 12 seeds: task time (7 with A, 7 with B)."]
        );
    }
}
