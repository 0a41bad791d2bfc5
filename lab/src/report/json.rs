//! One experiment as one JSON object on one line. Other programs read it, so keys are only ever
//! added.

use serde::Serialize;

use super::{Report, Row, Table, VerdictRow};
use crate::bench::{self, Found};
use crate::exact::{Judgement, Outcome};

/// The version of the format, incremented when a key changes its meaning.
const SCHEMA: u32 = 1;

/// Renders `report` without a newline. A number that is not finite becomes `null`.
///
/// # Panics
/// Never: no part of a report can fail to serialise.
#[must_use]
pub fn render(report: &Report) -> String {
    let object = Object {
        schema: SCHEMA,
        experiment: &report.experiment,
        machine: &report.machine,
        card: &report.card,
        seeds: &report.seeds,
        hash: format!("{:016x}", report.hash),
        rows: report.rows.iter().map(RowObject::of).collect(),
        verdicts: report.verdicts.iter().map(VerdictObject::of).collect(),
        tables: report.tables.iter().map(TableObject::of).collect(),
        finding: &report.finding,
    };
    serde_json::to_string(&object).expect("text and finite numbers always serialise")
}

/// Renders the results of the benchmark called `name`, without a newline.
///
/// # Panics
/// Never: as [`render`].
#[must_use]
pub fn render_bench(name: &str, found: &Found) -> String {
    let object = BenchObject {
        schema: SCHEMA,
        bench: name,
        rows: &found.rows,
        tables: found.tables.iter().map(TableObject::of).collect(),
    };
    serde_json::to_string(&object).expect("text and numbers always serialise")
}

/// Renders the outcome of an exact replay, without a newline.
///
/// # Panics
/// Never: as [`render`].
#[must_use]
pub fn render_exact(outcome: &Outcome) -> String {
    let object = ExactObject {
        schema: SCHEMA,
        exact: &outcome.title,
        subjects: outcome.judgements.iter().map(SubjectObject::of).collect(),
    };
    serde_json::to_string(&object).expect("text and numbers always serialise")
}

#[derive(Serialize)]
struct ExactObject<'a> {
    schema: u32,
    exact: &'a str,
    subjects: Vec<SubjectObject<'a>>,
}

#[derive(Serialize)]
struct SubjectObject<'a> {
    subject: &'a str,
    unit: &'a str,
    compared: u64,
    identical: u64,
    set_aside: u64,
    first_difference: &'a [String],
    tables: Vec<TableObject<'a>>,
    notes: &'a [String],
}

impl<'a> SubjectObject<'a> {
    fn of(judgement: &'a Judgement) -> Self {
        Self {
            subject: &judgement.subject,
            unit: judgement.unit,
            compared: judgement.compared,
            identical: judgement.identical,
            set_aside: judgement.set_aside,
            first_difference: &judgement.first_difference,
            tables: judgement.tables.iter().map(TableObject::of).collect(),
            notes: &judgement.notes,
        }
    }
}

#[derive(Serialize)]
struct BenchObject<'a> {
    schema: u32,
    bench: &'a str,
    rows: &'a [bench::Row],
    tables: Vec<TableObject<'a>>,
}

#[derive(Serialize)]
struct Object<'a> {
    schema: u32,
    experiment: &'a str,
    machine: &'a str,
    card: &'a str,
    seeds: &'a [u64],
    hash: String,
    rows: Vec<RowObject<'a>>,
    verdicts: Vec<VerdictObject<'a>>,
    tables: Vec<TableObject<'a>>,
    finding: &'a str,
}

#[derive(Serialize)]
struct RowObject<'a> {
    design: &'a str,
    metric: &'a str,
    unit: &'a str,
    median: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    published: Option<f64>,
}

impl<'a> RowObject<'a> {
    fn of(row: &'a Row) -> Self {
        Self {
            design: &row.design,
            metric: &row.metric.name,
            unit: row.metric.unit.symbol(),
            median: finite(row.estimate.median),
            low: finite(row.estimate.low),
            high: finite(row.estimate.high),
            published: row.published.and_then(finite),
        }
    }
}

#[derive(Serialize)]
struct VerdictObject<'a> {
    metric: &'a str,
    a: &'a str,
    b: &'a str,
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    verdict: &'a str,
}

impl<'a> VerdictObject<'a> {
    fn of(row: &'a VerdictRow) -> Self {
        let ratio = row.comparison.ratio;
        Self {
            metric: &row.metric.name,
            a: &row.a,
            b: &row.b,
            ratio: finite(ratio.median),
            low: finite(ratio.low),
            high: finite(ratio.high),
            verdict: row.comparison.verdict.words(),
        }
    }
}

#[derive(Serialize)]
struct TableObject<'a> {
    title: &'a str,
    note: &'a str,
    columns: &'a [String],
    rows: &'a [Vec<String>],
}

impl<'a> TableObject<'a> {
    fn of(table: &'a Table) -> Self {
        Self {
            title: &table.title,
            note: &table.note,
            columns: &table.columns,
            rows: &table.rows,
        }
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::report::sample;

    #[test]
    fn the_object_has_the_keys_that_other_programs_rely_on() {
        let object: Value = serde_json::from_str(&render(&sample())).unwrap();
        assert_eq!(object["schema"], 1);
        assert_eq!(object["hash"], "00123456789abcde");
        assert_eq!(object["seeds"], json!([1, 2, 3, 4, 5, 6, 7, 8]));
        let row = json!({
            "design": "aligned", "metric": "contentions", "unit": "1",
            "median": 872.0, "low": 784.8000000000001, "high": 959.2, "published": 872.0,
        });
        assert_eq!(object["rows"][0], row);
        assert_eq!(object["rows"][2]["published"], Value::Null);
        assert_eq!(object["verdicts"][0]["verdict"], "B is lower");
        assert_eq!(
            object["tables"][0]["columns"],
            json!(["caller", "max wait"])
        );
        assert!(
            object["finding"]
                .as_str()
                .is_some_and(|text| text.starts_with("Most of"))
        );
    }

    #[test]
    fn a_number_that_is_not_finite_is_null_and_all_is_one_line() {
        let text = render(&sample());
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["verdicts"][1]["ratio"], Value::Null);
        assert!(!text.contains('\n') && !text.contains("inf") && !text.contains("NaN"));
    }

    #[test]
    fn keys_come_in_the_documented_order() {
        insta::assert_snapshot!(render(&sample())[..180], @r#"
        {"schema":1,"experiment":"vmstat","machine":"grace-72","card":"mid","seeds":[1,2,3,4,5,6,7,8],"hash":"00123456789abcde","rows":[{"design":"aligned","metric":"contentions","unit":"1
        "#);
    }
}
