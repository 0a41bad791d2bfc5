//! Laws: contracts that every implementation obeys on every machine.
//!
//! A [`Law`] sets up a state, runs one body on each of a few CPUs at the same time, and checks the
//! result. Each machine crate has a runner: `host` runs real threads many times, loom runs every
//! interleaving, shuttle runs random interleavings, and `sim` runs virtual CPUs under many seeds.
//! Set-ups are tiny, because loom visits every interleaving.
//!
//! [`cast`] is no law: it holds the steps that laws and the machines' tests of OOM kills share.

pub mod area;
pub mod budget;
pub mod bulk;
pub mod cached;
pub mod cast;
pub mod churn;
pub mod contents;
pub mod counter;
pub mod direct;
pub mod draining;
mod dying;
pub mod frontier;
pub mod fronts;
pub mod grouped;
pub mod kswapd;
pub mod oom;
pub mod owning;
pub mod parts;
pub mod reaping;
pub mod reclaim;
pub mod resizing;
pub mod rw_lock;
pub mod shepherd;
pub mod spilling;
pub mod touching;
pub mod under_way;
mod vma;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::design::Design;
use crate::machine::{Machine, Word};
use crate::page::watermark::Urgency;
use crate::page::{Config, Layout, PageAllocator, Request};
use crate::tunables::Knob;
use crate::units::{CpuId, Order, Pages, Pfn, signed};
use crate::vmstat::counters::{Counters, Direction, ZoneItem};

pub use self::dying::Dying;
pub use self::vma::{
    FewVmas, cursors_against_splits, readers_against_additions, readers_against_moves,
};

/// The part of a [`Law`] that one CPU runs.
pub type Body<M, S> = fn(&M, &S);

/// A contract that the state `S` keeps while CPUs of machine `M` use it at the same time, and the
/// test of this contract.
#[derive(Clone)]
pub struct Law<M, S> {
    /// The contract as a sentence.
    pub name: &'static str,
    /// Makes the state, before any body runs.
    pub setup: fn(&M) -> S,
    /// The bodies that run at the same time: entry `i` on CPU `i`.
    pub bodies: Vec<Body<M, S>>,
    /// Asserts the contract after every body has returned.
    pub check: Body<M, S>,
}

impl<M, S> fmt::Debug for Law<M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Law")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The state of many laws (tests): an allocator of a few pages, and for each page the number of
/// CPUs that use it, which must never exceed 1.
pub struct FewPages<M: Machine> {
    pages: PageAllocator<M>,
    holders: Box<[M::Word]>,
}

impl<M: Machine> fmt::Debug for FewPages<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FewPages").finish_non_exhaustive()
    }
}

const FEW: u32 = 16;

fn few_pages<M: Machine>(machine: &M, design: Design) -> FewPages<M> {
    few_pages_of(machine, design, FEW)
}

/// Makes an allocator of `count` pages. `count` must be a power of two.
fn few_pages_of<M: Machine>(machine: &M, design: Design, count: u32) -> FewPages<M> {
    few_pages_in(machine, design, Layout::arena(Pages(count)))
}

/// Makes an allocator of the pages of `layout`, which has one zone. The number of pages must be a
/// power of two.
fn few_pages_in<M: Machine>(machine: &M, design: Design, layout: Layout) -> FewPages<M> {
    let count = layout.zones[0].spanned.0;
    let mut config = Config::new(layout);
    config.design = design;
    // Limit lists to four pages, so that a CPU returns pages to the zone after a handful of frees.
    config
        .tunables
        .set(Knob::HighFraction, 8)
        .expect("in bounds");
    let pages = PageAllocator::new(machine, config).expect("a small arena is a layout");
    FewPages {
        pages,
        holders: (0..count).map(|_| machine.word(0)).collect(),
    }
}

impl<M: Machine> FewPages<M> {
    fn take(&self, machine: &M, order: Order) -> Option<Pfn> {
        let request = Request::new(order).urgent(Urgency::Reserve);
        let pfn = self.pages.alloc(machine, request).ok()?;
        for page in pfn.0..pfn.0 + order.pages().0 {
            let holders = self.holders[page as usize].add(machine, 1, AcqRel);
            assert_eq!(holders, 1, "page {page} has one holder");
        }
        Some(pfn)
    }

    fn give(&self, machine: &M, pfn: Pfn, order: Order) {
        for page in pfn.0..pfn.0 + order.pages().0 {
            self.holders[page as usize].add(machine, -1, AcqRel);
        }
        self.pages
            .free(machine, pfn, order)
            .expect("it was handed out with this order");
    }

    /// Takes two single pages and a block of two pages, and frees all of them.
    fn churn(&self, machine: &M) {
        let pair = Order::new(1).expect("small");
        let held: Vec<(Pfn, Order)> = [Order::ZERO, Order::ZERO, pair]
            .into_iter()
            .filter_map(|order| Some((self.take(machine, order)?, order)))
            .collect();
        for (pfn, order) in held {
            self.give(machine, pfn, order);
        }
    }

    /// Asserts that every page is free, counted, and merged into one block.
    fn is_whole(&self, machine: &M) {
        self.pages.drain_all_sync(machine);
        let zone = &self.pages.view(machine)[0];
        let count = self.holders.len();
        assert_eq!(zone.free.index(), count, "no page is lost");
        assert_eq!(zone.counted_free, count as u64, "the counter is exact");
        assert_eq!(
            zone.listed,
            Pages::ZERO,
            "a drain leaves nothing on the lists"
        );
        let whole = count.ilog2() as usize;
        assert_eq!(
            zone.blocks[whole], 1,
            "all pages are merged: {:?}",
            zone.blocks
        );
    }
}

/// One CPU drains the page lists of another CPU while that CPU allocates and frees. No page is lost
/// or allocated twice.
#[must_use]
pub fn drain_against_local<M: Machine>() -> Law<M, FewPages<M>> {
    Law {
        name: "no page is lost or shared when one CPU drains the lists another one uses",
        setup: |machine| few_pages(machine, Design::OURS),
        bodies: vec![|machine, few| few.churn(machine), |machine, few| {
            few.pages.drain_cpu(machine, CpuId(0));
        }],
        check: |machine, few| few.is_whole(machine),
    }
}

/// Two CPUs allocate and free pages, and one of them also drains all lists. Both CPUs hold the zone
/// lock for as long as Linux does. No page is lost or allocated twice.
#[must_use]
pub fn churn_against_churn<M: Machine>() -> Law<M, FewPages<M>> {
    Law {
        name: "no page is lost or shared when CPUs allocate and free at once",
        setup: |machine| few_pages(machine, Design::UNPATCHED),
        bodies: vec![|machine, few| few.churn(machine), |machine, few| {
            few.churn(machine);
            few.pages.drain_all(machine);
        }],
        check: |machine, few| few.is_whole(machine),
    }
}

/// The state of a test: an allocated page that two CPUs are about to free.
pub struct Contested<M: Machine> {
    few: FewPages<M>,
    pfn: Pfn,
    accepted: M::Word,
}

impl<M: Machine> fmt::Debug for Contested<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contested")
            .field("pfn", &self.pfn)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> Contested<M> {
    fn new(machine: &M) -> Self {
        let few = few_pages(machine, Design::OURS);
        let request = Request::new(Order::ZERO).urgent(Urgency::Reserve);
        let pfn = few
            .pages
            .alloc(machine, request)
            .expect("a fresh arena has pages");
        Self {
            few,
            pfn,
            accepted: machine.word(0),
        }
    }

    fn free(&self, machine: &M) {
        if self.few.pages.free(machine, self.pfn, Order::ZERO).is_ok() {
            self.accepted.add(machine, 1, AcqRel);
        }
    }

    fn is_free_once(&self, machine: &M) {
        // If the frees of both CPUs were accepted, the double free is detected when the page leaves
        // the fronts, the CPUs' stacks of free pages.
        self.few.is_whole(machine);
        let accepted = self.accepted.load(machine, Relaxed);
        let found = signed(self.few.pages.double_frees());
        assert_eq!(
            accepted - found,
            1,
            "one free is accepted, or the other found"
        );
    }
}

/// Two CPUs free the same page at the same time. One of the two calls returns an error, or the
/// allocator detects the second free when the page returns to the zone. The page returns once.
#[must_use]
pub fn double_free_is_refused<M: Machine>() -> Law<M, Contested<M>> {
    let free: Body<M, Contested<M>> = |machine, page| page.free(machine);
    Law {
        name: "of two CPUs that free the same page at once, one gets an error or is found later",
        setup: Contested::new,
        bodies: vec![free, free],
        check: |machine, page| page.is_free_once(machine),
    }
}

/// The state of the tests of zone counters. A CPU adds its own count to the shared value as soon as
/// the count exceeds a small threshold.
pub struct FewCounts<M: Machine>(Counters<M>);

impl<M: Machine> fmt::Debug for FewCounts<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FewCounts").finish()
    }
}

impl<M: Machine> FewCounts<M> {
    const ITEM: usize = ZoneItem::Anon as usize;

    fn count(&self, machine: &M) {
        self.0.add(machine, Self::ITEM, 2);
        self.0.step(machine, Self::ITEM, Direction::Up);
        self.0.add(machine, Self::ITEM, -1);
    }

    fn is_two(&self, machine: &M) {
        assert_eq!(self.0.snapshot(machine, Self::ITEM), 2, "the sum is exact");
        for cpu in machine.topology().ids() {
            self.0.fold(machine, cpu);
        }
        assert_eq!(
            self.0.approximate(machine, Self::ITEM),
            2,
            "and so is the folded value"
        );
    }
}

/// One CPU counts while another CPU adds the first CPU's own count to the shared value, as when a
/// CPU goes offline. The sum is exact afterwards.
#[must_use]
pub fn folding_against_counting<M: Machine>() -> Law<M, FewCounts<M>> {
    Law {
        name: "nothing is counted twice or lost when another CPU folds a CPU's differentials",
        setup: |machine| FewCounts(Counters::new(machine, 2)),
        bodies: vec![
            |machine, counts| counts.count(machine),
            |machine, counts| {
                counts.0.fold(machine, CpuId(0));
                counts.0.fold(machine, CpuId(0));
            },
        ],
        check: |machine, counts| counts.is_two(machine),
    }
}

/// Two CPUs each count more than half of what a counter can hold, while a third sums the counter.
/// The sum wraps, and nothing panics.
#[must_use]
pub fn summing_while_it_wraps<M: Machine>() -> Law<M, FewCounts<M>> {
    let much: Body<M, FewCounts<M>> = |machine, counts| {
        counts.0.add(machine, FewCounts::<M>::ITEM, i64::MAX);
    };
    Law {
        name: "a sum wraps, also while differentials are too large to be added up",
        setup: |machine| FewCounts(Counters::new(machine, 2)),
        bodies: vec![much, much, |machine, counts| {
            counts.0.snapshot(machine, FewCounts::<M>::ITEM);
        }],
        check: |machine, counts| {
            // Two CPUs have added `i64::MAX` each, which together wraps to −2. Adding 4 makes the
            // sum 2.
            counts.0.add(machine, FewCounts::<M>::ITEM, 4);
            counts.is_two(machine);
        },
    }
}
