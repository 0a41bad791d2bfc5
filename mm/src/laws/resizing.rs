//! Laws (tests for threads, model checkers and the simulator) of a zone that grows and shrinks, and
//! of memory that is given back, while other CPUs allocate and free.
//!
//! Locks: the locks that an allocation and a free take; the sizing lock, with the zone lock inside
//! it.

use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use super::{Body, Law};
use crate::design::Design;
use crate::machine::{Machine, Word};
use crate::manager::Manager;
use crate::page::watermark::Urgency;
use crate::page::{Config, Layout, Request, ResizeError, Sweep};
use crate::tunables::Knob;
use crate::units::{Order, Pages, Pfn};

/// The zone grows by blocks of this many pages.
const BLOCK: Pages = Order::MAX.pages();
/// The first frame of the block that is added and removed.
const SECOND: Pfn = Pfn(BLOCK.0);

/// The state of the tests in this file: a zone of one block that may grow to two, and for each huge
/// block the number of CPUs that use it.
pub struct Blocks<M: Machine> {
    manager: Manager<M>,
    users: Box<[M::Word]>,
    /// The number of blocks that were added and not removed again.
    added: M::Word,
}

impl<M: Machine> fmt::Debug for Blocks<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks").finish_non_exhaustive()
    }
}

impl<M: Machine> Blocks<M> {
    fn new(machine: &M) -> Self {
        Self::of(machine, Layout::arena_up_to(BLOCK, Pages(2 * BLOCK.0)))
    }

    /// Makes the state with bitmaps of free pages.
    fn with_bitmaps(machine: &M) -> Self {
        let layout = Layout::arena_up_to(BLOCK, Pages(2 * BLOCK.0));
        Self::of(machine, layout.with_bitmaps())
    }

    fn of(machine: &M, layout: Layout) -> Self {
        let mut config = Config::new(layout);
        config.design = Design::OURS;
        let fixed = config.tunables.set(Knob::HighFraction, 256);
        fixed.expect("in bounds");
        Self {
            manager: Manager::new(machine, config).expect("two blocks are a layout"),
            users: (0..4).map(|_| machine.word(0)).collect(),
            added: machine.word(0),
        }
    }

    /// Makes the state of a test in which the zone already has its largest size, two blocks.
    fn grown(machine: &M) -> Self {
        let blocks = Self::new(machine);
        blocks.grow(machine);
        blocks
    }

    fn grow(&self, machine: &M) {
        match self.manager.memory_online(machine, SECOND, BLOCK) {
            Ok(()) => {
                self.added.add(machine, 1, AcqRel);
            }
            Err(why) => assert_eq!(why, ResizeError::Present(SECOND)),
        }
    }

    fn shrink(&self, machine: &M) {
        match self.manager.memory_offline(machine, SECOND, BLOCK) {
            Ok(()) => {
                self.added.add(machine, -1, AcqRel);
            }
            Err(ResizeError::InUse { pfn, .. }) => assert!(pfn >= SECOND, "in the range"),
            Err(why) => assert!(
                matches!(why, ResizeError::Absent(_) | ResizeError::Needed { .. }),
                "{why}"
            ),
        }
    }

    /// Adds `delta`, which is 1 or −1, to the number of users of each huge block within the block
    /// at `pfn`. Asserts that no huge block has two users.
    fn count(&self, machine: &M, pfn: Pfn, order: Order, delta: i64) {
        let Pages(huge) = Order::HUGE.pages();
        for block in pfn.0 / huge..(pfn.0 + order.pages().0) / huge {
            let users = self.users[block as usize].add(machine, delta, AcqRel);
            assert_eq!(users, i64::from(delta > 0), "block {block} has one user");
        }
    }

    fn take(&self, machine: &M, order: Order) -> Option<Pfn> {
        let request = Request::new(order).urgent(Urgency::Reserve);
        self.manager.pages().alloc(machine, request).ok()
    }

    /// Allocates a single page, then the largest block that is free, and frees both.
    fn churn(&self, machine: &M) {
        let single = self.take(machine, Order::ZERO);
        for order in [Order::MAX, Order::HUGE] {
            if let Some(pfn) = self.take(machine, order) {
                self.count(machine, pfn, order, 1);
                self.count(machine, pfn, order, -1);
                let freed = self.manager.pages().free(machine, pfn, order);
                freed.expect("it was handed out, and its block stays until it is free");
            }
        }
        if let Some(pfn) = single {
            let freed = self.manager.pages().free(machine, pfn, Order::ZERO);
            freed.expect("it was handed out, and its block stays until it is free");
        }
    }

    /// Runs two rounds that report free blocks to the embedder, which gives their memory back.
    /// Asserts that no CPU uses a block while it is reported.
    fn report(&self, machine: &M) {
        let mut sweep = Sweep::default();
        for _ in 0..2 {
            let pages = self.manager.pages();
            pages.report_free(machine, &mut sweep, Pages(2 * BLOCK.0), |pfn, order| {
                self.count(machine, pfn, order, 1);
                self.count(machine, pfn, order, -1);
                true
            });
        }
    }

    fn is_exact(&self, machine: &M) {
        self.manager.pages().drain_all_sync(machine);
        let zone = &self.manager.pages().view(machine)[0];
        let added = self.added.load(machine, Relaxed);
        assert!(added == 0 || added == 1, "one of two CPUs adds the block");
        let blocks = if added == 1 { 2 } else { 1 };
        let pages = Pages(blocks * BLOCK.0);
        assert_eq!(
            zone.managed, pages,
            "the blocks that were added are managed"
        );
        assert_eq!(zone.free, pages, "no page is lost, and none is outside");
        assert_eq!(
            zone.counted_free,
            u64::from(pages.0),
            "the counter is exact"
        );
        assert_eq!(zone.blocks[Order::MAX.index()], blocks, "all is merged");
        for _ in 0..blocks {
            assert!(self.take(machine, Order::MAX).is_some(), "it can be used");
        }
        assert!(self.take(machine, Order::ZERO).is_none(), "and no more");
    }
}

fn law<M: Machine, const BODIES: usize>(
    name: &'static str,
    setup: fn(&M) -> Blocks<M>,
    bodies: [Body<M, Blocks<M>>; BODIES],
) -> Law<M, Blocks<M>> {
    Law {
        name,
        setup,
        bodies: bodies.into(),
        check: |machine, blocks| blocks.is_exact(machine),
    }
}

/// A zone grows and shrinks while another CPU allocates and frees blocks. No page is lost, and none
/// is allocated outside the zone.
#[must_use]
pub fn resizing_against_churn<M: Machine>() -> Law<M, Blocks<M>> {
    law(
        "no page is lost, or is outside the zone, when the zone grows and shrinks while a CPU \
         allocates and frees",
        Blocks::new,
        [
            |machine, blocks| blocks.churn(machine),
            |machine, blocks| {
                blocks.grow(machine);
                blocks.shrink(machine);
            },
        ],
    )
}

/// A zone that keeps small free blocks in bitmaps grows and shrinks while another CPU allocates and
/// frees blocks. No page is lost, and none is allocated outside the zone.
#[must_use]
pub fn resizing_with_bitmaps<M: Machine>() -> Law<M, Blocks<M>> {
    Law {
        name: "no page is lost, or is outside the zone, when a zone with bitmaps grows and shrinks",
        setup: Blocks::with_bitmaps,
        ..resizing_against_churn()
    }
}

/// A zone shrinks while another CPU takes and frees pages of the block to be removed. The block is
/// removed only while no page of it is in use.
#[must_use]
pub fn shrinking_against_churn<M: Machine>() -> Law<M, Blocks<M>> {
    law(
        "a block is removed only while no page of it is in use",
        Blocks::grown,
        [
            |machine, blocks| blocks.churn(machine),
            |machine, blocks| {
                blocks.shrink(machine);
            },
        ],
    )
}

/// Two CPUs add the same block to a zone and remove it again, at the same time. If both add the
/// block at once, or both remove the block at once, one CPU gets an error.
#[must_use]
pub fn two_resize<M: Machine>() -> Law<M, Blocks<M>> {
    let body: Body<M, Blocks<M>> = |machine, blocks| {
        blocks.grow(machine);
        blocks.shrink(machine);
    };
    law(
        "of two CPUs that add or remove the same block at once, one gets an error",
        Blocks::new,
        [body, body],
    )
}

/// Two CPUs add the same block at the same time. The block is added once.
#[must_use]
pub fn two_grow<M: Machine>() -> Law<M, Blocks<M>> {
    let grow: Body<M, Blocks<M>> = |machine, blocks| blocks.grow(machine);
    law(
        "a block that two CPUs add at once is added once",
        Blocks::new,
        [grow, grow],
    )
}

/// One CPU gives the memory of free blocks back to the host while another CPU allocates and frees
/// blocks. No block is given back while it is in use.
#[must_use]
pub fn reporting_against_churn<M: Machine>() -> Law<M, Blocks<M>> {
    law(
        "no block is given back while a CPU uses it, and none is lost",
        Blocks::grown,
        [
            |machine, blocks| blocks.churn(machine),
            |machine, blocks| {
                blocks.report(machine);
            },
        ],
    )
}

/// One CPU gives the memory of a free block back to the host while another CPU removes that block.
/// The block is not removed while its memory is being given back.
#[must_use]
pub fn reporting_against_shrinking<M: Machine>() -> Law<M, Blocks<M>> {
    law(
        "a block that is being given back is not removed meanwhile",
        Blocks::grown,
        [
            |machine, blocks| blocks.shrink(machine),
            |machine, blocks| blocks.report(machine),
        ],
    )
}
