//! Tests every error of an address space: a refused call changes nothing, and the message says what
//! the caller can do.

use crate::support;

use plimsoll_mm::design::Design;
use plimsoll_mm::space::budget::OverBudget;
use plimsoll_mm::space::reap::{Reaped, Reaping};
use plimsoll_mm::space::vma_tree::Vma;
use plimsoll_mm::space::{
    Access, END, ExitError, Exited, FaultError, Faulted, Flag, MapError, Place,
};
use plimsoll_mm::units::{CpuId, Vpn};
use support::world::{Sizes, What, World};

const ANONYMOUS: What = What::Anonymous { huge: false };
const HUGE: What = What::Anonymous { huge: true };
const FILE: What = What::File { offset: 0 };
const SHARED: What = What::Shared { offset: 0 };

fn map_refused(world: &World, place: Place, pages: u64, what: What) -> MapError {
    world.refused(|| world.map(place, pages, what))
}

fn unmap_refused(world: &World, start: u64, pages: u64) -> MapError {
    world.refused(|| world.space.unmap(world.memory(), Vpn(start), pages))
}

fn fault_refused(world: &World, page: u64, access: Access) -> FaultError {
    world.refused(|| world.space.fault(world.memory(), Vpn(page), access))
}

fn touch(world: &World, page: u64) -> Faulted {
    let faulted = world.space.fault(world.memory(), Vpn(page), Access::Write);
    faulted.expect("it is mapped, and there is memory")
}

/// Checks that the message of `error` contains `advice`.
fn advises(error: &impl ToString, advice: &str) {
    let text = error.to_string();
    assert!(text.contains(advice), "{text:?} does not say {advice:?}");
}

#[test]
fn a_fixed_mapping_does_not_replace_another() {
    let world = World::new(Design::OURS, Sizes::AMPLE);
    let _entered = world.host.enter(CpuId(0));
    let there = world.map(Place::Fixed(Vpn(1000)), 100, SHARED);
    let there: Vma = there.expect("nothing is there");
    for (start, pages) in [(999, 2), (1000, 100), (1050, 1), (1099, 50), (0, 5000)] {
        for what in [ANONYMOUS, FILE, SHARED] {
            let why = map_refused(&world, Place::Fixed(Vpn(start)), pages, what);
            assert_eq!(why, MapError::Overlaps(there));
            advises(&why, "unmap them first, or ask to replace them");
        }
    }
    world.end();
}

#[test]
fn a_range_has_pages_and_ends_below_the_end() {
    let world = World::new(Design::OURS, Sizes::AMPLE);
    let _entered = world.host.enter(CpuId(0));
    let places = |start| [Place::Fixed(Vpn(start)), Place::Replace(Vpn(start))];
    for place in places(5).into_iter().chain([Place::Lowest, Place::Highest]) {
        let why = map_refused(&world, place, 0, ANONYMOUS);
        assert_eq!(why, MapError::Empty);
        advises(&why, "ask for at least one");
    }
    assert_eq!(unmap_refused(&world, 5, 0), MapError::Empty);
    let ends = [
        (END.0 - 1, 2),
        (END.0, 1),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (1, u64::MAX),
        (0, END.0 + 1),
    ];
    for (start, pages) in ends {
        let too_high = MapError::TooHigh {
            start: Vpn(start),
            pages,
        };
        for place in places(start) {
            assert_eq!(map_refused(&world, place, pages, ANONYMOUS), too_high);
        }
        assert_eq!(unmap_refused(&world, start, pages), too_high);
        advises(&too_high, "choose a lower one or ask for fewer");
    }
    for pages in [END.0 + 1, u64::MAX] {
        let start = Vpn(0);
        let why = map_refused(&world, Place::Lowest, pages, ANONYMOUS);
        assert_eq!(why, MapError::TooHigh { start, pages });
    }
    // The address space has `END.0` pages, but `Lowest` and `Highest` do not use all of them.
    let why = map_refused(&world, Place::Highest, END.0, ANONYMOUS);
    assert_eq!(why, MapError::NoRoom(END.0));
    advises(&why, "unmap something");
    world.map_at(END.0 - 1, 1, ANONYMOUS);
    assert_eq!(touch(&world, END.0 - 1), Faulted::Mapped { swapped: false });
    world.end();
}

#[test]
fn reserved_huge_pages_are_whole() {
    let world = World::new(Design::OURS, Sizes::AMPLE);
    let _entered = world.host.enter(CpuId(0));
    let unaligned = |page| MapError::Unaligned {
        page: Vpn(page),
        align: 512,
    };
    for (start, pages, page) in [(513, 512, 513), (512, 100, 100), (1, 1, 1)] {
        let why = map_refused(&world, Place::Fixed(Vpn(start)), pages, What::Reserved);
        assert_eq!(why, unaligned(page));
        advises(&why, "begins and ends at a multiple of 512 pages");
    }
    let why = map_refused(&world, Place::Highest, 511, What::Reserved);
    assert_eq!(why, unaligned(511));
    world.map_at(512, 1024, What::Reserved);
    touch(&world, 600);
    for (start, pages, page) in [
        (512, 100, 612),
        (600, 1, 600),
        (0, 1025, 1025),
        (1535, 9, 1535),
    ] {
        assert_eq!(unmap_refused(&world, start, pages), unaligned(page));
        for what in [ANONYMOUS, FILE, SHARED] {
            let why = map_refused(&world, Place::Replace(Vpn(start)), pages, what);
            assert_eq!(why, unaligned(page));
        }
    }
    world.end();
}

#[test]
fn frames_and_files_have_a_last_page() {
    let world = World::new(Design::OURS, Sizes::AMPLE);
    let _entered = world.host.enter(CpuId(0));
    let beyond = [
        What::Frames { first: u32::MAX },
        What::File { offset: u64::MAX },
        What::Shared {
            offset: u64::MAX - 1,
        },
    ];
    for what in beyond {
        for place in [Place::Lowest, Place::Fixed(Vpn(9))] {
            let why = map_refused(&world, place, 2, what);
            assert_eq!(why, MapError::NoSuchFrames);
            advises(&why, "begin lower or map fewer");
        }
    }
    world.map_at(
        9,
        2,
        What::Frames {
            first: u32::MAX - 1,
        },
    );
    assert_eq!(touch(&world, 10), Faulted::Mapped { swapped: false });
    world.end();
}

#[test]
fn there_are_only_so_many_mappings() {
    let mappings = 4;
    let world = World::new(
        Design::OURS,
        Sizes {
            mappings,
            ..Sizes::AMPLE
        },
    );
    let _entered = world.host.enter(CpuId(0));
    for start in [100, 200, 300] {
        world.map_at(start, 10, SHARED);
        touch(&world, start + 5);
    }
    let too_many = MapError::TooMany(4);
    // Replacing the middle of a mapping leaves two parts of it. Together with the new mapping and
    // two mappings elsewhere, there would be five, but only four are allowed.
    let why = map_refused(&world, Place::Replace(Vpn(105)), 2, FILE);
    assert_eq!(why, too_many);
    world.map_at(400, 10, SHARED);
    for place in [Place::Lowest, Place::Highest, Place::Fixed(Vpn(500))] {
        assert_eq!(map_refused(&world, place, 1, ANONYMOUS), too_many);
    }
    assert_eq!(unmap_refused(&world, 105, 2), too_many);
    advises(&too_many, "unmap whole ones first, or allow more");
    let memory = world.memory();
    assert_eq!(world.space.unmap(memory, Vpn(100), 5), Ok(()));
    let replaced = world.map(Place::Replace(Vpn(200)), 10, FILE);
    replaced.expect("there are as many as before");
    world.end();
}

#[test]
fn only_what_is_mapped_is_touched() {
    let world = World::new(Design::OURS, Sizes::AMPLE);
    let _entered = world.host.enter(CpuId(0));
    world.map_at(100, 10, ANONYMOUS);
    for page in [0, 99, 110, END.0 - 1, END.0, END.0 + 100, u64::MAX] {
        for access in [Access::Read, Access::Write] {
            let why = fault_refused(&world, page, access);
            assert_eq!(why, FaultError::NotMapped(Vpn(page)));
            advises(&why, "map it first");
        }
        let one = Vpn(page)..Vpn(page.saturating_add(1));
        if one.start < one.end {
            let why = world.refused(|| world.space.populate(world.memory(), one));
            assert_eq!(why, FaultError::NotMapped(Vpn(page)));
        }
    }
    let (memory, space) = (world.memory(), &world.space);
    let why = space.populate(memory, Vpn(105)..Vpn(115));
    assert_eq!(why, Err(FaultError::NotMapped(Vpn(110))));
    assert_eq!(world.state().rss[1], 5, "the pages before it are there");
    for nowhere in [Vpn(50)..Vpn(60), END..Vpn(u64::MAX), Vpn(109)..Vpn(100)] {
        assert_eq!(space.swap_out(memory, nowhere.clone()), 0);
        assert_eq!(
            space.populate(memory, nowhere.start..nowhere.start),
            Ok(()),
            "no pages are all there"
        );
    }
    world.end();
}

#[test]
fn what_is_private_is_not_touched_once_it_may_be_gone() {
    let world = World::new(Design::OURS, Sizes::AMPLE);
    let _entered = world.host.enter(CpuId(0));
    world.map_at(100, 10, ANONYMOUS);
    world.map_at(200, 10, FILE);
    world.map_at(300, 10, SHARED);
    world.map_at(1024, 512, HUGE);
    world.map_at(2048, 512, What::Reserved);
    touch(&world, 100);
    touch(&world, 101);
    let swapped = world.space.swap_out(world.memory(), Vpn(101)..Vpn(102));
    assert_eq!(swapped, 1);
    assert!(world.space.raise(&world.host, Flag::Unstable));
    for page in [101, 102, 200, 1024, 1100] {
        for access in [Access::Read, Access::Write] {
            let why = fault_refused(&world, page, access);
            assert_eq!(why, FaultError::Unstable(Vpn(page)));
            advises(&why, "is being killed");
        }
    }
    let why = world.refused(|| world.space.populate(world.memory(), Vpn(101)..Vpn(110)));
    assert_eq!(why, FaultError::Unstable(Vpn(101)));
    assert_eq!(touch(&world, 100), Faulted::Already, "it is there still");
    assert_eq!(touch(&world, 300), Faulted::Mapped { swapped: false });
    assert_eq!(touch(&world, 2048), Faulted::Huge);
    world.end();
}

#[test]
fn no_budget_is_exceeded() {
    let cases = [
        ([20, 90, 90], 0, 20),
        ([90, 60, 90], 1, 20),
        ([90, 90, 60], 2, 20),
    ];
    for (limits, level, room) in cases {
        let others = 40;
        let world = World::new(
            Design::OURS,
            Sizes {
                limits,
                others,
                ..Sizes::AMPLE
            },
        );
        let _entered = world.host.enter(CpuId(0));
        world.map_at(100, 100, ANONYMOUS);
        world.map_at(300, 100, FILE);
        world.map_at(1024, 512, HUGE);
        world.map_at(2048, 10, SHARED);
        let limit = limits[level as usize];
        let memory = world.memory();
        let over = FaultError::OverBudget(OverBudget {
            level,
            limit,
            used: limit,
        });
        let read = world.space.fault(memory, Vpn(300), Access::Read);
        assert_eq!(read, Ok(Faulted::Mapped { swapped: false }));
        let populated = world.space.populate(memory, Vpn(100)..Vpn(200));
        assert_eq!(populated, Err(over));
        assert_eq!(world.state().rss[1], room, "as many as there is room for");
        for page in [100 + room, 300, 301, 1024] {
            assert_eq!(fault_refused(&world, page, Access::Write), over);
        }
        assert_eq!(touch(&world, 2048), Faulted::Mapped { swapped: false });
        advises(&over, "give some back, or raise the limit");
        // Swapping out one page makes room in the budget for another page.
        assert_eq!(world.space.swap_out(memory, Vpn(100)..Vpn(101)), 1);
        assert_eq!(touch(&world, 300), Faulted::Mapped { swapped: false });
        assert_eq!(fault_refused(&world, 100, Access::Read), over);
        world.end();
    }
}

#[test]
fn an_address_space_ends_once() {
    for reaping in Reaping::ALL {
        let design = Design {
            reaping,
            ..Design::OURS
        };
        let world = World::new(design, Sizes::AMPLE);
        let _entered = world.host.enter(CpuId(0));
        world.map_at(100, 10, ANONYMOUS);
        touch(&world, 100);
        let memory = world.memory();
        assert_eq!(world.space.exit(memory), Ok(Exited::Finished));
        let why = world.refused(|| world.space.exit(memory));
        assert_eq!(why, ExitError::Ended);
        advises(&why, "end it only once");
        let why = map_refused(&world, Place::Lowest, 1, ANONYMOUS);
        assert_eq!(why, MapError::Ended);
        advises(&why, "make a new one");
        assert_eq!(unmap_refused(&world, 100, 10), MapError::Ended);
        assert_eq!(fault_refused(&world, 100, Access::Read), FaultError::Ended);
        let why = world.refused(|| world.space.populate(memory, Vpn(100)..Vpn(101)));
        assert_eq!(why, FaultError::Ended);
        assert_eq!(world.space.swap_out(memory, Vpn(0)..END), 0);
        assert_eq!(world.space.try_reap(memory), Reaped::All);
        assert_eq!(world.space.release(memory, || false), Some(Reaped::All));
        world.assert_ended();
        assert_eq!(world.space.destroy(&world.host), Ok(()));
    }
}

#[test]
fn who_never_ended_it_is_told() {
    let world = World::new(Design::OURS, Sizes::AMPLE);
    let _entered = world.host.enter(CpuId(0));
    world.map_at(100, 10, ANONYMOUS);
    touch(&world, 100);
    let left = world
        .space
        .destroy(&world.host)
        .expect_err("a page is left");
    assert_eq!(left.pages, 1);
    advises(&left, "MM_ANONPAGES is 1");
}
