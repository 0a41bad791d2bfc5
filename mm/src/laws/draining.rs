//! Laws (tests for threads, model checkers and the simulator) of a drain that has to wait because
//! another drain is in progress. Blocks that were on a list when the waiting drain was called are
//! in the zone when this drain returns.
//!
//! Locks: the locks that a free and a drain take.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::Law;
use crate::design::Design;
use crate::machine::Machine;
use crate::page::holds::BatchedDrains;
use crate::page::watermark::Urgency;
use crate::page::{Config, Layout, PageAllocator, Request};
use crate::tunables::Knob;
use crate::units::{CpuId, Order, Pages, Pfn};

/// The number of pages of the zone. The lists of all CPUs together may hold an eighth of these
/// pages, which is more than this test frees, so no free moves pages from a list to the zone.
const PAGES: u32 = 128;

/// The state of the tests in this file: CPU 0's page list holds a free block of two pages, and CPU
/// 0 is about to free two single pages.
pub struct Listed<M: Machine> {
    pages: PageAllocator<M>,
    singles: Vec<Pfn>,
}

impl<M: Machine> fmt::Debug for Listed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listed").finish_non_exhaustive()
    }
}

const PAIR: Order = Order::ZERO.up().expect("one page is not the largest block");

impl<M: Machine> Listed<M> {
    fn new(machine: &M, design: Design) -> Self {
        let mut config = Config::new(Layout::arena(Pages(PAGES)));
        config.design = design;
        let fixed = config.tunables.set(Knob::HighFraction, 8);
        fixed.expect("in bounds");
        let pages = PageAllocator::new(machine, config).expect("a small arena is a layout");
        let take = |order| {
            let request = Request::new(order).urgent(Urgency::Reserve);
            pages.alloc(machine, request).expect("the arena is fresh")
        };
        let singles = vec![take(Order::ZERO), take(Order::ZERO)];
        let pair = take(PAIR);
        pages.drain_all_sync(machine);
        let freed = pages.free(machine, pair, PAIR);
        freed.expect("it was handed out as a pair");
        Self { pages, singles }
    }

    fn free_singles(&self, machine: &M) {
        for &pfn in &self.singles {
            let freed = self.pages.free(machine, pfn, Order::ZERO);
            freed.expect("it was handed out as a single page");
        }
    }

    fn drain(&self, machine: &M) {
        self.pages.drain_all_sync(machine);
        let state = self.pages.list_state(machine, 0, CpuId(0));
        let state = state.expect("there is a zone");
        let pairs = state.blocks.iter().filter(|block| block.order == PAIR);
        assert_eq!(pairs.count(), 0, "a pair that was listed is back");
    }

    fn is_whole(&self, machine: &M) {
        self.pages.drain_all_sync(machine);
        let zone = &self.pages.view(machine)[0];
        assert_eq!(
            (zone.free, zone.listed),
            (Pages(PAGES), Pages::ZERO),
            "all is back"
        );
    }
}

fn law<M: Machine>(name: &'static str, setup: fn(&M) -> Listed<M>) -> Law<M, Listed<M>> {
    Law {
        name,
        setup,
        bodies: vec![
            |machine, listed| listed.free_singles(machine),
            |machine, listed| listed.drain(machine),
        ],
        check: |machine, listed| listed.is_whole(machine),
    }
}

/// One CPU frees pages while another drains the lists of all CPUs. After the drain, the block of
/// two pages that was on a list is in the zone.
#[must_use]
pub fn waiting_drain_against_frees<M: Machine>() -> Law<M, Listed<M>> {
    law(
        "pages that were on a list are back after a drain that waits, whatever is freed meanwhile",
        |machine| Listed::new(machine, Design::OURS),
    )
}

/// One CPU frees pages while another drains the lists of all CPUs. As in Linux, a drain moves up to
/// 32 batches of pages before it releases the zone lock. A block that was on a page list before the
/// drain is in the zone afterwards.
#[must_use]
pub fn linux_drain_against_frees<M: Machine>() -> Law<M, Listed<M>> {
    law("the same with the holds of Linux", |machine| {
        Listed::new(machine, Design::UNPATCHED)
    })
}

/// One CPU frees pages while another drains the lists of all CPUs, and releases the zone lock after
/// each batch of pages. A block that was on a page list before the drain is in the zone afterwards.
#[must_use]
pub fn batched_drain_against_frees<M: Machine>() -> Law<M, Listed<M>> {
    law("the same with drains by batches", |machine| {
        let design = Design {
            holds: &BatchedDrains,
            ..Design::UNPATCHED
        };
        Listed::new(machine, design)
    })
}
