//! One cost of a profile, as written in the file.

use super::key::CostKey;

/// One cost, as written in the file: a range of prices and their source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The key of the cost, which names the step.
    pub key: CostKey,
    /// The price in nanoseconds at each card.
    pub range: Range,
    /// The source of the numbers. `estimate: …` means that no numbers were published.
    pub source: String,
}

/// One value for each card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The cheapest plausible value.
    pub low: u32,
    /// The best estimate.
    pub mid: u32,
    /// The most expensive plausible value.
    pub high: u32,
}
