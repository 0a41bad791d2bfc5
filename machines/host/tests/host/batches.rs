//! The batches that are set aside for gathers: which gathers may take how many, and what happens if
//! none are left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::{Event, Phase};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::{AddressSpace, ExitError, MapRequest, Memory, Place, Spaces};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Pages, Vpn};

/// The page at which the mapping begins.
const START: Vpn = Vpn(513);

/// Returns in how many steps the gathered pages are freed when a mapping of `pages` pages goes as
/// `goes` says, with `batches` batches set aside.
fn times(
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
    let spaces = Spaces::new(&host, &Design::OURS, 0).expect("countable");
    let spaces = spaces.with_batches(&host, batches);
    let spaces = spaces.expect("there is memory");
    let spare = spaces.spare_batches(&host);
    let memory = Memory::new(&host, &mm, &spaces);
    let space = AddressSpace::new(memory).expect("there is memory");
    // The first and the last mapping keep the page tables that they share with the middle mapping.
    // Otherwise these page tables would be counted, too.
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

/// Returns in how many steps the pages are freed when the mapping is unmapped.
fn unmapped(pages: u64, batches: u32) -> u32 {
    times(pages, batches, |memory, space| {
        let unmapped = space.unmap(memory, START, pages);
        unmapped.expect("no thread is killed");
    })
}

/// Returns in how many steps the pages are freed when the address space ends. The last step is for
/// the upper page table.
fn exited(pages: u64, batches: u32) -> u32 {
    times(pages, batches, |memory, space| {
        space.exit(memory).expect("no thread ended it before");
    })
}

#[test]
fn a_gather_without_batches_goes_on_with_its_own_records() {
    assert_eq!(unmapped(1000, 0), 1000 / 8);
    // The tables are gathered, too.
    assert_eq!(exited(1000, 0), (1000 + 3) / 8 + 1 + 1);
}

/// An unmapping leaves 19 batches to processes that exit, which may take all of them.
#[test]
fn the_last_batches_are_for_the_dying() {
    assert_eq!(unmapped(1000, 19), 1000 / 8);
    assert_eq!(unmapped(1000, 20), 2, "8 pages and 510, then the rest");
    assert_eq!(exited(1000, 1), 2 + 1);
    assert_eq!(exited(1000, 19), 1 + 1);
}
