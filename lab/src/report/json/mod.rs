//! One experiment as one JSON object on one line. Other programs read these objects. So keys can be
//! added, but must never be removed or renamed.

mod answer;

use std::borrow::Cow;

use serde::Serialize;

use self::answer::AnswerObject;
use super::misses::{Beside, Values};
use super::{Decided, DecidedHeadline, DecidingPrice, Report, Row, Table, VerdictRow};
use crate::bench::{self, Found};
use crate::exact::{Judgement, Outcome};

/// The version of the format of all objects except reports.
const SCHEMA: u32 = 1;
/// The version of the format of reports. Version 2 added `answer`. Version 3 added `seeds`, `is_zero`
/// and `pairs` to the values and the verdicts, and `unmeasured` to the answer.
const SCHEMA_OF_REPORTS: u32 = 3;

/// Renders `report` without a newline. A number that is not finite becomes `null`.
///
/// # Panics
/// Never: every part of a report can be written as JSON.
#[must_use]
pub fn render(report: &Report) -> String {
    let object = Object {
        schema: SCHEMA_OF_REPORTS,
        experiment: &report.experiment,
        machine: &report.machine,
        card: &report.card,
        seeds: &report.seeds,
        hash: format!("{:016x}", report.hash),
        answer: AnswerObject::of(&report.answer),
        rows: report.rows.iter().map(RowObject::of).collect(),
        verdicts: report.verdicts.iter().map(VerdictObject::of).collect(),
        tables: report.tables.iter().map(TableObject::of).collect(),
        finding: &report.finding,
        figures: report.figures.iter().map(FigureObject::of).collect(),
        decided: report.decided.as_ref().map(DecidedObject::of),
    };
    serde_json::to_string(&object).expect("text and finite numbers always serialise")
}

/// Renders the results of the benchmark called `name`, without a newline.
///
/// # Panics
/// Never, as in [`render`].
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

/// Renders tables that belong to no report, without a newline. `name` names the set of tables.
///
/// # Panics
/// Never, as in [`render`].
#[must_use]
pub fn render_tables(name: &str, tables: &[Table]) -> String {
    let object = TablesObject {
        schema: SCHEMA,
        name,
        tables: tables.iter().map(TableObject::of).collect(),
    };
    serde_json::to_string(&object).expect("text always serialises")
}

/// Renders the outcome of an exact replay (the comparison of Plimsoll's decisions with a recorded
/// kernel's), without a newline.
///
/// # Panics
/// Never, as in [`render`].
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
struct TablesObject<'a> {
    schema: u32,
    name: &'a str,
    tables: Vec<TableObject<'a>>,
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
    answer: AnswerObject<'a>,
    rows: Vec<RowObject<'a>>,
    verdicts: Vec<VerdictObject<'a>>,
    tables: Vec<TableObject<'a>>,
    finding: &'a str,
    figures: Vec<FigureObject<'a>>,
    decided: Option<DecidedObject<'a>>,
}

/// A published figure beside ours. `published` and `ours` have a value for each of `designs`. If
/// only a change was published, `published` is empty.
#[derive(Serialize)]
struct FigureObject<'a> {
    thread: &'a str,
    posted: &'a str,
    source: &'a str,
    what: &'a str,
    metric: &'a str,
    unit: &'a str,
    designs: &'a [Cow<'static, str>],
    published: &'a [f64],
    ours: Option<&'a [f64]>,
    published_ratio: Option<f64>,
    our_ratio: Option<f64>,
    basis: &'a str,
    verdict: &'a str,
    why: &'a str,
}

impl<'a> FigureObject<'a> {
    fn of(figure: &'a Beside) -> Self {
        let place = figure.place.as_ref();
        Self {
            thread: figure.thread.name(),
            posted: figure.thread.posted(),
            source: &figure.source,
            what: &figure.what,
            metric: place.map_or("", |place| &place.metric),
            unit: figure.unit.symbol(),
            designs: place.map_or(&[], |place| &place.designs),
            published: match &figure.published {
                Values::Levels(levels) => levels,
                Values::ChangePercent(_) => &[],
            },
            ours: figure.ours.as_ref().map(|ours| &*ours.values),
            published_ratio: figure.published_ratio().and_then(finite),
            our_ratio: figure.our_ratio().and_then(finite),
            basis: figure.basis.name(),
            verdict: figure.agreement().word(),
            why: &figure.why,
        }
    }
}

#[derive(Serialize)]
struct DecidedObject<'a> {
    note: &'a str,
    headlines: Vec<DecidedHeadlineObject<'a>>,
}

#[derive(Serialize)]
struct DecidedHeadlineObject<'a> {
    a: &'a str,
    b: &'a str,
    metric: &'a str,
    prices: Vec<DecidingPriceObject<'a>>,
    within_noise: usize,
}

#[derive(Serialize)]
struct DecidingPriceObject<'a> {
    key: &'a str,
    fitted: bool,
    effect: &'a str,
}

impl<'a> DecidedObject<'a> {
    fn of(decided: &'a Decided) -> Self {
        let price = |price: &'a DecidingPrice| DecidingPriceObject {
            key: &price.key,
            fitted: price.fitted,
            effect: &price.effect,
        };
        let headline = |headline: &'a DecidedHeadline| DecidedHeadlineObject {
            a: &headline.a,
            b: &headline.b,
            metric: &headline.metric,
            prices: headline.prices.iter().map(price).collect(),
            within_noise: headline.within_noise,
        };
        Self {
            note: &decided.note,
            headlines: decided.headlines.iter().map(headline).collect(),
        }
    }
}

#[derive(Serialize)]
struct RowObject<'a> {
    design: &'a str,
    metric: &'a str,
    unit: &'a str,
    median: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    seeds: Option<usize>,
    is_zero: Option<bool>,
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
            seeds: (row.seeds > 0).then_some(row.seeds),
            is_zero: (row.seeds > 0).then_some(row.is_zero),
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
    pairs: Option<usize>,
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
            pairs: (row.pairs > 0).then_some(row.pairs),
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
    use crate::report::paint::Paint;
    use crate::report::pick::Detail;
    use crate::report::{sample, table};

    fn whole(report: &Report) -> String {
        table::render(report, 120, Detail::Whole, Paint::Plain)
    }

    #[test]
    fn the_object_has_the_keys_that_other_programs_rely_on() {
        let object: Value = serde_json::from_str(&render(&sample())).unwrap();
        assert_eq!(object["schema"], 3);
        assert_eq!(object["hash"], "00123456789abcde");
        let answer = &object["answer"];
        assert_eq!(answer["sides"], json!(["A", "B"]));
        let row = &answer["rows"][0];
        assert_eq!(row["metric"], "contentions");
        assert_eq!(row["published_ratio"], json!(117.0 / 872.0));
        assert_eq!(row["cells"][0]["verdict"], Value::Null);
        assert_eq!(row["cells"][1]["design"], "phased+shepherd-phased");
        assert_eq!(row["cells"][1]["verdict"], "B is lower");
        assert_eq!(object["seeds"], json!([1, 2, 3, 4, 5, 6, 7, 8]));
        let row = json!({
            "design": "aligned", "metric": "contentions", "unit": "1",
            "median": 872.0, "low": 784.8000000000001, "high": 959.2, "seeds": 8, "is_zero": false,
            "published": 872.0,
        });
        assert_eq!(object["rows"][0], row);
        assert_eq!(object["rows"][2]["published"], Value::Null);
        assert_eq!(object["verdicts"][0]["verdict"], "B is lower");
        assert_eq!(object["verdicts"][0]["pairs"], 8);
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
        assert_eq!(
            object["answer"]["rows"][1]["cells"][1]["ratio"],
            Value::Null
        );
        assert!(!text.contains('\n') && !text.contains("inf") && !text.contains("NaN"));
    }

    #[test]
    fn the_object_has_the_numbers_of_seeds_and_null_if_they_are_not_known() {
        let mut report = sample();
        report.answer.unmeasured = vec!["task_time_mean_ns".to_owned()];
        let cells = |report: &Report| {
            let object: Value = serde_json::from_str(&render(report)).unwrap();
            let cells = &object["answer"]["rows"][0]["cells"];
            let numbers =
                |of: &Value| [&of["seeds"], &of["is_zero"], &of["pairs"]].map(Value::clone);
            let unmeasured = object["answer"]["unmeasured"].clone();
            ([0, 1].map(|nth| numbers(&cells[nth])), object, unmeasured)
        };
        let (numbers, _, unmeasured) = cells(&report);
        assert_eq!(
            numbers.map(|of| json!(of)),
            [json!([8, false, null]), json!([8, false, 8])]
        );
        assert_eq!(unmeasured, json!(["task_time_mean_ns"]));
        report.rows[0].seeds = 0;
        report.verdicts[0].pairs = 0;
        for cell in report.answer.rows[0].cells.iter_mut().flatten() {
            (cell.seeds, cell.pairs) = (0, 0);
        }
        let (numbers, object, _) = cells(&report);
        assert_eq!(
            numbers.map(|of| json!(of)),
            [json!([null, null, null]), json!([null, null, null])]
        );
        let row = &object["rows"][0];
        assert_eq!(
            (&row["seeds"], &row["is_zero"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(object["verdicts"][0]["pairs"], Value::Null);
    }

    #[test]
    fn published_figures_and_deciding_prices_are_part_of_the_object() {
        let mut report = sample();
        report.figures = crate::report::misses::sample();
        let price = DecidingPrice {
            key: "work.scan_cpu".to_owned(),
            fitted: true,
            effect: "halved: ratio 0.100".to_owned(),
        };
        report.decided = Some(Decided {
            note: String::new(),
            seeds: 6,
            headlines: vec![DecidedHeadline {
                a: "linux".to_owned(),
                b: "patch".to_owned(),
                metric: "waits".to_owned(),
                prices: vec![price],
                within_noise: 2,
            }],
        });
        let object: Value = serde_json::from_str(&render(&report)).unwrap();
        let figure = &object["figures"][1];
        assert_eq!(figure["published"], json!([872.0, 117.0]));
        assert_eq!(figure["ours"], json!([2546.0, 338.0]));
        assert_eq!(
            (&figure["verdict"], &figure["thread"]),
            (&json!("match"), &json!("stagger"))
        );
        assert_eq!(object["figures"][4]["ours"], Value::Null);
        assert_eq!(object["figures"][3]["our_ratio"], json!(0.9));
        let price = &object["decided"]["headlines"][0]["prices"][0];
        assert_eq!(
            (&price["key"], &price["fitted"]),
            (&json!("work.scan_cpu"), &json!(true))
        );
        let text = whole(&report);
        let line =
            "waits, patch over linux: decided by work.scan_cpu (halved: ratio 0.100, fitted). 2 ";
        assert!(text.contains(line), "{text}");
        assert!(text.trim_end().ends_with("noise of 6 seeds."), "{text}");
        report.decided.as_mut().unwrap().headlines[0].prices.clear();
        let text = whole(&report);
        assert!(text.contains("no single price decides. 2 "), "{text}");
        report.decided.as_mut().unwrap().headlines[0].within_noise = 0;
        let text = whole(&report);
        assert!(text.contains("no price flips the verdict"), "{text}");
    }

    #[test]
    fn keys_come_in_the_documented_order() {
        insta::assert_snapshot!(render(&sample())[..180], @r#"
        {"schema":3,"experiment":"vmstat","machine":"grace-72","card":"mid","seeds":[1,2,3,4,5,6,7,8],"hash":"00123456789abcde","answer":{"question":"What do phases of the vmstat work gain
        "#);
    }
}
