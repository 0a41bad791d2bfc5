//! Windows of virtual time, as the user writes them.

use plimsoll_mm::units::Nanos;

use crate::error::Error;

/// A span of the virtual time of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The beginning.
    pub from: Nanos,
    /// The end.
    pub until: Nanos,
}

/// The units of a time, with their lengths in nanoseconds. A unit whose name is the end of another
/// unit's name comes after the other unit.
const UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];

impl Window {
    /// The whole run.
    pub const ALL: Self = Self {
        from: Nanos(0),
        until: Nanos(u64::MAX),
    };

    /// Parses a window such as `100ms..150ms`, `..2s` or `1.5s..`.
    ///
    /// # Errors
    /// If the text is not a window, or if the window ends before it begins.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let refused = |why: String| {
            Error::Invalid(format!(
                "{text:?} is no window of virtual time: {why}; write one such as 100ms..150ms"
            ))
        };
        let Some((from, until)) = text.split_once("..") else {
            return Err(refused("it has no `..`".to_owned()));
        };
        let time = |text: &str, none: Nanos| match text.trim() {
            "" => Ok(none),
            text => time(text).ok_or_else(|| {
                refused(format!("{text:?} is no time with a unit (ns, us, ms or s)"))
            }),
        };
        let window = Self {
            from: time(from, Self::ALL.from)?,
            until: time(until, Self::ALL.until)?,
        };
        if window.from >= window.until {
            return Err(refused("it does not end after it begins".to_owned()));
        }
        Ok(window)
    }

    /// Returns whether a slice from `from` to `until` overlaps with the window.
    #[must_use]
    pub fn meets(&self, from: Nanos, until: Nanos) -> bool {
        from <= self.until && self.from <= until
    }
}

fn time(text: &str) -> Option<Nanos> {
    let (number, unit) = UNITS
        .iter()
        .find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)))?;
    let number: f64 = number.trim_end().parse().ok()?;
    // Longer times are refused: no run takes more than 26 days of virtual time.
    let ns = (number * unit).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the number is in the range of the check"
    )]
    (0.0..=1e16).contains(&ns).then_some(Nanos(ns as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(text: &str) -> Option<(u64, u64)> {
        let window = Window::parse(text).ok()?;
        Some((window.from.0, window.until.0))
    }

    #[test]
    fn a_window_has_two_times_with_units() {
        assert_eq!(window("100ms..150ms"), Some((100_000_000, 150_000_000)));
        assert_eq!(window("1.5s..2s"), Some((1_500_000_000, 2_000_000_000)));
        assert_eq!(window("10us .. 90 us"), Some((10_000, 90_000)));
        assert_eq!(window("..7ns"), Some((0, 7)));
        assert_eq!(window("1s.."), Some((1_000_000_000, u64::MAX)));
    }

    #[test]
    fn what_is_no_window_is_refused() {
        for text in [
            "", "5ms", "5..6", "6ms..5ms", "5ms..5ms", "x..6ms", "-1ms..", "nans..1s",
        ] {
            let error = Window::parse(text).expect_err(text);
            assert!(error.is_bad_input() && error.to_string().contains("such as 100ms..150ms"));
        }
    }

    #[test]
    fn a_slice_that_touches_the_window_is_in_it() {
        let window = Window::parse("10ns..20ns").unwrap();
        let meets = |from, until| window.meets(Nanos(from), Nanos(until));
        assert!(meets(0, 10) && meets(20, 30) && meets(0, 99) && meets(12, 12));
        assert!(!meets(0, 9) && !meets(21, 30));
    }
}
