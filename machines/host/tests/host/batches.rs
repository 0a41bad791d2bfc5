//! A gather is a collection of unmapped pages that wait to be freed. It grows by batches, some of
//! which are set aside. These tests check which gathers may take how many batches, and what happens
//! if none are left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::{Event, Phase};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::reap::{Reaped, Reaping};
use plimsoll_mm::space::{AddressSpace, ExitError, MapRequest, Memory, Place, Spaces};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Pages, Vpn};

/// The first page of the mapping whose pages the tests remove.
const START: Vpn = Vpn(513);

/// Maps and touches `pages` pages, and calls `goes` to remove them. Returns the number of steps in
/// which the unmapped pages are freed. `batches` batches (each is memory for records of unmapped
/// pages) are set aside, and there are 2000 swap slots.
fn times(
    design: &Design,
    pages: u64,
    batches: u32,
    goes: impl FnOnce(Memory<'_, Host>, &AddressSpace<Host>),
) -> u32 {
    let times = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&times);
    let host = Host::with_observer(Topology::flat(1), move |_, _, event| {
        if event == Event::Begin(Phase::FreePages) {
            count.fetch_add(1, Relaxed);
        }
    });
    let _entered = host.enter(CpuId(0));
    let mm = Manager::new(&host, Config::new(Layout::arena(Pages(1 << 15))));
    let mm = mm.expect("an arena is a layout");
    let spaces = Spaces::new(&host, design, 2000).expect("countable");
    let spaces = spaces.with_batches(&host, batches);
    let spaces = spaces.expect("there is memory");
    let spare = spaces.spare_batches(&host);
    let memory = Memory::new(&host, &mm, &spaces);
    let space = AddressSpace::new(memory).expect("there is memory");
    // The first and the last of these mappings share page tables with the middle one. So an
    // unmapping of the middle one does not free these tables, and the test counts only the other
    // tables.
    for (start, pages) in [(512, 1), (START.0, pages), (START.0 + pages, 1)] {
        let request = MapRequest::anonymous(Place::Fixed(Vpn(start)), pages);
        space.map(memory, request).expect("nothing is mapped there");
    }
    let filled = space.populate(memory, START..Vpn(START.0 + pages));
    filled.expect("there is memory");
    times.store(0, Relaxed);
    goes(memory, &space);
    let times = times.load(Relaxed);
    let ended = space.exit(memory);
    assert!(matches!(ended, Ok(_) | Err(ExitError::Ended)), "{ended:?}");
    assert_eq!(space.destroy(&host), Ok(()));
    assert_eq!(spaces.spare_batches(&host), spare, "every batch came back");
    times
}

/// Maps `pages` pages, with `batches` batches (memory for records of unmapped pages) set aside, and
/// unmaps them. Returns the number of steps in which they are freed.
fn unmapped(pages: u64, batches: u32) -> u32 {
    times(&Design::OURS, pages, batches, |memory, space| {
        let unmapped = space.unmap(memory, START, pages);
        unmapped.expect("no thread is killed");
    })
}

/// Maps `pages` pages, with `batches` batches (memory for records of unmapped pages) set aside, and
/// ends the address space. Returns the number of steps in which its pages and tables are freed. The
/// last step frees the upper table.
fn exited(pages: u64, batches: u32) -> u32 {
    times(&Design::OURS, pages, batches, |memory, space| {
        space.exit(memory).expect("no thread ended it before");
    })
}

/// Maps `pages` pages, with `batches` batches (memory for records of unmapped pages) set aside.
/// Ends the address space in a design in which no other thread can help. Returns the number of
/// steps in which its pages, and then all its page tables together, are freed.
fn exited_alone(pages: u64, batches: u32) -> u32 {
    let design = Design {
        reaping: Reaping::Ascending,
        ..Design::OURS
    };
    times(&design, pages, batches, |memory, space| {
        space.exit(memory).expect("no thread ended it before");
    })
}

/// Maps `pages` pages, with `batches` batches (memory for records of unmapped pages) set aside, and
/// moves them to swap. Returns the number of steps in which they are freed.
fn swapped_out(pages: u64, batches: u32) -> u32 {
    times(&Design::OURS, pages, batches, |memory, space| {
        let went = space.swap_out(memory, START..Vpn(START.0 + pages));
        assert_eq!(went, pages);
    })
}

/// Maps `pages` pages, with `batches` batches (memory for records of unmapped pages) set aside, and
/// reaps them as the OOM reaper does. Returns the number of steps in which they are freed.
fn reaped(reaping: Reaping, pages: u64, batches: u32) -> u32 {
    let design = Design {
        reaping,
        ..Design::OURS
    };
    times(&design, pages, batches, |memory, space| {
        assert_eq!(space.try_reap(memory), Reaped::All);
    })
}

/// Enough batches are set aside that every CPU can fill one gather (its collection of unmapped
/// pages) while an exit fills another gather.
#[test]
fn there_are_batches_for_each_cpu_and_for_the_dying() {
    for cpus in [1, 2, 64] {
        let host = Host::with_topology(Topology::flat(cpus));
        let _entered = host.enter(CpuId(0));
        let spaces = Spaces::new(&host, &Design::OURS, 0).expect("countable");
        assert_eq!(spaces.spare_batches(&host), 19 * (cpus as usize + 1));
    }
}

/// Batches of records for unmapped pages are set aside. A living process that moves pages to swap
/// must not take the last 19 of them: they are for dying processes.
#[test]
fn the_last_batches_are_not_for_swapping_out() {
    assert_eq!(swapped_out(1000, 19), 1000 / 8);
    assert_eq!(swapped_out(1000, 20), 2, "8 pages and 510, then the rest");
}

/// The last batch (memory for records of unmapped pages) is for helpers such as the OOM reaper,
/// because they free the memory of a dying process.
#[test]
fn the_last_batches_are_for_helpers() {
    for reaping in Reaping::ALL {
        assert_eq!(reaped(reaping, 1000, 1), 2, "{reaping:?}");
        assert_eq!(reaped(reaping, 1000, 19), 1, "{reaping:?}");
    }
}

#[test]
fn a_gather_without_batches_goes_on_with_its_own_records() {
    assert_eq!(unmapped(1000, 0), 1000 / 8);
    // The page tables are collected and freed together with the pages.
    assert_eq!(exited(1000, 0), (1000 + 3) / 8 + 1 + 1);
}

/// An unmapping must not take the last 19 batches of records that are set aside for unmapped pages.
/// A process that exits may take all of them.
#[test]
fn the_last_batches_are_for_the_dying() {
    assert_eq!(unmapped(1000, 19), 1000 / 8);
    assert_eq!(unmapped(1000, 20), 2, "8 pages and 510, then the rest");
    assert_eq!(exited(1000, 1), 2 + 1);
    assert_eq!(exited(1000, 19), 1 + 1);
}

/// When an address space ends, its page tables are collected for freeing like its pages. The
/// records of page tables may use the last batches that are set aside, too.
#[test]
fn the_last_batches_are_for_page_tables_of_the_dying() {
    // The pages need 11 page tables, and the gather (the collection of unmapped pages and tables)
    // itself has room for only 8 records. So the tables need a batch.
    assert_eq!(exited_alone(512 * 10, 19), 2, "the pages, then the tables");
}
