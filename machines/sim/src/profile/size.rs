//! Memory sizes in the usual notation: `480 GB`, `8 GiB`.

/// The units, in bytes. Decimal units are allowed because memory is sold in them.
const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// The number of bytes that `size` denotes; `None` unless it is a whole number and a unit.
pub(super) fn parse(size: &str) -> Option<u64> {
    let digits = size.trim().split(|c: char| !c.is_ascii_digit()).next()?;
    let (count, unit) = size.trim().split_at(digits.len());
    let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    count.parse::<u64>().ok()?.checked_mul(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_whole_number_and_a_unit() {
        assert_eq!(parse("480 GB"), Some(480_000_000_000));
        assert_eq!(parse(" 8GiB "), Some(8 << 30));
        assert_eq!(parse("1 TB"), Some(1_000_000_000_000));
        for bad in [
            "",
            "GB",
            "480",
            "4.5 GB",
            "-1 GB",
            "480 gb",
            "480 GB RAM",
            "99999999 TiB",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
