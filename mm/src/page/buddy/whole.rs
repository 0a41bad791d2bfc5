//! The free blocks of 512 pages (huge blocks) and of 1024 pages (the largest order) in a zone that
//! keeps its free pages in bitmaps.
//!
//! A set of bits says which huge blocks are free although their buddies are not, and another which
//! blocks of the largest order are free. So two buddies merge by a change of two bits, and an
//! allocation takes the free block with the lowest address. No tag says that such a block is free:
//! the tags of huge blocks are so far apart in memory that many of them do not fit in a CPU's first
//! cache at the same time.
//!
//! There is one pair of sets for blocks whose memory was given back to the system below the
//! allocator, and one for all other blocks. An allocation takes the former after all other blocks of
//! the same order, because their memory has to be faulted in again. But it takes any huge block
//! before it splits a larger block.

use alloc::vec;
use alloc::vec::Vec;

use crate::units::{Order, Pages, count_of};

const HUGE: u32 = Order::HUGE.pages().0;
const LARGEST: u32 = Order::MAX.pages().0;

/// Whether the memory of a free block was given back to the system below the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    /// The memory was not given back, or was in use since then.
    Present = 0,
    /// The memory was given back.
    Given = 1,
}

const BACKINGS: [Backing; 2] = [Backing::Present, Backing::Given];

/// The free blocks of 512 and of 1024 pages. A huge block whose buddy is free too is part of a free
/// block of 1024 pages.
#[derive(Debug)]
pub(super) struct Whole {
    /// The free huge blocks whose buddies are not free, by their index in the zone, for each
    /// [`Backing`].
    huge: [BlockSet; 2],
    /// The free blocks of 1024 pages, by their index in the zone, for each [`Backing`].
    largest: [BlockSet; 2],
}

impl Whole {
    /// Creates the sets of a zone of `spanned` pages. No block is free.
    pub(super) fn new(spanned: Pages) -> Self {
        let sets = |pages: u32| BACKINGS.map(|_| BlockSet::new(spanned.0.div_ceil(pages)));
        Self {
            huge: sets(HUGE),
            largest: sets(LARGEST),
        }
    }

    /// Takes a block of 512 or 1024 pages, and returns its first page. If no huge block is free
    /// whose buddy is not free, takes the lower half of a block of 1024 pages.
    pub(super) fn take(&mut self, order: Order) -> Option<u32> {
        if order < Order::MAX
            && let Some(index) = self.huge.iter_mut().find_map(BlockSet::take)
        {
            return Some(index * HUGE);
        }
        for backing in BACKINGS {
            if let Some(index) = self.largest[backing as usize].take() {
                if order < Order::MAX {
                    self.huge[backing as usize].insert(2 * index + 1);
                }
                return Some(index * LARGEST);
            }
        }
        None
    }

    /// Takes up to `out.len()` huge blocks, the same as as many calls of [`Whole::take`], writes
    /// their first pages to `out`, and returns their number.
    pub(super) fn take_run(&mut self, out: &mut [u32]) -> usize {
        let mut got = 0;
        for set in &mut self.huge {
            set.take_run(out.len() - got, |index| {
                out[got] = index * HUGE;
                got += 1;
            });
        }
        for backing in BACKINGS {
            let most = (out.len() - got).div_ceil(2);
            let (mut rest, out) = (None, &mut *out);
            self.largest[backing as usize].take_run(most, |index| {
                out[got] = index * LARGEST;
                got += 1;
                let upper = 2 * index + 1;
                match out.get_mut(got) {
                    Some(out) => {
                        *out = upper * HUGE;
                        got += 1;
                    }
                    None => rest = Some(upper),
                }
            });
            if let Some(rest) = rest {
                self.huge[backing as usize].insert(rest);
            }
        }
        got
    }

    /// Frees the block of 512 or 1024 pages at `page`. A huge block merges with its buddy if that
    /// is free.
    #[inline]
    pub(super) fn give(&mut self, page: u32, order: Order, backing: Backing) {
        if order == Order::MAX {
            return self.largest[backing as usize].insert(page / LARGEST);
        }
        let index = page / HUGE;
        let merges = self.huge[Backing::Given as usize].remove(index ^ 1);
        if merges || backing == Backing::Given {
            return self.give_rarely(index, merges, backing);
        }
        let [huge, _] = &mut self.huge;
        let [largest, _] = &mut self.largest;
        // Whether the buddy is free is as good as random, so a branch would often be mispredicted.
        // A block and its buddy have their bits in the same word.
        let merges = huge.change(index, |bits| {
            let own = index % 64;
            let buddy = own ^ 1;
            let merges = (bits >> buddy) & 1;
            let changed = (merges << buddy) | ((1 - merges) << own);
            (bits ^ changed, merges)
        });
        largest.change(index / 2, |bits| (bits | (merges << (index / 2 % 64)), ()));
    }

    /// Frees huge blocks whose memory was not given back, the same as as many calls of
    /// [`Whole::give`].
    pub(super) fn give_run(&mut self, pages: &[u32]) {
        let Some(first) = pages.first().map(|page| page / HUGE / 64) else {
            return;
        };
        let [huge, _] = &mut self.huge;
        let mut differ = 0;
        for page in pages {
            let index = page / HUGE;
            debug_assert!(!huge.contains(index), "a block is free once");
            huge.words[(index / 64) as usize] |= 1 << (index % 64);
            differ |= (index / 64) ^ first;
        }
        // All words are among `count` words, the first of which has an index that is a multiple of
        // `count`.
        let count = (differ + 1).next_power_of_two();
        if count as usize <= pages.len() {
            let low = first & !(count - 1);
            let end = (low + count).min(count_of(huge.words.len()));
            (low..end).for_each(|word| self.merge_word(word));
        } else {
            let words = pages.iter().map(|page| page / HUGE / 64);
            words.for_each(|word| self.merge_word(word));
        }
    }

    /// Merges the free huge blocks whose bits are in one word with their buddies. The memory of
    /// those that have not been merged before was not given back.
    fn merge_word(&mut self, word: u32) {
        let [huge, given] = &mut self.huge;
        let [largest, _] = &mut self.largest;
        let (bits, given) = (huge.words[word as usize], given.words[word as usize]);
        let buddies = (bits & EVEN) << 1 | bits >> 1 & EVEN;
        if given & buddies != 0 {
            self.merge_with_given(word, given & buddies);
            return self.merge_word(word);
        }
        // The lower block of each pair of buddies of which both are free.
        let pairs = bits & bits >> 1 & EVEN;
        huge.change(word * 64, |bits| (bits & !(pairs | pairs << 1), ()));
        // Often no blocks merge, but a branch would be mispredicted.
        let merged = even_bits(pairs) << (word % 2 * 32);
        largest.change(word * 32, |bits| (bits | merged, ()));
    }

    /// Merges the free blocks in `given`, the memory of which was given back, with their buddies,
    /// the memory of which was not. The bits of the blocks are in one word.
    #[cold]
    fn merge_with_given(&mut self, word: u32, given: u64) {
        for bit in (0..64).filter(|bit| given >> bit & 1 == 1) {
            let index = word * 64 + bit;
            self.huge[Backing::Given as usize].remove(index);
            self.huge[Backing::Present as usize].remove(index ^ 1);
            self.largest[Backing::Present as usize].insert(index / 2);
        }
    }

    /// Continues [`Whole::give`] for a huge block with an index in the zone, if the memory of the
    /// block or of its buddy was given back. `merges` says that the buddy has been removed from the
    /// sets.
    #[cold]
    fn give_rarely(&mut self, index: u32, merges: bool, backing: Backing) {
        if merges || self.huge[Backing::Present as usize].remove(index ^ 1) {
            self.largest[backing as usize].insert(index / 2);
        } else {
            self.huge[backing as usize].insert(index);
        }
    }

    /// Removes the free block of 512 or 1024 pages at `page`. Returns whether there is one.
    pub(super) fn remove(&mut self, page: u32, order: Order) -> bool {
        let (sets, pages) = match order {
            Order::MAX => (&mut self.largest, LARGEST),
            _ => (&mut self.huge, HUGE),
        };
        sets.iter_mut().any(|set| set.remove(page / pages))
    }

    /// The order of the free block of 512 or 1024 pages whose first page is `page`, or `None` if
    /// there is no such block.
    pub(super) fn order_at(&self, page: u32) -> Option<Order> {
        let has = |sets: &[BlockSet; 2], pages: u32| {
            page.is_multiple_of(pages) && sets.iter().any(|set| set.contains(page / pages))
        };
        if has(&self.largest, LARGEST) {
            Some(Order::MAX)
        } else {
            has(&self.huge, HUGE).then_some(Order::HUGE)
        }
    }

    /// Returns whether the page is in a free block of 512 or 1024 pages.
    pub(super) fn contains(&self, page: u32) -> bool {
        let has = |sets: &[BlockSet; 2], block: u32| sets.iter().any(|set| set.contains(block));
        has(&self.huge, page / HUGE) || has(&self.largest, page / LARGEST)
    }

    /// Returns whether there is a free block of 512 pages or more, or of 1024 pages if `order` is
    /// [`Order::MAX`].
    pub(super) fn has(&self, order: Order) -> bool {
        let is_some = |sets: &[BlockSet; 2]| sets.iter().any(|set| !set.is_empty());
        is_some(&self.largest) || order < Order::MAX && is_some(&self.huge)
    }

    /// The number of free blocks of `order`; 0 for orders below that of a huge block. Looks at all
    /// words of the sets.
    pub(super) fn count(&self, order: Order) -> u32 {
        let sets = match order {
            Order::MAX => &self.largest,
            Order::HUGE => &self.huge,
            _ => return 0,
        };
        sets.iter().map(BlockSet::len).sum()
    }
}

/// A word in which each bit with an even index is 1.
const EVEN: u64 = u64::MAX / 3;

/// Returns the bits of `bits` with even indices, moved together. All other bits must be 0.
#[inline]
fn even_bits(mut bits: u64) -> u64 {
    // Each step moves every second group of `len` bits next to the group below it.
    for len in [1, 2, 4, 8, 16] {
        bits = (bits | bits >> len) & (u64::MAX / ((1 << (2 * len)) + 1));
    }
    bits
}

/// A set of blocks, as one bit for each block. A bit of `summary` is 1 if the corresponding word is
/// not 0, so the lowest block is found by looking at 1 word for each 4096 blocks.
#[derive(Debug)]
struct BlockSet {
    words: Vec<u64>,
    summary: Vec<u64>,
}

impl BlockSet {
    fn new(blocks: u32) -> Self {
        let words = blocks.div_ceil(64) as usize;
        Self {
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
        }
    }

    /// The number of blocks. Looks at all words.
    fn len(&self) -> u32 {
        self.words.iter().map(|bits| bits.count_ones()).sum()
    }

    fn is_empty(&self) -> bool {
        self.summary.iter().all(|bits| *bits == 0)
    }

    fn insert(&mut self, block: u32) {
        debug_assert!(!self.contains(block), "a block is free once");
        self.change(block, |bits| (bits | 1 << (block % 64), ()));
    }

    /// Removes a block. Returns whether it was in the set.
    fn remove(&mut self, block: u32) -> bool {
        let is_in = self.contains(block);
        if is_in {
            self.change(block, |bits| (bits & !(1 << (block % 64)), ()));
        }
        is_in
    }

    /// Replaces the word that has the bit of `block` by the first result of `f`, without a branch.
    /// Returns the second result.
    #[inline(always)]
    fn change<R>(&mut self, block: u32, f: impl FnOnce(u64) -> (u64, R)) -> R {
        let word = block / 64;
        let bits = &mut self.words[word as usize];
        let (new, result) = f(*bits);
        *bits = new;
        let summary = &mut self.summary[(word / 64) as usize];
        let is_used = u64::from(new != 0);
        *summary = (*summary & !(1 << (word % 64))) | (is_used << (word % 64));
        result
    }

    fn contains(&self, block: u32) -> bool {
        let word = self.words.get((block / 64) as usize);
        word.is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    /// Removes the lowest block from the set, and returns it.
    fn take(&mut self) -> Option<u32> {
        let mut lowest = None;
        self.take_run(1, |block| lowest = Some(block));
        lowest
    }

    /// Removes up to `most` blocks from the set, and calls `f` for each of them, the lowest first.
    #[inline]
    fn take_run(&mut self, most: usize, mut f: impl FnMut(u32)) {
        let mut left = most;
        for (at, bits) in (0..).zip(&mut self.summary) {
            while left > 0 && *bits != 0 {
                let word = at * 64 + bits.trailing_zeros();
                let blocks = &mut self.words[word as usize];
                while left > 0 && *blocks != 0 {
                    f(word * 64 + blocks.trailing_zeros());
                    *blocks &= *blocks - 1;
                    left -= 1;
                }
                if *blocks == 0 {
                    *bits &= *bits - 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::format;

    use proptest::prelude::*;

    use super::*;

    /// Two words of summary, so that a search passes an empty one.
    const BLOCKS: u32 = 5000;

    proptest! {
        #[test]
        fn a_set_of_blocks_agrees_with_a_set_of_numbers(
            steps in prop::collection::vec((0u32..3, 0..BLOCKS), 0..200),
        ) {
            let (mut set, mut known) = (BlockSet::new(BLOCKS), BTreeSet::new());
            for (step, block) in steps {
                match step {
                    0 if known.insert(block) => set.insert(block),
                    0 => prop_assert!(set.contains(block)),
                    1 => prop_assert_eq!(set.remove(block), known.remove(&block)),
                    _ => prop_assert_eq!(set.take(), known.pop_first()),
                }
                prop_assert_eq!(set.len() as usize, known.len());
                prop_assert_eq!(set.is_empty(), known.is_empty());
            }
            while let Some(block) = known.pop_first() {
                prop_assert_eq!(set.take(), Some(block));
            }
            prop_assert_eq!((set.take(), set.summary), (None, vec![0; 2]));
        }
    }

    proptest! {
        /// The blocks are few and near each other, or many and far apart. Each is first free, with
        /// its memory given back or not, or in use. Then runs of those in use are freed.
        #[test]
        fn a_run_is_freed_as_its_blocks_one_by_one(
            (blocks, states, order, runs) in prop_oneof![Just(90_u32), Just(700), Just(BLOCKS)]
                .prop_flat_map(|blocks| (
                    Just(blocks),
                    prop::collection::vec(0_u8..9, blocks as usize),
                    Just((0..blocks).collect::<Vec<_>>()).prop_shuffle(),
                    prop::collection::vec(0_usize..65, 1..12),
                )),
        ) {
            let [mut by_runs, mut one_by_one] = [0, 1].map(|_| Whole::new(Pages(blocks * HUGE)));
            let mut in_use = Vec::new();
            for index in order {
                let backing = match states[index as usize] {
                    0 => Backing::Given,
                    1 => Backing::Present,
                    _ => {
                        in_use.push(index * HUGE);
                        continue;
                    }
                };
                by_runs.give(index * HUGE, Order::HUGE, backing);
                one_by_one.give(index * HUGE, Order::HUGE, backing);
            }
            for run in runs {
                let left = in_use.len().saturating_sub(run);
                let run = in_use.split_off(left);
                by_runs.give_run(&run);
                for page in run {
                    one_by_one.give(page, Order::HUGE, Backing::Present);
                }
                prop_assert_eq!(format!("{by_runs:?}"), format!("{one_by_one:?}"));
            }
        }

        #[test]
        fn even_bits_are_moved_together(bits in any::<u32>()) {
            let apart = (0..32).map(|bit| u64::from(bits >> bit & 1) << (2 * bit));
            prop_assert_eq!(even_bits(apart.sum()), u64::from(bits));
        }
    }

    #[test]
    fn a_block_merges_with_its_buddy_and_no_other() {
        let mut whole = Whole::new(Pages(4 * LARGEST));
        for page in [3 * HUGE, HUGE, 2 * HUGE] {
            whole.give(page, Order::HUGE, Backing::Present);
        }
        let orders = [0, HUGE, 2 * HUGE, 3 * HUGE].map(|page| whole.order_at(page));
        assert_eq!(orders, [None, Some(Order::HUGE), Some(Order::MAX), None]);
        let counts = [Order::ZERO, Order::HUGE, Order::MAX].map(|order| whole.count(order));
        assert_eq!(counts, [0, 1, 1]);
        assert_eq!(whole.take(Order::MAX), Some(2 * HUGE));
        assert_eq!(whole.take(Order::MAX), None);
        assert_eq!(whole.take(Order::HUGE), Some(HUGE));
        assert_eq!(whole.take(Order::HUGE), None);
    }

    /// A huge block whose buddy is not free is taken before a larger block is split, and memory
    /// that was given back is taken after other blocks of the same order.
    #[test]
    fn given_memory_is_taken_last() {
        let mut whole = Whole::new(Pages(8 * LARGEST));
        whole.give(0, Order::MAX, Backing::Given);
        whole.give(LARGEST, Order::MAX, Backing::Present);
        whole.give(4 * HUGE, Order::HUGE, Backing::Given);
        whole.give(7 * HUGE, Order::HUGE, Backing::Present);
        let mut out = [0; 7];
        assert_eq!(whole.take_run(&mut out), 6);
        assert_eq!(out.map(|page| page / HUGE), [7, 4, 2, 3, 0, 1, 0]);
        assert_eq!(whole.count(Order::HUGE) + whole.count(Order::MAX), 0);
    }

    /// A block that merges counts as given back only if it was given back last.
    #[test]
    fn a_merged_block_is_as_present_as_the_block_that_was_freed_last() {
        for (first, second) in [
            (Backing::Given, Backing::Present),
            (Backing::Present, Backing::Given),
        ] {
            let mut whole = Whole::new(Pages(2 * LARGEST));
            whole.give(LARGEST, Order::MAX, Backing::Present);
            whole.give(0, Order::HUGE, first);
            whole.give(HUGE, Order::HUGE, second);
            let lowest_is_last = second == Backing::Given;
            let expected = if lowest_is_last { LARGEST } else { 0 };
            assert_eq!(whole.take(Order::MAX), Some(expected));
            assert!(whole.remove(LARGEST - expected, Order::MAX));
            assert!(!whole.remove(LARGEST - expected, Order::MAX));
        }
    }
    /// A block was given back, and half of it is taken. The other half still counts as given back, so
    /// it is taken after other memory.
    #[test]
    fn the_rest_of_a_given_block_is_taken_last() {
        for takes_run in [false, true] {
            let mut whole = Whole::new(Pages(4 * LARGEST));
            whole.give(0, Order::MAX, Backing::Given);
            let mut out = [0; 1];
            if takes_run {
                assert_eq!(whole.take_run(&mut out), 1);
            } else {
                out = [whole.take(Order::HUGE).expect("there is a block")];
            }
            assert_eq!(out, [0]);
            whole.give(6 * HUGE, Order::HUGE, Backing::Present);
            assert_eq!(whole.take(Order::HUGE), Some(6 * HUGE));
            assert_eq!(whole.take(Order::HUGE), Some(HUGE));
        }
    }
}
