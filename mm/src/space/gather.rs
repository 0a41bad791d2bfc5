//! Unmapped pages that wait to be freed (Linux: `mmu_gather`).
//!
//! No page may be freed while the translation of some CPU still leads to it. So the gather collects
//! unmapped pages first, then flushes the translations once for all of them, and then frees the
//! pages. The more pages it collects, the fewer flushes are needed. The gather keeps its first 8
//! records of pages in itself. Further records go into at most 19 batches, each of which takes a
//! page of memory and has room for 510 records. If there is no page for a batch, or no batch may be
//! added, the pages gathered so far have to be freed first.
//!
//! A batch also needs memory of the global allocator, because this code cannot write records into a
//! page. Only [`Gather::expect`] asks for that memory, with no page table locked. If there is no
//! such memory, the gather works with its own 8 records.
//!
//! Locks: pages are freed with no lock held but `Mmap`. Freeing takes `Lru`, `Pcp` and `Zone`, one
//! after the other.

use alloc::vec::Vec;

use super::AddressSpace;
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
/// The number of records of a batch: the number of pointers that fit into a page, less two.
const BATCH: usize = 510;
/// The largest number of batches. Linux limits a gather to 10,000 pages, so that freeing them does
/// not take too long.
const BATCHES_MAX: usize = 10_000 / BATCH;
/// The number of pages that are freed together, with one look-up of their lists and zones (Linux: a
/// folio batch).
const TOGETHER: usize = 31;

/// The gathered pages of one address space; the module's documentation describes it.
pub(super) struct Gather<'m, M: Machine> {
    memory: Memory<'m, M>,
    space: &'m AddressSpace<M>,
    /// The records while there is no batch. There is room for one more than `BUNDLE`, because a
    /// huge page and its table are added together.
    bundle: [Gathered; BUNDLE + 1],
    /// All records, as soon as there is a batch.
    batched: Vec<Gathered>,
    /// The number of records.
    len: usize,
    /// The number of records that the gather has room for.
    room: usize,
    /// The pages that hold the batches.
    batches: [Pfn; BATCHES_MAX],
    /// The number of batches.
    batches_len: usize,
    /// True if translations may still lead to pages that were unmapped.
    stale: bool,
}

/// A record: one unmapped page, or one page table.
#[derive(Clone, Copy)]
enum Gathered {
    /// A page, or a huge page.
    Page(Page, Order),
    /// The page of a page table.
    Table(Pfn),
}

impl<'m, M: Machine> Gather<'m, M> {
    /// Makes an empty gather for `space`.
    pub(super) fn new(memory: Memory<'m, M>, space: &'m AddressSpace<M>) -> Self {
        Self {
            memory,
            space,
            bundle: [Gathered::Table(Pfn(0)); BUNDLE + 1],
            batched: Vec::new(),
            len: 0,
            room: BUNDLE,
            batches: [Pfn(0); BATCHES_MAX],
            batches_len: 0,
            stale: false,
        }
    }

    /// Prepares for up to `more` further pages: asks the global allocator for room for their
    /// records, so that no caller has to allocate under a page-table lock. Call with no lock held
    /// but `Mmap`. If there is no memory, the gather is flushed more often.
    #[inline]
    pub(super) fn expect(&mut self, more: u32) {
        let needed = self.len + more as usize;
        // The gather begins a batch only if there is room for all of its records.
        if needed >= BUNDLE && needed + BATCH >= self.batched.capacity() {
            self.expect_slow(needed);
        }
    }

    #[cold]
    fn expect_slow(&mut self, needed: usize) {
        let batches = (needed + 1 - BUNDLE).div_ceil(BATCH).min(BATCHES_MAX);
        let more = (BUNDLE + batches * BATCH + 1).saturating_sub(self.batched.len());
        // If there is no memory, the capacity stays unchanged.
        let _kept = self.batched.try_reserve(more);
    }

    /// Adds a page that was just unmapped. Returns whether there is room for more. If there is
    /// none, the caller has to flush first.
    #[must_use]
    pub(super) fn add(&mut self, page: Page, order: Order) -> bool {
        self.push(Gathered::Page(page, order))
    }

    /// Adds the page of a page table. Returns whether there is room for more, as [`Gather::add`]
    /// does.
    #[must_use]
    pub(super) fn add_table(&mut self, pfn: Pfn) -> bool {
        self.push(Gathered::Table(pfn))
    }

    /// Adds the page of a page table, and flushes if there is no room for more. Call with no lock
    /// held but `Mmap`.
    pub(super) fn add_table_flushing(&mut self, pfn: Pfn) {
        self.expect(1);
        if !self.add_table(pfn) {
            self.flush();
        }
    }

    fn push(&mut self, gathered: Gathered) -> bool {
        self.stale = true;
        if self.batches_len == 0 {
            self.bundle[self.len] = gathered;
        } else {
            self.batched.push(gathered);
        }
        self.len += 1;
        self.len < self.room || self.has_grown()
    }

    fn gathered(&self) -> &[Gathered] {
        if self.batches_len == 0 {
            &self.bundle[..self.len]
        } else {
            &self.batched
        }
    }

    /// Returns the memory that the gather was made with.
    pub(super) fn memory(&self) -> Memory<'m, M> {
        self.memory
    }

    /// Notes that a page was unmapped that is not to be freed.
    pub(super) fn note_stale(&mut self) {
        self.stale = true;
    }

    /// Adds one more batch, if there is a free page. The caller may hold the lock of a page table,
    /// so this does not ask the global allocator.
    #[cold]
    fn has_grown(&mut self) -> bool {
        if self.batches_len == BATCHES_MAX || self.batched.capacity() <= self.room + BATCH {
            return false;
        }
        let request = Request::new(Order::ZERO).urgent(Urgency::NoWait);
        let Ok(batch) = self
            .memory
            .manager
            .pages()
            .alloc(self.memory.machine, request)
        else {
            return false;
        };
        if self.batches_len == 0 {
            self.batched.extend_from_slice(&self.bundle[..self.len]);
        }
        self.batches[self.batches_len] = batch;
        self.batches_len += 1;
        self.room += BATCH;
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
        if self.len == 0 {
            return;
        }
        let machine = self.memory.machine;
        machine.emit(Event::Begin(Phase::FreePages));
        for run in self.gathered().chunks(TOGETHER) {
            self.give_back(run);
        }
        self.batched.clear();
        self.len = 0;
        machine.emit(Event::End(Phase::FreePages));
    }

    /// Flushes as [`Gather::flush`] does, if there are at least `many` records.
    pub(super) fn flush_above(&mut self, many: u64) {
        if self.len as u64 >= many {
            self.flush();
        }
    }

    /// Flushes, and frees the pages of the batches too (Linux: `tlb_finish_mmu`).
    pub(super) fn finish(mut self) {
        self.flush();
        for batch in self.batches[..self.batches_len].chunks(TOGETHER) {
            self.memory.give_back(batch);
        }
    }

    /// Frees the pages of at most [`TOGETHER`] records.
    fn give_back(&self, run: &[Gathered]) {
        let Memory {
            machine,
            manager,
            spaces,
        } = self.memory;
        let (mut own, mut tables, mut aged) = (Run::new(), Run::new(), Run::new());
        let mut others = 0;
        for &gathered in run {
            if let Gathered::Page(page, _) = gathered
                && page.kind == PageKind::Anon
            {
                aged.push(page.pfn);
            }
            match gathered {
                Gathered::Table(pfn) => tables.push(pfn),
                Gathered::Page(page, _) if !page.kind.is_owned() => others += 1,
                Gathered::Page(page, Order::ZERO) => own.push(page.pfn),
                Gathered::Page(..) => {}
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
        self.give_back_huge(run);
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
    fn give_back_huge(&self, run: &[Gathered]) {
        let Memory {
            machine, manager, ..
        } = self.memory;
        let huge = |gathered: &Gathered| match *gathered {
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

/// Frames that are freed together.
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
