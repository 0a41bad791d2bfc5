//! Laws (tests for threads and model checkers) of runs of pages that move directly between a CPU's
//! front, its stack of free pages, and a zone with bitmaps.
//!
//! A CPU whose front is full gives a run of pages to the zone, if its page list is full as well. It
//! changes the tags of these pages under the zone lock, but another CPU may look at a tag at any
//! time. On a machine without fronts, the bodies use page lists, and the laws hold as well.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use super::{Body, FewPages, Law, few_pages_in};
use crate::design::Design;
use crate::machine::{Machine, Word};
use crate::page::Layout;
use crate::page::sizing::Sizes;
use crate::page::watermark::Watermarks;
use crate::units::{CpuId, Order, Pages, Pfn, signed};

/// The number of pages of the zone.
const PAGES: u32 = 64;

/// A CPU's front may hold an eighth of the pages of its list. So a front has at most four pages,
/// and half of them move at once.
const LISTED: u32 = 32;
const FRONTED: u32 = LISTED / 8;

/// The number of pages that one hold of the zone lock may move. If it were smaller, no run would
/// move directly.
const BATCH: Pages = Pages(8);

/// The number of pages that CPU 0 has, and will free, after its list and its front are full.
const HELD: usize = 6;

/// The state of the tests in this file.
pub struct Full<M: Machine> {
    few: FewPages<M>,
    /// Pages of CPU 0. They are neighbours.
    held: Vec<Pfn>,
    /// The number of frees that have succeeded, of pages that two CPUs free.
    accepted: M::Word,
}

impl<M: Machine> fmt::Debug for Full<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Full").finish_non_exhaustive()
    }
}

impl<M: Machine> Full<M> {
    /// Makes an allocator in which the list and the front of CPU 0 are full.
    fn new(machine: &M) -> Self {
        let layout = Layout::arena(Pages(PAGES)).with_bitmaps();
        let few = few_pages_in(machine, Design::OURS, layout);
        let high = Pages(LISTED);
        let sizes = Sizes {
            batch: BATCH,
            high_min: high,
            high_max: high,
        };
        let set = few
            .pages
            .seed_sizes(machine, 0, Watermarks::default(), sizes);
        set.expect("lists may have these sizes");
        let mut all: Vec<Pfn> = (0..PAGES)
            .map_while(|_| few.take(machine, Order::ZERO))
            .collect();
        few.pages.drain_all_sync(machine);
        all.sort_unstable();
        let held = all.split_off(all.len() - HELD);
        // The pages that do not fit on the list and the front go to the zone.
        for &pfn in &all {
            few.give(machine, pfn, Order::ZERO);
        }
        Self {
            few,
            held,
            accepted: machine.word(0),
        }
    }

    /// Frees the pages of CPU 0, which does not have room for them, in ascending order.
    fn give_held(&self, machine: &M) {
        for &pfn in &self.held {
            self.few.give(machine, pfn, Order::ZERO);
        }
    }

    /// Frees the pages of CPU 0 in another order, so that they are not given as one run.
    fn give_held_in_turns(&self, machine: &M) {
        let (even, odd) = (self.held.iter().step_by(2), self.held.iter().skip(1));
        for &pfn in even.chain(odd.step_by(2)) {
            self.few.give(machine, pfn, Order::ZERO);
        }
    }

    /// Takes as many pages as a front may hold and one more, and frees them.
    fn take_and_give(&self, machine: &M) {
        let taken: Vec<Pfn> = (0..=FRONTED)
            .map_while(|_| self.few.take(machine, Order::ZERO))
            .collect();
        for pfn in taken {
            self.few.give(machine, pfn, Order::ZERO);
        }
    }

    /// Frees all pages of CPU 0, which another CPU frees at the same time.
    fn free_contested(&self, machine: &M) {
        for &pfn in &self.held {
            if self.few.pages.free(machine, pfn, Order::ZERO).is_ok() {
                self.accepted.add(machine, 1, AcqRel);
            }
        }
    }

    /// Asserts that all pages are back once, and that each second free got an error or was found.
    fn are_free_once(&self, machine: &M) {
        self.few.is_whole(machine);
        let accepted = self.accepted.load(machine, Relaxed);
        let found = signed(self.few.pages.double_frees());
        assert_eq!(
            accepted - found,
            signed(HELD as u64),
            "of two frees of a page, one is refused or found"
        );
    }
}

fn law<M: Machine>(name: &'static str, bodies: Vec<Body<M, Full<M>>>) -> Law<M, Full<M>> {
    Law {
        name,
        setup: Full::new,
        bodies,
        check: |machine, full| full.few.is_whole(machine),
    }
}

/// One CPU gives runs of neighbouring pages to the zone, while another takes runs from the zone.
#[must_use]
pub fn giving_against_taking<M: Machine>() -> Law<M, Full<M>> {
    let give: Body<M, Full<M>> = |machine, full| full.give_held(machine);
    let take: Body<M, Full<M>> = |machine, full| full.take_and_give(machine);
    law(
        "no page is lost or shared when CPUs move runs from and to the zone at once",
        vec![give, take],
    )
}

/// One CPU gives runs of pages to the zone, and another takes runs from the zone, while a third CPU
/// drains the fronts and lists of both.
#[must_use]
pub fn runs_against_drains<M: Machine>() -> Law<M, Full<M>> {
    let take: Body<M, Full<M>> = |machine, full| full.take_and_give(machine);
    law(
        "no page is lost or shared when a third CPU drains the fronts of these CPUs",
        vec![
            |machine, full| full.give_held_in_turns(machine),
            take,
            |machine, full| {
                full.few.pages.drain_cpu(machine, CpuId(0));
                full.few.pages.drain_cpu(machine, CpuId(1));
            },
        ],
    )
}

/// Two CPUs free the same pages. The front of one of them is full, so it gives them to the zone.
#[must_use]
pub fn runs_freed_twice<M: Machine>() -> Law<M, Full<M>> {
    let free: Body<M, Full<M>> = |machine, full| full.free_contested(machine);
    Law {
        name: "pages that two CPUs free at once return to the zone once",
        setup: Full::new,
        bodies: vec![free, free],
        check: |machine, full| full.are_free_once(machine),
    }
}
