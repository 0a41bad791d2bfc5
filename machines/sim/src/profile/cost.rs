//! One cost of a profile, as written in the file.

use super::key::CostKey;

/// One cost, as written in the file: a range of prices and their source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The key of the cost, which names the step.
    pub key: CostKey,
    /// The price in nanoseconds at each card: at the low end, the middle and the high end.
    pub range: Range,
    /// The average price in a longer hold of the zone lock. `None` if the price does not depend on
    /// the length of the hold.
    pub then: Option<Then>,
    /// The source of the numbers. `estimate: …` means that no numbers were published.
    pub source: String,
}

/// The range of a price, as three values. The [`Card`](super::Card) of a run chooses one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The cheapest plausible value.
    pub low: u32,
    /// The best estimate.
    pub mid: u32,
    /// The most expensive plausible value.
    pub high: u32,
}

/// The second average price of a step whose price depends on how many pages one hold of the zone
/// lock moves. It is the average over all pages of a longer hold, and [`Cost::range`] is the
/// average over all pages of a shorter hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Then {
    /// The number of pages in the shorter hold of the zone lock, for which [`Cost::range`] is the
    /// average; at least 1.
    pub at: u32,
    /// The number of pages in the longer hold of the zone lock. It is more than `at`, the number of
    /// pages in the shorter hold, and at most 65,535.
    pub pages: u32,
    /// The average price of a page in a hold of `pages` pages, in nanoseconds. The low, the middle
    /// and the high value are at most the corresponding values of [`Cost::range`].
    pub range: Range,
}

/// How far the middle value of a price can be trusted, as its source text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// People other than the authors of Plimsoll published the value.
    Published,
    /// The authors of Plimsoll measured the value.
    Measured,
    /// No such value was published or measured, so the value is an estimate.
    Estimate,
    /// The value was chosen so that a simulated result equals a published one. So the agreement
    /// with that published result proves nothing.
    Fitted,
}

impl Provenance {
    /// Every kind of provenance, in declaration order.
    pub const ALL: [Self; 4] = [
        Self::Published,
        Self::Measured,
        Self::Estimate,
        Self::Fitted,
    ];

    /// The word with which a source text begins, before a colon.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Measured => "measured",
            Self::Estimate => "estimate",
            Self::Fitted => "fitted",
        }
    }
}

impl Cost {
    /// Returns the kind of source with which the source text begins, such as `estimate: …`. `None`
    /// if the text names no kind. If a variant of the machine has multiplied the price, the text
    /// `times the … factor: ` precedes the kind.
    #[must_use]
    pub fn provenance(&self) -> Option<Provenance> {
        let own = self
            .source
            .strip_prefix("times the ")
            .and_then(|text| text.split_once(" factor: "));
        let text = own.map_or(self.source.as_str(), |(_, own)| own);
        let (word, _) = text.split_once(':')?;
        let mut all = Provenance::ALL.into_iter();
        all.find(|provenance| provenance.word() == word)
    }
}
