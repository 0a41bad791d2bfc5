//! Formats numbers for people: `199.43 ms`, `12,345,678`, `1.5 MiB`.

use crate::measure::metric::Unit;
use crate::measure::stats::Estimate;

/// The text of a cell that has no value.
pub(crate) const NOTHING: &str = "–";

/// Formats `value` with a unit in which it is short, such as `35.76 ms`, `872` or `0.42 %`.
#[must_use]
pub(crate) fn human(value: f64, unit: Unit) -> String {
    let scale = Scale::of(value, unit);
    join(&scale.number(value), scale.suffix)
}

/// Formats a median with its interval, both in the median's unit, such as
/// `199.43 ms [180.12–210.55]`.
#[must_use]
pub(crate) fn human_estimate(estimate: &Estimate, unit: Unit) -> String {
    let scale = Scale::of(estimate.median, unit);
    let [median, low, high] =
        [estimate.median, estimate.low, estimate.high].map(|value| scale.number(value));
    format!("{} [{low}–{high}]", join(&median, scale.suffix))
}

/// Formats a ratio with its interval, such as `0.134 [0.121–0.147]` or `0.0042 [0.00021–0.013]`.
#[must_use]
pub(crate) fn human_ratio(ratio: &Estimate) -> String {
    let [median, low, high] = [ratio.median, ratio.low, ratio.high].map(three_digits);
    format!("{median} [{low}–{high}]")
}

/// Formats the ratio of B to A without an interval, such as `0.134`. Returns [`NOTHING`] if both
/// are zero.
#[must_use]
pub(crate) fn ratio_of(a: f64, b: f64) -> String {
    three_digits(b / a)
}

fn three_digits(value: f64) -> String {
    let decimals = if value < 10.0 { 3 } else { 1 };
    plain(value, decimals)
}

fn join(number: &str, suffix: &str) -> String {
    if suffix.is_empty() {
        number.to_owned()
    } else {
        format!("{number} {suffix}")
    }
}

/// How a number is formatted: its divisor, its decimals, and its suffix.
struct Scale {
    divisor: f64,
    decimals: Decimals,
    suffix: &'static str,
}

enum Decimals {
    Fixed(usize),
    /// Whole numbers and numbers of a thousand or more have no decimals. Other numbers of ten or
    /// more have one decimal, and smaller numbers have two.
    Needed,
}

const TIMES: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
const SIZES: [(f64, &str); 4] = [
    (1_073_741_824.0, "GiB"),
    (1_048_576.0, "MiB"),
    (1024.0, "KiB"),
    (1.0, "B"),
];

impl Scale {
    fn of(value: f64, unit: Unit) -> Self {
        match unit {
            Unit::Nanos => Self::stepped(value, &TIMES),
            Unit::Bytes => Self::stepped(value, &SIZES),
            Unit::Percent => Self {
                divisor: 1.0,
                decimals: Decimals::Fixed(2),
                suffix: "%",
            },
            Unit::Count | Unit::Pages | Unit::Cpus | Unit::PerSecond | Unit::PagesPerSecond => {
                Self {
                    divisor: 1.0,
                    decimals: Decimals::Needed,
                    suffix: "",
                }
            }
        }
    }

    fn stepped(value: f64, steps: &[(f64, &'static str)]) -> Self {
        let smallest = steps.last().expect("a unit has at least one step");
        let step = steps
            .iter()
            .find(|(divisor, _)| value.abs() >= *divisor)
            .unwrap_or(smallest);
        let whole = step.0 == smallest.0;
        let decimals = if whole {
            Decimals::Needed
        } else {
            Decimals::Fixed(2)
        };
        Self {
            divisor: step.0,
            decimals,
            suffix: step.1,
        }
    }

    fn number(&self, value: f64) -> String {
        let scaled = value / self.divisor;
        let decimals = match self.decimals {
            Decimals::Fixed(decimals) => decimals,
            Decimals::Needed if scaled.fract() == 0.0 || scaled.abs() >= 1000.0 => 0,
            Decimals::Needed if scaled.abs() >= 10.0 => 1,
            Decimals::Needed => 2,
        };
        plain(scaled, decimals)
    }
}

/// The number of significant digits that even a small number has.
const DIGITS_MIN: i32 = 2;
/// The most decimals of a number. A smaller number is printed with a power of ten.
const DECIMALS_MAX: i32 = 6;

/// Formats `value` with `decimals` decimals, or with more if `value` is so small that it would have
/// fewer than [`DIGITS_MIN`] significant digits. So only 0 is printed as zero.
fn plain(value: f64, decimals: usize) -> String {
    if value.is_nan() {
        return NOTHING.to_owned();
    }
    if value.is_infinite() {
        return "∞".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let rounded = format!("{value:.0$e}", DIGITS_MIN as usize - 1);
    let power = rounded
        .split_once('e')
        .map(|(_, power)| power.parse::<i32>());
    let needed = match power {
        Some(Ok(power)) if power < 0 => DIGITS_MIN - 1 - power,
        _ => 0,
    };
    if needed > DECIMALS_MAX {
        return rounded;
    }
    let decimals = decimals.max(usize::try_from(needed).unwrap_or(0));
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    thousands(whole) + rest
}

/// Inserts a comma between groups of three digits of a whole number.
fn thousands(whole: &str) -> String {
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut grouped = sign.to_owned();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_the_unit_that_keeps_them_short() {
        let shown = [0.0, 761.0, 4190.0, 199_430_000.0, 2.5e9, 120e9];
        let shown = shown.map(|ns| human(ns, Unit::Nanos));
        assert_eq!(
            shown,
            [
                "0 ns",
                "761 ns",
                "4.19 µs",
                "199.43 ms",
                "2.50 s",
                "120.00 s"
            ]
        );
    }

    #[test]
    fn counts_group_their_digits_and_show_a_fraction_only_while_it_matters() {
        let shown = [0.0, 872.0, 104.5, 2.25, 12_345_678.5, 1000.0, -41_497.0];
        let shown = shown.map(|count| human(count, Unit::Count));
        assert_eq!(
            shown,
            [
                "0",
                "872",
                "104.5",
                "2.25",
                "12,345,678",
                "1,000",
                "-41,497"
            ]
        );
    }

    #[test]
    fn an_interval_keeps_the_scale_of_its_median() {
        let estimate = Estimate {
            median: 1_500_000.0,
            low: 900_000.0,
            high: 2_100_000.0,
        };
        assert_eq!(
            human_estimate(&estimate, Unit::Nanos),
            "1.50 ms [0.90–2.10]"
        );
        assert_eq!(
            human_estimate(&estimate, Unit::Pages),
            "1,500,000 [900,000–2,100,000]"
        );
    }

    #[test]
    fn a_ratio_has_three_digits_and_nothing_over_nothing_is_none() {
        let shown = [(8.0, 1.0), (1.0, 12.0), (0.0, 2.0), (0.0, 0.0)];
        let shown = shown.map(|(a, b)| ratio_of(a, b));
        assert_eq!(shown, ["0.125", "12.0", "∞", "–"]);
    }

    #[test]
    fn only_zero_is_printed_as_zero() {
        let shown = [
            0.0,
            3.8e-9,
            0.000_021_4,
            0.000_21,
            0.004_96,
            0.009_96,
            0.0123,
        ];
        let shown = shown.map(|ratio| ratio_of(1.0, ratio));
        assert_eq!(
            shown,
            [
                "0", "3.8e-9", "0.000021", "0.00021", "0.0050", "0.010", "0.012"
            ]
        );
        let ratio = Estimate {
            median: 0.0,
            low: 0.0,
            high: 0.000_42,
        };
        assert_eq!(human_ratio(&ratio), "0 [0–0.00042]");
        assert_eq!(human(0.0, Unit::Percent), "0 %");
        assert_eq!(human(0.001_3, Unit::Percent), "0.0013 %");
        assert_eq!(human(0.001_3, Unit::Count), "0.0013");
        assert_eq!(human(-0.001_3, Unit::Count), "-0.0013");
        let wait = Estimate {
            median: 2e9,
            low: 1000.0,
            high: 4e9,
        };
        assert_eq!(human_estimate(&wait, Unit::Nanos), "2.00 s [1.0e-6–4.00]");
    }

    #[test]
    fn what_is_not_a_number_is_not_printed_as_one() {
        assert_eq!(human(f64::INFINITY, Unit::Count), "∞");
        assert_eq!(human(f64::NAN, Unit::Nanos), "– ns");
        assert_eq!(human(3_221_225_472.0, Unit::Bytes), "3.00 GiB");
        assert_eq!(human(0.012, Unit::Percent), "0.012 %");
    }
}
