//! Workloads: programs that make CPUs fault in pages, unmap them and compute.

pub(crate) mod daemons;
pub(crate) mod exits;
pub mod make_like;
pub(crate) mod mix;
pub mod overcommit;
pub(crate) mod page_fault;
pub(crate) mod purge;
pub(crate) mod readers;
pub(crate) mod storm;
pub(crate) mod stress_swap;
pub mod stress_vm;
pub(crate) mod victim;

use plimsoll_mm::Manager;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::Request;
use plimsoll_mm::site::Work;
use plimsoll_mm::units::{Nanos, Order, Pfn};
use plimsoll_mm::vmstat::counters::{NodeItem, ZoneItem};
use plimsoll_sim::Sim;
use rand::RngExt;

/// The largest number of newly mapped pages that a CPU adds to the machine's counters at once. (In
/// Linux, pages reach the LRU in batches of 31.)
const COUNTED_TOGETHER: usize = 31;

/// The number of pages that a CPU unmaps before it frees them all (Linux: a part of an
/// `mmu_gather`).
const UNMAPPED_TOGETHER: usize = 512;

/// The kinds of work that unmapping a page takes, in order. The work of the page allocator is not
/// included.
pub(crate) const UNMAPPING: [Work; 4] = [Work::Zap, Work::Rmap, Work::LruRemove, Work::Release];

/// The anonymous memory of one mapping, as a list of its pages.
#[derive(Debug)]
pub(crate) struct Mapping<'a> {
    mm: &'a Manager<Sim>,
    pages: Vec<Pfn>,
    /// The number of mapped pages that the machine's counters do not include yet.
    uncounted: usize,
}

impl<'a> Mapping<'a> {
    /// A mapping without pages.
    #[must_use]
    pub(crate) fn new(mm: &'a Manager<Sim>) -> Self {
        Self {
            mm,
            pages: Vec::new(),
            uncounted: 0,
        }
    }

    /// Faults in `pages` new pages. Stops early and returns `false` if memory runs out.
    pub(crate) fn fault(&mut self, sim: &Sim, pages: usize) -> bool {
        self.fault_each(sim, pages, || {})
    }

    /// Faults in pages like [`Mapping::fault`], and also calls `faulted` after each page.
    pub(crate) fn fault_each(&mut self, sim: &Sim, pages: usize, faulted: impl Fn()) -> bool {
        self.pages.reserve(pages);
        let mut rest = pages;
        while rest > 0 {
            let run = rest.min(COUNTED_TOGETHER - self.uncounted);
            for done in 0..run {
                sim.spend(Work::Fault, 1);
                let Ok(pfn) = self.mm.pages().alloc(sim, Request::new(Order::ZERO)) else {
                    self.uncounted += done;
                    return false;
                };
                self.pages.push(pfn);
                faulted();
            }
            self.uncounted += run;
            self.count(sim);
            rest -= run;
        }
        true
    }

    /// Faults in one new page. Returns `None` if memory has run out, and `Some(true)` if this page
    /// completes a batch. In the latter case, the CPU has just added the batch to the machine's
    /// counters. The caller must then put the pages of the batch on the lists by which pages are
    /// aged.
    pub(crate) fn fault_one(&mut self, sim: &Sim) -> Option<bool> {
        sim.spend(Work::Fault, 1);
        let pfn = self.mm.pages().alloc(sim, Request::new(Order::ZERO)).ok()?;
        self.pages.push(pfn);
        self.uncounted += 1;
        let full = self.uncounted == COUNTED_TOGETHER;
        if full {
            self.count(sim);
        }
        Some(full)
    }

    /// Unmaps and frees all pages.
    ///
    /// # Panics
    /// If the manager refuses to free a page that it allocated.
    pub(crate) fn unmap(&mut self, sim: &Sim) {
        self.unmap_each(sim, |_| {});
    }

    /// Unmaps pages like [`Mapping::unmap`]. Also calls `unmapped` whenever all pages of one page
    /// table have been unmapped, with the number of these pages.
    ///
    /// # Panics
    /// As [`Mapping::unmap`].
    pub(crate) fn unmap_each(&mut self, sim: &Sim, unmapped: impl Fn(usize)) {
        let remove = |pages| sim.spend(Work::LruRemove, u32::try_from(pages).unwrap_or(u32::MAX));
        self.unmap_with(sim, unmapped, remove);
    }

    /// Unmaps pages like [`Mapping::unmap_each`], but spends no time on taking pages off the lists
    /// by which pages are aged. Instead, it calls `lru_remove` with the number of these pages.
    ///
    /// # Panics
    /// As [`Mapping::unmap`].
    pub(crate) fn unmap_with(
        &mut self,
        sim: &Sim,
        unmapped: impl Fn(usize),
        lru_remove: impl Fn(usize),
    ) {
        self.count(sim);
        for chunk in self.pages.chunks(UNMAPPED_TOGETHER) {
            let pages = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
            sim.spend(Work::Zap, pages);
            sim.spend(Work::Rmap, pages);
            lru_remove(chunk.len());
            sim.spend(Work::Release, pages);
            unmapped(chunk.len());
            self.note(sim, chunk[0], -i64::try_from(chunk.len()).unwrap_or(0));
            let freed = self.mm.pages().free_pages(sim, chunk);
            freed.expect("pages are given back as they were handed out");
        }
        self.pages.clear();
    }

    /// Ends the mapping without unmapping its pages, and returns the pages, so that they can be
    /// used after the task has ended. [`Mapping::of`] makes a mapping of these pages again.
    #[must_use]
    pub(crate) fn into_pages(mut self, sim: &Sim) -> Vec<Pfn> {
        self.count(sim);
        self.pages
    }

    /// Makes a mapping of `pages`, which [`Mapping::into_pages`] has returned.
    #[must_use]
    pub(crate) fn of(mm: &'a Manager<Sim>, pages: Vec<Pfn>) -> Self {
        Self {
            mm,
            pages,
            uncounted: 0,
        }
    }

    fn count(&mut self, sim: &Sim) {
        if let Some(&last) = self.pages.last()
            && self.uncounted > 0
        {
            self.note(sim, last, i64::try_from(self.uncounted).unwrap_or(0));
            self.uncounted = 0;
        }
    }

    fn note(&self, sim: &Sim, pfn: Pfn, delta: i64) {
        self.mm.pages().count(sim, pfn, ZoneItem::Anon, delta);
        self.mm.count_node(sim, NodeItem::AnonMapped, delta);
    }
}

/// Spends the time to unmap `pages`, without the time in the page allocator.
pub(crate) fn spend_unmapping(sim: &Sim, pages: u32) {
    UNMAPPING
        .into_iter()
        .for_each(|step| sim.spend(step, pages));
}

/// A random time, uniformly distributed from zero to twice `span`.
fn about(sim: &Sim, span: Nanos) -> Nanos {
    Nanos(sim.rng().random_range(0..=2 * span.0))
}

/// A random number of pages, uniformly distributed from half of `pages` to one and a half times
/// `pages`.
fn around(sim: &Sim, pages: usize) -> usize {
    sim.rng().random_range(pages / 2..=pages + pages / 2)
}
