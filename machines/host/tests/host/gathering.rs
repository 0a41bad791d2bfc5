//! Tests how many unmapped pages an address space gathers before it frees them to the allocator.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::{Event, Phase};
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{Config, Layout, Request};
use plimsoll_mm::space::{AddressSpace, Backing, MapRequest, Memory, Place, Spaces};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn, Vpn};

/// The largest number of records in a gather, which collects unmapped pages until they are freed: 8
/// records in the gather itself, and 510 in each of 19 batches.
const GATHERED_MAX: u64 = 8 + 19 * 510;

/// The steps and the memory that an unmapping takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Steps {
    /// The number of steps in which the unmapped pages are freed.
    times: u32,
    /// The number of pages allocated for batches. A batch is memory for records of unmapped pages.
    batches: u32,
}

/// The free memory that is left while pages are unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Plenty,
    /// Too little memory is free for a request that must not wait.
    Nothing,
}

/// Maps `pages` pages, as huge pages if `huge` is true, touches them, and unmaps them. Returns how
/// many steps the unmapping takes, and how many pages it allocates to hold batches of records of
/// unmapped pages.
fn unmap(pages: u64, huge: bool, left: Left) -> Steps {
    let counts = Arc::new([const { AtomicU32::new(0) }; 3]);
    let count = Arc::clone(&counts);
    let host = Host::with_observer(Topology::flat(1), move |_, _, event| match event {
        Event::Begin(Phase::FreePages) => {
            count[0].fetch_add(1, Relaxed);
        }
        Event::PageAlloc { .. } => {
            count[1].fetch_add(1, Relaxed);
        }
        Event::Begin(Phase::Flush) => {
            count[2].fetch_add(1, Relaxed);
        }
        _ => {}
    });
    let _entered = host.enter(CpuId(0));
    let mm = Manager::new(&host, Config::new(Layout::arena(Pages(1 << 15))));
    let mm = mm.expect("an arena is a layout");
    let spaces = Spaces::new(&host, &Design::OURS, 0).expect("countable");
    let memory = Memory::new(&host, &mm, &spaces);
    let space = AddressSpace::new(memory).expect("there is memory");
    // The first and the last of these mappings share page tables with the middle one. So unmapping
    // the middle one does not free these tables. The counts would include the freed tables.
    let start = if huge { 512 } else { 513 };
    for (start, pages, huge) in [
        (start - 1, 1, false),
        (start, pages, huge),
        (start + pages, 1, false),
    ] {
        let request = MapRequest {
            place: Place::Fixed(Vpn(start)),
            pages,
            backing: Backing::Anonymous { huge },
        };
        space.map(memory, request).expect("nothing is mapped there");
    }
    let filled = space.populate(memory, Vpn(start)..Vpn(start + pages));
    filled.expect("there is memory");
    let at_once = Request::new(Order::ZERO).urgent(Urgency::NoWait);
    let take = || mm.pages().alloc(&host, at_once).ok();
    let others: Vec<Pfn> = match left {
        Left::Plenty => Vec::new(),
        Left::Nothing => std::iter::from_fn(take).collect(),
    };
    counts.iter().for_each(|count| count.store(0, Relaxed));
    let spare = spaces.spare_batches(&host);
    let unmapped = space.unmap(memory, Vpn(start), pages);
    unmapped.expect("no thread is killed");
    // To grow, a gather (the collection of unmapped pages) takes one of the batches that are set
    // aside, and then allocates a page for this batch. If there was no page, the gather must have
    // returned the batch.
    assert_eq!(spaces.spare_batches(&host), spare, "every batch came back");
    let [times, batches, flushes] = [0, 1, 2].map(|nth: usize| counts[nth].load(Relaxed));
    assert_eq!(
        flushes, times,
        "translations are flushed once for each step"
    );
    mm.pages()
        .free_pages(&host, &others)
        .expect("all were handed out");
    space.exit(memory).expect("no thread ended it before");
    assert_eq!(space.destroy(&host), Ok(()));
    Steps { times, batches }
}

#[test]
fn no_more_go_together_than_nineteen_batches_hold() {
    let times = |pages| unmap(pages, false, Left::Plenty).times;
    assert_eq!(times(7), 1);
    assert_eq!(times(GATHERED_MAX / 2), 1);
    assert_eq!(times(GATHERED_MAX + 2000), 2);
    assert_eq!(times(2 * GATHERED_MAX + 2000), 3);
}

#[test]
fn a_batch_is_added_when_there_is_no_room_for_another_page() {
    for (pages, batches) in [
        (1, 0),
        (7, 0),
        (8, 1),
        (9, 1),
        (8 + 509, 1),
        (8 + 510, 2),
        // The mapping fills a whole page table. This table is freed too, and needs a record. So the
        // batches of records are full with one page less.
        (8 + 2 * 510 - 2, 2),
        (8 + 2 * 510 - 1, 3),
    ] {
        let steps = unmap(pages, false, Left::Plenty);
        assert_eq!(steps, Steps { times: 1, batches }, "{pages} pages");
    }
}

#[test]
fn without_memory_for_a_batch_eight_go_together() {
    for (pages, times) in [(1, 1), (7, 1), (8, 1), (9, 2), (15, 2)] {
        let steps = unmap(pages, false, Left::Nothing);
        assert_eq!(steps, Steps { times, batches: 0 }, "{pages} pages");
    }
    // The first pages that are freed go to a page list of this CPU. Then the gather (the collection
    // of unmapped pages) allocates one of them to hold a batch of records.
    let steps = unmap(100, false, Left::Nothing);
    assert_eq!(
        steps,
        Steps {
            times: 2,
            batches: 1
        }
    );
}

/// Each huge page takes two records of a gather, the collection of unmapped pages: one for itself,
/// and one for the page table that was kept for splitting it.
#[test]
fn huge_pages_go_together_with_their_tables() {
    for (huge, batches) in [(1, 0), (2, 0), (3, 0), (4, 1), (20, 1)] {
        let steps = unmap(512 * huge, true, Left::Plenty);
        assert_eq!(steps, Steps { times: 1, batches }, "{huge} huge pages");
    }
    let steps = unmap(512 * 5, true, Left::Nothing);
    assert_eq!(steps.times, 2, "four of them, then one");
}
