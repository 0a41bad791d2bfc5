//! The number of pages that an address space gathers before it frees them to the allocator.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::{Event, Phase};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::space::{AddressSpace, MapRequest, Memory, Place, Spaces};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Pages, Vpn};

/// The largest number of records in a gather: 8 in the gather itself, and 510 in each of 19
/// batches.
const GATHERED_MAX: u64 = 8 + 19 * 510;

/// Returns in how many steps the gathered pages are freed when a mapping of `pages` pages is
/// unmapped.
fn times(pages: u64) -> u32 {
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
    let memory = Memory::new(&host, &mm, &spaces);
    let space = AddressSpace::new(memory).expect("there is memory");
    // The first and the last mapping keep the page tables that they share with the middle mapping.
    // Otherwise these page tables would be counted, too.
    for (start, pages) in [(512, 1), (513, pages), (513 + pages, 1)] {
        let request = MapRequest::anonymous(Place::Fixed(Vpn(start)), pages);
        space.map(memory, request).expect("nothing is mapped there");
    }
    let filled = space.populate(memory, Vpn(513)..Vpn(513 + pages));
    filled.expect("there is memory");
    times.store(0, Relaxed);
    let unmapped = space.unmap(memory, Vpn(513), pages);
    unmapped.expect("no thread is killed");
    let times = times.load(Relaxed);
    space.exit(memory).expect("no thread ended it before");
    assert_eq!(space.destroy(&host), Ok(()));
    times
}

#[test]
fn no_more_go_together_than_nineteen_batches_hold() {
    assert_eq!(times(7), 1);
    assert_eq!(times(GATHERED_MAX / 2), 1);
    assert_eq!(times(GATHERED_MAX + 2000), 2);
    assert_eq!(times(2 * GATHERED_MAX + 2000), 3);
}
