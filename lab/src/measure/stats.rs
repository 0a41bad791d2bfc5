//! Medians, their intervals, and comparisons of two sets of runs.
//!
//! An interval reaches from the kth smallest to the kth largest value. Whatever the distribution of
//! the values is, each value is below the true median with probability 1/2. So the probability that
//! the interval contains the true median follows from the binomial distribution alone. The module
//! uses the largest k for which this probability is at least 95 %. With 6 to 8 runs, this is 1, so
//! the interval reaches from the smallest to the largest value.
//!
//! A comparison pairs the runs of A and B that have the same seed, so that a hard seed is hard for
//! both. The verdict of a comparison follows from its interval alone.
//!
//! Measured values are counts, times and rates: finite and not negative.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The smallest number of runs that permits a verdict. With 5 runs, even the interval from the
/// smallest to the largest value contains the true median with a probability of only 1 - 2/2⁵ =
/// 93.75 %.
pub const SEEDS_MIN: usize = 6;

/// A median with its interval, which contains the true median with a probability of at least 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median of the runs.
    #[serde(with = "crate::measure::number")]
    pub median: f64,
    /// The lower end of the interval.
    #[serde(with = "crate::measure::number")]
    pub low: f64,
    /// The upper end of the interval.
    #[serde(with = "crate::measure::number")]
    pub high: f64,
}

#[cfg(test)]
impl Estimate {
    /// An estimate for a test: `median` with an interval of no width.
    pub(crate) const fn exactly(median: f64) -> Self {
        Self {
            median,
            low: median,
            high: median,
        }
    }
}

/// Estimates the median of `values`. Returns `None` if there are no values.
///
/// # Panics
/// If a value is not a number, which is a bug in the measurement.
#[must_use]
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    assert!(
        values.iter().all(|value| !value.is_nan()),
        "a measured value is a number"
    );
    let sorted = sorted(values);
    let cut = values_outside(sorted.len());
    Some(Estimate {
        median: median(values)?,
        low: sorted[cut],
        high: sorted[sorted.len() - 1 - cut],
    })
}

/// Returns how many of `count` values are below the confidence interval of their median. The same
/// number of values is above the interval. The result is the largest such number for which the
/// interval contains the true median with a probability of at least 95 %, or 0 if there is no such
/// number.
fn values_outside(count: usize) -> usize {
    /// The largest probability that the true median is below the interval.
    const BELOW_MAX: f64 = 0.025;
    let n = count as f64;
    // The probability that exactly `outside` of the `count` values are below the true median. It is
    // kept as a logarithm, because it is very small if there are many values.
    let mut log_exactly = n * 0.5_f64.ln();
    let mut at_most = log_exactly.exp();
    let mut outside = 0;
    while outside + 1 < count / 2 {
        log_exactly += ((n - outside as f64) / (outside as f64 + 1.0)).ln();
        at_most += log_exactly.exp();
        if at_most > BELOW_MAX {
            break;
        }
        outside += 1;
    }
    outside
}

/// Returns the middle value, or the mean of the two middle values. `None` if there are no values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    (!sorted.is_empty()).then(|| median_of_sorted(&sorted))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

/// The result of comparing B with A, paired by seed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The median of the ratios of B to A, with its interval. A ratio is infinite if, in its pair
    /// of runs, A was zero and B was not. So an end of the interval can be infinite, too.
    pub ratio: Estimate,
    /// The verdict that follows from the interval.
    pub verdict: Verdict,
}

/// Compares the runs of two designs, A and B. The runs at the same index have the same seed.
/// Returns `None` if there are no runs.
///
/// # Panics
/// If A and B differ in length or contain a negative value, because ratios would be meaningless.
#[must_use]
pub fn compare(a: &[f64], b: &[f64]) -> Option<Comparison> {
    assert_eq!(a.len(), b.len(), "every seed ran on both sides");
    assert!(
        a.iter().chain(b).all(|value| *value >= 0.0),
        "measured values are never negative"
    );
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| ratio(*a, *b)).collect();
    let ratio = estimate(&ratios)?;
    let verdict = if ratios.len() < SEEDS_MIN {
        Verdict::TooFewSeeds
    } else if a == b {
        Verdict::Equal
    } else if ratio.high < 1.0 {
        Verdict::Lower
    } else if ratio.low > 1.0 {
        Verdict::Higher
    } else {
        Verdict::NoDifference
    };
    Some(Comparison { ratio, verdict })
}

/// The ratio of B to A: 1 if both are zero, and infinite if only A is zero. An infinite ratio sorts
/// above all others, so medians and verdicts stay correct.
fn ratio(a: f64, b: f64) -> f64 {
    match (a == 0.0, b == 0.0) {
        (true, true) => 1.0,
        (true, false) => f64::INFINITY,
        (false, _) => b / a,
    }
}

/// The verdict of a comparison, which follows from its interval alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval is below 1.
    Lower,
    /// The whole interval is above 1.
    Higher,
    /// The interval of the ratio B / A contains 1, and B differs from A on at least one seed.
    NoDifference,
    /// B equals A on every seed, so more seeds are unlikely to show a difference.
    Equal,
    /// There are fewer than [`SEEDS_MIN`] pairs of runs.
    TooFewSeeds,
}

impl Verdict {
    /// The words for the report. Other programs read these words, so the words must not change.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Lower => "B is lower",
            Self::Higher => "B is higher",
            Self::NoDifference => "no difference seen; add seeds to look closer",
            Self::Equal => "equal on every seed",
            Self::TooFewSeeds => "too few seeds",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// The mean and the sample standard deviation of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The arithmetic mean of the values.
    pub mean: f64,
    /// The sample standard deviation (divisor n - 1). It is zero for a single value.
    pub deviation: f64,
}

impl Spread {
    /// The spread of `values`. `None` if `values` is empty.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if values.len() == 1 {
            0.0
        } else {
            (squares / (count - 1.0)).sqrt()
        };
        Some(Self { mean, deviation })
    }

    /// The deviation in percent of the mean ("variation %"). `None` if the mean is zero.
    #[must_use]
    pub fn variation_percent(&self) -> Option<f64> {
        (self.mean != 0.0).then(|| self.deviation / self.mean * 100.0)
    }
}

/// The difference `b` − `a` in percent of `a` ("delta %"). `None` if `a` is zero and `b` is not.
#[must_use]
pub fn delta_percent(a: f64, b: f64) -> Option<f64> {
    let ratio = ratio(a, b);
    ratio.is_finite().then_some((ratio - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn medians_of_odd_even_and_no_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(estimate(&[]), None);
        assert_eq!(compare(&[], &[]), None);
    }

    #[test]
    fn a_single_run_has_an_interval_of_no_width_and_no_verdict() {
        let one = estimate(&[7.0]).unwrap();
        assert_eq!(
            one,
            Estimate {
                median: 7.0,
                low: 7.0,
                high: 7.0
            }
        );
        assert_eq!(
            compare(&[7.0], &[1.0]).unwrap().verdict,
            Verdict::TooFewSeeds
        );
    }

    #[test]
    fn zeros_are_equal_and_something_against_nothing_is_higher() {
        let (zeros, ones) = ([0.0; 8], [1.0; 8]);
        let same = compare(&zeros, &zeros).unwrap();
        assert_eq!((same.ratio.median, same.verdict), (1.0, Verdict::Equal));
        let up = compare(&zeros, &ones).unwrap();
        assert_eq!(
            (up.ratio.median, up.verdict),
            (f64::INFINITY, Verdict::Higher)
        );
        let down = compare(&ones, &zeros).unwrap();
        assert_eq!((down.ratio.median, down.verdict), (0.0, Verdict::Lower));
    }

    #[test]
    fn pairing_sees_a_small_gain_that_the_spread_between_seeds_hides() {
        let a: Vec<f64> = (1..=8).map(|seed| f64::from(seed) * 100.0).collect();
        let b: Vec<f64> = a.iter().map(|value| value * 0.97).collect();
        let (of_a, of_b) = (estimate(&a).unwrap(), estimate(&b).unwrap());
        assert!(of_b.high > of_a.low, "unpaired intervals overlap");
        assert_eq!(compare(&a, &b).unwrap().verdict, Verdict::Lower);
    }

    #[test]
    fn five_seeds_are_too_few_and_six_suffice() {
        let (a, b) = ([10.0; 6], [5.0; 6]);
        assert_eq!(
            compare(&a[..5], &b[..5]).unwrap().verdict,
            Verdict::TooFewSeeds
        );
        assert_eq!(compare(&a, &b).unwrap().verdict, Verdict::Lower);
    }

    #[test]
    fn variation_and_delta_are_percentages() {
        let spread = Spread::of(&[9.0, 10.0, 11.0]).unwrap();
        assert_eq!((spread.mean, spread.deviation), (10.0, 1.0));
        assert_eq!(spread.variation_percent(), Some(10.0));
        assert_eq!(Spread::of(&[0.0, 0.0]).unwrap().variation_percent(), None);
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(delta_percent(200.0, 150.0), Some(-25.0));
        assert_eq!(
            (delta_percent(0.0, 0.0), delta_percent(0.0, 1.0)),
            (Some(0.0), None)
        );
    }

    /// Checks how many values lie below the interval, against tables of the sign test.
    #[test]
    fn intervals_leave_out_as_many_values_as_the_sign_test_allows() {
        let outside = [5, 6, 8, 9, 11, 12, 14, 15, 17, 20, 41, 100].map(values_outside);
        assert_eq!(outside, [0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 13, 39]);
    }

    /// Draws `count` random values many times, and counts how often the interval of their median
    /// contains the true median.
    #[test]
    fn intervals_cover_the_true_median_at_least_as_often_as_they_say() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut draw = || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        for count in [6, 8, 9, 17, 41] {
            let covered = (0..4000)
                .filter(|_| {
                    let values: Vec<f64> = (0..count).map(|_| draw()).collect();
                    let interval = estimate(&values).expect("several values");
                    (interval.low..=interval.high).contains(&0.5)
                })
                .count();
            assert!(covered >= 3770, "{covered} of 4000 with {count} values");
        }
    }

    proptest! {
        #[test]
        fn an_interval_holds_its_median_and_stays_within_the_range(
            values in prop::collection::vec(0.0..1e12, 1..20)
        ) {
            let found = estimate(&values).unwrap();
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            prop_assert!(least <= found.low && found.low <= found.median);
            prop_assert!(found.median <= found.high && found.high <= most);
        }

        #[test]
        fn the_order_of_seeds_does_not_change_the_median(
            mut values in prop::collection::vec(0.0..1e12, 1..20)
        ) {
            let before = median(&values);
            values.reverse();
            prop_assert_eq!(before, median(&values));
        }

        #[test]
        fn swapping_sides_swaps_the_verdict(
            pairs in prop::collection::vec((0.0..1e6, 0.0..1e6), 1..13)
        ) {
            // Use an odd number of pairs. With an even number of ratios, the inverse of their
            // median is not the median of their inverses.
            let pairs = &pairs[..(pairs.len() - 1) / 2 * 2 + 1];
            let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
            let (ab, ba) = (compare(&a, &b).unwrap(), compare(&b, &a).unwrap());
            prop_assert!((ab.verdict == Verdict::Lower) <= (ba.verdict != Verdict::Lower));
            prop_assert!((ab.verdict == Verdict::Higher) <= (ba.verdict != Verdict::Higher));
        }
    }
}
