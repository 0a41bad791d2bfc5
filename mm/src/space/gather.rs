//! Pages that were unmapped, on their way back (Linux: `mmu_gather`).
//!
//! No page may go back to its zone while some CPU's translation still leads to it. So unmapped pages
//! are gathered first; then the translations are flushed, once for all of them; then they go back. The
//! more are gathered, the fewer flushes. Records of them are kept in the gather itself (8), then in
//! batches that each take a page of memory (510 records; at most 19). If there is no page for a
//! batch, or none may be added, those gathered so far have to go first.
//!
//! Batches need memory of the global allocator too, as no record can be written into a page here. It
//! is asked for that in [`Gather::expect`] only, with no page table locked; without it the 8 records
//! of the gather itself have to do.
//!
//! Locks: none is held while pages go back; `Lru`, `Pcp` and `Zone` are taken then, one after the other.

use alloc::vec::Vec;

use super::AddressSpace;
use super::memory::Memory;
use super::page_table::{Page, PageKind};
use crate::event::{Event, Phase};
use crate::machine::Machine;
use crate::page::Request;
use crate::page::watermark::Urgency;
use crate::site::Work;
use crate::units::{Order, Pages, Pfn};
use crate::vmstat::counters::{NodeItem, ZoneItem};

/// Records that need no batch (Linux: `MMU_GATHER_BUNDLE`).
const BUNDLE: usize = 8;
/// Records of a batch: a page of pointers, less two.
const BATCH: usize = 510;
/// Batches at most (Linux: 10,000 pages' worth, so that flushing does not take too long).
const BATCHES_MAX: usize = 10_000 / BATCH;
/// Pages whose lists and zones are looked up together (Linux: a folio batch).
const TOGETHER: usize = 31;

/// See the module.
pub(super) struct Gather<'m, M: Machine> {
    memory: Memory<'m, M>,
    space: &'m AddressSpace<M>,
    /// Records, up to as many as fit, and one more: with a huge page its table comes at once.
    bundle: [Gathered; BUNDLE + 1],
    /// All records, once there is a batch.
    batched: Vec<Gathered>,
    /// How many records there are.
    len: usize,
    /// Records that there is room for.
    room: usize,
    /// Pages that batches are in.
    batches: [Pfn; BATCHES_MAX],
    /// How many there are.
    batches_len: usize,
    /// Whether translations may lead to what was unmapped.
    stale: bool,
}

/// What goes back.
#[derive(Clone, Copy)]
enum Gathered {
    /// A page, or a huge one.
    Page(Page, Order),
    /// The page of a page table.
    Table(Pfn),
}

impl<'m, M: Machine> Gather<'m, M> {
    /// Nothing gathered of `space`.
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

    /// Up to `more` pages are about to be added: asks the global allocator for room for their
    /// records, so that nobody has to under a lock. With no lock held but `Mmap`. Without memory
    /// they are flushed more often.
    #[inline]
    pub(super) fn expect(&mut self, more: u32) {
        let needed = self.len + more as usize;
        // A batch is only begun if there is room for all of it.
        if needed >= BUNDLE && needed + BATCH >= self.batched.capacity() {
            self.expect_slow(needed);
        }
    }

    #[cold]
    fn expect_slow(&mut self, needed: usize) {
        let batches = (needed + 1 - BUNDLE).div_ceil(BATCH).min(BATCHES_MAX);
        let more = (BUNDLE + batches * BATCH + 1).saturating_sub(self.batched.len());
        // Without memory the room stays what it is.
        let _kept = self.batched.try_reserve(more);
    }

    /// Adds a page that was just unmapped. Whether there is room for more; if not, it has to be
    /// flushed first.
    #[must_use]
    pub(super) fn add(&mut self, page: Page, order: Order) -> bool {
        self.push(Gathered::Page(page, order))
    }

    /// The same for the page of a page table.
    #[must_use]
    pub(super) fn add_table(&mut self, pfn: Pfn) -> bool {
        self.push(Gathered::Table(pfn))
    }

    /// The same, and flushes if there is no room for more. With no lock held.
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

    /// What it was made with.
    pub(super) fn memory(&self) -> Memory<'m, M> {
        self.memory
    }

    /// Something was unmapped that does not go anywhere.
    pub(super) fn note_stale(&mut self) {
        self.stale = true;
    }

    /// Takes one more batch, if there is memory. Under the lock of a page table: nothing is asked of
    /// the global allocator.
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

    /// Flushes, then lets everything go that was gathered (Linux: `tlb_flush_mmu`).
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

    /// The same if at least so many were gathered.
    pub(super) fn flush_above(&mut self, many: u64) {
        if self.len as u64 >= many {
            self.flush();
        }
    }

    /// Lets everything go, batches too (Linux: `tlb_finish_mmu`).
    pub(super) fn finish(mut self) {
        self.flush();
        for batch in self.batches[..self.batches_len].chunks(TOGETHER) {
            self.memory.give_back(batch);
        }
    }

    /// Lets a run of pages go.
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
        let pages = own.len() as u64;
        manager.pages().count_each(machine, own, ZoneItem::Anon, -1);
        manager.count_each_on_nodes(machine, own, NodeItem::AnonMapped, -1);
        machine.spend(Work::Release, u32::try_from(pages).unwrap_or(u32::MAX));
        self.uncharge(pages);
        self.memory.give_back(own);
    }

    /// The huge pages of a run.
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

/// Frames that go together.
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

/// A count of pages as a difference.
pub(super) fn signed(pages: u64) -> i64 {
    i64::try_from(pages).unwrap_or(i64::MAX)
}
