//! Judges a selection: finds the candidate that should have been chosen, and the smallest number of
//! precise sums that can prove this choice.
//!
//! If several candidates have the most points, the right choice is the candidate with the highest
//! index. The key by which candidates are compared therefore also contains the candidate's index,
//! so no two keys are equal.

use plimsoll_mm::counter::Range;

/// The points of a candidate and the candidate's index. The candidate with the largest key should
/// be chosen.
type Key = (i64, u32);

/// The data about a candidate by which a choice is judged: its exact points, and the range of
/// points that follows from an approximate sum of the candidate's counters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Truth {
    pub(super) points: i64,
    pub(super) range: Range,
}

/// How good the choice of one selection was, and how many precise sums a proof of the right choice
/// needs. A precise sum reads every CPU's part of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judged {
    /// The number of points, in pages, by which the largest candidate exceeds the chosen candidate.
    pub(super) regret: u64,
    /// The mean number of points, in pages, by which the largest candidate exceeds a candidate that
    /// is chosen at random.
    pub(super) by_lot: f64,
    /// The smallest number of precise sums that can prove which candidate has the most points. A
    /// precise sum reads every CPU's part of a counter. A selector may need more sums if it sums
    /// other candidates first.
    pub(super) least_sums: u64,
}

/// Judges the choice of candidate `chosen`, an index in `truths`. There must be at least one
/// candidate.
pub(super) fn judge(truths: &[Truth], chosen: u32) -> Judged {
    let key = |(truth, nth): (&Truth, u32)| (truth.points, nth);
    let most = truths.iter().zip(0..).map(key).max();
    let (most, winner) = most.expect("some process may be chosen");
    let sum: i128 = truths.iter().map(|truth| i128::from(truth.points)).sum();
    Judged {
        regret: most.abs_diff(truths[chosen as usize].points),
        by_lot: most as f64 - sum as f64 / truths.len() as f64,
        least_sums: least_sums(truths, (most, winner)),
    }
}

/// Returns the number of precise sums in the shorter of two proofs that the largest candidate has
/// the most points. Each proof sets a bar, which is a number of points. It then sums every other
/// candidate whose range reaches above the bar:
///
/// - In the first proof, the bar is at the exact points of the largest candidate. This proof must
///   also sum the largest candidate, unless its range is a single number.
/// - In the second proof, the bar is at the low end of the largest candidate's range, so this proof
///   does not sum the largest candidate. It is valid only if the points of all other candidates are
///   below the bar.
fn least_sums(truths: &[Truth], largest: Key) -> u64 {
    let others = || {
        let all = truths.iter().zip(0..);
        all.filter(|(_, nth)| *nth != largest.1)
    };
    let reaching = |bar: Key| {
        let above = others().filter(|(truth, nth)| (truth.range.max, *nth) > bar);
        above.count() as u64
    };
    let range = truths[largest.1 as usize].range;
    let with = reaching(largest) + u64::from(range.width() > 0);
    let low = (range.min, largest.1);
    if others().all(|(truth, nth)| (truth.points, nth) < low) {
        with.min(reaching(low))
    } else {
        with
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(points: i64, min: i64, max: i64) -> Truth {
        Truth {
            points,
            range: Range { min, max },
        }
    }

    #[test]
    fn a_hog_needs_no_sum_and_neighbours_need_theirs() {
        let hog = [truth(10, 0, 20), truth(90, 80, 95), truth(15, 0, 30)];
        let judged = judge(&hog, 2);
        assert_eq!((judged.regret, judged.least_sums), (75, 0));
        assert!((judged.by_lot - (90.0 - 115.0 / 3.0)).abs() < 1e-9);
        let near = [truth(10, 0, 20), truth(15, 0, 30), truth(18, 16, 19)];
        // The third candidate has the most points, at least 16. The ranges of the two other
        // candidates reach above 16, so both of them must be summed. Both have fewer than 16
        // points, so the third candidate needs no sum.
        assert_eq!(judge(&near, 2).least_sums, 2);
        let level = [truth(10, 0, 20), truth(18, 0, 18), truth(18, 9, 19)];
        assert_eq!(judge(&level, 1).regret, 0);
        // The third candidate, with 18 points, should be chosen. The proof must sum the third and
        // the first candidate. The second candidate needs no sum: it has 18 points at most, and
        // loses a tie against the third candidate.
        assert_eq!(judge(&level, 1).least_sums, 2);
    }
}
