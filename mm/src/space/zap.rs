//! Emptying page tables (Linux: `unmap_page_range`, `zap_pte_range`).
//!
//! A table is emptied under its lock, its pages gathered, and the counters told once. When the gather
//! is full, translations are flushed before the lock is released, then the pages go back, then it
//! goes on.
//!
//! Locks: `PageTable`, or `UpperTable` and then `PageTable` for a huge page; `Swap` inside.

use core::ops::Range;

use super::AddressSpace;
use super::gather::{Gather, signed};
use super::memory::Memory;
use super::page_table::{ENTRIES, Entries, Entry, Page, PageKind, Slots, Spot};
use super::rss::RssKind;
use super::swap::SwapSlot;
use crate::event::{Event, Phase};
use crate::machine::{Lock, Machine};
use crate::site::{Site, Work};
use crate::units::{Order, Pages, Pfn, Vpn};

/// Slots of swap that go back together (Linux: a batch of the same swap area).
const SLOTS_TOGETHER: usize = 64;

/// How far emptying a table has come.
struct Stop {
    at: u64,
    /// Whether the gather has to go first.
    full: bool,
}

/// What was taken out of a table under one hold of its lock.
struct Tally {
    counted: [u64; RssKind::ALL.len()],
    pages: u32,
    unmapped: u32,
    slots: [SwapSlot; SLOTS_TOGETHER],
    slots_len: usize,
}

impl<M: Machine> AddressSpace<M> {
    /// Empties `pages`, from the lowest on.
    pub(super) fn unmap_range(&self, gather: &mut Gather<'_, M>, pages: Range<Vpn>, site: Site) {
        let machine = gather.memory().machine;
        machine.emit(Event::Begin(Phase::Unmap));
        let mut index = super::page_table::table_of(pages.start);
        while let Some(spot) = self.table.next(index) {
            if spot.start() >= pages.end {
                break;
            }
            self.unmap_table(gather, spot, spot.clip(&pages), site);
            index = spot.index + 1;
        }
        machine.emit(Event::End(Phase::Unmap));
    }

    /// Empties the entries `range` of one table.
    pub(super) fn unmap_table(
        &self,
        gather: &mut Gather<'_, M>,
        spot: Spot<'_, M>,
        range: Range<u64>,
        site: Site,
    ) {
        if spot.is_huge() {
            self.unmap_huge(gather, spot, &range, site);
        }
        let mut at = range.start;
        while at < range.end && spot.leaf.is_live() {
            let stop = self.zap(gather, spot, at..range.end, site);
            at = stop.at;
            if stop.full {
                gather.flush();
            }
        }
    }

    /// One hold of a table's lock.
    fn zap(
        &self,
        gather: &mut Gather<'_, M>,
        spot: Spot<'_, M>,
        range: Range<u64>,
        site: Site,
    ) -> Stop {
        let memory = gather.memory();
        let machine = memory.machine;
        machine.emit(Event::Begin(Phase::TableLock));
        spot.leaf.entries.with(machine, site, |entries| {
            machine.emit(Event::End(Phase::TableLock));
            machine.spend(Work::WalkTable, 1);
            let (mut tally, mut full) = (Tally::new(), false);
            let at = entries.clear(range, |entry| {
                full = tally.take(memory, gather, entry);
                !full
            });
            self.settle(memory, &mut tally);
            if full {
                gather.flush_translations();
            }
            Stop { at, full }
        })
    }

    /// Pays for what was taken out, and counts it.
    fn settle(&self, memory: Memory<'_, M>, tally: &mut Tally) {
        let machine = memory.machine;
        machine.spend(Work::Zap, tally.unmapped);
        if tally.pages > 0 {
            machine.emit(Event::Begin(Phase::Rmap));
            machine.spend(Work::Rmap, tally.pages);
            machine.emit(Event::End(Phase::Rmap));
        }
        tally.give_back_slots(memory);
        for kind in RssKind::ALL {
            let pages = tally.counted[kind as usize];
            if pages > 0 {
                self.rss.add(machine, kind, -signed(pages));
            }
        }
    }

    /// A huge page goes if all of it is in `range`; otherwise its place gets a table of its parts
    /// (Linux: `zap_huge_pmd`, `__split_huge_pmd`).
    fn unmap_huge(
        &self,
        gather: &mut Gather<'_, M>,
        spot: Spot<'_, M>,
        range: &Range<u64>,
        site: Site,
    ) {
        let machine = gather.memory().machine;
        machine.emit(Event::Begin(Phase::TableLock));
        let full = spot.upper.slots.with(machine, site, |slots| {
            machine.emit(Event::End(Phase::TableLock));
            // Somebody may have been faster.
            let page = spot.huge(slots)?;
            if *range == (0..ENTRIES) {
                return Some(self.zap_huge(gather, spot, (slots, page), site));
            }
            self.split_huge(gather.memory(), spot, (slots, page), site);
            None
        });
        if full == Some(true) {
            gather.flush();
        }
    }

    /// Takes a huge page out; whether the gather is full.
    fn zap_huge(
        &self,
        gather: &mut Gather<'_, M>,
        spot: Spot<'_, M>,
        (slots, page): (&mut Slots, Page),
        site: Site,
    ) -> bool {
        let machine = gather.memory().machine;
        machine.spend(Work::Zap, 1);
        machine.spend(Work::Rmap, 1);
        spot.take_huge(slots);
        if let Some(kind) = page.kind.counted() {
            let Pages(pages) = Order::HUGE.pages();
            self.rss.add(machine, kind, -i64::from(pages));
        }
        let kept = spot
            .leaf
            .entries
            .with(machine, site, |entries| spot.leaf.take_frame(entries));
        if let Some(frame) = kept {
            self.forget_frames(machine, 1);
            gather.add_table(frame);
        }
        let full = !gather.add(page, Order::HUGE);
        if full {
            gather.flush_translations();
        }
        full
    }

    /// Puts a table with the parts of a huge page in its place.
    pub(super) fn split_huge(
        &self,
        memory: Memory<'_, M>,
        spot: Spot<'_, M>,
        (slots, page): (&mut Slots, Page),
        site: Site,
    ) {
        let machine = memory.machine;
        machine.spend(Work::WalkTable, 1);
        let split = memory.manager.pages().split(machine, page.pfn, Order::HUGE);
        split.expect("a huge page was handed out as one block");
        spot.leaf.entries.with(machine, site, |entries| {
            spot.leaf.go_live(entries);
            for part in 0..ENTRIES {
                let pfn = page.pfn.plus(Pages(part as u32));
                entries.set(part, Entry::Page(Page { pfn, ..page }));
            }
        });
        spot.take_huge(slots);
        if page.kind == PageKind::Anon {
            for part in 1..ENTRIES {
                let pfn = page.pfn.plus(Pages(part as u32));
                memory.spaces.lru.add(machine, memory.manager.pages(), pfn);
            }
        }
    }

    /// Takes the page of an empty table, if the table is there and empty.
    pub(super) fn take_table(&self, machine: &M, spot: Spot<'_, M>, site: Site) -> Option<Pfn> {
        if !spot.leaf.is_live() {
            return None;
        }
        let frame = spot
            .leaf
            .entries
            .with(machine, site, |entries: &mut Entries| {
                let is_spare = entries.is_live() && entries.used() == 0;
                is_spare.then(|| spot.leaf.take_frame(entries)).flatten()
            })?;
        self.forget_frames(machine, 1);
        Some(frame)
    }
}

impl Tally {
    const fn new() -> Self {
        Self {
            counted: [0; RssKind::ALL.len()],
            pages: 0,
            unmapped: 0,
            slots: [SwapSlot(0); SLOTS_TOGETHER],
            slots_len: 0,
        }
    }

    /// Takes note of an entry; whether the gather is full.
    fn take<M: Machine>(
        &mut self,
        memory: Memory<'_, M>,
        gather: &mut Gather<'_, M>,
        entry: Entry,
    ) -> bool {
        self.unmapped += 1;
        match entry {
            Entry::Page(page) if page.kind == PageKind::Raw => {
                gather.note_stale();
                false
            }
            Entry::Page(page) => {
                self.pages += 1;
                if let Some(kind) = page.kind.counted() {
                    self.counted[kind as usize] += 1;
                }
                !gather.add(page, Order::ZERO)
            }
            Entry::Swap(slot) => {
                self.counted[RssKind::Swap as usize] += 1;
                self.slots[self.slots_len] = slot;
                self.slots_len += 1;
                if self.slots_len == SLOTS_TOGETHER {
                    self.give_back_slots(memory);
                }
                false
            }
        }
    }

    fn give_back_slots<M: Machine>(&mut self, memory: Memory<'_, M>) {
        let slots = &self.slots[..self.slots_len];
        if !slots.is_empty() {
            let given = memory.spaces.swap.give_back(memory.machine, slots);
            given.expect("a slot is in one page table, once");
        }
        self.slots_len = 0;
    }
}

impl<M: Machine> Spot<'_, M> {
    /// The entries of this table that are of `pages`.
    pub(super) fn clip(&self, pages: &Range<Vpn>) -> Range<u64> {
        let start = self.start().0;
        let entry = |page: Vpn| page.0.saturating_sub(start).min(ENTRIES);
        entry(pages.start)..entry(pages.end)
    }
}
