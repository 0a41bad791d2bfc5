//! Unmapped pages that wait to be freed (Linux: `mmu_gather`).
//!
//! No page may be freed while the translation of some CPU still leads to it. So the gather collects
//! unmapped pages first, then flushes the translations once for all of them, and then frees the
//! pages. The more pages it collects, the fewer flushes are needed. The gather keeps its first 8
//! records of pages in itself. Further records go into at most 19 batches, each of which takes a
//! page of memory and has room for 510 records. If there is no page for a batch, or no batch may be
//! added, the pages gathered so far have to be freed first.
//!
//! A batch also needs memory for its records, because this code cannot write records into a page.
//! That memory was set aside when the spaces were made (`batches.rs`), so a gather never asks the
//! global allocator. If none of it is left, no batch is added.
//!
//! Locks: a CPU that frees pages holds no lock but `Mmap`. It takes `Lru`, `Pcp` and `Zone`, one
//! after the other. A CPU that adds a batch takes `Batches`, and then `Pcp` and `Zone`.

use alloc::boxed::Box;
#[cfg(feature = "laws")]
use alloc::vec::Vec;
use core::iter;

use super::AddressSpace;
use super::batches::{BATCH, BATCHES_MAX, Gathered, Record, Records, Share};
use super::memory::Memory;
use super::page_table::{Page, PageKind};
use crate::event::{Event, Phase};
use crate::machine::Machine;
use crate::page::Request;
use crate::page::watermark::Urgency;
use crate::site::Work;
use crate::units::{Order, Pages, Pfn, count_of, signed};
use crate::vmstat::counters::{NodeItem, ZoneItem};

/// The number of records that the gather itself holds, without a batch (Linux:
/// `MMU_GATHER_BUNDLE`).
const BUNDLE: usize = 8;
/// The number of pages that are freed together, with one look-up of their LRU lists and zones
/// (Linux: a folio batch).
const TOGETHER: usize = 31;

/// Unmapped pages of one address space, which wait to be freed until translations have been
/// flushed.
pub(super) struct Gather<'m, M: Machine> {
    memory: Memory<'m, M>,
    space: &'m AddressSpace<M>,
    share: Share,
    /// The first records of the gather: `BUNDLE` records, and one more for the reason that
    /// [`Records`] gives.
    bundle: [Record; BUNDLE + 1],
    /// The records of the batch that is being filled, or `None` while `bundle` is being filled.
    filling: Option<Box<Records>>,
    /// The number of batches that were begun since the last flush, the one being filled included.
    begun: usize,
    /// The number of records in the batch that is being filled, or in `bundle` while no batch is
    /// being filled.
    at: usize,
    /// The number of records at which `filling` (or `bundle`, while `filling` is `None`) is full.
    full_at: usize,
    /// The memory for the records of each batch. The element of the batch that is being filled is
    /// `None`, because its records are in `filling`. One further element may hold memory for the
    /// next batch to be added.
    batches: [Option<Box<Records>>; BATCHES_MAX],
    /// The page that was allocated for each batch.
    pages: [Pfn; BATCHES_MAX],
    /// The number of batches. Each batch has one page in `pages`.
    len: usize,
    /// True if translations may still lead to pages that were unmapped.
    stale: bool,
}

impl<'m, M: Machine> Gather<'m, M> {
    /// Makes an empty gather for a living process, which unmaps a part of `space`.
    pub(super) fn of_living(memory: Memory<'m, M>, space: &'m AddressSpace<M>) -> Self {
        Self::new(memory, space, Share::Living)
    }

    /// Makes an empty gather for a CPU that empties `space` for good, in the exiting thread or as a
    /// helper.
    pub(super) fn of_dying(memory: Memory<'m, M>, space: &'m AddressSpace<M>) -> Self {
        Self::new(memory, space, Share::Dying)
    }

    fn new(memory: Memory<'m, M>, space: &'m AddressSpace<M>, share: Share) -> Self {
        Self {
            memory,
            space,
            share,
            bundle: [Record::BLANK; BUNDLE + 1],
            filling: None,
            begun: 0,
            at: 0,
            full_at: BUNDLE,
            batches: [const { None }; BATCHES_MAX],
            pages: [Pfn(0); BATCHES_MAX],
            len: 0,
            stale: false,
        }
    }

    /// Adds a page that was just unmapped. Returns whether there is room for another record. If
    /// not, the caller has to flush before it adds one.
    #[must_use]
    #[inline]
    pub(super) fn add(&mut self, page: Page, order: Order) -> bool {
        self.push(Record::of_page(page, order))
    }

    /// Adds the page of a page table. Returns whether there is room for more, as [`Gather::add`]
    /// does.
    #[must_use]
    pub(super) fn add_table(&mut self, pfn: Pfn) -> bool {
        self.push(Record::of_table(pfn))
    }

    /// Adds the page of a page table, and flushes if there is no room for more. The caller must
    /// hold no lock but `Mmap`.
    pub(super) fn add_table_flushing(&mut self, pfn: Pfn) {
        if !self.add_table(pfn) {
            self.flush();
        }
    }

    #[inline]
    fn push(&mut self, record: Record) -> bool {
        self.stale = true;
        match &mut self.filling {
            Some(records) => records[self.at] = record,
            None => self.bundle[self.at] = record,
        }
        self.at += 1;
        self.at < self.full_at || self.begins_batch()
    }

    /// Begins to fill the next batch. If there is no next batch, adds one. Returns whether there is
    /// room for more.
    #[cold]
    fn begins_batch(&mut self) -> bool {
        // A caller that was told that the gather is full may add one more record before it flushes.
        if self.at > self.full_at {
            return false;
        }
        if self.begun == self.len && !self.has_grown() {
            return false;
        }
        let next = self.batches[self.begun].take();
        self.put_aside();
        self.filling = next;
        self.begun += 1;
        (self.at, self.full_at) = (0, BATCH);
        true
    }

    /// Puts the records of the batch that is being filled, if there is one, back into `batches`.
    fn put_aside(&mut self) {
        let filled = self.filling.take();
        if let Some(last) = self.begun.checked_sub(1) {
            self.batches[last] = filled;
        }
    }

    /// Returns all records, in the order in which they were added. The caller has called
    /// [`Gather::put_aside`].
    fn records(&self) -> impl Iterator<Item = &[Record]> {
        let full = |part: usize, full_at| if part == self.begun { self.at } else { full_at };
        let bundle = &self.bundle[..full(0, BUNDLE)];
        let batches = (1..).zip(self.batches[..self.begun].iter().flatten());
        iter::once(bundle).chain(batches.map(move |(part, batch)| &batch[..full(part, BATCH)]))
    }

    /// Returns the number of records that the gather holds now.
    fn count(&self) -> usize {
        match self.begun.checked_sub(1) {
            Some(full) => BUNDLE + full * BATCH + self.at,
            None => self.at,
        }
    }

    /// Returns the memory that the gather was made with.
    pub(super) fn memory(&self) -> Memory<'m, M> {
        self.memory
    }

    /// Records that the caller has unmapped a page that this gather will not free. Translations to
    /// that page still have to be flushed.
    pub(super) fn note_stale(&mut self) {
        self.stale = true;
    }

    /// Adds one more batch, if there is a free page and memory for its records. The caller may hold
    /// the lock of a page table, so this method does not ask the global allocator.
    fn has_grown(&mut self) -> bool {
        let Memory {
            machine,
            manager,
            spaces,
        } = self.memory;
        let Some(records) = self.batches.get_mut(self.len) else {
            return false;
        };
        if records.is_none() {
            *records = spaces.batches.take(machine, self.share);
        }
        if records.is_none() {
            return false;
        }
        let request = Request::new(Order::ZERO).urgent(Urgency::NoWait);
        // If there is no free page, the gather keeps `records` for its next attempt to add a batch.
        let Ok(page) = manager.pages().alloc(machine, request) else {
            return false;
        };
        self.pages[self.len] = page;
        self.len += 1;
        true
    }

    /// Flushes translations, if any may be stale.
    pub(super) fn flush_translations(&mut self) {
        if !self.stale {
            return;
        }
        let machine = self.memory.machine;
        machine.emit(Event::Begin(Phase::Flush));
        machine.spend(Work::TlbFlush, 1);
        machine.emit(Event::End(Phase::Flush));
        self.stale = false;
    }

    /// Flushes translations, then frees everything that was gathered (Linux: `tlb_flush_mmu`).
    pub(super) fn flush(&mut self) {
        self.flush_translations();
        if self.count() == 0 {
            return;
        }
        let machine = self.memory.machine;
        machine.emit(Event::Begin(Phase::FreePages));
        self.put_aside();
        let (mut run, mut len) = ([Record::BLANK; TOGETHER], 0);
        for mut records in self.records() {
            while !records.is_empty() {
                let (now, later) = records.split_at(records.len().min(TOGETHER - len));
                run[len..len + now.len()].copy_from_slice(now);
                (records, len) = (later, len + now.len());
                if len == TOGETHER {
                    self.give_back(&run);
                    len = 0;
                }
            }
        }
        if len > 0 {
            self.give_back(&run[..len]);
        }
        (self.begun, self.at, self.full_at) = (0, 0, BUNDLE);
        machine.emit(Event::End(Phase::FreePages));
    }

    /// Flushes as [`Gather::flush`] does, if there are at least `many` records.
    pub(super) fn flush_above(&mut self, many: u64) {
        if self.count() as u64 >= many {
            self.flush();
        }
    }

    /// Flushes as [`Gather::flush`] does, and then frees the batches too (Linux: `tlb_finish_mmu`).
    pub(super) fn finish(mut self) {
        let machine = self.memory.machine;
        machine.emit(Event::Begin(Phase::FinishGather));
        self.flush();
        for pages in self.pages[..self.len].chunks(TOGETHER) {
            self.memory.give_back(pages);
        }
        if self.batches[0].is_some() {
            let spaces = self.memory.spaces;
            let batches = self.batches.into_iter().flatten();
            spaces.batches.give_back(machine, batches);
        }
        machine.emit(Event::End(Phase::FinishGather));
    }

    /// Frees the pages of at most [`TOGETHER`] records.
    fn give_back(&self, run: &[Record]) {
        let Memory {
            machine,
            manager,
            spaces,
        } = self.memory;
        let (mut own, mut tables, mut aged) = (Run::new(), Run::new(), Run::new());
        let (mut others, mut has_huge) = (0, false);
        for gathered in run.iter().map(|record| record.get()) {
            if let Gathered::Page(page, _) = gathered
                && page.kind == PageKind::Anon
            {
                aged.push(page.pfn);
            }
            match gathered {
                Gathered::Table(pfn) => tables.push(pfn),
                Gathered::Page(page, _) if !page.kind.is_owned() => {
                    self.memory.drop_unmapped(page);
                    others += 1;
                }
                Gathered::Page(page, Order::ZERO) => own.push(page.pfn),
                Gathered::Page(..) => has_huge = true,
            }
        }
        spaces.lru.remove(machine, manager.pages(), aged.get());
        machine.spend(Work::Release, others);
        self.give_back_own(own.get());
        if !tables.get().is_empty() {
            let gone = signed(tables.get().len() as u64);
            self.space.table.count(machine, -gone);
            self.memory.give_back_tables(tables.get());
        }
        if has_huge {
            self.give_back_huge(run);
        }
    }

    fn give_back_own(&self, own: &[Pfn]) {
        let Memory {
            machine, manager, ..
        } = self.memory;
        if own.is_empty() {
            return;
        }
        let pages = count_of(own.len());
        manager.pages().count_each(machine, own, ZoneItem::Anon, -1);
        manager.count_each_on_nodes(machine, own, NodeItem::AnonMapped, -1);
        machine.spend(Work::Release, pages);
        self.uncharge(u64::from(pages));
        self.memory.give_back(own);
    }

    /// Frees the huge pages of `run`.
    fn give_back_huge(&self, run: &[Record]) {
        let Memory {
            machine, manager, ..
        } = self.memory;
        let huge = |record: &Record| match record.get() {
            Gathered::Page(page, order) if order != Order::ZERO => Some((page, order)),
            _ => None,
        };
        for (page, order) in run.iter().filter_map(huge) {
            if page.kind == PageKind::Anon {
                let Pages(pages) = order.pages();
                let delta = -i64::from(pages);
                manager
                    .pages()
                    .count(machine, page.pfn, ZoneItem::Anon, delta);
                manager.count_each_on_nodes(machine, &[page.pfn], NodeItem::AnonMapped, delta);
                self.uncharge(u64::from(pages));
            }
            machine.spend(Work::Release, 1);
            self.memory.give_back_block(page.pfn, order);
        }
    }

    fn uncharge(&self, pages: u64) {
        if let Some(budget) = &self.space.budget {
            budget.uncharge(self.memory.machine, pages);
        }
    }
}

#[cfg(feature = "laws")]
impl<M: Machine> AddressSpace<M> {
    /// Takes all memory that is set aside for batches, and then fills a gather. Gives the memory
    /// back, and adds one more record, because a caller is allowed to add one to a full gather.
    /// Returns the number of added records, and the number of records that a flush would free.
    pub(crate) fn records_before_a_late_batch(&self, memory: Memory<'_, M>) -> (usize, usize) {
        let batches = &memory.spaces.batches;
        let all: Vec<_> = iter::from_fn(|| batches.take(memory.machine, Share::Dying)).collect();
        let mut gather = Gather::of_dying(memory, self);
        // A page of a file is not freed when it is unmapped, so any frame will do.
        let (pfn, kind) = (Pfn(0), PageKind::File);
        let mut added = 1;
        while gather.add(Page { pfn, kind }, Order::ZERO) {
            added += 1;
        }
        batches.give_back(memory.machine, all.into_iter());
        let _has_room = gather.add(Page { pfn, kind }, Order::ZERO);
        let kept = gather.records().map(<[_]>::len).sum::<usize>();
        // The records of the batch that is being filled are in `filling`, not in `batches`.
        let kept = kept + gather.filling.as_ref().map_or(0, |_| gather.at);
        gather.finish();
        (added + 1, kept)
    }
}

/// Frames of pages that are freed together, in one call.
struct Run {
    pfns: [Pfn; TOGETHER],
    len: usize,
}

impl Run {
    const fn new() -> Self {
        Self {
            pfns: [Pfn(0); TOGETHER],
            len: 0,
        }
    }

    fn push(&mut self, pfn: Pfn) {
        self.pfns[self.len] = pfn;
        self.len += 1;
    }

    fn get(&self) -> &[Pfn] {
        &self.pfns[..self.len]
    }
}
