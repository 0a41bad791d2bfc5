//! Filling entries of one page table with fresh pages or with pages from swap.
//!
//! Locks: `PageTable`. Pages are allocated before this lock is taken, and freed after the lock is
//! released.

use core::ops::Range;

use super::Attempt;
use super::table::Spares;
use crate::machine::{Lock, Machine};
use crate::page::AllocError;
use crate::site::{Site, Work};
use crate::space::contents::Source;
use crate::space::error::FaultError;
use crate::space::fault::Faulted;
use crate::space::memory::Memory;
use crate::space::page_table::{Entry, Page, PageKind, Spot, What};
use crate::space::rss::RssKind;
use crate::space::swap::SwapSlot;
use crate::space::{AddressSpace, Flag};
use crate::units::{Order, Pfn, Vpn, count_of, signed};
use crate::vmstat::counters::{NodeItem, ZoneItem};

/// The largest number of pages that are allocated together and mapped while a table's lock is held
/// once.
pub(super) const TOGETHER: usize = 32;

/// At most `MAX` pages allocated for entries of one table, and a record of which of them were
/// mapped. A fault of one page uses a batch of one page, because filling the arrays of a larger
/// batch with zeros would take a noticeable part of the fault's time.
struct Batch<const MAX: usize> {
    pfns: [Pfn; MAX],
    len: usize,
    used: usize,
    swapped: [SwapSlot; MAX],
    swapped_len: usize,
    /// The number of entries in which a private copy replaced a page of a file.
    copied: u32,
    /// The file page that a private copy replaced. There is at most one, because only a fault of
    /// one page can replace a page.
    replaced: Option<Page>,
    /// The error of the allocation that failed, if there are fewer pages than the fault wanted.
    short: Option<AllocError>,
    /// True if an entry of the page table was left empty because there were too few pages.
    ran_dry: bool,
    /// True if the holders of translations ([`Notified`](crate::space::Notified)) were notified
    /// that pages of a file may be unmapped.
    may_replace: bool,
}

/// The error of a fault in an address space that is being reaped (Linux: `MMF_UNSTABLE`).
struct Unstable;

/// Returns whether an entry maps a page in memory that may be written to: any page except one of a
/// private mapping of a file.
fn is_own(entry: Option<Entry>) -> bool {
    matches!(entry, Some(Entry::Page(page)) if page.kind != PageKind::File)
}

impl<M: Machine> AddressSpace<M> {
    /// Fills the entry of `page` with a fresh page, or with the page that was moved from there to
    /// swap.
    pub(super) fn fill(
        &self,
        memory: Memory<'_, M>,
        version: u64,
        page: Vpn,
    ) -> Result<Attempt, FaultError> {
        self.fill_entries(
            memory,
            version,
            page..Vpn(page.0 + 1),
            &mut Batch::<1>::new(),
        )
    }

    /// Fills the entries of `pages`, which are in one table, with fresh pages or pages from swap.
    /// If there are more than [`TOGETHER`] entries, or if memory runs out, fills only the first of
    /// them.
    pub(super) fn fill_together(
        &self,
        memory: Memory<'_, M>,
        version: u64,
        pages: Range<Vpn>,
    ) -> Result<Attempt, FaultError> {
        self.fill_entries(memory, version, pages, &mut Batch::<TOGETHER>::new())
    }

    /// Fills the entry of `page` like [`Self::fill`], and also replaces a page of a file by a
    /// private copy. The caller has notified the holders of translations (Linux: MMU notifiers).
    pub(super) fn fill_replacing(
        &self,
        memory: Memory<'_, M>,
        version: u64,
        page: Vpn,
    ) -> Result<Attempt, FaultError> {
        let mut batch = Batch::<1>::new();
        batch.may_replace = true;
        self.fill_entries(memory, version, page..Vpn(page.0 + 1), &mut batch)
    }

    fn fill_entries<const MAX: usize>(
        &self,
        memory: Memory<'_, M>,
        version: u64,
        pages: Range<Vpn>,
        batch: &mut Batch<MAX>,
    ) -> Result<Attempt, FaultError> {
        let machine = memory.machine;
        let spot = self.table.spot(machine, pages.start)?;
        let range = spot.clip(&pages);
        if spot.leaf.is_huge() {
            return Ok(Attempt::Done(Faulted::Already));
        }
        let missing = self.missing(machine, spot, range.clone());
        if missing == 0 {
            return Ok(Attempt::Done(Faulted::Already));
        }
        if self.has(machine, Flag::Unstable) {
            return Err(FaultError::Unstable(pages.start));
        }
        // Every step that can fail comes before any change. The table is allocated first: without
        // it, the pages cannot be mapped.
        let spares = if spot.leaf.is_live() {
            None
        } else {
            Some(self.spares(memory, spot)?)
        };
        if let Err(error) = self.take_pages(memory, missing, batch) {
            spares
                .into_iter()
                .for_each(|spares| spares.give_back(memory));
            return Err(error);
        }
        let outcome = self.fill_table(memory, version, spot, range, spares, batch);
        self.settle_batch(memory, batch);
        match (outcome, batch.short) {
            (Ok(Attempt::Done(_)), Some(error)) if batch.ran_dry => {
                Err(FaultError::OutOfMemory(error))
            }
            (outcome, _) => outcome.map_err(|Unstable| FaultError::Unstable(pages.start)),
        }
    }

    /// Fills entries of a table with the pages of `batch`. If there are `spares`, first provides
    /// the table with memory from `spares`, so that the table can be filled.
    fn fill_table<const MAX: usize>(
        &self,
        memory: Memory<'_, M>,
        version: u64,
        spot: Spot<'_, M>,
        range: Range<u32>,
        spares: Option<Spares>,
        batch: &mut Batch<MAX>,
    ) -> Result<Attempt, Unstable> {
        if let Some(spares) = spares
            && !self.add_table(memory, spot, spares)
        {
            return Ok(Attempt::Done(Faulted::Already));
        }
        // Report the whole work of the faults here, before the lock is taken: entering the kernel,
        // clearing the pages and mapping them. In a real kernel, only the mapping happens under the
        // lock.
        memory.machine.spend(Work::Fault, count_of(batch.len));
        self.install(memory, version, spot, range, batch)
    }

    /// Counts the entries of `range` that hold no writable page, and marks the pages in the other
    /// entries as touched.
    fn missing(&self, machine: &M, spot: Spot<'_, M>, range: Range<u32>) -> u32 {
        let missing = spot.leaf.entries.with(machine, Site::Fault, |entries| {
            let is_missing = |&index: &u32| {
                let missing = !is_own(entries.get(index));
                if !missing {
                    entries.touch(index);
                }
                missing
            };
            range.filter(is_missing).count()
        });
        count_of(missing)
    }

    /// Charges the budget for `pages` pages, or for as many as `batch` can hold, and allocates
    /// these pages for the empty `batch`. If memory runs out, `batch` has fewer pages.
    ///
    /// # Errors
    /// The error of the budget, or of the allocation if there is not even one page.
    fn take_pages<const MAX: usize>(
        &self,
        memory: Memory<'_, M>,
        pages: u32,
        batch: &mut Batch<MAX>,
    ) -> Result<(), FaultError> {
        let wanted = (pages as usize).min(MAX);
        if let Some(budget) = &self.budget {
            budget.charge(memory.machine, wanted as u64)?;
        }
        let request = self.request(memory.machine, Order::ZERO);
        while batch.len < wanted && batch.short.is_none() {
            match memory.manager.pages().alloc(memory.machine, request) {
                Ok(pfn) => batch.push(pfn),
                Err(error) => batch.short = Some(error),
            }
        }
        if let Some(error) = batch.short {
            self.uncharge(memory.machine, (wanted - batch.len) as u64);
            if batch.len == 0 {
                return Err(FaultError::OutOfMemory(error));
            }
        }
        Ok(())
    }

    /// Writes the pages of `batch` into those entries of `range` that hold no writable page.
    fn install<const MAX: usize>(
        &self,
        memory: Memory<'_, M>,
        version: u64,
        spot: Spot<'_, M>,
        range: Range<u32>,
        batch: &mut Batch<MAX>,
    ) -> Result<Attempt, Unstable> {
        let machine = memory.machine;
        spot.leaf.entries.with(machine, Site::Fault, |entries| {
            if self.has(machine, Flag::Unstable) {
                return Err(Unstable);
            }
            if entries.what() != What::Table || self.tree.version() != version {
                return Ok(Attempt::Again);
            }
            for index in range {
                let there = entries.get(index);
                if is_own(there) {
                    continue;
                }
                if matches!(there, Some(Entry::Page(_))) && !batch.may_replace {
                    // Another CPU mapped this page of a file after the fault had looked at the
                    // entry. So the holders of translations (Linux: MMU notifiers) were not
                    // notified that the page may be unmapped.
                    return Ok(Attempt::Again);
                }
                // More pages may be missing than were counted, because other CPUs may have moved
                // pages to swap since the count. A later fault brings back each of those pages.
                let Some(pfn) = batch.next() else {
                    batch.ran_dry = true;
                    break;
                };
                let source = match there {
                    Some(Entry::Swap(slot)) => {
                        batch.note_swapped(slot);
                        Source::Slot(slot)
                    }
                    Some(Entry::Page(page)) => {
                        batch.copied += 1;
                        batch.replaced = Some(page);
                        Source::Page(page.pfn)
                    }
                    None => Source::Zeros,
                };
                memory.spaces.fill_frame(machine, pfn, source);
                let kind = PageKind::Anon;
                entries.set(index, Entry::Page(Page { pfn, kind }));
                self.own(memory, spot, index, pfn);
            }
            if batch.copied > 0 {
                machine.spend(Work::Zap, batch.copied);
                machine.spend(Work::Rmap, batch.copied);
                machine.spend(Work::TlbFlush, 1);
            }
            Ok(Attempt::Done(batch.outcome()))
        })
    }

    /// Adds the mapped pages of `batch` to the counters, and frees the other pages of `batch`.
    fn settle_batch<const MAX: usize>(&self, memory: Memory<'_, M>, batch: &Batch<MAX>) {
        let Memory {
            machine,
            manager,
            spaces,
        } = memory;
        let (mapped, left) = batch.pfns[..batch.len].split_at(batch.used);
        if !mapped.is_empty() {
            let pages = signed(mapped.len() as u64);
            self.rss.add_growing(machine, RssKind::Anon, pages);
            manager
                .pages()
                .count_each(machine, mapped, ZoneItem::Anon, 1);
            manager.count_each_on_nodes(machine, mapped, NodeItem::AnonMapped, 1);
            for &pfn in mapped {
                spaces.lru.add(machine, manager.pages(), pfn);
            }
        }
        if batch.copied > 0 {
            self.rss
                .add_growing(machine, RssKind::File, -i64::from(batch.copied));
        }
        debug_assert!(batch.copied <= 1, "only a fault of one page may replace");
        if let Some(page) = batch.replaced {
            memory.drop_unmapped(page);
        }
        let swapped = &batch.swapped[..batch.swapped_len];
        if !swapped.is_empty() {
            machine.spend(Work::SwapIn, count_of(swapped.len()));
            self.rss
                .add_growing(machine, RssKind::Swap, -signed(swapped.len() as u64));
            spaces.free_stored(machine, swapped);
        }
        if !left.is_empty() {
            memory.give_back(left);
            self.uncharge(machine, left.len() as u64);
        }
    }
}

impl<const MAX: usize> Batch<MAX> {
    const fn new() -> Self {
        Self {
            pfns: [Pfn(0); MAX],
            len: 0,
            used: 0,
            swapped: [SwapSlot(0); MAX],
            swapped_len: 0,
            copied: 0,
            replaced: None,
            short: None,
            ran_dry: false,
            may_replace: false,
        }
    }

    fn push(&mut self, pfn: Pfn) {
        self.pfns[self.len] = pfn;
        self.len += 1;
    }

    fn next(&mut self) -> Option<Pfn> {
        let pfn = *self.pfns[..self.len].get(self.used)?;
        self.used += 1;
        Some(pfn)
    }

    fn note_swapped(&mut self, slot: SwapSlot) {
        self.swapped[self.swapped_len] = slot;
        self.swapped_len += 1;
    }

    const fn outcome(&self) -> Faulted {
        if self.used == 0 {
            Faulted::Already
        } else {
            let swapped = self.swapped_len > 0;
            Faulted::Mapped { swapped }
        }
    }
}
