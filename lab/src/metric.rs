//! What is measured: a name, a unit, and which direction is better.

use std::borrow::Cow;

/// One measured quantity. Two metrics are the same when their names are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// As other programs know it: `snake_case`, the unit last where the unit is a time.
    pub name: Cow<'static, str>,
    /// What one of it is.
    pub unit: Unit,
    /// Which direction a user wants.
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

    /// The same metric under a name made at run time, such as one per tick rate.
    #[must_use]
    pub fn named(self, name: String) -> Self {
        Self {
            name: Cow::Owned(name),
            ..self
        }
    }
}

/// What one of a quantity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count of events.
    Count,
    /// Nanoseconds.
    Nanos,
    /// 4 KiB pages.
    Pages,
    /// Bytes.
    Bytes,
    /// CPUs.
    Cpus,
    /// Hundredths.
    Percent,
    /// Events each second.
    PerSecond,
    /// Pages each second.
    PagesPerSecond,
}

impl Unit {
    /// As JSON spells it; `1` is a plain count.
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

/// Which direction of a metric a user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Less of it.
    Lower,
    /// More of it.
    Higher,
    /// It only describes.
    Neither,
}
