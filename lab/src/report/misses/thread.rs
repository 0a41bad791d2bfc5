//! The mailing-list threads whose figures are compared.

use serde::{Deserialize, Serialize};

/// A mailing-list thread that published figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Thread {
    /// The mailing-list thread about spreading the CPUs' vmstat work in time.
    Stagger,
    /// The mailing-list thread about splitting long holds of the zone lock into batches.
    Batching,
    /// The mailing-list thread about an OOM reaper that starts at the highest mapping, while the
    /// exit starts at the lowest mapping.
    Reaper,
    /// The mailing-list threads about trees of counters, and about an OOM killer that uses these
    /// counters to choose a victim in two passes.
    Counters,
    /// The self-test of the lab. Its figures are made up.
    Selftest,
    /// A source that the page `docs/misses.md` does not show, such as a source in a user's
    /// experiment.
    Other,
}

impl Thread {
    /// All mailing-list threads, in the order in which `docs/misses.md` shows them.
    pub const ALL: [Self; 4] = [Self::Stagger, Self::Batching, Self::Reaper, Self::Counters];

    /// The subject of this mailing-list thread.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Stagger => "Spreading the vmstat work (`vmstat_spread_delay`)",
            Self::Batching => "Batches in `free_pcppages_bulk`",
            Self::Reaper => "A reaper that starts at the highest mapping",
            Self::Counters => "Trees of counters, and two passes that choose a victim by them",
            Self::Selftest => "the self-test",
            Self::Other => "other sources",
        }
    }

    /// Returns the name of the mailing-list thread in one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stagger => "stagger",
            Self::Batching => "batching",
            Self::Reaper => "reaper",
            Self::Counters => "counters",
            Self::Selftest => "selftest",
            Self::Other => "other",
        }
    }

    /// Finds the mailing-list thread whose [`Thread::name`] is `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter().chain([Self::Selftest, Self::Other]);
        all.find(|thread| thread.name() == name)
    }

    /// The author of the patch, and the date on which the author posted the patch.
    #[must_use]
    pub const fn posted(self) -> &'static str {
        match self {
            Self::Stagger => "Breno Leitao, 2026-04-01",
            Self::Batching => "Joshua Hahn, 2025-09-19 (v1) to 2025-10-14 (v5)",
            Self::Reaper => "zhongjinji, 2025-09-03 (v7) to 2025-09-15 (v10)",
            Self::Counters => "Mathieu Desnoyers, 2026-01-13 (v15) and 2026-01-14 (v16)",
            Self::Selftest | Self::Other => "no author",
        }
    }
}
