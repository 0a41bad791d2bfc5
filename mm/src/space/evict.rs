//! Enlisting an address space for reclaim, and the steps by which reclaim takes one page from it
//! (Linux: `folio_referenced_one`, `try_to_unmap_one`).
//!
//! Reclaim knows from a record, the page's *owner*, where a page is mapped. Each step takes the
//! lock of the page's table and checks that the page is still mapped there. The steps do not need
//! the lock of the mappings: every CPU that unmaps a page replaces or empties the page's entry
//! under the lock of the table. Only the CPU that did so may free the page. A table does not
//! disappear while one of its entries is in use.
//!
//! Locks: `PageTable`, then `Counter`. The caller holds `Rmap` as a reader.

use alloc::sync::Arc;

use super::lru::Kind;
use super::memory::Memory;
use super::page_table::{ENTRIES, Entry, Page, PageKind, Spot, What};
use super::rmap::{EnlistError, Owner};
use super::rss::RssKind;
use super::swap::SwapSlot;
use super::{AddressSpace, Flag};
use crate::machine::{Lock, Machine, Once};
use crate::site::{Site, Work};
use crate::units::{Order, Pfn, Vpn};
use crate::vmstat::counters::{NodeItem, ZoneItem};

/// The outcome of an attempt to move a page to swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// The page is in swap.
    Moved,
    /// The page was not moved, because the address space no longer maps it or is about to free it.
    Kept,
    /// The page was not moved, because the embedder has no room for its contents.
    NotStored,
}

impl<M: Machine> Memory<'_, M> {
    /// Makes reclaimable every anonymous page that a fault maps in `space` from now on. Pages that
    /// are in memory already are never reclaimed. The list of spaces whose pages may be reclaimed
    /// keeps a reference to `space` until the space has [ended](AddressSpace::exit). If the
    /// [`Spaces`](super::Spaces) were made without [aging](super::Spaces::aging), this has no
    /// effect.
    ///
    /// # Errors
    /// [`EnlistError`] if the space cannot be enlisted. In that case, nothing has changed.
    pub fn enlist(&self, space: &Arc<AddressSpace<M>>) -> Result<(), EnlistError> {
        match &self.spaces.rmap {
            Some(rmap) => rmap.enlist(self.machine, space),
            None => Ok(()),
        }
    }

    /// Frees single anonymous pages that reclaim has unmapped from their address spaces and taken
    /// off the lists by which pages are aged.
    pub(crate) fn give_back_evicted(&self, pfns: &[Pfn]) {
        let Memory {
            machine, manager, ..
        } = *self;
        manager
            .pages()
            .count_each(machine, pfns, ZoneItem::Anon, -1);
        manager.count_each_on_nodes(machine, pfns, NodeItem::AnonMapped, -1);
        self.give_back(pfns);
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Records that entry `index` of a table maps `pfn`, so that reclaim finds the entry. The
    /// caller holds the lock of the table.
    #[inline]
    pub(super) fn own(&self, memory: Memory<'_, M>, spot: Spot<'_, M>, index: u32, pfn: Pfn) {
        let page = Vpn(spot.start().0 + u64::from(index));
        let owner = self
            .number
            .get()
            .map_or(0, |&number| Owner::pack(number, page));
        let Memory {
            machine,
            manager,
            spaces,
        } = memory;
        spaces.lru.set_owner(machine, manager.pages(), pfn, owner);
    }

    /// Records that reclaim cannot take a huge page. Only the first page of a huge page is on a
    /// list of used pages. So only this page's owner, the record of where it is mapped, is set. The
    /// caller holds the lock under which the huge page is mapped.
    pub(super) fn own_no_part(&self, memory: Memory<'_, M>, whole: Page) {
        debug_assert!(whole.pfn.is_aligned(Order::HUGE), "it is one block");
        let Memory {
            machine,
            manager,
            spaces,
        } = memory;
        spaces.lru.set_owner(machine, manager.pages(), whole.pfn, 0);
    }

    /// Removes an ended space from the list of spaces whose pages may be reclaimed.
    pub(super) fn retire(&self, memory: Memory<'_, M>) {
        if let (Some(&number), Some(rmap)) = (self.number.get(), &memory.spaces.rmap) {
            rmap.give_back(memory.machine, number);
        }
    }

    /// Returns whether `page` was touched since the last call. Returns `None` if the table's entry
    /// for `page` no longer maps `pfn` as a single page of this kind, or if the page is anonymous
    /// and the space is about to free it.
    pub(crate) fn was_touched(&self, machine: &M, page: Vpn, pfn: Pfn, kind: Kind) -> Option<bool> {
        if kind == Kind::Anon && self.is_dying(machine) {
            return None;
        }
        self.at_entry(machine, page, pfn, kind, |entries, index| {
            entries.take_touch(index)
        })
    }

    /// Unmaps `page`, if its entry still maps `pfn` as a page of a file. Returns whether the page
    /// was unmapped. If so, the entry's use of the page (Linux: page reference) belongs to the
    /// caller, which drops it after a flush of translations.
    pub(crate) fn unmap_cached(&self, machine: &M, page: Vpn, pfn: Pfn) -> bool {
        let alone = page..Vpn(page.0 + 1);
        self.announce(machine, &alone);
        let unmapped = self.at_entry(machine, page, pfn, Kind::File, |entries, index| {
            machine.spend(Work::Zap, 1);
            machine.spend(Work::Rmap, 1);
            entries.clear(index..index + 1, |_| true);
            self.rss.add(machine, RssKind::File, -1);
        });
        self.announce_end(machine, &alone);
        unmapped.is_some()
    }

    /// Returns whether the space is being ended or reaped. Writing its pages to swap would be
    /// useless, because the pages are about to be freed (Linux: `folio_referenced_one` keeps them).
    fn is_dying(&self, machine: &M) -> bool {
        self.has(machine, Flag::Exiting) || self.has(machine, Flag::Unstable)
    }

    /// Unmaps `page`, and writes `slot` into the page table's entry that mapped it. Does nothing if
    /// the entry no longer maps the single anonymous page `pfn`, if the space is about to free the
    /// page, or if the embedder cannot store the page's contents. If the result is
    /// [`Eviction::Moved`], the caller owns `pfn`, and frees it after a flush of translations.
    pub(crate) fn evict(
        &self,
        memory: Memory<'_, M>,
        page: Vpn,
        pfn: Pfn,
        slot: SwapSlot,
    ) -> Eviction {
        let machine = memory.machine;
        if self.is_dying(machine) {
            return Eviction::Kept;
        }
        let alone = page..Vpn(page.0 + 1);
        self.announce(machine, &alone);
        let evicted = self.at_entry(machine, page, pfn, Kind::Anon, |entries, index| {
            if !memory.spaces.store_frame(machine, pfn, slot) {
                return Eviction::NotStored;
            }
            machine.spend(Work::Zap, 1);
            machine.spend(Work::Rmap, 1);
            entries.set(index, Entry::Swap(slot));
            self.rss.add(machine, RssKind::Anon, -1);
            self.rss.add(machine, RssKind::Swap, 1);
            Eviction::Moved
        });
        let evicted = evicted.unwrap_or(Eviction::Kept);
        self.announce_end(machine, &alone);
        if evicted == Eviction::Moved {
            self.uncharge_evicted(machine);
        }
        evicted
    }

    fn uncharge_evicted(&self, machine: &M) {
        if let Some(budget) = &self.budget {
            budget.uncharge(machine, 1);
        }
    }

    /// If the page-table entry of `page` still maps `pfn` as a page of `kind`, runs `f` with the
    /// table and the index of the entry, under the lock of the table.
    fn at_entry<R>(
        &self,
        machine: &M,
        page: Vpn,
        pfn: Pfn,
        kind: Kind,
        f: impl FnOnce(&mut super::page_table::Entries, u32) -> R,
    ) -> Option<R> {
        let spot = self.table.find(page).filter(|spot| spot.leaf.is_live())?;
        let index = spot.clip(&(page..Vpn(page.0 + 1))).start;
        debug_assert!(index < ENTRIES, "the table was found by the page");
        spot.leaf.entries.with(machine, Site::Reclaim, |entries| {
            if entries.what() != What::Table {
                return None;
            }
            let kind = match kind {
                Kind::Anon => PageKind::Anon,
                Kind::File => PageKind::File,
            };
            let ours = Entry::Page(Page { pfn, kind });
            (entries.get(index) == Some(ours)).then(|| f(entries, index))
        })
    }
}
