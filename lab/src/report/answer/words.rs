//! Puts verdicts into words. A sentence must not claim more than the verdicts on which it is based.

use super::{AnswerCell, AnswerRow, COLUMNS_MAX, Identical};
use crate::measure::metric::{Better, Metric};
use crate::measure::stats::{self, Verdict};

/// The name of a metric in words, such as `total wait` for `total_wait_ns`.
pub(crate) fn plain(metric: &Metric) -> String {
    plain_name(&metric.name)
}

/// The `name` of a metric in words, as in [`plain`].
pub(super) fn plain_name(name: &str) -> String {
    name.strip_suffix("_ns").unwrap_or(name).replace('_', " ")
}

/// One word for the verdict on `metric`. Empty if the runs show no difference, because one word
/// cannot say this.
pub(crate) const fn word(verdict: Verdict, metric: &Metric) -> &'static str {
    match (verdict, metric.better) {
        (Verdict::Lower, Better::Lower) | (Verdict::Higher, Better::Higher) => "better",
        (Verdict::Lower, Better::Higher) | (Verdict::Higher, Better::Lower) => "worse",
        (Verdict::Lower, Better::Neither) => "lower",
        (Verdict::Higher, Better::Neither) => "higher",
        (Verdict::Equal, _) => "equal",
        (Verdict::NoDifference | Verdict::TooFewSeeds, _) => "",
    }
}

/// The mark beside a verdict that rests on other seeds than the medians. A line below the table
/// explains the mark.
pub(crate) const APART: &str = "*";

/// The verdict on `metric` in full words.
pub(crate) const fn full(verdict: Verdict, metric: &Metric) -> &'static str {
    match verdict {
        Verdict::NoDifference => "no difference seen",
        Verdict::Equal => "equal on every seed",
        Verdict::TooFewSeeds => "too few seeds",
        Verdict::Lower | Verdict::Higher => word(verdict, metric),
    }
}

/// Joins `parts` to a list in a sentence, such as `a, b and c`.
pub(crate) fn list<T: AsRef<str>>(parts: &[T]) -> String {
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    match parts.split_last() {
        None => String::new(),
        Some((only, [])) => (*only).to_owned(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// The verdict `of` on `cell`, a cell of `row`, in full words, with its mark if it has one.
pub(crate) fn marked(row: &AnswerRow, cell: &AnswerCell, of: stats::Comparison) -> String {
    let mark = if row.is_apart(cell) { APART } else { "" };
    format!("{}{mark}", full(of.verdict, &row.metric))
}

/// The verdicts on all compared designs in `row`, in words, such as
/// `patch: better; ours: no difference seen`.
pub(crate) fn verdicts(sides: &[String], row: &AnswerRow) -> String {
    if row.is_all_zero() {
        return "0 in all".to_owned();
    }
    let found = row.compared();
    let found = found.map(|(nth, cell, of)| (nth, marked(row, cell, of)));
    let found: Vec<(usize, String)> = found.collect();
    match &found[..] {
        [(_, one), (_, other)] if one == other => format!("both {one}"),
        [(_, only)] => only.clone(),
        _ => {
            let each = found
                .iter()
                .map(|(nth, word)| format!("{}: {word}", sides[*nth]));
            each.collect::<Vec<_>>().join("; ")
        }
    }
}

/// The verdicts that a sentence about the rows of a table can state, in the order in which the
/// sentence states them.
const STATEMENTS: [Verdict; 5] = [
    Verdict::Lower,
    Verdict::Higher,
    Verdict::NoDifference,
    Verdict::Equal,
    Verdict::TooFewSeeds,
];

/// If the names of the designs in a sentence have more characters than this, the sentence has their
/// letters instead. This is the width of a mail.
const NAMES_MAX: usize = 72;

/// The text that stands for each design in a sentence: its name, or its head if the names are so
/// long that a reader would search for the verb.
fn said(designs: &[String], sides: &[String]) -> Vec<String> {
    // A sentence about more designs has only the name of A, and the heads of the others.
    let count = if designs.len() > COLUMNS_MAX {
        1
    } else {
        designs.len()
    };
    let named = designs.iter().take(count);
    if named.map(|name| name.chars().count()).sum::<usize>() > NAMES_MAX {
        return sides.to_vec();
    }
    designs.iter().map(|name| format!("`{name}`")).collect()
}

/// Makes a sentence about how other designs (B) change the metrics of `rows`, compared with A. A is
/// the first of `designs`. `sides` are the heads of the designs, such as A and B. `identical` has
/// the designs whose runs were identical to the runs of A.
pub(super) fn sentence(
    designs: &[String],
    sides: &[String],
    rows: &[AnswerRow],
    identical: &[Identical],
) -> String {
    match designs {
        [] => return String::new(),
        [only] => {
            return format!(
                "Only `{only}` ran, so there is nothing to compare: name another design."
            );
        }
        _ => {}
    }
    let said = said(designs, sides);
    let a = &said[0];
    if identical.len() + 1 == designs.len() {
        return format!("Nothing differs from {a}: all runs are identical on every seed.");
    }
    let mut compared = rows.iter().flat_map(AnswerRow::compared).peekable();
    let few =
        |(_, _, compared): (_, _, stats::Comparison)| compared.verdict == Verdict::TooFewSeeds;
    if compared.peek().is_some() && compared.all(few) {
        return format!("The seeds are too few to say what changes compared with {a}.");
    }
    let parts: Vec<String> = if designs.len() > COLUMNS_MAX {
        let of_metric = |row: &AnswerRow| by_metric(row, sides);
        rows.iter().filter_map(of_metric).collect()
    } else {
        let of_design = |nth: usize| {
            let b = &said[nth];
            if identical.iter().any(|of| of.b == designs[nth]) {
                return Some(format!("{b} runs identically on every seed"));
            }
            let clauses = STATEMENTS.into_iter();
            let clauses: Vec<String> = clauses
                .filter_map(|verdict| clause(nth, verdict, a, rows))
                .collect();
            (!clauses.is_empty()).then(|| format!("{b} {}", list(&clauses)))
        };
        (1..designs.len()).filter_map(of_design).collect()
    };
    if parts.is_empty() {
        return format!("The runs measured nothing by which {a} could be compared.");
    }
    format!("Compared with {a}, {}.", parts.join("; "))
}

/// Says, for each verdict, which compared designs have it on the metric of `row`. Returns `None` if
/// no design is compared. An example of the text:
/// `waits: lower (better) with B1 and B2, no difference seen with B3`.
fn by_metric(row: &AnswerRow, sides: &[String]) -> Option<String> {
    if row.is_all_zero() {
        return Some(format!("{}: 0 in all", row.what));
    }
    let with = |verdict: Verdict| {
        let of = row.compared().filter(|(.., of)| of.verdict == verdict);
        let of: Vec<&str> = of.map(|(nth, ..)| &*sides[nth]).collect();
        let is = match (verdict, word(verdict, &row.metric)) {
            (Verdict::Lower, word @ ("better" | "worse")) => format!("lower ({word})"),
            (Verdict::Higher, word @ ("better" | "worse")) => format!("higher ({word})"),
            _ => full(verdict, &row.metric).to_owned(),
        };
        (!of.is_empty()).then(|| format!("{is} with {}", list(&of)))
    };
    let with: Vec<String> = STATEMENTS.into_iter().filter_map(with).collect();
    (!with.is_empty()).then(|| format!("{}: {}", row.what, with.join(", ")))
}

/// Says how the design B at index `nth` changes the metrics of those rows in which this design has
/// the verdict `verdict`. `a` is the text that stands for design A. Returns `None` if there is no
/// such row.
fn clause(nth: usize, verdict: Verdict, a: &str, rows: &[AnswerRow]) -> Option<String> {
    let of = |row: &&AnswerRow| {
        let mut compared = row.compared();
        compared.any(|(at, _, compared)| at == nth && compared.verdict == verdict)
    };
    let (zero, other): (Vec<&AnswerRow>, Vec<&AnswerRow>) = rows
        .iter()
        .filter(of)
        .partition(|row| verdict == Verdict::Equal && row.is_all_zero());
    let names = |rows: &[&AnswerRow]| -> Vec<String> {
        let name = |row: &&AnswerRow| match word(verdict, &row.metric) {
            word @ ("better" | "worse") => format!("{} ({word})", row.what),
            _ => row.what.clone(),
        };
        rows.iter().map(name).collect()
    };
    let said = (!other.is_empty()).then(|| {
        let what = list(&names(&other));
        match verdict {
            Verdict::Lower => format!("lowers {what}"),
            Verdict::Higher => format!("raises {what}"),
            Verdict::NoDifference => format!("shows no difference in {what}"),
            Verdict::Equal => format!("equals {a} on every seed in {what}"),
            Verdict::TooFewSeeds => format!("has too few seeds for a verdict on {what}"),
        }
    });
    let none = (!zero.is_empty()).then(|| format!("has, like {a}, 0 {}", list(&names(&zero))));
    match (said, none) {
        (Some(said), Some(none)) => Some(format!("{said} and {none}")),
        (said, none) => said.or(none),
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::measure::metric::Unit;
    use crate::measure::stats::{Comparison, Estimate};

    fn row(name: &'static str, values: [f64; 2], verdict: Verdict) -> AnswerRow {
        let metric = if name == "rate" {
            Metric::higher(name, Unit::PerSecond)
        } else {
            Metric::lower(name, Unit::Count)
        };
        let cell = |design: &str, value, compared| {
            Some(AnswerCell {
                design: design.to_owned(),
                estimate: Estimate::exactly(value),
                seeds: 6,
                is_zero: value == 0.0,
                compared,
                pairs: 6,
            })
        };
        let compared = Comparison {
            ratio: Estimate::exactly(values[1] / values[0].max(1.0)),
            verdict,
        };
        AnswerRow {
            what: plain(&metric),
            metric,
            cells: vec![
                cell("linux", values[0], None),
                cell("ours", values[1], Some(compared)),
            ],
            published_ratio: None,
        }
    }

    fn said(rows: &[AnswerRow]) -> String {
        sentence(&names(&["linux", "ours"]), &names(&["A", "B"]), rows, &[])
    }

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_sentence_says_for_each_verdict_no_more_than_the_verdict() {
        let of = |verdict| said(&[row("waits", [2.0, 1.0], verdict)]);
        assert_eq!(
            of(Verdict::Lower),
            "Compared with `linux`, `ours` lowers waits (better)."
        );
        assert_eq!(
            of(Verdict::Higher),
            "Compared with `linux`, `ours` raises waits (worse)."
        );
        assert_eq!(
            of(Verdict::NoDifference),
            "Compared with `linux`, `ours` shows no difference in waits."
        );
        assert_eq!(
            of(Verdict::Equal),
            "Compared with `linux`, `ours` equals `linux` on every seed in waits."
        );
        assert_eq!(
            of(Verdict::TooFewSeeds),
            "The seeds are too few to say what changes compared with `linux`."
        );
        let zero = said(&[row("waits", [0.0, 0.0], Verdict::Equal)]);
        assert_eq!(
            zero,
            "Compared with `linux`, `ours` has, like `linux`, 0 waits."
        );
    }

    #[test]
    fn only_a_verdict_of_lower_or_higher_is_said_to_be_one() {
        let metric = Metric::lower("waits", Unit::Count);
        for verdict in STATEMENTS {
            let text = said(&[row("waits", [2.0, 1.0], verdict)]);
            let differs = matches!(verdict, Verdict::Lower | Verdict::Higher);
            let claims = ["better", "worse", "lowers", "raises"];
            let claims = |text: &str| claims.iter().any(|word| text.contains(word));
            assert_eq!(claims(&text), differs, "{text}");
            assert_eq!(claims(full(verdict, &metric)), differs, "{verdict:?}");
            assert_eq!(claims(word(verdict, &metric)), differs, "{verdict:?}");
        }
    }

    #[test]
    fn several_metrics_are_grouped_by_their_verdicts() {
        let text = said(&[
            row("waits", [9.0, 1.0], Verdict::Lower),
            row("total_wait_ns", [9.0, 1.0], Verdict::Lower),
            row("rate", [9.0, 9.1], Verdict::NoDifference),
            row("faults", [3.0, 3.0], Verdict::Equal),
            row("kicks", [0.0, 0.0], Verdict::Equal),
        ]);
        assert_eq!(
            text,
            "Compared with `linux`, `ours` lowers waits (better) and total wait (better), shows no \
             difference in rate and equals `linux` on every seed in faults and has, like `linux`, \
             0 kicks."
        );
        let higher = said(&[row("rate", [1.0, 2.0], Verdict::Higher)]);
        assert!(higher.ends_with("raises rate (better)."), "{higher}");
    }

    /// Values are not 0 on every seed only because both ends of their interval are 0.
    #[test]
    fn zero_is_said_only_of_values_that_are_zero_on_every_seed() {
        let mut rare = row("waits", [0.0, 0.0], Verdict::Equal);
        let b = rare.cells[1].as_mut().expect("B was measured");
        b.is_zero = false;
        let text = said(slice::from_ref(&rare));
        assert!(!text.contains('0'), "{text}");
        let sides = ["Linux", "ours"].map(str::to_owned);
        assert_eq!(verdicts(&sides, &rare), "equal on every seed");
        let mut missing = row("waits", [0.0, 0.0], Verdict::Equal);
        missing.cells[0] = None;
        assert!(!missing.is_all_zero(), "A was not measured");
    }

    #[test]
    fn a_sentence_has_letters_instead_of_long_names() {
        let long = "linux+phased+shepherd-phased+bounded-pages";
        let rows = [row("waits", [2.0, 1.0], Verdict::Lower)];
        let text = |designs: &[&str]| sentence(&names(designs), &names(&["A", "B"]), &rows, &[]);
        assert_eq!(
            text(&[long, "linux+stretched+shepherd-phased"]),
            "Compared with A, B lowers waits (better)."
        );
        assert_eq!(
            text(&[long, "linux"]),
            format!("Compared with `{long}`, `linux` lowers waits (better).")
        );
    }

    #[test]
    fn one_design_alone_is_compared_with_nothing() {
        let text = sentence(&names(&["linux"]), &names(&["A"]), &[], &[]);
        assert!(text.contains("nothing to compare"), "{text}");
    }

    fn identical(b: &str) -> Identical {
        Identical {
            a: "linux".to_owned(),
            b: b.to_owned(),
            why: "nothing depends on it".to_owned(),
        }
    }

    #[test]
    fn identical_runs_are_said_to_be_identical() {
        let row = row("waits", [2.0, 2.0], Verdict::Equal);
        let designs = names(&["linux", "ours"]);
        let sides = names(&["A", "B"]);
        let all = sentence(
            &designs,
            &sides,
            slice::from_ref(&row),
            &[identical("ours")],
        );
        assert_eq!(
            all,
            "Nothing differs from `linux`: all runs are identical on every seed."
        );
        let mut two = row;
        let mut lower = two.cells[1].clone();
        if let Some(cell) = &mut lower {
            cell.compared = cell.compared.map(|of| Comparison {
                verdict: Verdict::Lower,
                ..of
            });
        }
        two.cells.push(lower);
        let designs = names(&["linux", "tree", "ours"]);
        let sides = names(&["A", "B1", "B2"]);
        assert_eq!(
            sentence(&designs, &sides, &[two], &[identical("tree")]),
            "Compared with `linux`, `tree` runs identically on every seed; `ours` lowers waits \
             (better)."
        );
    }

    #[test]
    fn many_designs_are_grouped_by_metric_and_verdict() {
        let mut waits = row("waits", [2.0, 1.0], Verdict::Lower);
        for verdict in [Verdict::NoDifference, Verdict::Lower, Verdict::Higher] {
            let mut cell = waits.cells[1].clone();
            if let Some(cell) = &mut cell {
                cell.compared = cell.compared.map(|of| Comparison { verdict, ..of });
            }
            waits.cells.push(cell);
        }
        let designs = names(&["a", "b", "c", "d", "e"]);
        let sides = names(&["A", "B1", "B2", "B3", "B4"]);
        assert_eq!(
            sentence(&designs, &sides, &[waits], &[]),
            "Compared with `a`, waits: lower (better) with B1 and B3, higher (worse) with B4, no \
             difference seen with B2."
        );
    }

    #[test]
    fn a_cell_of_the_summary_has_the_verdict_of_each_side() {
        let sides = ["Linux", "ours"].map(str::to_owned);
        let text = |verdict| verdicts(&sides, &row("waits", [2.0, 1.0], verdict));
        assert_eq!(text(Verdict::Lower), "better");
        assert_eq!(text(Verdict::Equal), "equal on every seed");
        let zero = row("waits", [0.0, 0.0], Verdict::Equal);
        assert_eq!(verdicts(&sides, &zero), "0 in all");
        let mut apart = row("waits", [2.0, 1.0], Verdict::Lower);
        apart.cells[0].as_mut().expect("A was measured").seeds = 9;
        assert_eq!(verdicts(&sides, &apart), "better*");
    }
}
