//! A law (a test for threads, model checkers and the simulator) of bulk allocations and frees. CPUs
//! allocate and free many single pages in one call while memory runs out. Each allocation reports
//! exactly the pages that it has allocated.

use alloc::vec;
use core::sync::atomic::Ordering::AcqRel;

use super::{Body, FewPages, Law, few_pages_of};
use crate::design::Design;
use crate::machine::{Machine, Word};
use crate::page::sizing::Sizes;
use crate::page::watermark::{Urgency, Watermarks};
use crate::page::{BulkError, Request};
use crate::units::{Order, Pages, Pfn};

/// The number of pages of the zone.
const PAGES: u32 = 4;
/// The number of pages that each CPU wants. The zone has enough pages for one CPU, but not for two.
const WANTED: usize = 3;
/// The number of pages that a CPU moves from the zone to its page list at a time.
const BATCH: Pages = Pages(2);
/// The frame number that marks an array element as holding no page yet.
const NO_PAGE: Pfn = Pfn(u32::MAX);

/// Makes an allocator of a few pages without watermarks, so that one call may take several pages
/// without releasing the pcp lock (the lock of a CPU's page lists).
fn few<M: Machine>(machine: &M) -> FewPages<M> {
    let few = few_pages_of(machine, Design::OURS, PAGES);
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

impl<M: Machine> FewPages<M> {
    /// Allocates pages in one call, and then frees in one call the pages that the first call
    /// reported.
    fn take_and_give_many(&self, machine: &M) {
        let mut held = [NO_PAGE; WANTED];
        let request = Request::new(Order::ZERO).urgent(Urgency::Reserve);
        let got = match self.pages.alloc_pages(machine, request, &mut held) {
            Ok(()) => WANTED,
            Err(BulkError { got, wanted, .. }) => {
                assert!(got < wanted && wanted == WANTED, "some pages are missing");
                got
            }
        };
        let (held, others) = held.split_at(got);
        assert!(
            others.iter().all(|&pfn| pfn == NO_PAGE),
            "the caller gets no page that the error does not count"
        );
        for pfn in held {
            let holders = self.holders[pfn.0 as usize].add(machine, 1, AcqRel);
            assert_eq!(holders, 1, "page {} has one holder", pfn.0);
        }
        for pfn in held {
            self.holders[pfn.0 as usize].add(machine, -1, AcqRel);
        }
        let freed = self.pages.free_pages(machine, held);
        freed.expect("they were handed out as single pages");
    }
}

impl<M: Machine> FewPages<M> {
    /// Asserts that, while every page is free, one call gets all wanted pages without releasing the
    /// pcp lock, the lock of a CPU's page lists. Otherwise the CPUs of this test would have
    /// allocated only one page at a time.
    fn gives_many_at_once(&self, machine: &M) {
        let mut held = [NO_PAGE; WANTED];
        let request = Request::new(Order::ZERO).urgent(Urgency::Reserve);
        let got = self.pages.alloc_bulk(machine, request, &mut held);
        assert_eq!(got, WANTED, "the law is about bulk allocations");
        let freed = self.pages.free_pages(machine, &held);
        freed.expect("they were handed out as single pages");
    }
}

/// Two CPUs each request three of the zone's four pages in one call. Each call reports exactly the
/// pages that it has allocated, so no page is lost.
#[must_use]
pub fn running_out_half_way<M: Machine>() -> Law<M, FewPages<M>> {
    let many: Body<M, FewPages<M>> = |machine, few| few.take_and_give_many(machine);
    Law {
        name: "if memory runs out during a bulk allocation, exactly the pages it reports are used",
        setup: few,
        bodies: vec![many; 2],
        check: |machine, few| {
            few.is_whole(machine);
            few.gives_many_at_once(machine);
        },
    }
}
