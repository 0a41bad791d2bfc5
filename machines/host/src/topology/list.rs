//! Parsers for files in sysfs that contain a number or a list of CPUs such as `0-3,8,10-11`.

use super::CPUS_MAX;

/// Parses a list of CPUs and keeps its order. Returns `None` if the text is not a list, or a CPU
/// number is implausibly large.
///
/// An empty list is valid: a node may have memory and no CPU.
pub(super) fn cpus(text: &str) -> Option<Vec<u32>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(Vec::new());
    }
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (digits(first)?, digits(last)?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Parses an id. Linux writes −1 for an id that it does not know.
pub(super) fn id(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}

/// Parses digits only. It refuses a plus sign, which `parse` would accept but Linux never writes.
fn digits(text: &str) -> Option<u32> {
    if text.starts_with('+') {
        None
    } else {
        text.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_ranges_and_single_cpus() {
        assert_eq!(cpus("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(cpus("5"), Some(vec![5]));
        assert_eq!(cpus(" \n"), Some(vec![]));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in [
            "a",
            "0-",
            "-1",
            "3-1",
            "0,,2",
            "0-99999999999",
            "0-4000000000",
            "+1",
            "0;1",
        ] {
            assert_eq!(cpus(text), None, "{text:?}");
        }
        assert_eq!(id("-1\n"), Some(-1));
        assert_eq!(id("x"), None);
    }
}
