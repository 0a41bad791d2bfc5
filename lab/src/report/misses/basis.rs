//! Says how our figure depends on the published figure.

use serde::{Deserialize, Serialize};

/// How our figure depends on the published figure. If our figure depends on the published one, the
/// two figures can agree although the simulation is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Our figure does not depend on the published figure.
    Independent,
    /// We derived a price (the time of a simulated step) from the published figure. So if the two
    /// figures agree, this proves nothing.
    Fitted,
    /// Our figure and the published figure both follow directly from how the patch is built, so
    /// nothing has to be measured.
    Construction,
}

impl Basis {
    /// The word for this value in JSON and on the page `docs/misses.md`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Independent => "independent",
            Self::Fitted => "fitted",
            Self::Construction => "construction",
        }
    }

    /// Finds the basis whose [`Basis::name`] is `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Independent, Self::Fitted, Self::Construction];
        all.into_iter().find(|basis| basis.name() == name)
    }
}
