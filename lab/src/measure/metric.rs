//! Metrics: a measured quantity has a name, a unit, and a direction that is better.

use std::borrow::Cow;

/// One measured quantity. Two metrics are the same when their names are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name that other programs read: `snake_case`, with the unit last if it is a time.
    pub name: Cow<'static, str>,
    /// The unit of its values.
    pub unit: Unit,
    /// The direction that a user wants.
    pub better: Better,
}

impl Metric {
    /// A metric of which less is better.
    #[must_use]
    pub const fn lower(name: &'static str, unit: Unit) -> Self {
        Self {
            name: Cow::Borrowed(name),
            unit,
            better: Better::Lower,
        }
    }

    /// A metric of which more is better.
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

    /// This metric under a name made at run time, such as one per tick rate.
    #[must_use]
    pub fn named(self, name: String) -> Self {
        Self {
            name: Cow::Owned(name),
            ..self
        }
    }
}

/// The unit of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count of events.
    Count,
    /// A time in nanoseconds.
    Nanos,
    /// 4 KiB pages.
    Pages,
    /// A size in bytes.
    Bytes,
    /// A number of CPUs.
    Cpus,
    /// Hundredths of a whole.
    Percent,
    /// Events each second.
    PerSecond,
    /// Pages each second.
    PagesPerSecond,
}

impl Unit {
    /// The unit as JSON spells it; `1` is a plain count.
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

/// The direction of a metric that a user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Less of it.
    Lower,
    /// More of it.
    Higher,
    /// Neither: the metric only describes a run.
    Neither,
}
