//! The measured values of runs as one flat table, for programs that analyse data. The table can be
//! written as Parquet, CSV, or lines of JSON. A row has one metric of one case (one design on one
//! seed).

mod parquet;
mod thrift;

use serde_json::{Map, Value, json};

use self::parquet::{Column, Values};
use super::head::{Head, Machine};
use super::inputs::word;
use super::journal::CaseLine;
use super::run::Kept;
use crate::error::Error;

/// The version of the table. It increases if a column is removed, renamed or changes its meaning.
pub const SCHEMA: u32 = 1;

/// The names of the columns that have text, in their order. The columns that have numbers follow
/// these columns.
const TEXTS: [&str; 15] = [
    "run",
    "started",
    "version",
    "commit",
    "command",
    "inputs",
    "experiment",
    "comparison",
    "about",
    "machine",
    "profile",
    "design",
    "hash",
    "metric",
    "unit",
];

/// The table of the samples of one or more runs, column by column.
#[derive(Debug, Default)]
pub struct Rows {
    texts: [Vec<String>; TEXTS.len()],
    better: Vec<String>,
    nth: Vec<u64>,
    seed: Vec<u64>,
    value: Vec<f64>,
}

impl Rows {
    /// Adds the samples of a run.
    ///
    /// # Errors
    /// If the cases of the run cannot be read.
    pub fn add(&mut self, run: &Kept) -> Result<(), Error> {
        self.add_cases(&run.head, &run.cases()?);
        Ok(())
    }

    pub(in crate::store) fn add_cases(&mut self, head: &Head, cases: &[CaseLine]) {
        let inputs = json!(head.inputs).to_string();
        let command = head.command_line();
        for case in cases {
            let title = &case.comparison.title;
            for measured in &case.metrics {
                let texts = [
                    &head.id,
                    &head.started,
                    &head.program.version,
                    &head.program.commit,
                    &command,
                    &inputs,
                    &case.comparison.experiment,
                    &title.what,
                    &title.about,
                    &title.machine,
                    profile(&head.machines, &title.machine),
                    &case.design,
                    &case.hash,
                    &measured.metric,
                    measured.unit.symbol(),
                ];
                for (column, text) in self.texts.iter_mut().zip(texts) {
                    column.push(text.to_owned());
                }
                self.better.push(word(&measured.better));
                self.nth.push(case.comparison.nth as u64);
                self.seed.push(case.seed);
                self.value.push(measured.value);
            }
        }
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.value.len()
    }

    /// Returns whether the table has no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.value.is_empty()
    }

    fn columns(&self) -> Vec<Column<'_>> {
        let texts = TEXTS.into_iter().zip(&self.texts);
        let texts = texts.chain([("better", &self.better)]);
        let texts = texts.map(|(name, values)| (name, Values::Text(values)));
        let numbers = [
            ("nth", Values::Count(&self.nth)),
            ("seed", Values::Count(&self.seed)),
            ("value", Values::Number(&self.value)),
        ];
        let all = texts.chain(numbers);
        all.map(|(name, values)| Column { name, values }).collect()
    }

    /// The table as a Parquet file. The metadata of the file has the version of the table as
    /// `plimsoll.schema`.
    ///
    /// # Panics
    /// If a page has more than 2 GiB. This would take texts of 20 kB in every row.
    #[must_use]
    pub fn parquet(&self) -> Vec<u8> {
        let schema = SCHEMA.to_string();
        parquet::file(&self.columns(), &[("plimsoll.schema", &schema)])
    }

    /// The rows as CSV, with the names of the columns in the first line.
    #[must_use]
    pub fn csv(&self) -> String {
        let columns = self.columns();
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        let mut text = names.join(",") + "\n";
        for row in 0..self.len() {
            let cells = columns.iter().map(|column| match column.values {
                Values::Text(values) => quoted(&values[row]),
                Values::Count(values) => values[row].to_string(),
                Values::Number(values) => values[row].to_string(),
            });
            text += &(cells.collect::<Vec<_>>().join(",") + "\n");
        }
        text
    }

    /// The rows as objects of JSON, one per line.
    #[must_use]
    pub fn json(&self) -> String {
        let columns = self.columns();
        let object = |row: usize| {
            let pairs = columns.iter().map(|column| {
                let value = match column.values {
                    Values::Text(values) => json!(values[row]),
                    Values::Count(values) => json!(values[row]),
                    Values::Number(values) if values[row].is_finite() => json!(values[row]),
                    Values::Number(values) => json!(values[row].to_string()),
                };
                (column.name.to_owned(), value)
            });
            Value::Object(pairs.collect::<Map<_, _>>()).to_string() + "\n"
        };
        (0..self.len()).map(object).collect()
    }
}

/// The hash of the profile (the description) of `machine`. Empty if the run has no such machine.
/// `machine` can be a variant of a machine in `machines`, such as one without disturbances.
fn profile<'a>(machines: &'a [Machine], machine: &str) -> &'a str {
    let is = |of: &&Machine| of.name == machine || of.name.split('+').next() == Some(machine);
    machines.iter().find(is).map_or("", |of| &of.profile)
}

/// A cell of CSV.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::metric::{Better, Unit};
    use crate::run::journal::{ComparisonKey, Title};
    use crate::store::Measured;
    use crate::store::head::{Inputs, Program};

    fn rows() -> Rows {
        let head = Head {
            schema: 1,
            id: "20261123-231500-ab12".to_owned(),
            command: vec!["compare".to_owned()],
            program: Program {
                version: "0.1.0".to_owned(),
                commit: "0123456789ab".to_owned(),
                build: "1".to_owned(),
            },
            started: "2026-11-23T23:15:00.123Z".to_owned(),
            machines: vec![Machine {
                name: "grace-72+no-jitter".to_owned(),
                profile: "00000000000000ff".to_owned(),
            }],
            inputs: Inputs::from([("card".to_owned(), "mid".to_owned())]),
        };
        let measured = |metric: &str, value| Measured {
            metric: metric.to_owned(),
            unit: Unit::Nanos,
            better: Better::Lower,
            value,
        };
        let case = CaseLine {
            comparison: ComparisonKey {
                experiment: "compare".to_owned(),
                title: Title {
                    what: "make-like".to_owned(),
                    machine: "grace-72".to_owned(),
                    about: "a \"small\", one".to_owned(),
                },
                nth: 0,
            },
            design: "ours".to_owned(),
            seed: u64::MAX,
            hash: "000000000000000a".to_owned(),
            metrics: vec![measured("wait_ns", 0.1), measured("hold_ns", f64::INFINITY)],
        };
        let mut rows = Rows::default();
        rows.add_cases(&head, &[case]);
        rows
    }

    /// If this test fails, the table has changed. In this case, raise [`SCHEMA`] unless a column
    /// was only added, and describe the change in `docs/results.md`.
    #[test]
    fn the_table_has_the_columns_of_this_schema() {
        assert_eq!(SCHEMA, 1);
        let csv = rows().csv();
        let (names, first) = csv.split_once('\n').unwrap();
        let (texts, numbers) = names.rsplit_once("better,").unwrap();
        assert_eq!(texts, TEXTS.join(",") + ",");
        assert_eq!(numbers, "nth,seed,value");
        assert_eq!(
            TEXTS.join(" "),
            "run started version commit command inputs experiment comparison about machine profile \
             design hash metric unit"
        );
        assert!(
            first.contains(r#","{""card"":""mid""}",compare,make-like,"a ""small"", one",grace"#)
        );
        assert!(
            csv.ends_with(",lower,0,18446744073709551615,inf\n"),
            "{csv}"
        );
    }

    #[test]
    fn json_has_the_same_columns_and_names_what_is_not_finite() {
        let rows = rows();
        let csv = rows.csv();
        let mut names: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
        names.sort_unstable();
        let objects: Vec<Map<String, Value>> = rows
            .json()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let mut keys: Vec<&String> = objects[0].keys().collect();
        keys.sort_unstable();
        assert_eq!(keys, names);
        assert_eq!(
            (&objects[0]["value"], &objects[1]["value"]),
            (&json!(0.1), &json!("inf"))
        );
        assert_eq!(objects[0]["seed"], json!(u64::MAX));
    }
}
