//! Free pages as bits. A zone with [`FreeIndex::Bitmaps`](crate::page::FreeIndex) keeps its free
//! blocks that are smaller than a huge block in bitmaps, and not on free lists.
//!
//! A huge block is *split* if some of its pages are free and some are not. For each huge block,
//! there is a bitmap of the pages that are free while the block is split. Freeing a page sets its
//! bit, so pages merge without further work, and no tag changes. When all bits of a huge block are
//! set, the block is whole, and moves to the sets of whole blocks (`whole.rs`).
//!
//! Each split block is on one list: that of the largest order of which the block has a free block.
//! So an allocation finds a free block of its order if one exists. If several split blocks have
//! such a free block, the allocation uses a split block whose largest free block is as small as
//! possible.
//!
//! The tags of free pages have no meaning, except that they do not say "allocated" or "in a front" (a
//! CPU's stack of free pages). If a tag does say so, the page was freed twice at once: the zone does
//! not give it, and drops a page that it gets although it is free.

use alloc::vec;
use alloc::vec::Vec;
use core::hint::cold_path;
use core::mem;

use super::list::{End, List};
use super::order_at;
use super::whole::Whole;
use crate::page::bits::Bits;
use crate::page::links::Links;
use crate::units::{Order, Pages, count_of};

/// The number of orders below that of a huge block.
const SMALL: usize = Order::HUGE.index();
const HUGE: u32 = Order::HUGE.pages().0;

/// The free pages of a zone: of the partly free (split) huge blocks, and of whole blocks.
#[derive(Debug)]
pub(super) struct Bitmaps {
    /// The free blocks of 512 and of 1024 pages.
    pub(super) whole: Whole,
    blocks: Vec<Split>,
    /// The lists of partly free huge blocks, one list for each order below that of a huge block. A
    /// huge block is on the list for the order of its largest free block.
    lists: [List; SMALL],
    /// The number of pages that [`Bitmaps::give_apart`] and [`Bitmaps::give_word`] have freed since the
    /// last call of [`Bitmaps::take_given`].
    given: u32,
}

/// The free pages of one huge block while it is split. For a block that is whole, or whose pages
/// are all in use, there are no free pages here.
#[derive(Clone, Copy, Debug)]
struct Split {
    bits: Bits,
    /// The number of free pages.
    free: u32,
    /// The order of the largest free block. Meaningless if no page is free.
    largest: Order,
}

impl Split {
    /// Returns a lower bound on the order that the largest free block has once a block of `order`
    /// is freed. Called before the pages of that block are added to `free`.
    #[inline]
    fn least(&self, order: Order) -> Order {
        if self.free == 0 {
            order
        } else {
            self.largest.max(order)
        }
    }

    /// Frees the page at `offset` if this changes nothing but the page's bit and the number of free
    /// pages. Most frees of single pages in random order change no more. Returns `false`, without
    /// having done anything, if the page is free already, is the first free page, or may become part
    /// of a free block that is larger than the largest one before.
    #[inline(always)]
    fn add_apart(&mut self, offset: u32) -> bool {
        if self.free == 0 || !self.bits.add_apart(offset, self.largest) {
            return false;
        }
        self.free += 1;
        true
    }
}

// The book-keeping of a huge block takes 80 bytes: 72 bytes in `Split`, and 8 bytes for the block's
// links on a free list.
const _: () = assert!(size_of::<Split>() == 72);

impl Bitmaps {
    /// Creates the bitmaps of a zone of `spanned` pages. No block is split.
    pub(super) fn new(spanned: Pages) -> Self {
        let none = Split {
            bits: Bits::NONE,
            free: 0,
            largest: Order::ZERO,
        };
        Self {
            whole: Whole::new(spanned),
            blocks: vec![none; spanned.0.div_ceil(HUGE) as usize],
            lists: [List::EMPTY; SMALL],
            given: 0,
        }
    }

    /// Returns the number of pages that [`Bitmaps::give_apart`] and [`Bitmaps::give_word`] have freed
    /// since the last call. They drop pages that are free already.
    pub(super) fn take_given(&mut self) -> u32 {
        mem::take(&mut self.given)
    }

    /// Returns which pages of the word with the index `word` are free, counted from the start of the
    /// zone.
    #[inline]
    fn free_in_word(&self, word: u32) -> u64 {
        let page = word * 64;
        let split = &self.blocks[(page / HUGE) as usize];
        if split.free == 0 && self.whole.contains(page) {
            u64::MAX
        } else {
            split.bits.word(page % HUGE)
        }
    }

    /// Frees the block at `page`, whose `order` is below that of a huge block. If the huge block
    /// around it is now whole, takes that block out of the bitmaps, and returns its first page.
    #[inline]
    pub(super) fn give(&mut self, links: &mut Links, page: u32, order: Order) -> Option<u32> {
        let offset = page % HUGE;
        let split = &mut self.blocks[(page / HUGE) as usize];
        split.bits.add(offset, order);
        // Any block that became free by this call contains the freed block. So the search starts at
        // the freed block, and ends at the first order whose block around the freed block is not
        // free.
        let least = split.least(order);
        let has = |bits: &Bits, up| bits.has_around(offset, up);
        self.freed(links, page - offset, order.pages().0, least, has)
    }

    /// Frees single pages from the beginning of `pages`, as long as each is a simple case: the next
    /// page does not have its bit in the same word, and [`Split::add_apart`] can free the page.
    /// Returns the number of these pages. For the next one, the caller uses [`Bitmaps::give_word`].
    pub(super) fn give_apart(&mut self, pages: &[u32]) -> usize {
        let blocks = &mut self.blocks[..];
        let mut given = 0;
        let mut rest = pages.iter();
        while let Some(&page) = rest.next() {
            let is_simple = rest
                .as_slice()
                .first()
                .is_none_or(|next| next / 64 != page / 64)
                && blocks[(page / HUGE) as usize].add_apart(page % HUGE);
            if !is_simple {
                break;
            }
            given += 1;
        }
        self.given += given;
        given as usize
    }

    /// Frees the pages whose bits are 1 in `bits`. All of them have their bits in the word with the
    /// index `word`, counted from the start of the zone. Drops pages that are free. If the huge block
    /// around these pages is now whole, takes that block out of the bitmaps, and returns its first
    /// page.
    pub(super) fn give_word(&mut self, links: &mut Links, word: u32, bits: u64) -> Option<u32> {
        let bits = bits & !self.free_in_word(word);
        if bits == 0 {
            cold_path();
            return None;
        }
        self.given += bits.count_ones();
        let page = word * 64;
        let offset = page % HUGE;
        let split = &mut self.blocks[(page / HUGE) as usize];
        split.bits.add_to_word(offset, bits);
        let least = split.least(Order::ZERO);
        let has = |bits: &Bits, up| bits.has_in_word(offset, up);
        self.freed(links, page - offset, bits.count_ones(), least, has)
    }

    /// Completes a free of `pages` pages in the huge block at `first`, after the bits of these
    /// pages have been set. The largest free block in the huge block has at least the order
    /// `least`. `has` says whether the freed pages are part of a free block of a given order.
    #[inline]
    fn freed(
        &mut self,
        links: &mut Links,
        first: u32,
        pages: u32,
        least: Order,
        has: impl Fn(&Bits, Order) -> bool,
    ) -> Option<u32> {
        let split = &mut self.blocks[(first / HUGE) as usize];
        let (before, old) = (split.free, split.largest);
        split.free += pages;
        if split.free == HUGE {
            (split.bits, split.free) = (Bits::NONE, 0);
            self.lists[old.index()].remove(links, first, Order::HUGE);
            return Some(first);
        }
        let mut new = least;
        while let Some(up) = new.up()
            && up < Order::HUGE
            && has(&split.bits, up)
        {
            new = up;
        }
        if before == 0 || new != old {
            split.largest = new;
            if before > 0 {
                self.lists[old.index()].remove(links, first, Order::HUGE);
            }
            self.lists[new.index()].insert(links, first, Order::HUGE, End::Tail);
        }
        None
    }

    /// Splits the whole block at `first`, which has been taken from the sets of whole blocks: all
    /// its pages are now free pages in the bitmap of the block.
    pub(super) fn open(&mut self, links: &mut Links, first: u32) {
        let split = &mut self.blocks[(first / HUGE) as usize];
        debug_assert_eq!(split.free, 0, "a whole block has no bits");
        let largest = order_at(SMALL - 1);
        *split = Split {
            bits: Bits::ALL,
            free: HUGE,
            largest,
        };
        self.lists[largest.index()].insert(links, first, Order::HUGE, End::Head);
    }

    /// Takes a free block of `order`, which is below that of a huge block, or returns `None` if
    /// there is none.
    pub(super) fn take(&mut self, links: &mut Links, order: Order) -> Option<u32> {
        let first = self.best(order)?;
        let split = &mut self.blocks[(first / HUGE) as usize];
        let offset = split.bits.take(order)?;
        split.free -= order.pages().0;
        self.sort_in(links, first);
        Some(first + offset)
    }

    /// Takes up to `out.len()` single pages, all from one partly free huge block, writes them to
    /// `out`, and returns their number. Returns 0 if there is no such huge block.
    pub(super) fn take_pages(&mut self, links: &mut Links, out: &mut [u32]) -> usize {
        let Some(first) = self.best(Order::ZERO) else {
            return 0;
        };
        let split = &mut self.blocks[(first / HUGE) as usize];
        let got = split.bits.take_pages(first, out);
        split.free -= count_of(got);
        self.sort_in(links, first);
        got
    }

    /// Takes single pages from one partly free huge block for a run, as [`Bits::take_words`] does, and
    /// returns their number. Returns 0 if there is no such huge block, or its pages do not fit.
    pub(super) fn take_words(
        &mut self,
        links: &mut Links,
        out: &mut [u32],
        got: usize,
        most: usize,
    ) -> usize {
        let Some(first) = self.best(Order::ZERO) else {
            return 0;
        };
        let split = &mut self.blocks[(first / HUGE) as usize];
        let taken = split.bits.take_words(first, out, got, most);
        if taken > 0 {
            split.free -= count_of(taken);
            self.sort_in(links, first);
        }
        taken
    }

    /// The first page of a partly free huge block that has a free block of `order`, and whose
    /// largest free block is as small as possible.
    fn best(&self, order: Order) -> Option<u32> {
        let lists = self.lists.get(order.index()..)?;
        let list = lists.iter().find(|list| list.len > 0)?;
        Some(list.head)
    }

    /// Moves the partly free huge block at `first`, from which pages were taken, to the list that
    /// it belongs to now.
    fn sort_in(&mut self, links: &mut Links, first: u32) {
        let split = &mut self.blocks[(first / HUGE) as usize];
        let old = split.largest;
        let has = |order: &usize| split.bits.has(order_at(*order));
        let new = (0..=old.index()).rev().find(has).map(order_at);
        if new == Some(old) {
            return;
        }
        self.lists[old.index()].remove(links, first, Order::HUGE);
        if let Some(new) = new {
            split.largest = new;
            self.lists[new.index()].insert(links, first, Order::HUGE, End::Head);
        }
    }

    /// Returns whether the page is free, in a huge block that is only partly free.
    pub(super) fn is_free(&self, page: u32) -> bool {
        let split = &self.blocks[(page / HUGE) as usize];
        split.bits.has_around(page % HUGE, Order::ZERO)
    }

    /// Returns whether there is a free block of `order` or more.
    pub(super) fn has(&self, order: Order) -> bool {
        self.best(order).is_some() || self.whole.has(order)
    }

    /// The number of free blocks of `order`, if pages are merged as far as possible. Looks at all
    /// huge blocks that are partly free.
    pub(super) fn count(&self, order: Order) -> u32 {
        let split = self.blocks.iter().filter(|split| split.free > 0);
        split
            .map(|split| split.bits.blocks().get(order.index()).copied().unwrap_or(0))
            .sum::<u32>()
            + self.whole.count(order)
    }
}
