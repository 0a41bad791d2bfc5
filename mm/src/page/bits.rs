//! The free pages of one huge block (512 pages), as bits: a block of any order is a run of bits
//! whose first index is a multiple of the run's length.

use crate::units::Order;

/// The number of words of a [`Bits`], each of which has the bits of 64 pages.
pub(super) const WORDS: usize = (1 << Order::HUGE.index()) / 64;

/// For each order, about the blocks of the next larger order: the bits of the first such block in a
/// word, and a mask that changes the index of a bit to that of the first bit of the block around it.
/// If such a block has 64 pages or more, these are all bits of the word, and 0.
const LARGER: [(u64, u32); 16] = {
    let mut larger = [(u64::MAX, 0); 16];
    let mut order = 0;
    while order < 5 {
        let pages = 2 << order;
        larger[order] = (ones(pages), 64 - pages);
        order += 1;
    }
    larger
};

/// A set of pages of one huge block (512 pages). The bit of a page is 1 if the page is in the set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits(pub(super) [u64; WORDS]);

impl Bits {
    /// No page.
    pub(super) const NONE: Self = Self([0; WORDS]);
    /// All pages of a huge block.
    pub(super) const ALL: Self = Self([u64::MAX; WORDS]);

    /// Returns the set of the first `pages` pages.
    pub(super) fn first(pages: u32) -> Self {
        let mut bits = Self::NONE;
        for (word, bits) in (0..pages.div_ceil(64)).zip(&mut bits.0) {
            *bits = ones((pages - word * 64).min(64));
        }
        bits
    }

    /// Adds the block of `order` whose first page is at `offset`. None of its pages may be in the
    /// set yet.
    #[inline]
    pub(super) fn add(&mut self, offset: u32, order: Order) {
        let pages = order.pages().0;
        let (word, bit) = at(offset);
        if pages <= 64 {
            let bits = ones(pages) << bit;
            debug_assert_eq!(self.0[word] & bits, 0, "no page is here twice");
            self.0[word] |= bits;
        } else {
            self.0[word..word + (pages / 64) as usize].fill(u64::MAX);
        }
    }

    /// Adds the page at `offset`, and returns `true`, if this makes no block larger than blocks of
    /// `order`. Otherwise, or if the page is in the set already, returns `false` and changes nothing.
    /// If a larger block has more than 64 pages, also returns `false` if the page would only fill the
    /// word that has its bit.
    #[inline(always)]
    pub(super) fn add_apart(&mut self, offset: u32, order: Order) -> bool {
        let (word, bit) = at(offset);
        let before = self.0[word];
        let bits = before | 1 << bit;
        let (block, start) = LARGER[order.index() % LARGER.len()];
        let block = block << (bit & start);
        if bits == before || bits & block == block {
            return false;
        }
        self.0[word] = bits;
        true
    }

    /// Adds the pages whose bits are 1 in `bits`. These are bits of one word of the set: the word
    /// that has the bit of the page at `offset`. None of the pages may be in the set yet.
    #[inline]
    pub(super) fn add_to_word(&mut self, offset: u32, bits: u64) {
        let (word, _) = at(offset);
        debug_assert_eq!(self.0[word] & bits, 0, "no page is here twice");
        self.0[word] |= bits;
    }

    /// Returns the bits of the word that has the bit of the page at `offset`.
    #[inline]
    pub(super) fn word(&self, offset: u32) -> u64 {
        self.0[at(offset).0]
    }

    /// Returns whether the set contains all pages of some block of `order`. Looks only at blocks
    /// that have a bit in the same word as the page at `offset`.
    #[inline]
    pub(super) fn has_in_word(&self, offset: u32, order: Order) -> bool {
        let (word, _) = at(offset);
        if order.pages().0 <= 64 {
            starts(self.0[word], order.pages().0) != 0
        } else {
            self.has_around(offset, order)
        }
    }

    /// Returns whether the set has all pages of the block of `order` around the page at `offset`.
    #[inline]
    pub(super) fn has_around(&self, offset: u32, order: Order) -> bool {
        let pages = order.pages().0;
        let (word, bit) = at(offset & !(pages - 1));
        if pages <= 64 {
            let wanted = ones(pages) << bit;
            self.0[word] & wanted == wanted
        } else {
            let words = &self.0[word..word + (pages / 64) as usize];
            words.iter().all(|bits| *bits == u64::MAX)
        }
    }

    /// Returns whether the set has all pages of some block of `order`.
    pub(super) fn has(&self, order: Order) -> bool {
        self.find(order).is_some()
    }

    /// The offset of the first page of the lowest block of `order` in the set.
    pub(super) fn find(&self, order: Order) -> Option<u32> {
        let pages = order.pages().0;
        if pages <= 64 {
            let starts = self.0.iter().map(|bits| starts(*bits, pages));
            let (word, starts) = (0..).zip(starts).find(|found| found.1 != 0)?;
            Some(word * 64 + starts.trailing_zeros())
        } else {
            let words = (pages / 64) as usize;
            let is_full = |chunk: &[u64]| chunk.iter().all(|bits| *bits == u64::MAX);
            let word = self.0.chunks_exact(words).position(is_full)? * words;
            u32::try_from(word * 64).ok()
        }
    }

    /// Takes the lowest block of `order` out of the set, and returns the offset of its first page.
    pub(super) fn take(&mut self, order: Order) -> Option<u32> {
        let offset = self.find(order)?;
        let pages = order.pages().0;
        let (word, bit) = at(offset);
        if pages <= 64 {
            self.0[word] &= !(ones(pages) << bit);
        } else {
            self.0[word..word + (pages / 64) as usize].fill(0);
        }
        Some(offset)
    }

    /// Takes up to `out.len()` of the lowest pages out of the set, writes `first` plus the offset
    /// of each page to `out`, and returns the number of pages taken.
    pub(super) fn take_pages(&mut self, first: u32, out: &mut [u32]) -> usize {
        let mut got = 0;
        for (word, bits) in (0..).zip(&mut self.0) {
            got += take_lowest(bits, first + word * 64, &mut out[got..]);
        }
        got
    }

    /// Takes pages out of the set for a run, writes `first` plus the offset of each page to `out`,
    /// and returns the number of pages taken. `out` already has the first `got` pages of the run.
    ///
    /// Takes the lowest pages until the run has `most` pages. Takes only some of the pages of a word
    /// only if they are the first pages of the run. Takes all pages of a full word, even if `most` is
    /// smaller, if the run has no page yet and `out` has room.
    pub(super) fn take_words(
        &mut self,
        first: u32,
        out: &mut [u32],
        got: usize,
        most: usize,
    ) -> usize {
        let mut end = got;
        for (word, bits) in (0..).zip(&mut self.0).filter(|(_, bits)| **bits != 0) {
            let from = first + word * 64;
            if end == 0 && *bits == u64::MAX && out.len() >= 64 {
                out.iter_mut()
                    .zip(from..from + 64)
                    .for_each(|(out, page)| *out = page);
                *bits = 0;
                return 64;
            }
            let room = most - end;
            if room == 0 || end > 0 && bits.count_ones() as usize > room {
                break;
            }
            end += take_lowest(bits, from, &mut out[end..most]);
        }
        end - got
    }

    /// The number of blocks of each order, up to that of a huge block, if the pages of the set are
    /// merged as far as possible.
    pub(super) fn blocks(mut self) -> [u32; Order::HUGE.index() + 1] {
        let mut blocks = [0; Order::HUGE.index() + 1];
        for order in Order::all().rev().filter(|order| *order <= Order::HUGE) {
            while self.take(order).is_some() {
                blocks[order.index()] += 1;
            }
        }
        blocks
    }
}

/// Sets up to `out.len()` of the lowest 1 bits of `bits` to 0, writes `from` plus the index of each of
/// these bits to `out`, and returns their number.
#[inline]
fn take_lowest(bits: &mut u64, from: u32, out: &mut [u32]) -> usize {
    let mut got = 0;
    while *bits != 0 && got < out.len() {
        out[got] = from + bits.trailing_zeros();
        *bits &= *bits - 1;
        got += 1;
    }
    got
}

/// The index of the word that has the bit of the page at `offset`, and the index of the bit in it.
#[inline]
const fn at(offset: u32) -> (usize, u32) {
    ((offset / 64) as usize % WORDS, offset % 64)
}

/// Returns a word whose lowest `count` bits are 1. `count` must be 1 to 64.
#[inline]
pub(super) const fn ones(count: u32) -> u64 {
    u64::MAX >> (64 - count)
}

/// Returns a word whose bit `i` is 1 if the `pages` bits of `bits` from bit `i` on are all 1, and
/// `i` is a multiple of `pages`. `pages` must be a power of two of at most 64.
#[inline]
fn starts(bits: u64, pages: u32) -> u64 {
    let mut starts = bits;
    let mut step = 1;
    while step < pages {
        starts &= starts >> step;
        step *= 2;
    }
    // Keeps only the bits whose index is a multiple of `pages`.
    starts & (u64::MAX / ones(pages))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn order(order: u8) -> Order {
        Order::new(order).expect("small")
    }

    #[test]
    fn blocks_are_taken_in_ascending_order_and_aligned() {
        let mut bits = Bits::ALL;
        let taken = [0, 1, 0, 3, 2, 6, 8].map(|size| bits.take(order(size)));
        assert_eq!(taken, [0, 2, 1, 8, 4, 64, 256].map(Some));
        assert_eq!(bits.find(order(8)), None);
        assert_eq!(bits.find(order(7)), Some(128));
    }

    #[test]
    fn the_first_pages_are_a_block_whatever_its_size() {
        for size in [0, 2, 6, 7, 9] {
            let mut bits = Bits::first(1 << size);
            assert!(bits.has_around((1 << size) - 1, order(size)));
            assert_eq!(bits.take(order(size)), Some(0));
            assert_eq!(bits, Bits::NONE);
        }
    }

    /// The set has all pages of a block but one, or but two. Only the page that is missing alone
    /// completes the block.
    #[test]
    fn only_the_last_page_of_a_larger_block_is_not_added_apart() {
        for (largest, page) in (0..=5).flat_map(|size| (0..512).map(move |page| (size, page))) {
            let without = |bits: Bits, page: u32| {
                let mut bits = bits;
                bits.0[at(page).0] &= !(1 << (page % 64));
                bits
            };
            let pages = 2 << largest;
            let start = page & !(pages - 1);
            let mut block = Bits::NONE;
            block.add(start, order(largest + 1));
            let mut last = without(block, page);
            assert!(!last.add_apart(page, order(largest)), "{largest}, {page}");
            for other in (start..start + pages).filter(|&other| other != page) {
                let mut bits = without(without(Bits::ALL, page), other);
                assert!(bits.add_apart(page, order(largest)), "{largest}, {page}");
                assert_eq!(bits, without(Bits::ALL, other));
            }
        }
    }

    proptest! {
        /// The words are empty, full, or have a few pages, so that some fit into the run and some do
        /// not.
        #[test]
        fn a_run_has_words_that_fit_or_a_part_of_one(
            words in prop::collection::vec(prop_oneof![
                Just(0), Just(u64::MAX), any::<u64>(), (0..64_u32).prop_map(|bit| 1 << bit),
                (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(a, b, c)| a & b & c),
            ], WORDS),
            len in prop_oneof![Just(64_usize), 0..70_usize],
            most in 0_usize..70,
            got in 0_usize..70,
        ) {
            let most = most.min(len);
            let got = got.min(most);
            let mut bits = Bits(words.clone().try_into().expect("as many words"));
            let before = bits;
            let mut out = vec![7; len];
            let taken = bits.take_words(1000, &mut out, got, most);
            let pages = |bits: &Bits| (0..512).filter(|&at| bits.has_around(at, Order::ZERO)).collect::<Vec<u32>>();
            let lowest: Vec<u32> = pages(&before).iter().map(|at| at + 1000).take(taken).collect();
            prop_assert_eq!(&out[got..got + taken], &lowest[..]);
            prop_assert!(out[..got].iter().chain(&out[got + taken..]).all(|&page| page == 7));
            prop_assert!(pages(&bits).into_iter().eq(pages(&before).into_iter().skip(taken)));
            let sizes: Vec<usize> = words.iter().map(|word| word.count_ones() as usize).filter(|&size| size > 0).collect();
            let expected = match sizes.first() {
                None => 0,
                Some(64) if got == 0 && len >= 64 => 64,
                Some(&size) if got == 0 && size > most => most,
                _ => sizes.iter().scan(got, |end, size| { *end += size; Some(*end) }).take_while(|&end| end <= most).last().map_or(0, |end| end - got),
            };
            prop_assert_eq!(taken, expected);
        }

        /// The words are nearly full, or have few pages, so that the added page may make a block of any
        /// size.
        #[test]
        fn a_page_is_added_apart_if_it_makes_no_larger_block(
            words in prop::collection::vec(prop_oneof![
                any::<u64>(), Just(u64::MAX), (0..64_u32).prop_map(|bit| !(1 << bit)),
                (0..64_u32, 0..64_u32).prop_map(|(a, b)| 1 << a | 1 << b),
            ], WORDS),
            page in 0_u32..512,
            largest in 0_u8..=8,
        ) {
            let mut bits = Bits(words.clone().try_into().expect("as many words"));
            let before = bits;
            let mut after = bits;
            after.0[at(page).0] |= 1 << (page % 64);
            let is_added = bits.add_apart(page, order(largest));
            prop_assert_eq!(bits, if is_added { after } else { before });
            let is_new = !before.has_around(page, Order::ZERO);
            // If a larger block has more than 64 pages, only its word counts.
            let larger = order((largest + 1).min(6));
            prop_assert_eq!(is_added, is_new && !after.has_around(page, larger));
        }

        #[test]
        fn a_set_of_bits_agrees_with_a_set_of_numbers(
            pages in prop::collection::btree_set(0u32..512, 0..512),
            take in 0usize..600,
        ) {
            let mut bits = Bits::NONE;
            pages.iter().for_each(|&page| bits.add(page, Order::ZERO));
            for size in 0..=9 {
                let run = |start: u32| (start..start + (1 << size)).all(|page| pages.contains(&page));
                let lowest = (0..512).step_by(1 << size).find(|&start| run(start));
                prop_assert_eq!(bits.find(order(size)), lowest);
                for page in [0, 77, 300, 511] {
                    let start = page & !((1 << size) - 1);
                    prop_assert_eq!(bits.has_around(page, order(size)), run(start));
                    let word = page & !63;
                    let from = if size > 6 { start } else { word };
                    let in_word = (from..word + 64).step_by(1 << size).any(run);
                    prop_assert_eq!(bits.has_in_word(page, order(size)), in_word);
                }
            }
            let sizes = bits.blocks().into_iter().zip(0..).map(|(count, size)| count << size);
            prop_assert_eq!(sizes.sum::<u32>() as usize, pages.len());
            let mut out = vec![0; take];
            let got = bits.take_pages(1000, &mut out);
            let lowest: Vec<u32> = pages.iter().map(|page| page + 1000).take(take).collect();
            prop_assert_eq!(&out[..got], &lowest[..]);
            let left: BTreeSet<u32> = (0..512).filter(|&page| bits.has_around(page, Order::ZERO)).collect();
            prop_assert!(left.iter().copied().eq(pages.into_iter().skip(got)));
        }
    }
}
