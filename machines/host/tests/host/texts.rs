//! Tests of the texts that a user reads: the message of each error says what is wrong, and the
//! `Debug` form of a data structure shows its name and its settings.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;

use plimsoll_host::Host;
use plimsoll_mm::counter::{
    Area, Batch, Counting, Flat, InitError, Items, OneSidedTree, Plan, Reading, Shape, ShapeError,
    Shared, Tree,
};
use plimsoll_mm::design::Design;
use plimsoll_mm::laws::cast;
use plimsoll_mm::oom::{
    AdjOutOfRange, Census, Kind, NoPages, OomKiller, Patience, ReleaseError, SelectError,
};
use plimsoll_mm::page::{
    AllocError, Config, FreeError, Layout, LayoutError, NoKill, SeedError, Tried,
};
use plimsoll_mm::space::budget::OverBudget;
use plimsoll_mm::space::object::PageError;
use plimsoll_mm::space::rss::{BadRss, RssKind};
use plimsoll_mm::space::swap::{BadSlot, SwapSlot};
use plimsoll_mm::space::vma_tree::{Busy, Cursor, Finder, NoMemory, Vma, VmaError};
use plimsoll_mm::space::{ExitError, FaultError, MapError};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{Order, Pages, Pfn, Vpn};

use crate::support::world::{Sizes, What, World};

/// Checks that the text of an error contains `words`.
fn says(error: impl Error, words: &str) {
    let text = error.to_string();
    assert!(text.contains(words), "{error:?}: {text}");
}

#[test]
fn errors_of_pages_say_what_is_wrong() {
    let pfn = Pfn(0x40);
    says(SeedError::NoSuchZone(3), "there is no zone 3");
    says(SeedError::NotFresh(2), "zone 2 is in use");
    says(
        SeedError::Block(FreeError::OutsideZones(pfn)),
        "0x40 is in no zone",
    );
    says(LayoutError::NoZone, "at least one zone");
    says(LayoutError::BadHole(1), "a hole of zone 1");
    says(FreeError::NotAllocated(pfn), "0x40 is not the first");
    says(
        FreeError::WrongOrder {
            pfn,
            allocated: Order::ZERO,
            freed: Order::MAX,
        },
        "with order 0 but freed or split with order 10",
    );
    says(AllocError::NoSuchZone, "no zone of the requested kind");
    let tried = Tried {
        zones: 2,
        kept_back: 1,
        drained: Pages(30),
        reclaimers: 4,
        reclaimed: Pages(50),
        no_kill: NoKill::NotAsked,
    };
    let all = "out of memory: asked 2 zones (1 of them have a block but must keep it), drained 30 pages from the \
               CPUs' lists, reclaimed 50 pages by 4 reclaimers";
    assert_eq!(AllocError::OutOfMemory(tried).to_string(), all);
    for (no_kill, why) in [
        (NoKill::Costly, "too large to kill"),
        (NoKill::LowZone, "hardly free memory of the requested kind"),
        (NoKill::Dying, "has used its reserve"),
        (NoKill::NobodyLeft, "no process is left"),
        (NoKill::NotSelected, "selection of a process to kill failed"),
    ] {
        let text = AllocError::OutOfMemory(Tried { no_kill, ..tried }).to_string();
        assert_eq!(text, format!("{all}; {no_kill}"));
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn errors_of_counters_say_what_is_wrong() {
    says(ShapeError::Batch(3), "a batch of 3 is not allowed");
    says(ShapeError::NoCpus, "at least one CPU");
    says(
        ShapeError::TooManyCpus { cpus: 9, max: 8 },
        "9 CPUs are too many",
    );
    says(ShapeError::FanIn(1), "groups of 1 are not allowed");
    says(
        InitError::Width {
            counters: 9,
            max: 8,
        },
        "1 to 8 counters, not 9",
    );
    says(InitError::OutOfMemory, "no memory for the counters");
}

#[test]
fn errors_of_address_spaces_say_what_is_wrong() {
    let page = Vpn(7);
    says(MapError::Empty, "a range without pages");
    says(MapError::NoRoom(12), "no gap of 12 pages");
    says(
        MapError::Unaligned { page, align: 512 },
        "a multiple of 512 pages, which 7 is not",
    );
    says(FaultError::NotMapped(page), "nothing is mapped at page 7");
    says(FaultError::Unstable(page), "page 7 may have been unmapped");
    says(ExitError::Ended, "already ended");
    says(PageError::NoMemory, "index of an object's pages");
    says(VmaError::NotMapped(page), "7");
    says(Busy, "changed whenever they were read");
    assert_eq!(NoMemory.to_string(), VmaError::NoMemory.to_string());
    says(NoMemory, "memory");
    says(BadSlot { slot: SwapSlot(5) }, "swap slot 5 is not taken");
    let bad = BadRss {
        kind: RssKind::Anon,
        pages: -2,
    };
    says(bad, "MM_ANONPAGES is -2");
    let over = |level| OverBudget {
        level,
        limit: 10,
        used: 9,
    };
    let own = "over budget: 9 of 10 pages are used: give some back, or raise the limit";
    assert_eq!(over(0).to_string(), own);
    says(over(2), "of the budget 2 levels above are used: give");
    says(FaultError::OverBudget(over(0)), own);
}

#[test]
fn errors_of_kills_say_what_is_wrong() {
    says(NoPages, "shares of all pages");
    says(AdjOutOfRange(1001), "1001 is not an adjustment");
    says(SelectError::NoSlot, "needs a slot");
    let candidate = 7;
    says(
        SelectError::NoSuchCandidate { candidate },
        "below `Candidates::len`",
    );
    says(SelectError::Exempt { candidate }, "ask `Standing::of`");
    says(SelectError::NotDying { candidate }, "is not dying");
    let reading = Reading::exactly(4);
    says(
        SelectError::Reading {
            candidate: 3,
            reading,
        },
        "candidate 3 has about 4 pages",
    );
    says(ReleaseError::InvalidFlags(16), "flags 0x10");
    says(ReleaseError::NoSuchProcess, "no such process");
    says(ReleaseError::NotDying, "kill it first");
    says(ReleaseError::Interrupted, "killed while waiting");
    says(ReleaseError::Again, "try again");
}

/// Checks that the `Debug` form of `part` begins with `text`.
fn begins(part: impl Debug, text: &str) {
    let form = format!("{part:?}");
    assert!(form.starts_with(text), "{form}");
}

#[test]
fn counters_and_their_parts_are_shown_with_their_settings() {
    let host = Host::with_topology(Topology::flat(4));
    let area = Arc::new(Area::new(&host, 2).expect("a width in bounds"));
    begins(&area, "Area { width: 2, cpus: 4");
    let shape = Arc::new(Shape::published(4, Batch::RSS).expect("in the table"));
    begins(Items::<Host>::new(&host, 3).expect("memory"), "Items(3)");
    begins(
        Shared::init_many(&host, 2).expect("a width in bounds"),
        "Shared { width: 2",
    );
    let flat = Flat::init_many(&host, &area).expect("it fits");
    begins(flat, "Flat { batch: ");
    let tree = OneSidedTree::init_many(&host, &area, &shape).expect("it fits");
    begins(tree, "OneSidedTree { shape: Shape");
    let items = Items::new(&host, Tree::<Host>::items_lines(&shape, 2)).expect("memory");
    let tree = Tree::init_many(&host, &area, &shape, items).expect("it fits");
    begins(tree, "Tree { shape: Shape");
    let plan = Plan::<Host>::new(&host, Counting::Flat, 2, Batch::RSS);
    begins(plan.expect("it fits"), "Plan { counting: Flat");
}

#[test]
fn address_spaces_and_their_parts_are_shown_with_their_settings() {
    let world = World::new(Design::OURS, Sizes::AMPLE);
    begins(world.mm.pages(), "PageAllocator { zones: 1");
    begins(&world.mm, "Manager { pages: PageAllocator");
    begins(
        Config::<Host>::new(Layout::arena(Pages(1024))),
        "Config { layout: Layout",
    );
    begins(&world.spaces, "Spaces { reaping: ");
    begins(world.memory(), "Memory { spaces: Spaces");
    begins(world.spaces.swap(), "SwapArea { slots: 1000");
    begins(world.spaces.lru(), "Lru { nodes: 1");
    begins(&world.space, "AddressSpace { mappings: ");
    begins(&world.budgets[0], "Budget { limit: ");
    begins(&world.file, "Object { kind: File");
    world.map_at(16, 4, What::Anonymous { huge: false });
    let tree = world.space.mappings();
    begins(tree, "VmaTree");
    begins(Cursor::at(tree, Vpn(9)), "Cursor { at: ");
    begins(Finder::new(tree), "Finder { last: Vma");
    let _: Vma = Cursor::at(tree, Vpn(9))
        .forward()
        .expect("nobody writes")
        .expect("one");
    world.end();
}

#[test]
fn processes_and_killers_are_shown_with_their_settings() {
    let host = Host::with_topology(Topology::flat(2));
    let killer = OomKiller::new(&host, (), Patience::LINUX);
    begins(&killer, "OomKiller { reaper: Reaper { patience: Patience");
    begins(killer.reaper(), "Reaper { patience: Patience");
    let process = cast::enroll(&host, &killer, 8, Kind::KernelThread, None);
    begins(
        &process,
        "Process { id: ProcessId(8), kind: KernelThread, adj: ",
    );
    begins(
        Census::new(&host, &[Arc::clone(&process)]),
        "Census { processes: 1",
    );
}

#[test]
fn a_process_is_frozen_until_it_is_thawed() {
    let host = Host::with_topology(Topology::flat(2));
    let killer = OomKiller::new(&host, (), Patience::LINUX);
    let process = cast::enroll(&host, &killer, 8, Kind::KernelThread, None);
    assert!(!process.thaw(&host), "it was not frozen");
    assert!(process.freeze(&host));
    assert!(process.thaw(&host));
    assert!(!process.thaw(&host), "it runs already");
}
