//! Laws (tests for threads, model checkers and the simulator) of CPUs that allocate and free at the
//! same time, with batches of several pages, and with blocks of an order that no list holds.
//!
//! A refill of a CPU's page list takes a batch of pages as whole blocks, and splits these blocks
//! after it has released the zone lock. A drain of the list merges pages into blocks before it
//! takes the zone lock. But a CPU that frees a neighbour of a block reads the block's tag, a byte
//! that shows whether the block is free. So the tags that show whether a block is free have to
//! change under the zone lock.

use alloc::vec;
use alloc::vec::Vec;

use super::{Body, FewPages, Law, few_pages_in, few_pages_of};
use crate::design::Design;
use crate::machine::Machine;
use crate::page::Layout;
use crate::page::holds::{BatchedDrains, BatchedZoneLock, Bounded, BoundedPages, Holds};
use crate::page::sizing::Sizes;
use crate::page::watermark::Watermarks;
use crate::units::{CpuId, Order, Pages};

/// The number of pages that a CPU moves from the zone to its page list at a time.
const BATCH: Pages = Pages(4);

/// Makes an allocator of 16 pages, whose page lists move several pages at a time.
fn batched<M: Machine>(machine: &M, holds: &'static dyn Holds) -> FewPages<M> {
    batched_in(machine, holds, Layout::arena(Pages(16)))
}

/// Makes an allocator as `batched` does, but with the memory of `layout`.
fn batched_in<M: Machine>(machine: &M, holds: &'static dyn Holds, layout: Layout) -> FewPages<M> {
    let design = Design {
        holds,
        ..Design::OURS
    };
    let few = few_pages_in(machine, design, layout);
    let high = Pages(2 * BATCH.0);
    let sizes = Sizes {
        batch: BATCH,
        high_min: high,
        high_max: high,
    };
    let set = few
        .pages
        .seed_sizes(machine, 0, Watermarks::default(), sizes);
    set.expect("lists may have these sizes");
    few
}

/// Takes and frees pages, and then drains this CPU's page lists.
fn churn_and_drain<M: Machine>(machine: &M, few: &FewPages<M>) {
    few.churn(machine);
    few.pages.drain_cpu(machine, machine.this_cpu());
}

/// Two CPUs allocate and free pages, moving whole blocks, and hold the zone lock only for a short
/// time. No page is lost or allocated twice.
#[must_use]
pub fn bounded_churn<M: Machine>() -> Law<M, FewPages<M>> {
    Law {
        name: "no page is lost or shared when CPUs refill and drain by blocks at once",
        setup: |machine| batched(machine, &Bounded),
        bodies: vec![churn_and_drain as Body<M, FewPages<M>>; 2],
        check: |machine, few| few.is_whole(machine),
    }
}

/// Two CPUs allocate and free pages while a third CPU drains their lists. The CPUs move single
/// pages, and hold the zone lock only for a short time. No page is lost or allocated twice.
#[must_use]
pub fn bounded_pages_churn<M: Machine>() -> Law<M, FewPages<M>> {
    Law {
        name: "no page is lost or shared when CPUs refill and drain by pages at once",
        setup: |machine| batched(machine, &BoundedPages),
        bodies: churn_and_drains(),
        check: |machine, few| few.is_whole(machine),
    }
}

/// The bodies (the code of one CPU each) that three tests share. Two CPUs allocate and free pages,
/// and a third CPU drains the lists of both.
fn churn_and_drains<M: Machine>() -> Vec<Body<M, FewPages<M>>> {
    vec![churn_and_drain, churn_and_drain, |machine, few| {
        few.pages.drain_cpu(machine, CpuId(0));
        few.pages.drain_cpu(machine, CpuId(1));
    }]
}

/// Two CPUs allocate and free pages while a third drains their lists. Between two batches, a CPU
/// releases the zone lock but keeps the pcp lock, the lock of its page lists.
#[must_use]
pub fn zone_lock_churn<M: Machine>() -> Law<M, FewPages<M>> {
    Law {
        name: "no page is lost or shared when CPUs keep their lists locked between batches",
        setup: |machine| batched(machine, &BatchedZoneLock),
        bodies: churn_and_drains(),
        check: |machine, few| few.is_whole(machine),
    }
}

/// Two CPUs allocate and free pages while a third drains their lists. A drain releases the zone
/// lock after each batch of pages. A spill, which shortens a list that is too long, moves all its
/// pages without releasing the zone lock.
#[must_use]
pub fn batched_drains_churn<M: Machine>() -> Law<M, FewPages<M>> {
    Law {
        name: "no page is lost or shared when CPUs drain by batches and spill all at once",
        setup: |machine| batched(machine, &BatchedDrains),
        bodies: churn_and_drains(),
        check: |machine, few| few.is_whole(machine),
    }
}

/// Two CPUs allocate and free pages while a third drains their lists, and the zone keeps small free
/// blocks in bitmaps. No page is lost or allocated twice.
#[must_use]
pub fn bitmap_churn<M: Machine>() -> Law<M, FewPages<M>> {
    Law {
        name: "no page is lost or shared when CPUs refill and drain from bitmaps at once",
        setup: |machine| batched_in(machine, &Bounded, Layout::arena(Pages(16)).with_bitmaps()),
        bodies: churn_and_drains(),
        check: |machine, few| few.is_whole(machine),
    }
}

/// Two CPUs allocate blocks of 16 pages and single pages from bitmaps and free them, so that a huge
/// block is split and becomes whole again. No block is lost or allocated twice.
#[must_use]
pub fn bitmap_splits<M: Machine>() -> Law<M, FewPages<M>> {
    let body: Body<M, FewPages<M>> = |machine, few| {
        churn_directly(machine, few);
        churn_and_drain(machine, few);
    };
    Law {
        name: "no block is lost or shared when huge blocks are split and become whole again",
        setup: |machine| batched_in(machine, &Bounded, Layout::arena(Pages(512)).with_bitmaps()),
        bodies: vec![body, body],
        check: |machine, few| few.is_whole(machine),
    }
}

/// Takes a block of an order that page lists never hold, and frees it.
fn churn_directly<M: Machine>(machine: &M, few: &FewPages<M>) {
    let order = Order::new(4).expect("at most 10");
    if let Some(pfn) = few.take(machine, order) {
        few.give(machine, pfn, order);
    }
}

/// Two CPUs allocate neighbouring blocks directly from the zone and free them. No block is lost or
/// allocated twice.
#[must_use]
pub fn direct_churn<M: Machine>() -> Law<M, FewPages<M>> {
    Law {
        name: "no block is lost or shared when CPUs go to the zone directly at once",
        setup: |machine| few_pages_of(machine, Design::OURS, 32),
        bodies: vec![churn_directly as Body<M, FewPages<M>>; 2],
        check: |machine, few| few.is_whole(machine),
    }
}
