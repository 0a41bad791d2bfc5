//! Laws (tests for threads, model checkers and the simulator) of reclaim for pages of files. A page
//! is dropped while another CPU maps, reads, unmaps or copies it, while other CPUs read its file,
//! or while other CPUs reclaim too.

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
use crate::page::{Config, Layout, Request};
use crate::reclaim::laws::{drop_used, look_while_read, pass};
use crate::space::lru::List;
use crate::space::object::{Object, ObjectKind};
use crate::space::rss::RssKind;
use crate::space::{Access, AddressSpace, Backing, Flag, MapRequest, Memory, Place, Spaces};
use crate::units::{NodeId, Order, Pages, Vpn};

/// The number of pages of the machine. It is small, so that a model checker can handle the records
/// of all pages.
const ARENA: u32 = 64;
/// The virtual pages of the private mapping of the file. The first of them maps index 0 of the
/// file.
const MAPPED: Range<u64> = 512..516;
/// Indexes in the file: `ONE` is the page that is mapped, and `READ` the page that is only read.
const ONE: u64 = 0;
const READ: u64 = 1;

/// The state of the tests in this file: an address space and a file that it maps, both enlisted for
/// reclaim. Two pages of the file are in memory. The next pass of reclaim drops both pages, unless
/// they are used again.
pub struct Cached<M: Machine> {
    manager: Manager<M>,
    spaces: Spaces<M>,
    space: Arc<AddressSpace<M>>,
    file: Arc<Object<M>>,
    /// The number of pages that reclaim has freed so far.
    freed: M::Word,
}

impl<M: Machine> fmt::Debug for Cached<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").finish_non_exhaustive()
    }
}

const NODE: NodeId = NodeId(0);

impl<M: Machine> Cached<M> {
    fn new(machine: &M) -> Self {
        let mut config = Config::new(Layout::arena(Pages(ARENA)));
        let design = Design::OURS;
        config.design = design;
        let manager = Manager::new(machine, config).expect("a small arena is a layout");
        let spaces = Spaces::new(machine, &design, 8).expect("few pages can be counted");
        let spaces = spaces.aging(machine, &manager, 2).expect("there is memory");
        let memory = Memory::new(machine, &manager, &spaces);
        let space = AddressSpace::new(memory).expect("there is memory");
        let space = Arc::new(space);
        memory.enlist(&space).expect("there is a number for it");
        let file = Arc::new(Object::new(machine, ObjectKind::File));
        memory.enlist_file(&file).expect("there is a number for it");
        let request = mapping(&file, MAPPED.end - MAPPED.start);
        space.map(memory, request).expect("nothing is there");
        let cached = Self {
            manager,
            spaces,
            space,
            file,
            freed: machine.word(0),
        };
        cached.touch(machine, ONE, Access::Read);
        cached.reclaim(machine);
        let freed = cached.freed.load(machine, Acquire);
        assert_eq!(freed, 0, "a page that was mapped and touched stays");
        cached.read(machine);
        cached.spaces.lru().drain(machine, cached.manager.pages());
        assert_eq!(cached.len(List::InactiveFile), 2);
        cached
    }

    fn memory<'m>(&'m self, machine: &'m M) -> Memory<'m, M> {
        Memory::new(machine, &self.manager, &self.spaces)
    }

    fn len(&self, list: List) -> u64 {
        self.spaces.lru().len(NODE, list)
    }

    /// Runs one pass of reclaim, which looks at all inactive pages, and counts the pages that it
    /// freed.
    fn reclaim(&self, machine: &M) {
        self.spaces.lru().drain(machine, self.manager.pages());
        let freed = pass(self.memory(machine), NODE);
        self.freed.add(machine, i64::from(freed.0), AcqRel);
    }

    fn touch(&self, machine: &M, index: u64, access: Access) {
        let page = Vpn(MAPPED.start + index);
        let faulted = self.space.fault(self.memory(machine), page, access);
        assert!(faulted.is_ok(), "{faulted:?}");
    }

    fn read(&self, machine: &M) {
        let request = Request::new(Order::ZERO);
        let read = self.memory(machine).read_file(&self.file, READ, request);
        assert!(read.is_ok(), "{read:?}");
    }

    fn unmap(&self, machine: &M) {
        let memory = self.memory(machine);
        let gone = self.space.unmap(memory, Vpn(MAPPED.start), 1);
        gone.expect("nothing is in the way");
    }

    fn map_again(&self, machine: &M) {
        let mapped = self.space.map(self.memory(machine), mapping(&self.file, 1));
        mapped.expect("nothing is there");
    }

    fn exit(&self, machine: &M) {
        let exited = self.space.exit(self.memory(machine));
        exited.expect("it ends once");
    }

    fn counted(&self, machine: &M, kind: RssKind) -> i64 {
        let counters = self.space.rss().counters();
        counters.precise_sum(machine, kind as usize)
    }

    /// Asserts that every page of the file, and every private copy, is on the lists of used pages
    /// (LRU) once, and that no more pages of the file are mapped than the file has in memory.
    fn is_aged(&self, machine: &M) {
        let present = i64::try_from(self.file.present(machine)).expect("a few pages");
        let anon = self.counted(machine, RssKind::Anon);
        let aged = self.spaces.lru().total(machine);
        assert_eq!(aged, present + anon, "each page is aged once");
        let mapped = self.counted(machine, RssKind::File);
        assert!((0..=present).contains(&mapped), "{mapped} of {present}");
    }

    /// Asserts that the page that the set-up has mapped is still mapped, unless reclaim has freed a
    /// page.
    fn is_mapped_or_dropped(&self, machine: &M) {
        let mapped = self.counted(machine, RssKind::File);
        let freed = self.freed.load(machine, Acquire);
        assert!(mapped == 1 || freed > 0, "{mapped} mapped, {freed} freed");
    }

    /// Asserts that the space maps no page of the file, and has `copies` private copies.
    fn maps_only_copies(&self, machine: &M, copies: i64) {
        assert_eq!(self.counted(machine, RssKind::Anon), copies);
        assert_eq!(self.counted(machine, RssKind::File), 0);
    }

    /// Asserts that reclaim has freed exactly those of the file's two pages that the file no longer
    /// has.
    fn has_freed_what_is_gone(&self, machine: &M) {
        let freed = self.freed.load(machine, Acquire);
        let present = self.file.present(machine).cast_signed();
        assert_eq!(freed + present, 2, "no page is lost or freed twice");
    }

    /// Asserts that the next pass of reclaim drops neither of the file's two pages, and that the
    /// two passes after it drop at least one of these pages.
    fn has_second_chances(&self, machine: &M) {
        // Each page was used twice: the set-up and one CPU have touched the page that is mapped,
        // and the set-up and the other CPU have read the other page.
        self.reclaim(machine);
        assert_eq!(self.freed.load(machine, Acquire), 0, "both were used again");
        assert_eq!(self.file.present(machine), 2);
        self.reclaim(machine);
        self.reclaim(machine);
        assert!(self.file.present(machine) < 2, "no CPU uses them any more");
    }

    fn drops_no_used_page(&self, machine: &M) {
        let dropped = drop_used(self.memory(machine), NODE);
        assert_eq!(dropped, Pages::ZERO);
        assert_eq!(self.len(List::ActiveFile), 2);
    }

    /// Reclaim has found one of the two pages touched. Lets reclaim look at both pages while they
    /// are being read and not mapped. Asserts that the touched page becomes active when reclaim
    /// finds it touched again.
    fn remembers_a_touch(&self, machine: &M) {
        self.unmap(machine);
        look_while_read(self.memory(machine), NODE);
        assert_eq!(self.len(List::InactiveFile), 2, "neither page leaves");
        self.map_again(machine);
        self.touch(machine, ONE, Access::Read);
        self.reclaim(machine);
        assert_eq!(self.len(List::ActiveFile), 1);
    }

    /// Makes both pages active, uses them, and runs two more passes. Asserts that the first pass
    /// makes both pages inactive, because the node has no inactive pages, and that the second pass
    /// drops both pages.
    fn forgets_touches(&self, machine: &M) {
        let uses = || {
            self.touch(machine, ONE, Access::Read);
            (0..2).for_each(|_| self.read(machine));
        };
        uses();
        self.reclaim(machine);
        assert_eq!(self.len(List::ActiveFile), 2);
        uses();
        self.reclaim(machine);
        assert_eq!(self.len(List::InactiveFile), 2);
        self.reclaim(machine);
        assert_eq!(
            self.freed.load(machine, Acquire),
            2,
            "neither was used since"
        );
    }

    /// Ends the address space if it has not ended yet, and releases the file. Asserts that all
    /// memory is then free.
    fn ends(&self, machine: &M) {
        self.is_aged(machine);
        if !self.space.has(machine, Flag::Ended) {
            self.exit(machine);
        }
        self.is_aged(machine);
        assert_eq!(self.counted(machine, RssKind::File), 0);
        // This call panics if a CPU or a page-table entry still counts as a user of a page.
        self.memory(machine).release_file(&self.file);
        self.is_aged(machine);
        assert_eq!(Arc::strong_count(&self.file), 1, "it is enlisted no more");
        cast::is_whole(self.memory(machine));
    }
}

/// The request for a private mapping of the first `pages` pages of `file`.
fn mapping<M: Machine>(file: &Arc<Object<M>>, pages: u64) -> MapRequest<M> {
    MapRequest {
        place: Place::Fixed(Vpn(MAPPED.start)),
        pages,
        backing: Backing::PrivateFile {
            file: Arc::clone(file),
            offset: ONE,
        },
    }
}

fn reclaim<M: Machine>(machine: &M, cached: &Cached<M>) {
    cached.reclaim(machine);
}

/// A page of a file is touched through its mapping while reclaim drops it. Afterwards the page is
/// mapped, or reclaim has freed it.
#[must_use]
pub fn dropped_while_touched<M: Machine>() -> Law<M, Cached<M>> {
    Law {
        name: "a page of a file that is touched while it is dropped is mapped, or was dropped whole",
        setup: Cached::new,
        bodies: vec![reclaim, |machine, cached| {
            cached.touch(machine, ONE, Access::Read);
        }],
        // If reclaim comes before the touch, the touch maps the page again. Otherwise reclaim keeps
        // the page, or drops the page because reclaim had looked at it before the touch.
        check: |machine, cached| {
            cached.is_mapped_or_dropped(machine);
            cached.ends(machine);
        },
    }
}

/// A CPU maps a page of a file, which was mapped nowhere before, while reclaim drops the page. No
/// entry maps a page that the file no longer has.
#[must_use]
pub fn dropped_while_mapped<M: Machine>() -> Law<M, Cached<M>> {
    Law {
        name: "a page of a file that is mapped while it is dropped is mapped only while the file has it",
        setup: Cached::new,
        bodies: vec![reclaim, |machine, cached| {
            cached.touch(machine, READ, Access::Read);
        }],
        // The page need not be mapped in the end: reclaim may have decided before the touch to drop
        // the page, and unmap it after the touch.
        check: |machine, cached| cached.ends(machine),
    }
}

/// A page of a file is read while reclaim drops it. Afterwards the page is in memory once, or not
/// at all.
#[must_use]
pub fn dropped_while_read<M: Machine>() -> Law<M, Cached<M>> {
    Law {
        name: "a page of a file that is read while it is dropped is in memory once, or not at all",
        setup: Cached::new,
        bodies: vec![reclaim, |machine, cached| cached.read(machine)],
        check: |machine, cached| cached.ends(machine),
    }
}

/// A page of a file is unmapped while reclaim drops it. The page is freed exactly once.
#[must_use]
pub fn dropped_while_unmapped<M: Machine>() -> Law<M, Cached<M>> {
    Law {
        name: "a page of a file that is unmapped while it is dropped is freed once",
        setup: Cached::new,
        bodies: vec![reclaim, |machine, cached| cached.unmap(machine)],
        check: |machine, cached| {
            cached.maps_only_copies(machine, 0);
            cached.ends(machine);
        },
    }
}

/// A private copy replaces a page of a file while reclaim drops the page. Exactly one copy is left.
#[must_use]
pub fn dropped_while_copied<M: Machine>() -> Law<M, Cached<M>> {
    Law {
        name: "a page of a file that is copied while it is dropped leaves one copy",
        setup: Cached::new,
        bodies: vec![reclaim, |machine, cached| {
            cached.touch(machine, ONE, Access::Write);
        }],
        check: |machine, cached| {
            cached.maps_only_copies(machine, 1);
            cached.ends(machine);
        },
    }
}

/// Two CPUs reclaim pages of files from the same lists. Each page is dropped once.
#[must_use]
pub fn dropped_by_two<M: Machine>() -> Law<M, Cached<M>> {
    Law {
        name: "two CPUs that reclaim at once drop each page of a file once",
        setup: Cached::new,
        bodies: vec![reclaim, reclaim],
        check: |machine, cached| {
            cached.has_freed_what_is_gone(machine);
            cached.ends(machine);
        },
    }
}

/// Two CPUs reclaim while other CPUs touch, copy, read and unmap pages of a file. No page is lost
/// or in memory twice, and everything is freed when the address space ends.
#[must_use]
pub fn dropped_by_two_while_used<M: Machine>() -> Law<M, Cached<M>> {
    let churn: Body<M, Cached<M>> = |machine, cached| {
        cached.reclaim(machine);
        cached.reclaim(machine);
    };
    Law {
        name: "however pages of a file are touched, read, unmapped and dropped, each is there once",
        setup: Cached::new,
        bodies: vec![
            churn,
            churn,
            |machine, cached| {
                cached.touch(machine, READ, Access::Read);
                cached.read(machine);
                cached.touch(machine, READ, Access::Write);
            },
            |machine, cached| {
                cached.read(machine);
                cached.unmap(machine);
                cached.read(machine);
            },
        ],
        check: |machine, cached| cached.ends(machine),
    }
}

/// An address space ends while two CPUs drop the pages of a file that it maps. Afterwards no page
/// has a use left.
#[must_use]
pub fn dropped_by_two_while_exiting<M: Machine>() -> Law<M, Cached<M>> {
    Law {
        name: "a space that ends while the pages of its files are dropped leaves no use of them",
        setup: Cached::new,
        bodies: vec![reclaim, reclaim, |machine, cached| cached.exit(machine)],
        check: |machine, cached| cached.ends(machine),
    }
}

/// One CPU touches a mapped page of a file and another CPU reads a second page. The next pass of
/// reclaim keeps both pages, and a later pass drops at least one of them.
#[must_use]
pub fn a_touched_page_has_a_second_chance<M: Machine>() -> Law<M, Cached<M>> {
    Law {
        name: "a page of a file that is mapped and touched stays, and becomes active if touched again",
        setup: Cached::new,
        bodies: vec![
            |machine, cached| cached.touch(machine, ONE, Access::Read),
            |machine, cached| cached.read(machine),
        ],
        check: |machine, cached| {
            cached.has_second_chances(machine);
            cached.ends(machine);
        },
    }
}

/// Reclaim tries to drop pages of a file that a CPU is using. The pages become active instead.
#[must_use]
pub fn used_pages_become_active<M: Machine>() -> Law<M, Cached<M>> {
    Law {
        name: "a page of a file that is in use when it would leave memory becomes active",
        setup: Cached::new,
        bodies: vec![|machine, cached| cached.drops_no_used_page(machine)],
        check: |machine, cached| cached.ends(machine),
    }
}

/// Reclaim finds that a page of a file was touched. If its next look cannot find out whether the
/// page was touched again, reclaim still remembers the first touch. So the page becomes active when
/// a later look finds another touch.
#[must_use]
pub fn a_touch_is_remembered<M: Machine>() -> Law<M, Cached<M>> {
    Law {
        name: "a look that finds out nothing about a page of a file forgets no earlier touch",
        setup: Cached::new,
        bodies: vec![|machine, cached| cached.remembers_a_touch(machine)],
        check: |machine, cached| cached.ends(machine),
    }
}

/// Pages of a file become inactive because there are too few inactive pages. Reclaim then drops a
/// page, unless it is used after it became inactive.
#[must_use]
pub fn inactive_pages_begin_untouched<M: Machine>() -> Law<M, Cached<M>> {
    Law {
        name: "a page of a file that becomes inactive is dropped unless it is used after that",
        setup: Cached::new,
        bodies: vec![|machine, cached| cached.forgets_touches(machine)],
        check: |machine, cached| cached.ends(machine),
    }
}
