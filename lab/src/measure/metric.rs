//! Metrics: each measured quantity has a name, a unit, and a direction in which it improves.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// One measured quantity. Two metrics with equal names are the same metric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// The name that other programs read, in `snake_case`. The name of a time ends in the unit of
    /// the time.
    pub name: Cow<'static, str>,
    /// The unit of the metric's values.
    pub unit: Unit,
    /// The direction in which the metric improves.
    pub better: Better,
}

impl Metric {
    /// A metric for which lower is better.
    #[must_use]
    pub const fn lower(name: &'static str, unit: Unit) -> Self {
        Self {
            name: Cow::Borrowed(name),
            unit,
            better: Better::Lower,
        }
    }

    /// A metric for which higher is better.
    #[must_use]
    pub const fn higher(name: &'static str, unit: Unit) -> Self {
        Self {
            name: Cow::Borrowed(name),
            unit,
            better: Better::Higher,
        }
    }

    /// A metric that describes a run without being good or bad.
    #[must_use]
    pub const fn neither(name: &'static str, unit: Unit) -> Self {
        Self {
            name: Cow::Borrowed(name),
            unit,
            better: Better::Neither,
        }
    }

    /// Returns this metric with another name, which can be made at run time. For example, it can
    /// contain a number of CPUs.
    #[must_use]
    pub fn named(self, name: String) -> Self {
        Self {
            name: Cow::Owned(name),
            ..self
        }
    }
}

/// The unit of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// A number of events.
    #[serde(rename = "1")]
    Count,
    /// A time in nanoseconds.
    #[serde(rename = "ns")]
    Nanos,
    /// A number of 4 KiB pages.
    #[serde(rename = "pages")]
    Pages,
    /// A size in bytes.
    #[serde(rename = "B")]
    Bytes,
    /// A number of CPUs.
    #[serde(rename = "CPUs")]
    Cpus,
    /// A percentage.
    #[serde(rename = "%")]
    Percent,
    /// A number of events per second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// A number of pages per second.
    #[serde(rename = "pages/s")]
    PagesPerSecond,
}

impl Unit {
    /// The unit's spelling in JSON. A plain count is `1`.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Count => "1",
            Self::Nanos => "ns",
            Self::Pages => "pages",
            Self::Bytes => "B",
            Self::Cpus => "CPUs",
            Self::Percent => "%",
            Self::PerSecond => "1/s",
            Self::PagesPerSecond => "pages/s",
        }
    }
}

/// The direction in which a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Lower is better.
    Lower,
    /// Higher is better.
    Higher,
    /// The metric only describes a run, and has no better direction.
    Neither,
}
