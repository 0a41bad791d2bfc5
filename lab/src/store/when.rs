//! Times as text, and ids of runs, which begin with the time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A moment in UTC, to the millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    year: u64,
    month: u64,
    day: u64,
    /// The time since midnight.
    of_day: Duration,
}

impl Moment {
    pub(super) fn of(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (year, month, day) = date(since.as_secs() / 86_400);
        Self {
            year,
            month,
            day,
            of_day: since - Duration::from_secs(since.as_secs() / 86_400 * 86_400),
        }
    }

    fn clock(self) -> [u64; 3] {
        let seconds = self.of_day.as_secs();
        [seconds / 3600, seconds / 60 % 60, seconds % 60]
    }

    /// The moment as text, such as `2026-11-23T23:15:00.123Z`. Such texts sort in the order of
    /// time.
    pub(super) fn text(self) -> String {
        let Self {
            year, month, day, ..
        } = self;
        let [hour, minute, second] = self.clock();
        let ms = self.of_day.subsec_millis();
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }

    /// The id of a run that begins now, such as `20261123-231500-ab12`. If two runs begin in the
    /// same second, their ids most likely differ in the last part, `part`.
    pub(super) fn id(self, part: u16) -> String {
        let Self {
            year, month, day, ..
        } = self;
        let [hour, minute, second] = self.clock();
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}-{part:04x}")
    }
}

/// The year, month and day of the Gregorian calendar that is `days` days after 1970-01-01.
const fn date(days: u64) -> (u64, u64, u64) {
    // In this computation, years begin in March, so that the leap day is the last day of a year.
    // Eras of 400 years begin on 0000-03-01, which is 719,468 days before 1970-01-01.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let january = month >= 10;
    let month = if january { month - 9 } else { month + 3 };
    (era * 400 + year + january as u64, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let days = [0, 58, 59, 789, 11_016, 20_454, 20_780];
        let dates = days.map(date);
        let expected = [
            (1970, 1, 1),
            (1970, 2, 28),
            (1970, 3, 1),
            (1972, 2, 29),
            (2000, 2, 29),
            (2026, 1, 1),
            (2026, 11, 23),
        ];
        assert_eq!(dates, expected);
    }

    #[test]
    fn texts_and_ids_sort_as_times_do() {
        let time = |ms| Moment::of(UNIX_EPOCH + Duration::from_millis(ms));
        let late = time(1_795_475_700_123);
        assert_eq!(late.text(), "2026-11-23T23:15:00.123Z");
        assert_eq!(late.id(0xab12), "20261123-231500-ab12");
        let texts: Vec<String> = (0..50)
            .map(|nth| time(nth * 40_000_000_007).text())
            .collect();
        assert!(texts.is_sorted(), "{texts:?}");
    }
}
