//! Laws (tests for threads, model checkers and the simulator) of a spill, by which a CPU moves free
//! pages from its page lists to the zone. The spill releases the zone lock several times. The
//! question is whether another CPU can use the page lists while the zone lock is released.
//!
//! Locks: the locks that a free takes; the reader takes the pcp lock.

use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use super::{FewPages, Law, few_pages_of};
use crate::design::Design;
use crate::machine::{Machine, Word};
use crate::page::holds::{Batched, BatchedZoneLock, Holds};
use crate::units::{CpuId, Order, Pfn};

/// The number of pages of the zone.
const PAGES: u32 = 16;
/// The limit `high` of a CPU's page lists. If the lists have this many pages, the CPU spills, in
/// batches of one page.
const HIGH: usize = 4;

/// The state of the tests in this file: pages that CPU 0 is about to free one by one. When CPU 0
/// frees the last of these pages, it spills: it moves all other pages from its page lists to the
/// zone, and releases the zone lock after each batch.
pub struct Spilling<M: Machine> {
    few: FewPages<M>,
    held: Vec<Pfn>,
    /// The pages that the reading CPU saw on the page lists of CPU 0, as a mask: bit n stands for
    /// page n of `held`.
    seen: M::Word,
}

impl<M: Machine> fmt::Debug for Spilling<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spilling").finish_non_exhaustive()
    }
}

impl<M: Machine> Spilling<M> {
    fn new(machine: &M, holds: &'static dyn Holds) -> Self {
        let design = Design {
            holds,
            ..Design::OURS
        };
        let few = few_pages_of(machine, design, PAGES);
        let take = |_| few.take(machine, Order::ZERO).expect("the arena is fresh");
        let held = (0..HIGH).map(take).collect();
        few.pages.drain_all_sync(machine);
        Self {
            few,
            held,
            seen: machine.word(0),
        }
    }

    fn free_all(&self, machine: &M) {
        for &pfn in &self.held {
            self.few.give(machine, pfn, Order::ZERO);
        }
    }

    /// Returns a mask with a 1 for each page of `held` that is on a list of CPU 0.
    fn listed(&self, machine: &M) -> i64 {
        let state = self.few.pages.list_state(machine, 0, CpuId(0));
        let state = state.expect("there is a zone");
        let is_listed = |pfn: &Pfn| state.blocks.iter().any(|block| block.pfn == *pfn);
        let bits = (0..).zip(&self.held);
        bits.map(|(nth, pfn)| i64::from(is_listed(pfn)) << nth)
            .sum()
    }

    /// Records what is on the lists of CPU 0.
    fn read(&self, machine: &M) {
        self.seen.add(machine, self.listed(machine), AcqRel);
    }

    /// Asserts that the reader did not see a half-done spill. In the middle of a spill, the lists
    /// have the page that was freed last together with other pages. If the last free finds the
    /// lists locked by the reader, the page goes to the zone directly, and no other page goes to
    /// the zone.
    fn has_spilled(&self, machine: &M) {
        const LAST: i64 = 1 << (HIGH - 1);
        let (left, seen) = (self.listed(machine), self.seen.load(machine, Relaxed));
        assert!(
            left != LAST || seen & LAST == 0 || seen == LAST,
            "another CPU saw a spill half done: {seen:#b}"
        );
        self.few.is_whole(machine);
    }
}

fn law<M: Machine>(name: &'static str, setup: fn(&M) -> Spilling<M>) -> Law<M, Spilling<M>> {
    Law {
        name,
        setup,
        bodies: alloc::vec![
            |machine, spilling| spilling.free_all(machine),
            |machine, spilling| spilling.read(machine),
        ],
        check: |machine, spilling| spilling.has_spilled(machine),
    }
}

/// A CPU spills (moves pages from its page lists to the zone) while another CPU reads these lists.
/// Between batches, the spilling CPU releases only the zone lock, so the reader never sees the
/// lists half spilled.
#[must_use]
pub fn spill_that_keeps_the_lists<M: Machine>() -> Law<M, Spilling<M>> {
    law(
        "no CPU sees page lists half spilled if a spill keeps the pcp lock",
        |machine| Spilling::new(machine, &BatchedZoneLock),
    )
}

/// A CPU spills (moves pages from its page lists to the zone) while another CPU reads these lists.
/// As in the patch that Linux merged, the spilling CPU also releases the pcp lock between batches.
/// So the reader may see the lists half spilled, and this law does not hold. The tests use this
/// broken law to check that a test notices when the pcp lock is released too early.
#[must_use]
pub fn spill_that_releases_the_lists<M: Machine>() -> Law<M, Spilling<M>> {
    law("a law that does not hold", |machine| {
        Spilling::new(machine, &Batched)
    })
}
