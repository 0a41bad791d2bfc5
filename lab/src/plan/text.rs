//! Values that an experiment file writes as text: times, and sets of CPUs.

use std::fmt;
use std::str::FromStr;

use plimsoll_mm::units::Nanos;

/// The units of a time, longest first, with their lengths in nanoseconds.
const UNITS: [(&str, u64); 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
];

/// The latest time that a file can name: one hour.
pub const TIME_MAX: Nanos = Nanos(3_600_000_000_000);

/// A span of virtual time, written as a whole number with a unit: `2s`, `500ms`, `20us`, `7ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Nanos);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || {
            format!(
                "{text:?} is no time: write a whole number with s, ms, us or ns, such as \"2s\""
            )
        };
        let unit_at = text.find(|c: char| !c.is_ascii_digit());
        let (number, unit) = text.split_at(unit_at.ok_or_else(malformed)?);
        let factor = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, factor) = factor.ok_or_else(malformed)?;
        let number: u64 = number.parse().map_err(|_| malformed())?;
        let ns = number.checked_mul(*factor);
        ns.filter(|ns| *ns <= TIME_MAX.0)
            .map(|ns| Self(Nanos(ns)))
            .ok_or_else(|| format!("{text:?} is too late: the last possible time is 3600s"))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().find(|(_, ns)| self.0.0.is_multiple_of(*ns));
        let (unit, ns) = whole.unwrap_or(&("ns", 1));
        write!(f, "{}{unit}", self.0.0 / ns)
    }
}

/// The largest id of a CPU, because the simulator has at most 4096 CPUs.
const CPU_MAX: u32 = 4095;

/// A set of CPUs. In text, it has the format of Linux's lists of CPUs, such as `4-7,9`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(Vec<u32>);

impl CpuList {
    /// The set of `cpus`.
    #[must_use]
    pub fn new(mut cpus: Vec<u32>) -> Self {
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }

    /// The ids of the CPUs, in ascending order.
    #[must_use]
    pub fn cpus(&self) -> &[u32] {
        &self.0
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || {
            format!(
                "{text:?} is no list of CPUs: write numbers and ranges up to {CPU_MAX}, such as \
                 \"4-7,9\""
            )
        };
        let number = |text: &str| -> Result<u32, String> {
            let number: u32 = text.trim().parse().map_err(|_| malformed())?;
            if number <= CPU_MAX {
                Ok(number)
            } else {
                Err(malformed())
            }
        };
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(malformed());
            }
            cpus.extend(first..=last);
        }
        Ok(Self::new(cpus))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.0.chunk_by(|one, next| one + 1 == *next);
        let range = |of: &[u32]| match of {
            [first, .., last] => format!("{first}-{last}"),
            [only] => only.to_string(),
            [] => String::new(),
        };
        let ranges: Vec<String> = ranges.map(range).collect();
        f.write_str(&ranges.join(","))
    }
}

/// Formats hundredths as a number with at most two decimals, so that 50 gives `0.5`.
#[must_use]
pub fn factor_text(percent: u32) -> String {
    let (whole, part) = (percent / 100, percent % 100);
    match part {
        0 => whole.to_string(),
        part if part.is_multiple_of(10) => format!("{whole}.{}", part / 10),
        part => format!("{whole}.{part:02}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_have_a_unit_and_an_end() {
        let time = |text: &str| text.parse::<Time>();
        assert_eq!(time("2s"), Ok(Time(Nanos::from_ms(2000))));
        assert_eq!(time("500ms").unwrap().to_string(), "500ms");
        assert_eq!(time("2000ms").unwrap().to_string(), "2s");
        assert_eq!(time("0s").unwrap().to_string(), "0s");
        for bad in [
            "",
            "2",
            "s",
            "2 s",
            "-1s",
            "1.5s",
            "3601s",
            "99999999999999999999s",
        ] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_of_cpus_are_sets() {
        let cpus = |text: &str| text.parse::<CpuList>();
        assert_eq!(cpus("9,4-7,5").unwrap().cpus(), [4, 5, 6, 7, 9]);
        assert_eq!(cpus("9, 4-7").unwrap().to_string(), "4-7,9");
        for bad in ["", "7-4", "a", "1,,2", "4096", "0-99999999999"] {
            assert!(cpus(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn factors_are_short() {
        assert_eq!(
            [50, 100, 225, 5].map(factor_text),
            ["0.5", "1", "2.25", "0.05"]
        );
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(
            ns in 0..=TIME_MAX.0,
            cpus in prop::collection::vec(0..=CPU_MAX, 1..20),
        ) {
            let time = Time(Nanos(ns));
            prop_assert_eq!(time.to_string().parse(), Ok(time));
            let list = CpuList::new(cpus);
            prop_assert_eq!(list.to_string().parse(), Ok(list));
        }
    }
}
