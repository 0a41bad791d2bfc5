//! Runs of pages that move at once between a front (a CPU's stack of free pages), the page lists and
//! the zone.

use crate::units::count_of;

/// The largest number of blocks that move at once between a CPU's front (its stack of free blocks)
/// and its page lists or the zone, or between two fronts.
pub(super) const RUN: usize = 64;

/// Returns whether every 64 of `pages` are all pages of a word, a block of 64 pages.
pub(super) fn are_words(pages: &[u32]) -> bool {
    pages.chunks(RUN).all(is_word)
}

/// Returns the first page of `word`, whose pages are all pages of a word. Returns `None` if there are
/// no pages.
pub(super) fn first_of_word(word: &[u32]) -> Option<u32> {
    word.first().min(word.last()).copied()
}

fn is_word(pages: &[u32]) -> bool {
    let first = first_of_neighbours(pages);
    pages.len() == RUN && first.is_some_and(|first| first.is_multiple_of(count_of(RUN)))
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
        assert!(are_words(&neighbours(128, 64)));
        let descending: Vec<u32> = (64..128).rev().collect();
        assert!(are_words(&descending));
        assert_eq!(first_of_word(&descending), Some(64));
        assert_eq!(first_of_word(&neighbours(128, 64)), Some(128));
        assert_eq!(first_of_word(&[]), None);
        for (first, len) in [(129, 64), (128, 63), (128, 65), (96, 64), (96, 128)] {
            assert!(!are_words(&neighbours(first, len)), "{first}, {len}");
        }
        let mut swapped = neighbours(64, 64);
        swapped.swap(10, 11);
        assert!(!are_words(&swapped));
    }

    #[test]
    fn several_words_may_be_in_any_order_but_each_is_whole() {
        let words = |firsts: &[u32]| -> Vec<u32> {
            firsts.iter().flat_map(|&first| first..first + 64).collect()
        };
        assert!(are_words(&words(&[128, 192])) && are_words(&words(&[512, 0, 64])));
        for firsts in [&[0, 65][..], &[1, 64], &[0, 64, 130]] {
            assert!(!are_words(&words(firsts)), "{firsts:?}");
        }
        assert!(!are_words(&words(&[0, 64])[..127]));
    }
}
