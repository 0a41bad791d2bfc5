//! Walks over the entries of page tables (Linux: `walk_page_range`, `/proc/PID/pagemap`).
//!
//! Locks: `Mmap` as a reader, then the `PageTable` lock of one table at a time.

use core::ops::Range;

use super::page_table::{ENTRIES, Entries, Entry, Page, Spot, What, first_page, table_of};
use super::rss::RssKind;
use super::vma_tree::Vma;
use super::{AddressSpace, MappingKind};
use crate::machine::{Lock, Machine, RwLock};
use crate::site::Site;
use crate::units::{Order, Pfn, Vpn};

/// A non-empty entry of a page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// The first page that the entry maps.
    pub page: Vpn,
    /// The order of the mapped block: 0, or the order of a huge page.
    pub order: Order,
    /// The frame of the first page; `None` if that page is in swap.
    pub frame: Option<Pfn>,
    /// The counter that includes the entry's pages; `None` for frames that no zone manages and for
    /// reserved huge pages.
    pub counted: Option<RssKind>,
    /// The kind of the mapping that contains all pages of the entry; `None` if the mapping was
    /// removed and the pages are still to be unmapped.
    pub mapping: Option<MappingKind>,
}

impl<M: Machine> AddressSpace<M> {
    /// Calls `f` for every entry of the page tables that is not empty and overlaps `pages`, in
    /// ascending order.
    ///
    /// The lock of the entry's table is held during the call, so `f` may take no lock. No mapping
    /// is added or removed during the walk. But other CPUs may fill and empty entries of tables
    /// that the walk has passed or not reached yet.
    pub fn walk(&self, machine: &M, pages: Range<Vpn>, mut f: impl FnMut(Walked)) {
        self.mappings.read(machine, Site::Control, |_| {
            let mut index = table_of(pages.start);
            while let Some(spot) = self.table.next(index) {
                if spot.start() >= pages.end {
                    break;
                }
                index = spot.index + 1;
                spot.leaf.entries.with(machine, Site::Control, |entries| {
                    self.walk_table(spot, entries, spot.clip(&pages), &mut f);
                });
            }
        });
    }

    fn walk_table(
        &self,
        spot: Spot<'_, M>,
        entries: &Entries,
        range: Range<u32>,
        f: &mut impl FnMut(Walked),
    ) {
        if let What::Huge(whole) = entries.what() {
            let pages = spot.start()..first_page(spot.index + 1);
            let mapping = self.mapped_around(&pages);
            f(Walked::of(pages.start, Order::HUGE, whole, mapping));
            return;
        }
        debug_assert!(range.end <= ENTRIES, "a table has no more");
        for index in range {
            let Some(entry) = entries.get(index) else {
                continue;
            };
            let page = Vpn(spot.start().0 + u64::from(index));
            let mapping = self.mapped_around(&(page..Vpn(page.0 + 1)));
            f(match entry {
                Entry::Page(there) => Walked::of(page, Order::ZERO, there, mapping),
                Entry::Swap(_) => Walked {
                    page,
                    order: Order::ZERO,
                    frame: None,
                    counted: Some(RssKind::Swap),
                    mapping,
                },
            });
        }
    }

    /// Returns the kind of the mapping that contains all of `pages`, if there is one. `pages` is
    /// not empty.
    fn mapped_around(&self, pages: &Range<Vpn>) -> Option<MappingKind> {
        // No CPU changes the tree, because the lock of the mappings is held.
        let vma = self.tree.find(pages.start).ok().flatten();
        let last = Vpn(pages.end.0 - 1);
        let vma = vma.filter(|vma: &Vma| vma.contains(last))?;
        Some(MappingKind::of(&vma))
    }
}

impl Walked {
    fn of(page: Vpn, order: Order, there: Page, mapping: Option<MappingKind>) -> Self {
        Self {
            page,
            order,
            frame: Some(there.pfn),
            counted: there.kind.counted(),
            mapping,
        }
    }
}
