//! An address space of the benchmark.

use std::cell::RefCell;

use plimsoll_mm::counter::Plan;
use plimsoll_mm::machine::{Machine, RwLock};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::space::rss::{Rss, RssKind};
use plimsoll_mm::units::Pfn;
use plimsoll_sim::Sim;

use super::{Shared, Waiting};
use crate::workload::Mapping;

/// An address space of the benchmark.
pub(super) struct Space {
    pub(super) rss: Rss<Sim>,
    mmap_lock: <Sim as Machine>::RwLock<()>,
    /// The pages that tasks left mapped when they ended.
    pub(super) left: RefCell<Vec<Pfn>>,
}

impl Space {
    /// Creates an address space whose lock is near the calling CPU.
    pub(super) fn new(sim: &Sim, plan: &Plan<Sim>) -> Self {
        Self {
            rss: Rss::new(sim, plan).expect("the plan is one for resident pages"),
            mmap_lock: sim.rw_lock(LockClass::Mmap, sim.this_cpu(), ()),
            left: RefCell::default(),
        }
    }

    /// Maps memory for one task.
    pub(super) fn map(&self, sim: &Sim, waiting: &Waiting) {
        let asked = waiting.begin(sim);
        self.mmap_lock.write(sim, Site::Mmap, |()| {
            waiting.end(asked);
            sim.spend(Work::MapEdit, 1);
        });
    }

    /// Faults in `pages` pages.
    pub(super) fn fault(
        &self,
        sim: &Sim,
        shared: &Shared,
        mapping: &mut Mapping<'_>,
        pages: usize,
    ) {
        for _ in 0..pages {
            let full = mapping.fault_one(sim);
            if full.expect("the machine has memory for every task") {
                shared.lruvecs.add(sim);
            }
            self.rss.add_growing(sim, RssKind::Anon, 1);
        }
    }

    /// Unmaps the pages of `mapping` and frees them.
    pub(super) fn unmap(&self, sim: &Sim, shared: &Shared, mapping: &mut Mapping<'_>) {
        let asked = shared.waiting.begin(sim);
        let split = |(): &mut ()| {
            shared.waiting.end(asked);
            sim.spend(Work::MapEdit, 1);
            Some(())
        };
        let lock = &self.mmap_lock;
        lock.write_then_read(
            sim,
            Site::Munmap,
            || false,
            split,
            |(), ()| {
                self.free(sim, shared, mapping);
            },
        );
    }

    /// Removes the pages of `mapping` and frees them.
    pub(super) fn free(&self, sim: &Sim, shared: &Shared, mapping: &mut Mapping<'_>) {
        let unmapped = |pages: usize| {
            let pages = i64::try_from(pages).unwrap_or(0);
            self.rss.add_growing(sim, RssKind::Anon, -pages);
        };
        mapping.unmap_with(sim, unmapped, |pages| shared.lruvecs.remove(sim, pages));
    }
}
