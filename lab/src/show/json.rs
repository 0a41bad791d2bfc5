//! The tables of recordings as one JSON object on one line. Other programs read this object. So
//! keys can be added, but must never be removed or renamed.

use serde::Serialize;

use super::Shown;
use crate::report::figures::{Figures, Line};

/// The version of the JSON format. It increases when a key changes its meaning.
const SCHEMA: u32 = 1;

/// Renders every row of every table, without a newline. In each table, `measures` states the units
/// of the numbers.
///
/// # Panics
/// Never: every part of the object can be written as JSON.
#[must_use]
pub fn render(shown: &Shown) -> String {
    let object = Object {
        schema: SCHEMA,
        recordings: shown.figures.iter().map(RecordingObject::of).collect(),
    };
    serde_json::to_string(&object).expect("text and finite numbers always serialise")
}

#[derive(Serialize)]
struct Object<'a> {
    schema: u32,
    recordings: Vec<RecordingObject<'a>>,
}

#[derive(Serialize)]
struct RecordingObject<'a> {
    file: &'a str,
    summary: Vec<[&'a str; 2]>,
    tables: Vec<TableObject<'a>>,
}

#[derive(Serialize)]
struct TableObject<'a> {
    table: &'a str,
    title: &'a str,
    note: &'a str,
    keys: &'a [&'static str],
    measures: Vec<MeasureObject<'a>>,
    rows: Vec<RowObject<'a>>,
}

#[derive(Serialize)]
struct MeasureObject<'a> {
    name: &'a str,
    unit: &'a str,
}

#[derive(Serialize)]
struct RowObject<'a> {
    keys: &'a [String],
    values: &'a [Option<f64>],
}

impl<'a> RecordingObject<'a> {
    fn of(one: &'a super::OfRecording) -> Self {
        let filled = one
            .figures
            .iter()
            .filter(|figures| !figures.lines.is_empty());
        let rows = one.summary.rows.iter();
        Self {
            file: &one.file,
            summary: rows.map(|row| [row[0].as_str(), row[1].as_str()]).collect(),
            tables: filled.map(TableObject::of).collect(),
        }
    }
}

impl<'a> TableObject<'a> {
    fn of(figures: &'a Figures) -> Self {
        let measures = figures.measures.iter().map(|measure| MeasureObject {
            name: measure.name,
            unit: measure.unit.symbol(),
        });
        let row = |line: &'a Line| RowObject {
            keys: &line.keys,
            values: &line.values,
        };
        Self {
            table: figures.name,
            title: figures.title,
            note: &figures.note,
            keys: &figures.keys,
            measures: measures.collect(),
            rows: figures.lines.iter().map(row).collect(),
        }
    }
}
