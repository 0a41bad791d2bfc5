//! What holds when a whole address space is emptied while others are at it: nothing is lost, nothing
//! goes back twice, and nothing is left where nothing may be.
//!
//! Two page tables with two pages each, one of them in swap, a shared page and a mapping without
//! pages; memory for just that. A page that went back twice is noticed by the zone.

use alloc::sync::Arc;
use alloc::vec;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use super::{Body, Law};
use crate::counter::Counters;
use crate::design::Design;
use crate::machine::{Machine, Word};
use crate::page::{Config, Layout};
use crate::space::budget::Budget;
use crate::space::object::{Object, ObjectKind};
use crate::space::reap::{Reaped, Reaping};
use crate::space::rss::RssKind;
use crate::space::{
    Access, AddressSpace, Backing, ExitError, Exited, FaultError, Faulted, Flag, MapRequest,
    Memory, Notified, Place, Refused, Spaces,
};
use crate::units::{Pages, Vpn};
use crate::vmstat::Manager;
use crate::vmstat::counters::{NodeItem, ZoneItem};

/// Pages of the machine: tags of so many are part of every model.
const ARENA: u32 = 64;
/// Entries of a page table.
const TABLE: u64 = 512;
/// Two pages in each of two tables.
const FILLED: Range<u64> = TABLE - 2..TABLE + 2;
/// Nothing resident, in a table of their own.
const BARE: Range<u64> = 3 * TABLE..3 * TABLE + 4;
/// Shared memory, in a table with `FILLED`.
const SHARED: Range<u64> = TABLE + 8..TABLE + 10;

/// An address space, and what a machine with it has.
pub struct Dying<M: Machine> {
    manager: Manager<M>,
    spaces: Spaces<M>,
    space: AddressSpace<M>,
    budget: Arc<Budget<M>>,
    shared: Arc<Object<M>>,
    /// How many calls of `exit` were let in.
    exits: M::Word,
    /// How many helpers found everything done.
    reaps: M::Word,
}

impl<M: Machine> fmt::Debug for Dying<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dying").finish_non_exhaustive()
    }
}

/// Refuses whatever is in the upper of the two filled tables.
struct Stubborn;

impl<M: Machine> Notified<M> for Stubborn {
    fn start(&self, _: &M, pages: &Range<Vpn>, may_wait: bool) -> Result<(), Refused> {
        if pages.start < Vpn(TABLE) || may_wait {
            Ok(())
        } else {
            Err(Refused)
        }
    }

    fn end(&self, _: &M, _: &Range<Vpn>) {}

    fn release(&self, _: &M) {}
}

fn request<M: Machine>(pages: &Range<u64>, backing: Backing<M>) -> MapRequest<M> {
    MapRequest {
        place: Place::Replace(Vpn(pages.start)),
        pages: pages.end - pages.start,
        backing,
    }
}

impl<M: Machine> Dying<M> {
    fn new(machine: &M, reaping: Reaping) -> Self {
        Self::with(machine, reaping, |space| space)
    }

    fn with(
        machine: &M,
        reaping: Reaping,
        more: impl FnOnce(AddressSpace<M>) -> AddressSpace<M>,
    ) -> Self {
        let design = Design {
            reaping,
            ..Design::OURS
        };
        let mut config = Config::new(Layout::arena(Pages(ARENA)));
        config.design = design;
        let manager = Manager::new(machine, config).expect("a small arena is a layout");
        let spaces = Spaces::new(machine, &design, 2).expect("few pages can be counted");
        let memory = Memory::new(machine, &manager, &spaces);
        let space = AddressSpace::new(memory).expect("there is memory");
        let budget = Arc::new(Budget::new(machine, u64::from(ARENA)));
        let shared = Arc::new(Object::new(machine, ObjectKind::Shared));
        let dying = Self {
            space: more(space.limited(Arc::clone(&budget))),
            manager,
            spaces,
            budget,
            shared,
            exits: machine.word(0),
            reaps: machine.word(0),
        };
        dying.fill(machine);
        dying
    }

    fn memory<'m>(&'m self, machine: &'m M) -> Memory<'m, M> {
        Memory::new(machine, &self.manager, &self.spaces)
    }

    fn fill(&self, machine: &M) {
        let memory = self.memory(machine);
        let anonymous = || Backing::Anonymous { huge: false };
        let shared = Backing::Shared {
            object: Arc::clone(&self.shared),
            offset: 0,
        };
        for (pages, backing) in [(FILLED, anonymous()), (BARE, anonymous()), (SHARED, shared)] {
            let mapped = self.space.map(memory, request(&pages, backing));
            mapped.expect("nothing is in the way");
        }
        for pages in [FILLED, SHARED] {
            let filled = self
                .space
                .populate(memory, Vpn(pages.start)..Vpn(pages.end));
            filled.expect("there is memory");
        }
        let first = Vpn(FILLED.start);
        let went = self.space.swap_out(memory, first..Vpn(first.0 + 1));
        assert_eq!(went, 1, "there is swap");
    }

    fn exit(&self, machine: &M) {
        match self.space.exit(self.memory(machine)) {
            Ok(Exited::Finished) => assert!(self.space.has(machine, Flag::Ended)),
            Ok(Exited::LeftToHelpers) => {}
            Err(ExitError::Ended) => return,
        }
        self.exits.add(machine, 1, AcqRel);
    }

    fn reap(&self, machine: &M) {
        let reaped = self.space.try_reap(self.memory(machine));
        self.note(machine, reaped);
    }

    fn release(&self, machine: &M) {
        let reaped = self.space.release(self.memory(machine), || false);
        self.note(machine, reaped.expect("nobody killed it"));
    }

    fn note(&self, machine: &M, reaped: Reaped) {
        if reaped == Reaped::All {
            self.reaps.add(machine, 1, AcqRel);
        }
    }

    /// Touches a page; whether it is there now.
    fn touch(&self, machine: &M, page: u64) -> bool {
        let page = Vpn(page);
        match self.space.fault(self.memory(machine), page, Access::Write) {
            Ok(Faulted::Mapped { .. } | Faulted::Already) => true,
            Err(FaultError::Unstable(at) | FaultError::NotMapped(at)) => {
                assert_eq!(at, page);
                false
            }
            other => panic!("a page is mapped or it may not be touched: {other:?}"),
        }
    }

    fn counted(&self, machine: &M, kind: RssKind) -> i64 {
        let counters = self.space.rss().counters();
        counters.precise_sum(machine, kind as usize)
    }

    /// Whatever is left goes, and everything is back as it was before.
    fn ends_whole(&self, machine: &M) {
        self.exit(machine);
        assert_eq!(self.exits.load(machine, Acquire), 1, "it was ended once");
        assert!(self.space.has(machine, Flag::Ended), "by whoever was last");
        assert!(self.space.has(machine, Flag::Skip), "for good");
        for kind in RssKind::ALL {
            let left = self.counted(machine, kind);
            assert_eq!(left, 0, "{} is exact", kind.name());
        }
        assert_eq!(self.space.table_pages(machine), 0, "no table is left");
        assert_eq!(self.spaces.lru().total(machine), 0, "no page is aged");
        assert_eq!(self.spaces.swap().used(machine), 0, "no slot is taken");
        assert_eq!(self.budget.used(machine), 0, "no page is charged");
        for item in [NodeItem::PageTables, NodeItem::AnonMapped] {
            assert_eq!(self.manager.counted_on_nodes(machine, item), 0);
        }
        self.shared.empty(machine, self.manager.pages());
        self.manager.pages().drain_all_sync(machine);
        let free = self.manager.pages().counted(machine, ZoneItem::FreePages);
        let anonymous = self.manager.pages().counted(machine, ZoneItem::Anon);
        assert_eq!((free, anonymous), (u64::from(ARENA), 0), "no page is lost");
        let zone = &self.manager.pages().view(machine)[0];
        assert_eq!(zone.free, Pages(ARENA), "every page is back");
    }
}

fn law<M: Machine>(
    name: &'static str,
    setup: fn(&M) -> Dying<M>,
    bodies: &[Body<M, Dying<M>>],
) -> Law<M, Dying<M>> {
    Law {
        name,
        setup,
        bodies: bodies.to_vec(),
        check: |machine, dying| dying.ends_whole(machine),
    }
}

fn meet<M: Machine>(machine: &M) -> Dying<M> {
    Dying::new(machine, Reaping::MeetInTheMiddle)
}

/// The last user against one helper.
#[must_use]
pub fn exit_against_reaper<M: Machine>() -> Law<M, Dying<M>> {
    law(
        "every page is back once, whoever empties what",
        meet,
        &[
            |machine, dying| dying.exit(machine),
            |machine, dying| dying.reap(machine),
        ],
    )
}

/// The last user against three helpers, one of whom waits for its turn.
#[must_use]
pub fn exit_against_helpers<M: Machine>() -> Law<M, Dying<M>> {
    law(
        "every page is back once, however many help",
        meet,
        &[
            |machine, dying| dying.exit(machine),
            |machine, dying| dying.reap(machine),
            |machine, dying| dying.release(machine),
            |machine, dying| dying.reap(machine),
        ],
    )
}

/// The same as Linux does it: all go through everything.
#[must_use]
pub fn exit_past_helpers<M: Machine>() -> Law<M, Dying<M>> {
    law(
        "every page is back once, though all go through everything",
        |machine| Dying::new(machine, Reaping::DescendingChunks),
        &[
            |machine, dying| dying.exit(machine),
            |machine, dying| dying.reap(machine),
            |machine, dying| dying.release(machine),
        ],
    )
}

/// Two who take themselves for the last user.
#[must_use]
pub fn two_exits<M: Machine>() -> Law<M, Dying<M>> {
    let exit: Body<M, Dying<M>> = |machine, dying| dying.exit(machine);
    law(
        "of two who end an address space one is told that it may not",
        meet,
        &[exit, exit, |machine, dying| dying.reap(machine)],
    )
}

/// Somebody with translations of its own does not let go of one table.
#[must_use]
pub fn exit_against_refusal<M: Machine>() -> Law<M, Dying<M>> {
    law(
        "what a helper has to leave goes all the same",
        |machine| {
            let stubborn = |space: AddressSpace<M>| space.notifying(Stubborn);
            Dying::with(machine, Reaping::MeetInTheMiddle, stubborn)
        },
        &[
            |machine, dying| dying.exit(machine),
            |machine, dying| dying.reap(machine),
            |machine, dying| dying.release(machine),
        ],
    )
}

/// A page is touched, and another goes to swap, while a helper empties their tables.
#[must_use]
pub fn faults_against_reaper<M: Machine>() -> Law<M, Dying<M>> {
    Law {
        name: "no private page is left behind a helper that went through everything",
        setup: meet,
        bodies: vec![
            |machine, dying| {
                dying.touch(machine, BARE.start);
                dying.touch(machine, FILLED.start);
                dying.touch(machine, SHARED.start);
            },
            |machine, dying| dying.reap(machine),
            |machine, dying| {
                let pages = Vpn(TABLE)..Vpn(TABLE + 1);
                dying.space.swap_out(dying.memory(machine), pages);
            },
        ],
        check: |machine, dying| {
            assert_eq!(
                dying.reaps.load(machine, Acquire),
                1,
                "nobody was in the way"
            );
            assert_eq!(
                dying.counted(machine, RssKind::Anon),
                0,
                "nothing private is left"
            );
            assert!(!dying.touch(machine, BARE.start), "or comes back");
            dying.ends_whole(machine);
        },
    }
}

/// A page is touched in a mapping that goes, one with pages and one without.
#[must_use]
pub fn faults_against_unmap<M: Machine>() -> Law<M, Dying<M>> {
    Law {
        name: "no page is left where nothing is mapped any more",
        setup: meet,
        bodies: vec![
            |machine, dying| {
                dying.touch(machine, BARE.start);
                dying.touch(machine, FILLED.start);
            },
            |machine, dying| {
                for pages in [BARE, FILLED] {
                    let memory = dying.memory(machine);
                    let count = pages.end - pages.start;
                    let gone = dying.space.unmap(memory, Vpn(pages.start), count);
                    gone.expect("nothing is in the way");
                }
            },
        ],
        check: |machine, dying| {
            assert_eq!(
                dying.counted(machine, RssKind::Anon),
                0,
                "nothing private is mapped"
            );
            dying.ends_whole(machine);
        },
    }
}

/// A page is touched in a mapping that is replaced by shared memory.
#[must_use]
pub fn faults_against_replacing<M: Machine>() -> Law<M, Dying<M>> {
    Law {
        name: "no page is left of a mapping that another one has replaced",
        setup: meet,
        bodies: vec![
            |machine, dying| {
                dying.touch(machine, BARE.start);
            },
            |machine, dying| {
                let shared = Backing::Shared {
                    object: Arc::clone(&dying.shared),
                    offset: 0,
                };
                let mapped = dying
                    .space
                    .map(dying.memory(machine), request(&BARE, shared));
                mapped.expect("it takes the other one's place");
            },
        ],
        check: |machine, dying| {
            let filled = FILLED.end - FILLED.start - 1;
            assert_eq!(dying.counted(machine, RssKind::Anon), filled.cast_signed());
            dying.ends_whole(machine);
        },
    }
}
