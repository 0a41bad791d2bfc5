//! The points of a process: the number of pages that killing the process would free, plus the
//! process's adjustment (`oom_score_adj`), converted to pages.
//!
//! Plimsoll clamps every step of the computation, so more memory never means fewer points. Linux
//! computes in `long` and relies on the absence of overflow.

use core::fmt;
use core::num::NonZeroU64;

use super::facts::{Facts, Kind, Memory, ScoreAdj};
use crate::units::PAGE_SIZE;

/// The fewest points that a process can have. Points are the pages that killing the process would
/// free, plus its adjustment. For a process that must not be killed, Linux uses `LONG_MIN`, which
/// is one less.
pub const POINTS_MIN: i64 = i64::MIN + 1;
/// The most points that a process can have because of its memory. A process that asked to be killed
/// first (an origin) has one point more.
pub const POINTS_MAX: i64 = i64::MAX - 1;
/// The points of an origin, a process that asked to be killed first.
pub(super) const POINTS_OF_ORIGIN: i64 = i64::MAX;

/// The number of pages that a shortage affects, at least 1 (Linux: `totalpages`): these are the
/// memory and swap of the machine or of the allowed nodes, or the limit of a memory group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TotalPages(NonZeroU64);

impl TotalPages {
    /// Wraps `pages`, the total number of pages.
    ///
    /// # Errors
    /// [`NoPages`] if `pages` is 0.
    pub fn new(pages: u64) -> Result<Self, NoPages> {
        NonZeroU64::new(pages).map(Self).ok_or(NoPages)
    }

    /// Returns the number of pages, at least 1.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// The error for a total of 0 pages: the score of a process is a share of this total, so the total
/// must not be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPages;

impl fmt::Display for NoPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("points are shares of all pages, of which there must be at least 1")
    }
}

impl core::error::Error for NoPages {}

/// The parts of a process's memory that a kill would free, and that therefore count towards the
/// process's points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of resident pages: file pages, anonymous pages and shared memory.
    pub resident_pages: u64,
    /// The number of pages that the process has in swap.
    pub swap_pages: u64,
    /// The size of the process's page tables, in bytes.
    pub table_bytes: u64,
}

impl Usage {
    /// Returns the number of pages that a kill would free. Page tables count in whole pages,
    /// rounded down.
    #[must_use]
    pub fn pages(self) -> i64 {
        let pages = self.resident_pages.saturating_add(self.swap_pages);
        let pages = pages.saturating_add(self.table_bytes / PAGE_SIZE);
        // The caller can pass any counts. If the sum of the pages does not fit 63 bits, the process
        // counts as having `i64::MAX` pages.
        i64::try_from(pages).unwrap_or(i64::MAX)
    }
}

/// Returns the points of a process that occupies `pages`, or `None` if the process must not be
/// killed (Linux: `oom_badness`, which returns `LONG_MIN` in that case). Points may be negative.
#[must_use]
pub fn badness(facts: &Facts, pages: i64, total: TotalPages) -> Option<i64> {
    is_killable(facts).then(|| points(pages, facts.adj, total))
}

/// Returns true if the process may be killed and killing it would free memory.
pub(super) fn is_killable(facts: &Facts) -> bool {
    facts.kind == Kind::Process && facts.memory == Memory::Own && facts.adj != ScoreAdj::NEVER
}

/// Returns `pages + adj × (total / 1000)`. The division comes first and rounds down, as in Linux.
pub(super) fn points(pages: i64, adj: ScoreAdj, total: TotalPages) -> i64 {
    let shift = i128::from(adj.get()) * i128::from(total.get() / 1000);
    let points = i128::from(pages) + shift;
    let points = points.clamp(POINTS_MIN.into(), POINTS_MAX.into());
    i64::try_from(points).expect("clamped to 64 bits")
}

/// Returns the value that `/proc/<pid>/oom_score` shows for `badness`. The value is 0 if the
/// process must not be killed. Otherwise, it is usually from 666 to 1333 if the adjustment is 0,
/// and from 0 to 2000 with other adjustments.
///
/// The score exceeds 2000 only if the process has more pages than `total`. It is never negative.
#[must_use]
pub fn oom_score(badness: Option<i64>, total: TotalPages) -> u64 {
    let Some(points) = badness else {
        return 0;
    };
    // Each of these two divisions rounds towards 0, as in Linux.
    let share = i128::from(points) * 1000 / i128::from(total.get());
    let score = (1000 + share) * 2 / 3;
    // If the process has far more pages than `total`, its score may not fit 64 bits. Then return
    // the largest score.
    u64::try_from(score.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn total(pages: u64) -> TotalPages {
        TotalPages::new(pages).expect("some")
    }

    fn with_adj(adj: i32) -> Facts {
        let adj = ScoreAdj::new(adj).expect("in range");
        Facts {
            adj,
            ..Facts::PROCESS
        }
    }

    #[test]
    fn points_are_pages_and_thousandths_of_all_pages_rounded_down_first() {
        let gib_16 = total(4 << 20); // 4,194,304 pages: 4194 per thousandth
        assert_eq!(badness(&with_adj(0), 5000, gib_16), Some(5000));
        assert_eq!(badness(&with_adj(1), 5000, gib_16), Some(9194));
        assert_eq!(
            badness(&with_adj(-999), 5000, gib_16),
            Some(5000 - 999 * 4194)
        );
        assert_eq!(badness(&with_adj(1000), 0, gib_16), Some(4_194_000));
        // If the total is below 1000 pages, the adjustment has no effect, as in Linux.
        assert_eq!(badness(&with_adj(1000), 7, total(999)), Some(7));
    }

    #[test]
    fn who_must_not_be_killed_has_no_points() {
        let all = total(1 << 20);
        assert_eq!(badness(&with_adj(-1000), 5000, all), None);
        for kind in [Kind::Init, Kind::KernelThread] {
            assert_eq!(
                badness(
                    &Facts {
                        kind,
                        ..Facts::PROCESS
                    },
                    5000,
                    all
                ),
                None
            );
        }
        for memory in [Memory::Parents, Memory::Gone, Memory::Reaped] {
            assert_eq!(
                badness(
                    &Facts {
                        memory,
                        ..Facts::PROCESS
                    },
                    5000,
                    all
                ),
                None
            );
        }
    }

    #[test]
    fn page_tables_count_in_whole_pages() {
        let usage = Usage {
            resident_pages: 10,
            swap_pages: 5,
            table_bytes: 3 * 4096 + 4095,
        };
        assert_eq!(usage.pages(), 18);
        let most = Usage {
            resident_pages: u64::MAX,
            swap_pages: u64::MAX,
            table_bytes: u64::MAX,
        };
        assert_eq!(most.pages(), i64::MAX);
    }

    #[test]
    fn the_score_is_two_thirds_of_a_scale_that_begins_at_1000() {
        let all = total(1_000_000);
        assert_eq!(oom_score(None, all), 0);
        assert_eq!(oom_score(Some(0), all), 666);
        assert_eq!(oom_score(Some(1_000_000), all), 1333);
        assert_eq!(oom_score(Some(2_000_000), all), 2000);
        assert_eq!(oom_score(Some(-1_000_000), all), 0);
        // Both divisions round towards 0. So −1 page, which is less than a thousandth of all pages,
        // gives the same score as 0 pages.
        assert_eq!(oom_score(Some(-1), all), 666);
        assert_eq!(oom_score(Some(1500), all), 667);
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        assert_eq!(TotalPages::new(0), Err(NoPages));
        for adj in [-1001, 1001, i32::MIN, i32::MAX, 65_536] {
            let error = ScoreAdj::new(adj).expect_err("out of range");
            assert_eq!(error, crate::oom::AdjOutOfRange(adj));
        }
    }

    proptest! {
        #[test]
        fn extreme_values_are_clamped_and_never_turn_round(
            pages: (i64, i64),
            adj in -999_i32..=1000,
            all in prop_oneof![1_u64..5000, any::<u64>().prop_map(|pages| pages.max(1))],
        ) {
            let facts = with_adj(adj);
            let all = total(all);
            let [one, other] = [pages.0, pages.1].map(|pages| {
                badness(&facts, pages, all).expect("killable")
            });
            prop_assert!((POINTS_MIN..=POINTS_MAX).contains(&one));
            let [fewer, points] = if pages.0 <= pages.1 { [one, other] } else { [other, one] };
            prop_assert!(fewer <= points);
            let exact = i128::from(pages.0) + i128::from(adj) * i128::from(all.get() / 1000);
            if let Ok(exact @ POINTS_MIN..=POINTS_MAX) = i64::try_from(exact) {
                prop_assert_eq!(one, exact);
            }
            let [less, more] = [one.min(other), one.max(other)];
            prop_assert!(oom_score(Some(less), all) <= oom_score(Some(more), all));
        }

        #[test]
        fn usage_is_never_negative_and_never_less_with_more(
            resident_pages: u64, swap_pages: u64, table_bytes: u64, more: u64,
        ) {
            let usage = Usage { resident_pages, swap_pages, table_bytes };
            prop_assert!(usage.pages() >= 0);
            let swap_pages = swap_pages.saturating_add(more);
            let with_more = Usage { swap_pages, ..usage };
            prop_assert!(with_more.pages() >= usage.pages());
        }
    }
}
