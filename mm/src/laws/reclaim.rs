//! Laws of reclaim: a page moves to swap while its address space touches it, unmaps it or ends, and
//! while other CPUs reclaim; and kswapd falls asleep while an allocation asks for it.

use alloc::sync::Arc;
use alloc::vec;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::{Body, Law, cast};
use crate::counter::Counters;
use crate::design::Design;
use crate::machine::{Machine, Word};
use crate::manager::Manager;
use crate::page::{Config, Kswapd, Layout, ZoneKind};
use crate::reclaim::Next;
use crate::reclaim::laws::{Drowsy, Duty, pass};
use crate::space::budget::Budget;
use crate::space::lru::List;
use crate::space::rss::RssKind;
use crate::space::{Access, AddressSpace, Flag, MapRequest, Memory, Place, Spaces};
use crate::units::{Nanos, NodeId, Pages, Vpn};

/// The number of pages of the machine: so few that a model checker can handle the records of all of
/// them.
const ARENA: u32 = 64;
/// The pages of the only mapping. The two that [`Pressed::new`] touches are in one table.
const MAPPED: Range<u64> = 512..516;
const ONE: u64 = MAPPED.start;
const OTHER: u64 = MAPPED.start + 1;

/// An enlisted address space with two pages that reclaim would move to swap, and a machine for it.
pub struct Pressed<M: Machine> {
    manager: Manager<M>,
    spaces: Spaces<M>,
    space: Arc<AddressSpace<M>>,
    budget: Arc<Budget<M>>,
    /// The number of pages that passes of reclaim have freed.
    freed: M::Word,
}

impl<M: Machine> fmt::Debug for Pressed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pressed").finish_non_exhaustive()
    }
}

const NODE: NodeId = NodeId(0);

impl<M: Machine> Pressed<M> {
    /// Makes an address space with two pages that were touched, but not since reclaim last looked
    /// at them. So the next pass evicts them, unless they are touched again.
    fn new(machine: &M) -> Self {
        let mut config = Config::new(Layout::arena(Pages(ARENA)));
        let design = Design::OURS;
        config.design = design;
        let manager = Manager::new(machine, config).expect("a small arena is a layout");
        let spaces = Spaces::new(machine, &design, 8).expect("few pages can be counted");
        let spaces = spaces.aging(machine, &manager, 1).expect("there is memory");
        let memory = Memory::new(machine, &manager, &spaces);
        let budget = Arc::new(Budget::new(machine, u64::from(ARENA)));
        let space = AddressSpace::new(memory).expect("there is memory");
        let space = Arc::new(space.limited(Arc::clone(&budget)));
        memory.enlist(&space).expect("there is a number for it");
        let pages = MAPPED.end - MAPPED.start;
        let request = MapRequest::anonymous(Place::Fixed(Vpn(MAPPED.start)), pages);
        space.map(memory, request).expect("nothing is there");
        let pressed = Self {
            manager,
            spaces,
            space,
            budget,
            freed: machine.word(0),
        };
        pressed.touch(machine, ONE);
        pressed.touch(machine, OTHER);
        pressed.reclaim(machine);
        assert_eq!(pressed.freed.load(machine, Acquire), 0, "both were touched");
        assert_eq!(pressed.spaces.lru().len(NODE, List::Inactive), 2);
        pressed
    }

    fn memory<'m>(&'m self, machine: &'m M) -> Memory<'m, M> {
        Memory::new(machine, &self.manager, &self.spaces)
    }

    /// Looks at all inactive pages once.
    fn reclaim(&self, machine: &M) {
        self.spaces.lru().drain(machine, self.manager.pages());
        let freed = pass(self.memory(machine), NODE);
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
    /// and the lists count each page in memory once, and that each page in swap has one slot.
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

    /// Asserts that the space has `pages` pages, and that everything is freed once it has ended.
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

/// A page is touched while reclaim moves it to swap.
#[must_use]
pub fn reclaimed_while_touched<M: Machine>() -> Law<M, Pressed<M>> {
    Law {
        name: "a page that is touched while it is reclaimed is in memory or in swap, never in both",
        setup: Pressed::new,
        bodies: vec![reclaim, |machine, pressed| pressed.touch(machine, ONE)],
        check: |machine, pressed| pressed.ends_with(machine, 2),
    }
}

/// A page is unmapped while reclaim moves it to swap.
#[must_use]
pub fn reclaimed_while_unmapped<M: Machine>() -> Law<M, Pressed<M>> {
    Law {
        name: "a page that is unmapped while it is reclaimed is freed once",
        setup: Pressed::new,
        bodies: vec![reclaim, |machine, pressed| pressed.unmap(machine)],
        check: |machine, pressed| pressed.ends_with(machine, 1),
    }
}

/// An address space ends while reclaim moves its pages to swap.
#[must_use]
pub fn reclaimed_while_exiting<M: Machine>() -> Law<M, Pressed<M>> {
    Law {
        name: "a space that ends while its pages are reclaimed leaves no page and no slot",
        setup: Pressed::new,
        bodies: vec![reclaim, |machine, pressed| pressed.exit(machine)],
        check: |machine, pressed| pressed.has_ended(machine),
    }
}

/// Two CPUs reclaim from the same lists.
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

/// Two CPUs reclaim pages while a third touches them and new ones, and a fourth unmaps one and
/// touches another.
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

/// An address space ends while two CPUs reclaim its pages and a helper empties it.
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

/// A kswapd that is awake and has nothing to do, and an allocation that needs it.
pub struct Needed<M: Machine> {
    kswapd: Drowsy<M>,
    /// 1 once normal memory is short. Of the lower kinds of zones there is always enough.
    short: M::Word,
    /// The number of times that the thread of kswapd was woken.
    woken: M::Word,
    /// 1 if kswapd has found that memory is short.
    seen: M::Word,
}

impl<M: Machine> fmt::Debug for Needed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Needed").finish_non_exhaustive()
    }
}

/// The work of [`Needed::kswapd`].
struct Watching<'n, M: Machine> {
    machine: &'n M,
    needed: &'n Needed<M>,
}

impl<M: Machine> Duty for Watching<'_, M> {
    fn node(&self) -> NodeId {
        NODE
    }

    fn is_short(&self, highest: ZoneKind) -> bool {
        highest >= ZoneKind::Normal && self.needed.short.load(self.machine, Relaxed) != 0
    }

    fn reclaim(&self, _: ZoneKind) {
        self.needed.seen.store(self.machine, 1, Relaxed);
    }

    fn becomes(&self, _: Kswapd) {}
}

impl<M: Machine> Needed<M> {
    fn new(machine: &M) -> Self {
        let needed = Self {
            kswapd: Drowsy::new(machine),
            short: machine.word(0),
            woken: machine.word(0),
            seen: machine.word(0),
        };
        let asked = needed.kswapd.ask(machine, ZoneKind::Dma);
        assert!(asked, "it was asleep");
        needed
    }

    /// Uses the last free page of normal memory, and asks for kswapd.
    fn allocates(&self, machine: &M) {
        self.short.store(machine, 1, Relaxed);
        if self.kswapd.ask(machine, ZoneKind::Normal) {
            self.woken.add(machine, 1, AcqRel);
        }
    }

    /// Does one step of kswapd's thread. Returns the span after which the next step is due; `None`
    /// if kswapd is asleep, or has found that memory is short.
    fn step(&self, machine: &M) -> Option<Nanos> {
        let begun = self.kswapd.begins(machine)?;
        let duty = Watching {
            machine,
            needed: self,
        };
        let next = self.kswapd.step(machine, begun, &duty);
        if self.seen.load(machine, Relaxed) != 0 {
            return None;
        }
        match next {
            Next::At(at) => Some(at.since(machine.now())),
            Next::Woken => None,
        }
    }

    /// Does kswapd's steps until kswapd is asleep or has found that memory is short. No wake-up
    /// shortens the time that kswapd dozes.
    fn steps(&self, machine: &M) {
        while self.step(machine).is_some() {}
    }

    /// Does kswapd's steps until kswapd dozes, or has found that memory is short.
    fn steps_until_it_dozes(&self, machine: &M) {
        while self
            .step(machine)
            .is_some_and(|span| span < Nanos::from_ms(50))
        {}
    }

    fn is_cared_for(&self, machine: &M) {
        let (seen, woken) = (
            self.seen.load(machine, Acquire),
            self.woken.load(machine, Acquire),
        );
        assert!(
            seen + woken > 0,
            "kswapd sleeps or dozes while memory is short"
        );
        // A thread that was woken reclaims.
        self.steps(machine);
        let seen = self.seen.load(machine, Acquire);
        assert!(
            seen > 0,
            "kswapd sees the kind of zone that was asked for last"
        );
    }
}

/// An allocation asks for kswapd while kswapd falls asleep.
#[must_use]
pub fn asked_while_falling_asleep<M: Machine>() -> Law<M, Needed<M>> {
    Law {
        name: "kswapd sees the shortage for which it was asked, or its thread is woken",
        setup: Needed::new,
        bodies: vec![
            |machine, needed| needed.allocates(machine),
            |machine, needed| needed.steps(machine),
        ],
        check: |machine, needed| needed.is_cared_for(machine),
    }
}

/// An allocation asks for kswapd while kswapd begins to doze.
#[must_use]
pub fn asked_while_dozing<M: Machine>() -> Law<M, Needed<M>> {
    Law {
        name: "kswapd sees the shortage for which it was asked, or its doze is interrupted",
        setup: Needed::new,
        bodies: vec![
            |machine, needed| needed.allocates(machine),
            |machine, needed| needed.steps_until_it_dozes(machine),
        ],
        check: |machine, needed| needed.is_cared_for(machine),
    }
}
