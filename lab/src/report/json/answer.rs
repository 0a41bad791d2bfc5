//! The answer of a report as a JSON object.

use serde::Serialize;

use super::finite;
use crate::report::answer::{Answer, AnswerCell, AnswerRow, Identical};

/// The answer. `cells` has an element for each of `sides` (the heads of the columns). The element
/// is `null` if the side has no design.
#[derive(Serialize)]
pub(super) struct AnswerObject<'a> {
    question: &'a str,
    sentence: &'a str,
    sides: &'a [String],
    rows: Vec<AnswerRowObject<'a>>,
    unmeasured: &'a [String],
    identical: &'a [Identical],
}

#[derive(Serialize)]
struct AnswerRowObject<'a> {
    what: &'a str,
    metric: &'a str,
    unit: &'a str,
    cells: Vec<Option<AnswerCellObject<'a>>>,
    published_ratio: Option<f64>,
}

/// The value of one side (a compared design), and the ratio of this value to the value of the first
/// side. The first side has no ratio.
#[derive(Serialize)]
struct AnswerCellObject<'a> {
    design: &'a str,
    median: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    seeds: Option<usize>,
    is_zero: Option<bool>,
    ratio: Option<f64>,
    verdict: Option<&'a str>,
    pairs: Option<usize>,
}

impl<'a> AnswerObject<'a> {
    pub(super) fn of(answer: &'a Answer) -> Self {
        let cell = |(nth, cell): (usize, &'a Option<AnswerCell>)| {
            let cell = cell.as_ref()?;
            Some(AnswerCellObject::of(cell, nth == 0))
        };
        let row = |row: &'a AnswerRow| AnswerRowObject {
            what: &row.what,
            metric: &row.metric.name,
            unit: row.metric.unit.symbol(),
            cells: row.cells.iter().enumerate().map(cell).collect(),
            published_ratio: row.published_ratio.and_then(finite),
        };
        Self {
            question: &answer.question,
            sentence: &answer.sentence,
            sides: &answer.sides,
            rows: answer.rows.iter().map(row).collect(),
            unmeasured: &answer.unmeasured,
            identical: &answer.identical,
        }
    }
}

impl<'a> AnswerCellObject<'a> {
    fn of(cell: &'a AnswerCell, is_first: bool) -> Self {
        let compared = cell.compared;
        // The numbers of a report that an older version of Plimsoll has kept are not known.
        let are_pairs_known = !is_first && (compared.is_none() || cell.pairs > 0);
        Self {
            design: &cell.design,
            median: finite(cell.estimate.median),
            low: finite(cell.estimate.low),
            high: finite(cell.estimate.high),
            seeds: (cell.seeds > 0).then_some(cell.seeds),
            is_zero: (cell.seeds > 0).then_some(cell.is_zero),
            ratio: compared.and_then(|compared| finite(compared.ratio.median)),
            verdict: compared.map(|compared| compared.verdict.words()),
            pairs: are_pairs_known.then_some(cell.pairs),
        }
    }
}
