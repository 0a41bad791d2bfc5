//! A cost of a profile as written, with its range.

use super::key::CostKey;

/// One cost, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The cost that this is.
    pub key: CostKey,
    /// The price at each card, in nanoseconds.
    pub range: Range,
    /// The source of the numbers; `estimate: …` says that none were published.
    pub source: String,
}

/// A value at each card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The cheapest plausible value.
    pub low: u32,
    /// The best estimate.
    pub mid: u32,
    /// The dearest plausible value.
    pub high: u32,
}
