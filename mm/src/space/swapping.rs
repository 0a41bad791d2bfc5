//! Moving pages to swap (Linux: `try_to_unmap` of an anonymous page, then `swap_writepage`).
//!
//! The embedder chooses which pages to move, and when. A later fault brings a page back into
//! memory.
//!
//! Locks: `Mmap` as a reader. While holding it, a CPU takes `Swap` and `PageTable`, one after the
//! other.

use core::ops::Range;

use super::AddressSpace;
use super::gather::Gather;
use super::memory::Memory;
use super::page_table::{Entry, PageKind, Spot, table_of};
use super::rss::RssKind;
use crate::machine::{Lock, Machine, RwLock};
use crate::site::{Site, Work};
use crate::units::{Order, Vpn};

impl<M: Machine> AddressSpace<M> {
    /// Moves the anonymous pages of `pages` to swap while there are free slots. Huge pages are not
    /// moved, nor are pages whose contents the embedder cannot [store](super::Contents::write_out).
    /// Returns the number of pages that were moved.
    pub fn swap_out(&self, memory: Memory<'_, M>, pages: Range<Vpn>) -> u64 {
        let machine = memory.machine;
        // Hold the lock as a reader, so that no CPU unmaps a page while it is being moved.
        self.mappings.read(machine, Site::SwapOut, |_| {
            let mut gather = Gather::of_living(memory, self);
            let mut went = 0;
            let mut index = table_of(pages.start);
            while let Some(spot) = self.table.next(index) {
                if spot.start() >= pages.end {
                    break;
                }
                index = spot.index + 1;
                went += self.swap_out_table(&mut gather, spot, spot.clip(&pages));
            }
            gather.finish();
            went
        })
    }

    fn swap_out_table(
        &self,
        gather: &mut Gather<'_, M>,
        spot: Spot<'_, M>,
        range: Range<u32>,
    ) -> u64 {
        if !spot.leaf.is_live() || range.is_empty() {
            return 0;
        }
        let machine = gather.memory().machine;
        let start = spot.start().0;
        let pages = Vpn(start + u64::from(range.start))..Vpn(start + u64::from(range.end));
        self.announce(machine, &pages);
        let mut went = 0;
        for index in range {
            if !spot.leaf.is_live() {
                break;
            }
            match self.swap_out_page(gather, spot, index) {
                Some(moved) => went += u64::from(moved),
                None => break,
            }
        }
        self.announce_end(machine, &pages);
        went
    }

    /// Moves the page of a page-table entry to swap if it is an anonymous page in memory and the
    /// embedder can store the page's contents. Returns whether the page was moved, or `None` if no
    /// slot is free.
    fn swap_out_page(
        &self,
        gather: &mut Gather<'_, M>,
        spot: Spot<'_, M>,
        index: u32,
    ) -> Option<bool> {
        let memory = gather.memory();
        let machine = memory.machine;
        let slot = memory.spaces.swap.take(machine)?;
        let moved = spot.leaf.entries.with(machine, Site::SwapOut, |entries| {
            let Some(Entry::Page(page)) = entries.get(index) else {
                return None;
            };
            let spaces = memory.spaces;
            if page.kind != PageKind::Anon || !spaces.store_frame(machine, page.pfn, slot) {
                return None;
            }
            machine.spend(Work::Zap, 1);
            machine.spend(Work::Rmap, 1);
            entries.set(index, Entry::Swap(slot));
            self.rss.add(machine, RssKind::Anon, -1);
            self.rss.add(machine, RssKind::Swap, 1);
            Some(page)
        });
        let Some(page) = moved else {
            let given = memory.spaces.swap.give_back(machine, &[slot]);
            given.expect("the slot was just taken");
            return Some(false);
        };
        if !gather.add(page, Order::ZERO) {
            gather.flush();
        }
        Some(true)
    }
}
