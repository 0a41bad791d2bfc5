//! Runs of pages that move at once between a front (a CPU's stack of free pages), the page lists and
//! the zone.

use crate::units::count_of;

/// The largest number of blocks that move at once between a CPU's front (its stack of free blocks)
/// and its page lists or the zone, or between two fronts.
pub(super) const RUN: usize = 64;

/// Returns the first page of `pages` if these are all pages of a word, a block of 64 pages.
pub(super) fn word_of(pages: &[u32]) -> Option<u32> {
    let first = (pages.len() == RUN).then(|| first_of_neighbours(pages))??;
    first.is_multiple_of(count_of(RUN)).then_some(first)
}

/// Returns the first page of `pages` if they are neighbours: each is the page before the one that
/// precedes it, or each is the page after that one.
#[inline]
pub(super) fn first_of_neighbours(pages: &[u32]) -> Option<u32> {
    let (&from, &to) = (pages.first()?, pages.last()?);
    let len = count_of(pages.len());
    if from.abs_diff(to) != len - 1 {
        return None;
    }
    // Looks at all pages without a branch for each, because nearly always all of them match.
    let differ = if from > to {
        (0..len)
            .zip(pages)
            .fold(0, |all, (nth, page)| all | (page ^ from.wrapping_sub(nth)))
    } else {
        (0..len)
            .zip(pages)
            .fold(0, |all, (nth, page)| all | (page ^ from.wrapping_add(nth)))
    };
    (differ == 0).then_some(from.min(to))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn neighbours_are_in_ascending_or_in_descending_order() {
        for (pages, first) in [
            (&[][..], None),
            (&[7], Some(7)),
            (&[7, 8, 9], Some(7)),
            (&[9, 8, 7], Some(7)),
            (&[7, 9, 8], None),
            (&[7, 9, 9, 10], None),
            (&[9, 7, 8, 6], None),
            (&[7, 8, 10], None),
            (&[0, u32::MAX], None),
            (&[1, 0], Some(0)),
        ] {
            assert_eq!(first_of_neighbours(pages), first, "{pages:?}");
        }
    }

    #[test]
    fn a_word_has_64_neighbours_and_begins_at_a_multiple_of_64() {
        let neighbours = |first, len| (first..first + len).collect::<Vec<u32>>();
        assert_eq!(word_of(&neighbours(128, 64)), Some(128));
        let descending: Vec<u32> = (0..64).rev().collect();
        assert_eq!(word_of(&descending), Some(0));
        for (first, len) in [(129, 64), (128, 63), (128, 65), (128, 128), (96, 64)] {
            assert_eq!(word_of(&neighbours(first, len)), None, "{first}, {len}");
        }
        let mut swapped = neighbours(64, 64);
        swapped.swap(10, 11);
        assert_eq!(word_of(&swapped), None);
    }
}
