//! The bounds on the error of an approximate sum.

use core::cmp::Ordering;
use core::iter::Sum;
use core::ops::Add;

/// The bounds of an approximate sum, which is read without visiting every CPU: `precise − under ≤
/// approximate ≤ precise + over`.
///
/// The bounds for the sum of several counters are the sums of the counters' bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accuracy {
    /// The maximum amount by which the approximate sum may be too small.
    pub under: u64,
    /// The maximum amount by which the approximate sum may be too large.
    pub over: u64,
}

impl Accuracy {
    /// The accuracy of a sum that is always exact.
    pub const EXACT: Self = Self { under: 0, over: 0 };

    /// Returns the range that contains the precise sum, given the approximate sum.
    #[must_use]
    pub const fn range(self, approximate: i64) -> Range {
        Range {
            min: approximate.saturating_sub_unsigned(self.over),
            max: approximate.saturating_add_unsigned(self.under),
        }
    }

    /// Returns whether a counter whose precise sum is `precise` may have the approximate sum
    /// `approximate`.
    #[must_use]
    pub const fn allows(self, approximate: i64, precise: i64) -> bool {
        let range = self.range(approximate);
        range.min <= precise && precise <= range.max
    }
}

impl Add for Accuracy {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            under: self.under.saturating_add(other.under),
            over: self.over.saturating_add(other.over),
        }
    }
}

impl Sum for Accuracy {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::EXACT, Self::add)
    }
}

/// The bounds of a sum: at least `min` and at most `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The smallest possible value of the sum.
    pub min: i64,
    /// The largest possible value of the sum.
    pub max: i64,
}

impl Range {
    /// Returns the range of a sum that is known to be `value`.
    #[must_use]
    pub const fn exactly(value: i64) -> Self {
        Self {
            min: value,
            max: value,
        }
    }

    /// Returns the width of the range, which is 0 if the sum is known exactly.
    #[must_use]
    pub const fn width(self) -> u64 {
        self.max.abs_diff(self.min)
    }

    /// Returns whether `value` is in the range, so that the sum may be `value`.
    #[must_use]
    pub const fn contains(self, value: i64) -> bool {
        self.min <= value && value <= self.max
    }

    /// Compares a sum in this range with a sum in `other`. Returns `Equal` if the ranges overlap.
    #[must_use]
    pub const fn compare(self, other: Self) -> Ordering {
        if self.min > other.max {
            Ordering::Greater
        } else if self.max < other.min {
            Ordering::Less
        } else {
            Ordering::Equal
        }
    }
}

impl Add for Range {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }
}

/// An approximate sum, such as the number of pages of a process: an estimate, and a range that
/// contains the precise sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The single number to report for the sum.
    pub estimate: i64,
    /// The range that contains the precise sum. It contains the estimate as well.
    pub range: Range,
}

impl Reading {
    /// Returns a reading of a sum that is known to be `value`.
    #[must_use]
    pub const fn exactly(value: i64) -> Self {
        Self {
            estimate: value,
            range: Range::exactly(value),
        }
    }

    /// Returns whether the estimate is inside the range. The selection of a victim for the OOM
    /// killer rejects a reading for which this method returns false.
    #[must_use]
    pub const fn is_ordered(self) -> bool {
        self.range.contains(self.estimate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_its_ends_and_what_is_between_them() {
        let range = Range { min: -3, max: 5 };
        let within = [-4, -3, 0, 5, 6].map(|value| range.contains(value));
        assert_eq!(within, [false, true, true, true, false]);
        assert_eq!(range.width(), 8);
    }

    #[test]
    fn ranges_that_share_a_value_are_equal() {
        let range = |min, max| Range { min, max };
        let of = |other| range(0, 5).compare(other);
        assert_eq!(of(range(5, 9)), Ordering::Equal);
        assert_eq!(of(range(-4, 0)), Ordering::Equal);
        assert_eq!(of(range(6, 9)), Ordering::Less);
        assert_eq!(of(range(-4, -1)), Ordering::Greater);
    }
}
