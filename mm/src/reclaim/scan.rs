//! How many pages of each list a pass of reclaim looks at. Pure arithmetic that follows Linux
//! (`get_scan_count`, `inactive_is_low`).

/// The priority of the first pass, which looks at the smallest part of the lists: a 4096th (Linux:
/// `DEF_PRIORITY`).
pub(super) const PRIORITY_FIRST: u32 = 12;

/// The number of pages that a direct reclaim asks for, and that are looked at in one batch (Linux:
/// `SWAP_CLUSTER_MAX`).
pub(super) const CLUSTER: u64 = 32;

/// The number of pages of 4 KiB in a GiB.
const GIB: u64 = 1 << 18;

/// Returns whether the inactive list is too short, so that active pages have to become inactive.
///
/// The more pages the two lists have together, the smaller is the part of these pages that has to
/// be inactive: half if they are less than 1 GiB, a quarter if they are 1 GiB, an eleventh if they
/// are 10 GiB, a thirty-second if they are 100 GiB.
pub(super) const fn inactive_is_low(inactive: u64, active: u64) -> bool {
    let gib = (inactive + active) / GIB;
    let ratio = if gib > 0 { (10 * gib).isqrt() } else { 1 };
    inactive * ratio < active
}

/// Returns how many pages of a list of `len` pages a pass of this `priority` looks at.
pub(super) const fn of_list(len: u64, priority: u32) -> u64 {
    len >> priority
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_memory_needs_a_smaller_inactive_part() {
        assert!(inactive_is_low(99, 100) && !inactive_is_low(100, 100));
        // 10 GiB: √100 = 10.
        let active = 9 * GIB;
        assert!(!inactive_is_low(GIB, active));
        assert!(inactive_is_low(GIB - 1, 10 * GIB));
        // 100 GiB: √1000 = 31.
        assert!(inactive_is_low(3 * GIB, 97 * GIB));
        assert!(!inactive_is_low(4 * GIB, 96 * GIB));
        assert!(!inactive_is_low(0, 0));
    }

    #[test]
    fn a_short_list_is_first_looked_at_in_a_later_pass() {
        let first = |len: u64| (0..=PRIORITY_FIRST).rev().find(|&at| of_list(len, at) > 0);
        assert_eq!(first(4096), Some(12));
        assert_eq!(first(4095), Some(11));
        assert_eq!(first(1), Some(0));
        assert_eq!(first(0), None);
    }
}
