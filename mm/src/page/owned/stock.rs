//! The free pages that a CPU keeps block by block: a bitmap for each of its blocks.
//!
//! A page is added by setting its bit, so merging costs nothing more, and a block whose bits are
//! all set is whole again. Whole blocks return to the zone first, each in one operation under the
//! zone lock.
//!
//! Memory for the bitmaps is allocated together with the memory for the page lists. If there is no
//! room for a block's bitmap, the block's pages go onto the page lists instead.
//!
//! Locks: a `&mut Stock` exists only while its CPU's pcp lock is held.

use alloc::vec::Vec;
use core::mem;

use crate::page::bits::Bits;
use crate::page::links::Metadata;
use crate::page::mobility::Mobility;
use crate::units::{CpuId, Order, Pages};

/// The free pages that one CPU keeps in one zone: for each of its blocks a record, which is a
/// bitmap.
#[derive(Debug)]
pub(in crate::page) struct Stock {
    /// The CPU that keeps these free pages, outside its page lists.
    pub(super) cpu: CpuId,
    /// When memory for the bitmaps of blocks (the records) is allocated: in advance, or when a
    /// bitmap is added.
    metadata: Metadata,
    /// The bitmaps (records) of blocks of which this CPU has free pages. A record may have all
    /// pages of its block, for example just after the CPU has claimed the block.
    pub(super) parts: Vec<Record>,
    /// The blocks of which this CPU has all pages, and which need no bitmap: the number of each
    /// block, and the mobility of the lists that its pages go to.
    pub(super) whole: Vec<(u32, Mobility)>,
    /// The blocks of which some pages have gone back to the zone, newest first. Only the newest
    /// blocks are remembered.
    fragmented: [Option<u32>; FRAGMENTED],
}

/// The largest number of blocks that a CPU remembers in `fragmented`.
const FRAGMENTED: usize = 16;

/// The free pages of one block that the owner of the block keeps, as a bitmap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) block: u32,
    /// The mobility of the lists that the pages go to.
    pub(super) kind: Mobility,
    /// The number of pages whose bit in `bits` is 1.
    pub(super) pages: u32,
    /// A bit for each page of the block, which is 1 if the page is free and kept by this CPU.
    pub(super) bits: Bits,
}

impl Record {
    pub(super) const fn empty(block: u32, kind: Mobility) -> Self {
        Self {
            block,
            kind,
            pages: 0,
            bits: Bits::NONE,
        }
    }

    /// Returns the [`Record`] of a block of `order` all of whose pages are free.
    pub(super) fn whole(block: u32, kind: Mobility, order: Order) -> Self {
        let pages = order.pages().0;
        Self {
            block,
            kind,
            pages,
            bits: Bits::first(pages),
        }
    }

    /// Returns whether all pages of some block of `order` are in this bitmap of free pages.
    pub(super) fn has(&self, order: Order) -> bool {
        self.bits.has(order)
    }

    /// Adds the pages whose bits are 1 in `bits`. They belong to the group of 64 pages with the
    /// index `group`. None of them may be in this bitmap of free pages yet.
    pub(super) fn add(&mut self, group: usize, bits: u64) {
        debug_assert_eq!(self.bits.0[group] & bits, 0, "no page is here twice");
        self.bits.0[group] |= bits;
        self.pages += bits.count_ones();
    }

    /// Adds the block of `order` whose first page is at `offset`. None of its pages may be in this
    /// bitmap of free pages yet.
    pub(super) fn add_run(&mut self, offset: u32, order: Order) {
        self.bits.add(offset, order);
        self.pages += order.pages().0;
    }

    /// Takes the lowest free block of `order`, and returns the offset of its first page.
    pub(super) fn take(&mut self, order: Order) -> Option<u32> {
        let offset = self.bits.take(order)?;
        self.pages -= order.pages().0;
        Some(offset)
    }

    /// Takes the largest block of at most order `most`, all of whose pages are in this bitmap of
    /// free pages. Returns the offset of the block's first page, and its order.
    pub(super) fn take_largest(&mut self, most: Order) -> Option<(u32, Order)> {
        let orders = Order::all().rev().filter(|order| *order <= most);
        orders
            .into_iter()
            .find_map(|order| Some((self.take(order)?, order)))
    }
}

impl Default for Stock {
    fn default() -> Self {
        Self::new(CpuId(0), Metadata::Eager)
    }
}

impl Stock {
    /// Returns the [`Stock`] of `cpu`, without pages and without room for the bitmaps of blocks.
    pub(in crate::page) const fn new(cpu: CpuId, metadata: Metadata) -> Self {
        Self {
            cpu,
            metadata,
            parts: Vec::new(),
            whole: Vec::new(),
            fragmented: [None; FRAGMENTED],
        }
    }

    /// Returns an empty [`Stock`] with room for as many records (bitmaps of blocks) as a CPU with
    /// up to `pages` pages is expected to need. If memory is short, the `Stock` has less room. Must
    /// be called with no lock held.
    pub(in crate::page) fn with_room(pages: Pages) -> Self {
        // On average, the bitmap of a block is expected to have at least this number of pages.
        const PAGES_EACH: usize = 64;
        let records = pages.index() / PAGES_EACH + 8;
        let mut stock = Self::default();
        let _parts = stock.parts.try_reserve_exact(records);
        let _whole = stock.whole.try_reserve_exact(records);
        stock
    }

    /// Replaces each list of this [`Stock`] by the same list of `longer` if that list has more
    /// room, and moves the entries over. The caller drops the old lists, now in `longer`, with no
    /// lock held.
    pub(in crate::page) fn replace(&mut self, longer: &mut Self) {
        if self.parts.capacity() < longer.parts.capacity() {
            longer.parts.append(&mut self.parts);
            mem::swap(&mut self.parts, &mut longer.parts);
        }
        if self.whole.capacity() < longer.whole.capacity() {
            longer.whole.append(&mut self.whole);
            mem::swap(&mut self.whole, &mut longer.whole);
        }
    }

    /// Returns whether there is room for the bitmap of another block.
    pub(super) fn has_room(&mut self) -> bool {
        let grows = self.metadata == Metadata::WhenSplit;
        self.parts.len() < self.parts.capacity() || grows && self.parts.try_reserve(8).is_ok()
    }

    /// Returns whether there is room for another whole block.
    pub(super) fn has_room_for_whole(&mut self) -> bool {
        let grows = self.metadata == Metadata::WhenSplit;
        self.whole.len() < self.whole.capacity() || grows && self.whole.try_reserve(8).is_ok()
    }

    /// Remembers that a fragment of `block` has gone back to the zone.
    pub(super) fn note_fragment(&mut self, block: u32) {
        if self.fragmented.contains(&Some(block)) {
            return;
        }
        self.fragmented.rotate_right(1);
        self.fragmented[0] = Some(block);
    }

    /// Returns the last block of which some pages (a fragment) went back to the zone, and forgets
    /// this block. Returns `None` if no such block is remembered.
    pub(super) fn take_fragmented(&mut self) -> Option<u32> {
        let block = self.fragmented[0].take()?;
        self.fragmented.rotate_left(1);
        Some(block)
    }

    /// The index of the record (a block's bitmap of free pages) with the most pages among the last
    /// few records, or `None` if there are no records.
    pub(super) fn fullest(&self) -> Option<usize> {
        const FEW: usize = 16;
        let from = self.parts.len().saturating_sub(FEW);
        (from..self.parts.len()).max_by_key(|&at| self.parts[at].pages)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn order(order: u8) -> Order {
        Order::new(order).expect("small")
    }

    #[test]
    fn pages_are_taken_in_ascending_order_and_aligned() {
        let mut record = Record::whole(0, Mobility::Movable, Order::HUGE);
        assert_eq!(record.take(Order::ZERO), Some(0));
        assert_eq!(record.take(order(1)), Some(2));
        assert_eq!(record.take(Order::ZERO), Some(1));
        assert_eq!(record.take(order(3)), Some(8));
        assert_eq!(record.take(order(2)), Some(4));
        assert_eq!(record.take(order(6)), Some(64));
        assert_eq!(record.pages, 512 - 1 - 2 - 1 - 8 - 4 - 64);
    }

    #[test]
    fn the_largest_blocks_are_taken_first_and_all_pages_are_taken_once() {
        let mut record = Record::whole(0, Mobility::Movable, Order::HUGE);
        assert_eq!(record.take(Order::ZERO), Some(0));
        let mut seen = vec![(0, 0)];
        while let Some((at, order)) = record.take_largest(Order::HUGE) {
            seen.push((at, order.get()));
        }
        let orders: Vec<u8> = seen.iter().map(|found| found.1).collect();
        assert_eq!(orders, [0, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
        assert_eq!(seen.iter().map(|found| 1 << found.1).sum::<u32>(), 512);
        assert_eq!((record.pages, record.bits), (0, Bits::NONE));
    }

    #[test]
    fn a_whole_block_is_one_piece_whatever_its_size() {
        for size in [0, 2, 6, 7, 9] {
            let mut record = Record::whole(3, Mobility::Movable, order(size));
            assert_eq!(record.pages, 1 << size);
            assert_eq!(record.take_largest(order(size)), Some((0, order(size))));
            assert_eq!(record.pages, 0);
        }
    }

    #[test]
    fn blocks_with_fragments_are_remembered_once_and_newest_first() {
        let mut stock = Stock::default();
        for block in [1, 2, 1, 3] {
            stock.note_fragment(block);
        }
        let mut taken = Vec::new();
        while let Some(block) = stock.take_fragmented() {
            taken.push(block);
        }
        assert_eq!(taken, [3, 2, 1]);
    }
    #[test]
    fn a_longer_stock_keeps_its_blocks() {
        let mut stock = Stock::with_room(Pages(64));
        let kind = Mobility::Movable;
        stock.parts.push(Record::whole(3, kind, Order::HUGE));
        stock.whole.extend([(5, kind), (4, kind)]);
        let room = (stock.parts.capacity(), stock.whole.capacity());
        stock.replace(&mut Stock::with_room(Pages(6400)));
        assert!(stock.parts.capacity() > room.0 && stock.whole.capacity() > room.1);
        assert_eq!(stock.parts[0].block, 3);
        assert_eq!(stock.whole, [(5, kind), (4, kind)]);
    }
}
