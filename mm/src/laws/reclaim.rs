//! Laws (tests for threads, model checkers and the simulator) of reclaim: a page moves to swap
//! while its address space touches it, unmaps it or ends, and while other CPUs reclaim.

use alloc::sync::Arc;
use alloc::vec;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use super::{Body, Law, cast};
use crate::counter::Counters;
use crate::design::Design;
use crate::machine::{Machine, Word};
use crate::manager::Manager;
use crate::page::watermark::Urgency;
use crate::page::{Config, Layout, Request};
use crate::reclaim::laws::pass;
use crate::space::budget::Budget;
use crate::space::lru::{Fate, Kind, List};
use crate::space::rss::RssKind;
use crate::space::{Access, AddressSpace, EnlistError, Flag, MapRequest, Memory, Place, Spaces};
use crate::units::{NodeId, Order, Pages, Vpn};

/// The number of pages of the machine. It is small, so that a model checker can handle the records
/// of all pages.
pub(super) const ARENA: u32 = 64;
/// The pages of the only mapping. The two pages that [`Pressed::new`] touches are in one table.
const MAPPED: Range<u64> = 512..516;
const ONE: u64 = MAPPED.start;
const OTHER: u64 = MAPPED.start + 1;

/// The state of the tests in this file: an address space, enlisted for reclaim, with two pages that
/// reclaim would move to swap, and a machine for it.
pub struct Pressed<M: Machine> {
    pub(super) manager: Manager<M>,
    pub(super) spaces: Spaces<M>,
    space: Arc<AddressSpace<M>>,
    budget: Arc<Budget<M>>,
    /// The node to which the pages of the address space belong.
    node: NodeId,
    /// The number of pages that reclaim has freed so far.
    freed: M::Word,
}

impl<M: Machine> fmt::Debug for Pressed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pressed").finish_non_exhaustive()
    }
}

pub(super) const NODE: NodeId = NodeId(0);

impl<M: Machine> Pressed<M> {
    /// Makes an address space with two pages that were touched, but not since reclaim last looked
    /// at them. So the next pass of reclaim evicts them, unless they are touched again.
    pub(super) fn new(machine: &M) -> Self {
        Self::on(machine, Layout::arena(Pages(ARENA)), NODE)
    }

    /// Makes an address space with two pages of `node` that the next pass of reclaim evicts, like
    /// [`Pressed::new`]. If `node` is not the first one, first uses up the pages of the layout's
    /// first zone.
    pub(super) fn on(machine: &M, layout: Layout, node: NodeId) -> Self {
        let pressed = Self::unlisted(machine, layout, node);
        let memory = pressed.memory(machine);
        memory
            .enlist(&pressed.space)
            .expect("there is a number for it");
        if node != NODE {
            let request = Request::new(Order::ZERO)
                .urgent(Urgency::Reserve)
                .from_zone(0);
            while pressed.manager.pages().alloc(machine, request).is_ok() {}
        }
        let pages = MAPPED.end - MAPPED.start;
        let request = MapRequest::anonymous(Place::Fixed(Vpn(MAPPED.start)), pages);
        pressed
            .space
            .map(memory, request)
            .expect("nothing is there");
        pressed.touch(machine, ONE);
        pressed.touch(machine, OTHER);
        pressed.reclaim(machine);
        assert_eq!(pressed.freed.load(machine, Acquire), 0, "both were touched");
        assert_eq!(pressed.spaces.lru().len(node, List::Inactive), 2);
        pressed
    }

    /// Makes an address space without mappings that is not enlisted for reclaim.
    fn unlisted(machine: &M, layout: Layout, node: NodeId) -> Self {
        let mut config = Config::new(layout);
        let design = Design::OURS;
        config.design = design;
        let manager = Manager::new(machine, config).expect("a small layout is possible");
        let spaces = Spaces::new(machine, &design, 8).expect("few pages can be counted");
        let spaces = spaces.aging(machine, &manager, 1).expect("there is memory");
        let memory = Memory::new(machine, &manager, &spaces);
        let budget = Arc::new(Budget::new(machine, u64::from(ARENA)));
        let space = AddressSpace::new(memory).expect("there is memory");
        let space = Arc::new(space.limited(Arc::clone(&budget)));
        Self {
            manager,
            spaces,
            space,
            budget,
            node,
            freed: machine.word(0),
        }
    }

    pub(super) fn memory<'m>(&'m self, machine: &'m M) -> Memory<'m, M> {
        Memory::new(machine, &self.manager, &self.spaces)
    }

    /// Runs one pass of reclaim, which looks at all inactive pages, and counts the pages that it
    /// freed.
    fn reclaim(&self, machine: &M) {
        self.spaces.lru().drain(machine, self.manager.pages());
        let freed = pass(self.memory(machine), self.node);
        self.freed.add(machine, i64::from(freed.0), AcqRel);
    }

    fn touch(&self, machine: &M, page: u64) {
        let faulted = self
            .space
            .fault(self.memory(machine), Vpn(page), Access::Write);
        assert!(faulted.is_ok(), "{faulted:?}");
    }

    fn unmap(&self, machine: &M) {
        let memory = self.memory(machine);
        let gone = self.space.unmap(memory, Vpn(ONE), 1);
        gone.expect("nothing is in the way");
    }

    fn exit(&self, machine: &M) {
        let exited = self.space.exit(self.memory(machine));
        exited.expect("it ends once");
    }

    fn counted(&self, machine: &M, kind: RssKind) -> i64 {
        let counters = self.space.rss().counters();
        counters.precise_sum(machine, kind as usize)
    }

    /// Asserts that the space has `pages` pages, in memory or in swap. Also asserts that the budget
    /// and the lists of used pages (LRU) count each page in memory once, and that each page in swap
    /// has one slot.
    fn has(&self, machine: &M, pages: i64) {
        let (anon, swap) = (
            self.counted(machine, RssKind::Anon),
            self.counted(machine, RssKind::Swap),
        );
        assert_eq!(anon + swap, pages, "no page is lost or doubled");
        let used = self.spaces.swap().used(machine);
        assert_eq!(i64::from(used), swap, "a slot for each page in swap");
        assert_eq!(
            self.budget.used(machine),
            anon.cast_unsigned(),
            "each is charged"
        );
        assert_eq!(self.spaces.lru().total(machine), anon, "each is aged");
    }

    fn has_freed_what_is_in_swap(&self, machine: &M) {
        let freed = self.freed.load(machine, Acquire);
        assert_eq!(freed, self.counted(machine, RssKind::Swap));
    }

    fn is_enlisted_no_more(&self, machine: &M) {
        self.has_ended(machine);
        let memory = self.memory(machine);
        assert_eq!(memory.enlist(&self.space), Err(EnlistError::Ended));
        // On this machine, only one address space can be enlisted for reclaim at a time. So this
        // call succeeds only if the first space is enlisted no longer.
        let next = AddressSpace::new(memory).expect("there is memory");
        assert_eq!(memory.enlist(&Arc::new(next)), Ok(()));
    }

    fn has_kept_both(&self, machine: &M) {
        assert_eq!(self.counted(machine, RssKind::Swap), 0);
        assert_eq!(self.spaces.lru().len(NODE, List::Inactive), 2);
        self.has(machine, 2);
    }

    /// Makes four pages active. Asserts that costs are halved until they are at most a quarter of
    /// the number of these pages, that is, one page.
    fn weighs_costs_by_all_pages(&self, machine: &M) {
        MAPPED.for_each(|page| self.touch(machine, page));
        self.spaces.lru().drain(machine, self.manager.pages());
        let aged = self.spaces.lru().aged().expect("pages are aged");
        let run = aged.isolate(machine, NODE, List::Inactive, 4);
        let active = Fate::Stays {
            list: List::Active,
            referenced: false,
        };
        for &taken in run.get() {
            aged.conclude(machine, NODE, &[(taken, active)]);
        }
        assert_eq!(self.spaces.lru().len(NODE, List::Active), 4);
        aged.note_cost(machine, NODE, Kind::Anon, (8, 0, 0));
        for _ in 0..4 {
            aged.note_cost(machine, NODE, Kind::Anon, (0, 0, 0));
        }
        assert_eq!(aged.balance(machine, NODE).costs(), [1, 0]);
    }

    /// Asserts that the address space has `pages` pages. Then ends the address space, and asserts
    /// that everything is freed.
    fn ends_with(&self, machine: &M, pages: i64) {
        self.has(machine, pages);
        self.exit(machine);
        self.has_ended(machine);
    }

    fn has_ended(&self, machine: &M) {
        assert!(self.space.has(machine, Flag::Ended));
        self.has(machine, 0);
        assert_eq!(self.space.table_pages(machine), 0, "no table is left");
        assert_eq!(Arc::strong_count(&self.space), 1, "it is enlisted no more");
        cast::is_whole(self.memory(machine));
    }
}

fn reclaim<M: Machine>(machine: &M, pressed: &Pressed<M>) {
    pressed.reclaim(machine);
}

/// A page is touched while reclaim moves it to swap. Afterwards the page is in memory or in swap,
/// but not in both.
#[must_use]
pub fn reclaimed_while_touched<M: Machine>() -> Law<M, Pressed<M>> {
    Law {
        name: "a page that is touched while it is reclaimed is in memory or in swap, never in both",
        setup: Pressed::new,
        bodies: vec![reclaim, |machine, pressed| pressed.touch(machine, ONE)],
        check: |machine, pressed| pressed.ends_with(machine, 2),
    }
}

/// A page is unmapped while reclaim moves it to swap. The page is freed once.
#[must_use]
pub fn reclaimed_while_unmapped<M: Machine>() -> Law<M, Pressed<M>> {
    Law {
        name: "a page that is unmapped while it is reclaimed is freed once",
        setup: Pressed::new,
        bodies: vec![reclaim, |machine, pressed| pressed.unmap(machine)],
        check: |machine, pressed| pressed.ends_with(machine, 1),
    }
}

/// An address space ends while reclaim moves its pages to swap. No page and no swap slot stays in
/// use.
#[must_use]
pub fn reclaimed_while_exiting<M: Machine>() -> Law<M, Pressed<M>> {
    Law {
        name: "a space that ends while its pages are reclaimed leaves no page and no slot",
        setup: Pressed::new,
        bodies: vec![reclaim, |machine, pressed| pressed.exit(machine)],
        check: |machine, pressed| pressed.has_ended(machine),
    }
}

/// Reclaim looks at pages of an address space that the reaper is emptying. Reclaim writes none of
/// these pages to swap.
#[must_use]
pub fn kept_while_reaped<M: Machine>() -> Law<M, Pressed<M>> {
    Law {
        name: "a page of a space that is being reaped is not written to swap",
        setup: Pressed::new,
        bodies: vec![|machine, pressed| {
            pressed.space.raise(machine, Flag::Unstable);
            pressed.reclaim(machine);
        }],
        check: |machine, pressed| pressed.has_kept_both(machine),
    }
}

/// Reclaim looks at pages of an address space whose last user leaves. Reclaim writes none of these
/// pages to swap.
#[must_use]
pub fn kept_while_exiting<M: Machine>() -> Law<M, Pressed<M>> {
    Law {
        name: "a page of a space that ends is not written to swap",
        setup: Pressed::new,
        bodies: vec![|machine, pressed| {
            pressed.space.raise(machine, Flag::Exiting);
            pressed.reclaim(machine);
        }],
        check: |machine, pressed| pressed.has_kept_both(machine),
    }
}

/// The costs by which reclaim chooses between kinds of pages are halved when they exceed a quarter
/// of all pages of the node, active ones included.
#[must_use]
pub fn costs_are_weighed_by_all_pages<M: Machine>() -> Law<M, Pressed<M>> {
    Law {
        name: "the costs of reclaim are halved only above a quarter of the active and inactive pages",
        setup: Pressed::new,
        bodies: vec![|machine, pressed| pressed.weighs_costs_by_all_pages(machine)],
        check: |machine, pressed| pressed.ends_with(machine, 4),
    }
}

/// An address space ends while it is enlisted for reclaim. Afterwards it is not enlisted.
#[must_use]
pub fn enlisted_while_exiting<M: Machine>() -> Law<M, Pressed<M>> {
    Law {
        name: "a space that has ended is enlisted no more, however late it was enlisted",
        setup: |machine| Pressed::unlisted(machine, Layout::arena(Pages(ARENA)), NODE),
        bodies: vec![
            |machine, pressed| pressed.exit(machine),
            |machine, pressed| {
                let _ = pressed.memory(machine).enlist(&pressed.space);
            },
        ],
        check: |machine, pressed| pressed.is_enlisted_no_more(machine),
    }
}

/// Two CPUs reclaim from the same lists. Each page moves to swap once.
#[must_use]
pub fn reclaimed_by_two<M: Machine>() -> Law<M, Pressed<M>> {
    Law {
        name: "two CPUs that reclaim at once move each page to swap once",
        setup: Pressed::new,
        bodies: vec![reclaim, reclaim],
        check: |machine, pressed| {
            pressed.has_freed_what_is_in_swap(machine);
            pressed.ends_with(machine, 2);
        },
    }
}

/// Two CPUs reclaim pages while a third touches old and new pages, and a fourth unmaps one page and
/// touches another. No page is lost or in memory twice.
#[must_use]
pub fn reclaimed_by_two_while_used<M: Machine>() -> Law<M, Pressed<M>> {
    let churn: Body<M, Pressed<M>> = |machine, pressed| {
        pressed.reclaim(machine);
        pressed.reclaim(machine);
    };
    Law {
        name: "however pages are touched, unmapped and reclaimed at once, each is there once",
        setup: Pressed::new,
        bodies: vec![
            churn,
            churn,
            |machine, pressed| {
                for page in [OTHER, MAPPED.end - 1, OTHER] {
                    pressed.touch(machine, page);
                }
            },
            |machine, pressed| {
                pressed.unmap(machine);
                pressed.touch(machine, OTHER + 1);
            },
        ],
        check: |machine, pressed| pressed.ends_with(machine, 3),
    }
}

/// An address space ends while two CPUs reclaim its pages and a helper (such as the reaper) empties
/// it. Nothing stays in use.
#[must_use]
pub fn reclaimed_by_two_while_dying<M: Machine>() -> Law<M, Pressed<M>> {
    Law {
        name: "a space that helpers empty while its pages are reclaimed leaves nothing",
        setup: Pressed::new,
        bodies: vec![
            reclaim,
            reclaim,
            |machine, pressed| pressed.exit(machine),
            |machine, pressed| {
                let _ = pressed.space.try_reap(pressed.memory(machine));
            },
        ],
        check: |machine, pressed| pressed.has_ended(machine),
    }
}
