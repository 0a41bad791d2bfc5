//! Emptying page tables (Linux: `unmap_page_range`, `zap_pte_range`).
//!
//! A table is emptied under its lock: its pages are gathered, and each counter is changed once.
//! When the gather is full, translations are flushed before the lock is released. Then the gathered
//! pages are freed, and the walk continues.
//!
//! Locks: `PageTable`. If another CPU may be unmapping the same huge page, a CPU takes `UpperTable`
//! first. A CPU that holds `PageTable` takes `Swap` and the locks of counters. It takes `Batches`,
//! `Pcp` and `Zone` when it adds a batch to the gather, and `Lru` when it splits a huge page.

use core::ops::Range;

use super::AddressSpace;
use super::gather::Gather;
use super::memory::Memory;
use super::page_table::{Blank, ENTRIES, Entries, Entry, Page, PageKind, Spot, What};
use super::rss::RssKind;
use super::swap::SwapSlot;
use crate::event::{Event, Phase};
use crate::machine::{Lock, Machine};
use crate::site::{Site, Work};
use crate::units::{Order, Pages, Pfn, Vpn, narrow, signed};

/// The largest number of swap slots that are collected and then freed in one call.
const SLOTS_TOGETHER: usize = 64;

/// The CPUs that may be emptying a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Other CPUs may be emptying the table, too.
    Anybodys,
    /// Only this CPU may empty the table, for example because it has claimed the table in a dying
    /// address space.
    Mine,
}

/// The entry at which emptying a table stopped, and the reason.
struct Stop {
    at: u32,
    /// True if the gather (the collection of unmapped pages) is full and has to be flushed before
    /// the walk continues.
    full: bool,
}

/// Counts of the entries that were emptied while the table's lock was held once.
struct Tally {
    counted: [u64; RssKind::ALL.len()],
    pages: u32,
    unmapped: u32,
    slots: [SwapSlot; SLOTS_TOGETHER],
    slots_len: usize,
}

impl<M: Machine> AddressSpace<M> {
    /// Empties the page table entries of `pages`, in ascending order.
    pub(super) fn unmap_range(&self, gather: &mut Gather<'_, M>, pages: Range<Vpn>, site: Site) {
        let machine = gather.memory().machine;
        machine.emit(Event::Begin(Phase::Unmap));
        let mut index = super::page_table::table_of(pages.start);
        while let Some(spot) = self.table.next(index) {
            if spot.start() >= pages.end {
                break;
            }
            self.unmap_table(gather, spot, spot.clip(&pages), site, Whose::Anybodys);
            index = spot.index + 1;
        }
        machine.emit(Event::End(Phase::Unmap));
    }

    /// Empties the entries `range` of one table.
    pub(super) fn unmap_table(
        &self,
        gather: &mut Gather<'_, M>,
        spot: Spot<'_, M>,
        range: Range<u32>,
        site: Site,
        whose: Whose,
    ) {
        if spot.leaf.is_huge() {
            self.unmap_huge(gather, spot, &range, site, whose);
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

    /// Takes the lock of a table once, and empties the entries `range` of the table until the
    /// gather is full.
    fn zap(
        &self,
        gather: &mut Gather<'_, M>,
        spot: Spot<'_, M>,
        range: Range<u32>,
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

    /// Reports to the `Machine` (which may be simulated) the work of emptying the entries that
    /// `tally` counts. Frees the swap slots of these entries, and subtracts their pages from the
    /// counters.
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

    /// Unmaps a huge page if all of it is in `range`; otherwise replaces it by a table of its parts
    /// (Linux: `zap_huge_pmd`, `__split_huge_pmd`).
    fn unmap_huge(
        &self,
        gather: &mut Gather<'_, M>,
        spot: Spot<'_, M>,
        range: &Range<u32>,
        site: Site,
        whose: Whose,
    ) {
        let machine = gather.memory().machine;
        machine.emit(Event::Begin(Phase::TableLock));
        // `_blank` is the table that was kept for splitting the huge page. Its memory is dropped at
        // the end of this function, where no lock is held.
        let (full, _blank) = match whose {
            Whose::Anybodys => spot.upper.frame.with(machine, site, |_| {
                self.unmap_huge_here(gather, spot, range, site)
            }),
            Whose::Mine => self.unmap_huge_here(gather, spot, range, site),
        };
        if full {
            gather.flush();
        }
    }

    /// Unmaps or splits a huge page, under the lock of the place of its table. Returns whether the
    /// gather is full, and the table that was kept for splitting.
    fn unmap_huge_here(
        &self,
        gather: &mut Gather<'_, M>,
        spot: Spot<'_, M>,
        range: &Range<u32>,
        site: Site,
    ) -> (bool, Option<Blank>) {
        let memory = gather.memory();
        spot.leaf.entries.with(memory.machine, site, |entries| {
            memory.machine.emit(Event::End(Phase::TableLock));
            // Another CPU may have unmapped the huge page, or split it.
            let What::Huge(page) = entries.what() else {
                return (false, None);
            };
            if *range == (0..ENTRIES) {
                return self.zap_huge(gather, spot, entries, page);
            }
            self.split_huge(memory, spot, entries, page);
            (false, None)
        })
    }

    /// Unmaps a huge page. Returns whether the gather is full, and the table that was kept for
    /// splitting the huge page.
    fn zap_huge(
        &self,
        gather: &mut Gather<'_, M>,
        spot: Spot<'_, M>,
        entries: &mut Entries,
        page: Page,
    ) -> (bool, Option<Blank>) {
        let machine = gather.memory().machine;
        machine.spend(Work::Zap, 1);
        machine.spend(Work::Rmap, 1);
        if let Some(kind) = page.kind.counted() {
            let Pages(pages) = Order::HUGE.pages();
            self.rss.add(machine, kind, -i64::from(pages));
        }
        let mut full = !gather.add(page, Order::HUGE);
        let blank = spot.leaf.take_blank(entries);
        if let Some(blank) = &blank {
            full |= !gather.add_table(blank.frame);
        }
        if full {
            gather.flush_translations();
        }
        (full, blank)
    }

    /// Replaces a huge page by a table of its parts.
    fn split_huge(
        &self,
        memory: Memory<'_, M>,
        spot: Spot<'_, M>,
        entries: &mut Entries,
        page: Page,
    ) {
        let Memory {
            machine,
            manager,
            spaces,
        } = memory;
        machine.spend(Work::WalkTable, 1);
        let split = manager.pages().split(machine, page.pfn, Order::HUGE);
        split.expect("a huge page was handed out as one block");
        spot.leaf.go_live(entries);
        for part in 0..ENTRIES {
            let pfn = page.pfn.plus(Pages(part));
            entries.set(part, Entry::Page(Page { pfn, ..page }));
            if part > 0 {
                self.own(memory, spot, part, pfn);
            }
            // The first page stands for the whole huge page on the LRU lists, so it is already
            // there. Only the other pages have to be added now.
            if page.kind == PageKind::Anon && part > 0 {
                spaces.lru.add(machine, manager.pages(), pfn);
            }
        }
    }

    /// Removes a table if it exists and is empty, and returns its page.
    pub(super) fn take_table(&self, machine: &M, spot: Spot<'_, M>, site: Site) -> Option<Pfn> {
        if !spot.leaf.is_live() {
            return None;
        }
        let blank = spot
            .leaf
            .entries
            .with(machine, site, |entries: &mut Entries| {
                let is_spare = entries.what() == What::Table && entries.used() == 0;
                is_spare.then(|| spot.leaf.take_blank(entries)).flatten()
            });
        blank.map(|blank| blank.frame)
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

    /// Records an entry that was emptied. Returns whether the gather (the collection of unmapped
    /// pages) is full.
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
            memory.machine.emit(Event::Begin(Phase::FreeSwap));
            memory.spaces.free_stored(memory.machine, slots);
            memory.machine.emit(Event::End(Phase::FreeSwap));
        }
        self.slots_len = 0;
    }
}

impl<M: Machine> Spot<'_, M> {
    /// Returns the indices of the entries of this table that are for `pages`.
    pub(super) fn clip(&self, pages: &Range<Vpn>) -> Range<u32> {
        let start = self.start().0;
        let entry = |page: Vpn| {
            let behind = page.0.saturating_sub(start);
            narrow(behind.min(u64::from(ENTRIES)))
        };
        entry(pages.start)..entry(pages.end)
    }
}
