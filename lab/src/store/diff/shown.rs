//! Shows two runs of a store side by side, as tables.

use super::{Compared, Diff, DiffRow};
use crate::measure::metric::Metric;
use crate::report::value::{NOTHING, human_estimate, human_ratio};
use crate::report::{Table, VerdictRow, tabulate, words};
use crate::store::head::{Head, Inputs};

impl Diff {
    /// Makes a table of the two runs, a table of each comparison in which they differ, and a table
    /// of the comparisons that only one run has.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let mut tables = vec![self.runs()];
        let differing = self
            .comparisons
            .iter()
            .filter(|comparison| !comparison.identical);
        tables.extend(differing.map(of_comparison));
        if !self.only.is_empty() {
            tables.push(tabulate!("In one run only", "", &self.only, |only| {
                "run" => only.run,
                "comparison" => only.comparison,
                "what" => if only.what.is_empty() { "all of it" } else { &only.what },
            }));
        }
        tables
    }

    /// A sentence that says how many comparisons are equal in both runs.
    fn verdict(&self) -> String {
        let equal = self
            .comparisons
            .iter()
            .filter(|comparison| comparison.identical)
            .count();
        if self.identical {
            return "The runs are identical: each case has the same hash and the same values in \
                    both."
                .to_owned();
        }
        match (equal, self.comparisons.len()) {
            (0, 0) => "The runs have no comparison in common.".to_owned(),
            (0, _) => "No comparison is identical in both.".to_owned(),
            (equal, all) => format!(
                "{equal} of {all} comparisons are identical in both, hashes and values; the tables \
                 leave them out."
            ),
        }
    }

    fn runs(&self) -> Table {
        let (a, b) = (&self.a, &self.b);
        let machines = |of: &Head| {
            let of = of.machines.iter();
            let named = of.map(|of| format!("{} {}", of.name, of.profile));
            named.collect::<Vec<_>>().join(", ")
        };
        let version = |of: &Head| format!("{} of commit {}", of.program.version, of.program.commit);
        let mut rows = vec![
            ("id", a.id.clone(), b.id.clone()),
            ("command", a.command_line(), b.command_line()),
            ("version", version(a), version(b)),
        ];
        if a.machines != b.machines {
            rows.push(("machine, profile", machines(a), machines(b)));
        }
        let names = a
            .inputs
            .keys()
            .chain(b.inputs.keys().filter(|name| !a.inputs.contains_key(*name)));
        for name in names {
            let value = |of: &Inputs| of.get(name).map_or(NOTHING, String::as_str).to_owned();
            if value(&a.inputs) != value(&b.inputs) {
                rows.push((name, value(&a.inputs), value(&b.inputs)));
            }
        }
        tabulate!("", self.verdict(), &rows, |(what, a, b)| {
            "what" => what,
            "A" => a,
            "B" => b,
        })
    }
}

fn of_comparison(of: &Compared) -> Table {
    let title = if of.a.title.machine == of.b.title.machine {
        of.a.to_string()
    } else {
        format!("A: {}; B: {}", of.a, of.b)
    };
    tabulate!(title, pairing(&of.rows), &of.rows, |row| {
        "design" => row.design,
        "metric" => head(&row.metric),
        "A" => human_estimate(&row.a, row.metric.unit),
        "B" => human_estimate(&row.b, row.metric.unit),
        "B / A" => row.compared.map_or(NOTHING.to_owned(), |compared| human_ratio(&compared.ratio)),
        "verdict" => verdict(row),
    })
}

/// The name of a metric without the suffix `_ns`, because the values of times have their units.
fn head(metric: &Metric) -> &str {
    metric.name.strip_suffix("_ns").unwrap_or(&metric.name)
}

fn verdict(row: &DiffRow) -> String {
    let Some(comparison) = row.compared else {
        return "no seed in common".to_owned();
    };
    words(&VerdictRow {
        metric: row.metric.clone(),
        a: String::new(),
        b: String::new(),
        comparison,
        pairs: row.pairs,
    })
}

/// A sentence about the seeds of the medians, and about the seeds whose values are compared.
fn pairing(rows: &[DiffRow]) -> String {
    let pairs = rows.iter().map(|row| row.pairs);
    let both = match (pairs.clone().min(), pairs.max()) {
        (None, _) | (_, None) => return String::new(),
        (_, Some(0)) => {
            return "The runs have no seed in common, so their values cannot be paired.".to_owned();
        }
        (Some(least), Some(most)) if least == most => most.to_string(),
        (Some(least), Some(most)) => format!("{least} to {most}"),
    };
    format!(
        "A and B are medians over all seeds of a run, which may contradict B / A: ratios are of \
         values with the same seed, and both runs have {both} of the seeds."
    )
}
