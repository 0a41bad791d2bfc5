//! A small address space that is about to end, and checks of the state after its end: no page is
//! lost, and no page was freed twice. The space is small enough for every model checker.
//!
//! The space has two page tables with two pages each, and one of these four pages is in swap. The
//! space also has two shared pages, and a mapping without pages. The machine has few other pages.
//! The zone itself reports a page that is freed twice.

use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire};

use super::cast;
use crate::counter::Counters;
use crate::design::Design;
use crate::machine::{Machine, Word};
use crate::manager::Manager;
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

/// The number of pages of the machine, few enough for a model checker to include the tags (one byte
/// for each page) of all of them.
const ARENA: u32 = 64;
/// The number of pages of a machine that has room for huge pages.
const ARENA_OF_HUGE: u32 = 4096;
/// The pages of exactly one table, in which nothing else is mapped.
pub(super) const WHOLE: Range<u64> = 6 * TABLE..7 * TABLE;
/// The number of entries of a page table.
pub(super) const TABLE: u64 = 512;
/// The pages of a mapping: two pages in each of two neighbouring tables.
pub(super) const FILLED: Range<u64> = TABLE - 2..TABLE + 2;
/// The pages of a mapping in a separate table. None of them is resident.
pub(super) const BARE: Range<u64> = 3 * TABLE..3 * TABLE + 4;
/// The pages of a mapping of shared memory, in the higher of the two tables of `FILLED`.
pub(super) const SHARED: Range<u64> = TABLE + 8..TABLE + 10;

/// The state of the tests of dying address spaces: an address space that is about to end, and
/// everything else that a test needs.
pub struct Dying<M: Machine> {
    manager: Manager<M>,
    spaces: Spaces<M>,
    space: AddressSpace<M>,
    budget: Arc<Budget<M>>,
    shared: Arc<Object<M>>,
    file: Arc<Object<M>>,
    /// The number of calls of [`AddressSpace::exit`] that did not fail.
    exits: M::Word,
    /// The number of times that a helper (a thread that empties the space beside its last user)
    /// found no table left to empty (its result was `Reaped::All`).
    reaps: M::Word,
}

impl<M: Machine> fmt::Debug for Dying<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dying").finish_non_exhaustive()
    }
}

/// A holder of translations (Linux: an MMU notifier) that refuses to give up pages in the higher of
/// the two filled tables.
pub(super) struct Stubborn;

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

impl<M: Machine> Dying<M> {
    /// Makes an address space with two filled page tables, two shared pages, and a mapping without
    /// pages.
    pub(super) fn new(machine: &M, reaping: Reaping) -> Self {
        Self::with(machine, reaping, |space| space)
    }

    /// Makes the same address space as [`Dying::new`], but first applies `more` to the empty space.
    pub(super) fn with(
        machine: &M,
        reaping: Reaping,
        more: impl FnOnce(AddressSpace<M>) -> AddressSpace<M>,
    ) -> Self {
        let dying = Self::empty(machine, reaping, more);
        dying.fill(machine);
        dying
    }

    /// Makes an address space with a single mapping, [`BARE`], of which no page is resident.
    pub(super) fn bare(machine: &M, reaping: Reaping) -> Self {
        let dying = Self::empty(machine, reaping, |space| space);
        dying.map(machine, &BARE, Backing::Anonymous { huge: false });
        dying
    }

    /// Makes an address space with a single mapping, of a file. No page of it is resident.
    pub(super) fn bare_file(machine: &M, reaping: Reaping) -> Self {
        let dying = Self::empty(machine, reaping, |space| space);
        let file = Arc::clone(&dying.file);
        dying.map(machine, &BARE, Backing::PrivateFile { file, offset: 0 });
        dying
    }

    /// Makes an address space with a single mapping, which has room for a huge page, on a machine
    /// with memory for that page. Such a machine has more page tags (one byte for each page) than a
    /// model checker can handle. A model checker can still run a test on such a machine, but does
    /// not try the interleavings of accesses to tags.
    pub(super) fn bare_huge(machine: &M, reaping: Reaping) -> Self {
        let dying = Self::empty_of(machine, ARENA_OF_HUGE, reaping, |space| space);
        dying.map(machine, &WHOLE, Backing::Anonymous { huge: true });
        dying
    }

    fn empty(
        machine: &M,
        reaping: Reaping,
        more: impl FnOnce(AddressSpace<M>) -> AddressSpace<M>,
    ) -> Self {
        Self::empty_of(machine, ARENA, reaping, more)
    }

    fn empty_of(
        machine: &M,
        arena: u32,
        reaping: Reaping,
        more: impl FnOnce(AddressSpace<M>) -> AddressSpace<M>,
    ) -> Self {
        let design = Design {
            reaping,
            ..Design::OURS
        };
        let mut config = Config::new(Layout::arena(Pages(arena)));
        config.design = design;
        let manager = Manager::new(machine, config).expect("a small arena is a layout");
        let spaces = Spaces::new(machine, &design, 2).expect("few pages can be counted");
        let memory = Memory::new(machine, &manager, &spaces);
        let space = AddressSpace::new(memory).expect("there is memory");
        let budget = Arc::new(Budget::new(machine, u64::from(arena)));
        let shared = Arc::new(Object::new(machine, ObjectKind::Shared));
        let file = Arc::new(Object::new(machine, ObjectKind::File));
        Self {
            space: more(space.limited(Arc::clone(&budget))),
            manager,
            spaces,
            budget,
            shared,
            file,
            exits: machine.word(0),
            reaps: machine.word(0),
        }
    }

    /// Asserts that a gather (Linux: `mmu_gather`) keeps the record that is added after the gather
    /// was full, even if another gather gives back memory for records in between.
    pub(super) fn keeps_a_late_record(&self, machine: &M) {
        let memory = self.memory(machine);
        let (added, kept) = self.space.records_before_a_late_batch(memory);
        assert_eq!(kept, added, "each record is a page that waits to be freed");
    }

    fn memory<'m>(&'m self, machine: &'m M) -> Memory<'m, M> {
        Memory::new(machine, &self.manager, &self.spaces)
    }

    fn fill(&self, machine: &M) {
        for pages in [FILLED, BARE] {
            self.map(machine, &pages, Backing::Anonymous { huge: false });
        }
        self.share(machine, SHARED);
        for pages in [FILLED, SHARED] {
            let pages = Vpn(pages.start)..Vpn(pages.end);
            let filled = self.space.populate(self.memory(machine), pages);
            filled.expect("there is memory");
        }
        self.swap_out(machine, FILLED.start);
        assert_eq!(self.spaces.swap().used(machine), 1, "there is swap");
    }

    fn map(&self, machine: &M, pages: &Range<u64>, backing: Backing<M>) {
        let request = MapRequest {
            place: Place::Replace(Vpn(pages.start)),
            pages: pages.end - pages.start,
            backing,
        };
        let mapped = self.space.map(self.memory(machine), request);
        mapped.expect("nothing is in the way");
    }

    /// Maps shared memory in `pages`, replacing the mappings that are there.
    pub(super) fn share(&self, machine: &M, pages: Range<u64>) {
        let object = Arc::clone(&self.shared);
        self.map(machine, &pages, Backing::Shared { object, offset: 0 });
    }

    pub(super) fn unmap(&self, machine: &M, pages: Range<u64>) {
        let count = pages.end - pages.start;
        let gone = self
            .space
            .unmap(self.memory(machine), Vpn(pages.start), count);
        gone.expect("nothing is in the way");
    }

    /// Moves a page to swap, if the page is present.
    pub(super) fn swap_out(&self, machine: &M, page: u64) {
        let pages = Vpn(page)..Vpn(page + 1);
        self.space.swap_out(self.memory(machine), pages);
    }

    /// Ends the space as its last user, if no other CPU has ended it.
    pub(super) fn exit(&self, machine: &M) {
        match self.space.exit(self.memory(machine)) {
            Ok(Exited::Finished) => assert!(self.space.has(machine, Flag::Ended)),
            Ok(Exited::LeftToHelpers) => {}
            Err(ExitError::Ended) => return,
        }
        self.exits.add(machine, 1, AcqRel);
    }

    /// Helps to empty the space as the reaper does: only if no other CPU is changing the mappings.
    pub(super) fn reap(&self, machine: &M) {
        let reaped = self.space.try_reap(self.memory(machine));
        self.note(machine, reaped);
    }

    /// Helps to empty the space as `process_mrelease` does: waits while another CPU changes the
    /// mappings.
    pub(super) fn release(&self, machine: &M) {
        let reaped = self.space.release(self.memory(machine), || false);
        self.note(machine, reaped.expect("the caller was not killed"));
    }

    /// Returns the number of times that a helper found no table left to empty (its result was
    /// `Reaped::All`).
    pub(super) fn reaps(&self, machine: &M) -> i64 {
        self.reaps.load(machine, Acquire)
    }

    fn note(&self, machine: &M, reaped: Reaped) {
        if reaped == Reaped::All {
            self.reaps.add(machine, 1, AcqRel);
        }
    }

    /// Touches a page for writing. Returns whether the page is present now.
    pub(super) fn touch(&self, machine: &M, page: u64) -> bool {
        self.touch_for(machine, page, Access::Write)
    }

    /// Touches a page for `access`. Returns whether the page is present now.
    pub(super) fn touch_for(&self, machine: &M, page: u64, access: Access) -> bool {
        let page = Vpn(page);
        match self.space.fault(self.memory(machine), page, access) {
            Ok(Faulted::Mapped { .. } | Faulted::Already | Faulted::Huge) => true,
            Err(FaultError::Unstable(at) | FaultError::NotMapped(at)) => {
                assert_eq!(at, page);
                false
            }
            other => panic!("a page is mapped or it may not be touched: {other:?}"),
        }
    }

    pub(super) fn touch_all(&self, machine: &M, pages: &[u64]) {
        for &page in pages {
            self.touch(machine, page);
        }
    }

    /// Returns the exact number of the space's resident pages of a kind.
    pub(super) fn counted(&self, machine: &M, kind: RssKind) -> i64 {
        let counters = self.space.rss().counters();
        counters.precise_sum(machine, kind as usize)
    }

    /// Ends the space if no CPU has ended it, and asserts that everything has been freed.
    pub(super) fn ends_whole(&self, machine: &M) {
        self.exit(machine);
        assert_eq!(self.exits.load(machine, Acquire), 1, "it was ended once");
        assert!(
            self.space.has(machine, Flag::Ended),
            "the last walker to leave has ended it"
        );
        assert!(self.space.has(machine, Flag::Skip), "for good");
        for kind in RssKind::ALL {
            let left = self.counted(machine, kind);
            assert_eq!(left, 0, "{} is exact", kind.name());
        }
        assert_eq!(self.space.table_pages(machine), 0, "no table is left");
        assert_eq!(self.budget.used(machine), 0, "no page is charged");
        self.shared.empty(machine, self.manager.pages());
        self.file.empty(machine, self.manager.pages());
        cast::is_whole(self.memory(machine));
    }
}
