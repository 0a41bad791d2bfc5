//! Moves many single pages or huge blocks at once to and from the bitmaps of a zone.

use super::Buddy;
use super::whole::Backing;
use crate::page::bits::ones;
use crate::units::{Order, Pages, count_of};

impl Buddy {
    /// Takes up to `out.len()` single pages from the bitmaps, writes them to `out`, and returns
    /// their number. Splits whole blocks if the bitmaps have too few pages.
    pub(in crate::page) fn take_pages(&mut self, out: &mut [u32]) -> usize {
        let mut got = 0;
        while got < out.len()
            && let Some(bitmaps) = self.bitmaps.as_mut()
        {
            match bitmaps.take_pages(&mut self.links, &mut out[got..]) {
                0 if self.open().is_none() => break,
                more => got += more,
            }
        }
        self.free -= Pages(count_of(got));
        got
    }

    /// Takes single pages for a CPU's stack of free pages, writes them to `out`, and returns their
    /// number. Takes either 64 pages that are a free block, if `out` has room for them, or at most
    /// `most` pages. Splits a whole block only if the bitmaps have no page.
    pub(in crate::page) fn take_words(&mut self, out: &mut [u32], most: usize) -> usize {
        let mut got = 0;
        while let Some(bitmaps) = self.bitmaps.as_mut() {
            let taken = bitmaps.take_words(&mut self.links, out, got, most);
            got += taken;
            if got >= most || taken == 0 && (got > 0 || self.open().is_none()) {
                break;
            }
        }
        self.free -= Pages(count_of(got));
        got
    }

    /// Takes up to `out.len()` huge blocks from the sets of whole blocks, writes their first pages
    /// to `out`, and returns their number. Does nothing if the zone has no bitmaps.
    pub(in crate::page) fn take_huge(&mut self, out: &mut [u32]) -> usize {
        let Some(bitmaps) = &mut self.bitmaps else {
            return 0;
        };
        let got = bitmaps.whole.take_run(out);
        self.ages.used_huge(&out[..got]);
        self.free -= Pages(count_of(got) << Order::HUGE.get());
        got
    }

    /// Frees huge blocks, and returns their number. Does nothing if the zone has no bitmaps.
    pub(in crate::page) fn give_huge(&mut self, pages: &[u32]) -> u32 {
        let Some(bitmaps) = &mut self.bitmaps else {
            return 0;
        };
        bitmaps.whole.give_run(pages);
        let given = count_of(pages.len());
        self.free += Pages(given << Order::HUGE.get());
        given
    }

    /// Frees single pages to the bitmaps. Drops pages that are free already, because they were freed
    /// twice, and returns the number of the others. Does nothing if the zone has no bitmaps.
    pub(in crate::page) fn give_pages(&mut self, pages: &[u32]) -> u32 {
        let Some(bitmaps) = &mut self.bitmaps else {
            return 0;
        };
        let mut rest = pages;
        loop {
            rest = &rest[bitmaps.give_apart(rest)..];
            let Some(&page) = rest.first() else {
                break;
            };
            // Pages that were freed one after the other are often neighbours. Successive pages
            // whose bits are in the same word are freed in one step.
            let word = page / 64;
            let beside = rest.iter().take_while(|&other| other / 64 == word);
            let add = |(count, bits), page: &u32| (count + 1, bits | 1 << (page % 64));
            let (count, bits) = beside.fold((0, 0), add);
            rest = &rest[count..];
            let whole = bitmaps.give_word(&mut self.links, word, bits);
            if let Some(whole) = whole {
                bitmaps.whole.give(whole, Order::HUGE, Backing::Present);
            }
        }
        let given = bitmaps.take_given();
        self.free += Pages(given);
        given
    }

    /// Frees the `len` single pages from `first` on to the bitmaps. Drops pages that are free already,
    /// because they were freed twice, and returns the number of the others. Does nothing if the zone
    /// has no bitmaps.
    pub(in crate::page) fn give_neighbours(&mut self, first: u32, len: u32) -> u32 {
        let Some(bitmaps) = &mut self.bitmaps else {
            return 0;
        };
        let (mut page, end) = (first, first + len);
        while page < end {
            let count = (64 - page % 64).min(end - page);
            let bits = ones(count) << (page % 64);
            let whole = bitmaps.give_word(&mut self.links, page / 64, bits);
            if let Some(whole) = whole {
                bitmaps.whole.give(whole, Order::HUGE, Backing::Present);
            }
            page += count;
        }
        let given = bitmaps.take_given();
        self.free += Pages(given);
        given
    }
}
