//! Laws (tests for threads, model checkers and the simulator) of CPUs that use pages of two
//! mobilities (Linux: migratetypes) at the same time: page blocks change their type while another
//! CPU reads the type.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::AcqRel;

use super::Law;
use crate::design::Design;
use crate::machine::{Machine, Word};
use crate::page::watermark::Urgency;
use crate::page::{Config, Grouping, Layout, Mobility, PageAllocator, Request};
use crate::tunables::Knob;
use crate::units::{CpuId, Order, Pages, Pfn};

/// How many pages of each mobility a CPU takes.
const EACH: usize = 2;

/// The state of the tests in this file: an allocator whose pages are grouped by mobility, and the
/// number of pages that CPUs hold.
pub struct TwoTypes<M: Machine> {
    pages: PageAllocator<M>,
    size: Pages,
    held: M::Word,
}

impl<M: Machine> fmt::Debug for TwoTypes<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TwoTypes").finish_non_exhaustive()
    }
}

impl<M: Machine> TwoTypes<M> {
    fn new(machine: &M, size: Pages) -> Self {
        let mut config = Config::new(Layout::arena(size));
        config.design = Design::LINUX_6_18;
        config.grouping = Grouping::Huge;
        // Limit lists to a few pages, so that a CPU returns pages to the zone after a handful of
        // frees.
        config
            .tunables
            .set(Knob::HighFraction, 512)
            .expect("in bounds");
        Self {
            pages: PageAllocator::new(machine, config).expect("a small arena is a layout"),
            size,
            held: machine.word(0),
        }
    }

    /// Takes pages of both mobilities alternately, asserts that no page is handed out twice, and
    /// frees them in the order taken.
    fn churn(&self, machine: &M) {
        let mut taken: Vec<Pfn> = Vec::new();
        for mobility in [Mobility::Unmovable, Mobility::Movable].repeat(EACH) {
            let request = Request::new(Order::ZERO)
                .of_mobility(mobility)
                .urgent(Urgency::Reserve);
            let Ok(pfn) = self.pages.alloc(machine, request) else {
                continue;
            };
            assert!(!taken.contains(&pfn), "{pfn:?} was handed out once");
            let held = self.held.add(machine, 1, AcqRel);
            assert!(held <= i64::from(self.size.0), "no page is held twice");
            taken.push(pfn);
        }
        for pfn in taken {
            self.held.add(machine, -1, AcqRel);
            self.pages
                .free(machine, pfn, Order::ZERO)
                .expect("it was handed out as a single page");
        }
    }

    /// Asserts that every page is free, counted, and merged with its neighbours, whatever their
    /// types were.
    fn is_whole(&self, machine: &M) {
        self.pages.drain_all_sync(machine);
        let zone = &self.pages.view(machine)[0];
        assert_eq!(zone.free, self.size, "no page is lost");
        assert_eq!(zone.counted_free, u64::from(self.size.0), "nor a count");
        let whole = self.size.0.ilog2() as usize;
        assert_eq!(zone.blocks[whole], 1, "all merged: {:?}", zone.blocks);
        let by_type = zone.blocks_by_mobility;
        let sum: u32 = by_type.iter().map(|blocks| blocks[whole]).sum();
        assert_eq!(sum, 1, "on one list: {by_type:?}");
    }
}

/// Two CPUs take and free pages of both mobilities, and one of them drains the other's lists. There
/// are too few pages to give each type a page block, so a CPU steals pages from the block of the
/// other type.
#[must_use]
pub fn stealing_against_freeing<M: Machine>() -> Law<M, TwoTypes<M>> {
    Law {
        name: "no page is lost or shared when CPUs steal from another type's block at once",
        setup: |machine| TwoTypes::new(machine, Pages(16)),
        bodies: vec![|machine, two| two.churn(machine), |machine, two| {
            two.churn(machine);
            two.pages.drain_cpu(machine, CpuId(0));
        }],
        check: |machine, two| two.is_whole(machine),
    }
}

/// Two CPUs take and free pages of both mobilities, and one of them drains the other's lists. There
/// are two page blocks, so a CPU claims a block and changes its type while the other CPU frees
/// pages of it.
#[must_use]
pub fn claiming_against_freeing<M: Machine>() -> Law<M, TwoTypes<M>> {
    Law {
        name: "no page is lost or shared when a block changes its type while its pages are freed",
        setup: |machine| TwoTypes::new(machine, Pages(1024)),
        bodies: vec![|machine, two| two.churn(machine), |machine, two| {
            two.churn(machine);
            two.pages.drain_cpu(machine, CpuId(0));
        }],
        check: |machine, two| two.is_whole(machine),
    }
}
