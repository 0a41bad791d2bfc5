//! Tests what happens to the rest of a spill (a transfer of pages from a CPU's lists to the zone)
//! if the thread migrates between two holds of the zone lock.
//!
//! The observer is told of each hold while the page lists are still locked. After the first hold of
//! a spill, the observer makes the thread enter another CPU, as if the thread were preempted
//! between the two holds.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use plimsoll_host::Host;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::Event;
use plimsoll_mm::page::holds::{Batched, Bounded, Holds};
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{Config, Layout, PageAllocator, Request};
use plimsoll_mm::site::Site;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, Order, Pages, Pfn};

const OWNER: CpuId = CpuId(0);
const ELSEWHERE: CpuId = CpuId(1);
/// The number of pages of the arena. This number results in a batch of 63 pages and, with
/// [`FRACTION`], lists of at most 655 pages.
const PAGES: Pages = Pages(1 << 18);
const FRACTION: u64 = 200;

/// The holds of the zone lock in which spills moved pages from page lists to the zone. For each
/// hold: the CPU whose lists spilled, and the number of pages moved.
type Spills = Arc<Mutex<Vec<(CpuId, u32)>>>;

struct Owing {
    host: Host,
    pages: PageAllocator<Host>,
    /// True if the thread must migrate after the next hold of the zone lock in a spill.
    migrates: Arc<AtomicBool>,
    spills: Spills,
    held: Vec<Pfn>,
}

impl Owing {
    fn new(holds: &'static dyn Holds) -> Self {
        let (migrates, spills) = (Arc::new(AtomicBool::new(false)), Spills::default());
        let known: Arc<OnceLock<Host>> = Arc::default();
        let (armed, seen, machine) = (
            Arc::clone(&migrates),
            Arc::clone(&spills),
            Arc::clone(&known),
        );
        let host = Host::with_observer(Topology::flat(2), move |_, _, event| {
            let Event::ZoneHold {
                site: Site::Spill,
                cpu,
                pages,
                ..
            } = event
            else {
                return;
            };
            seen.lock().expect("no test panicked").push((cpu, pages.0));
            if armed.swap(false, Relaxed) {
                let host = machine.get().expect("it was made before anything is freed");
                // The thread stays on CPU `ELSEWHERE` until the test enters another CPU.
                mem::forget(host.enter(ELSEWHERE));
            }
        });
        known.set(host.clone()).expect("set once");
        let mut config = Config::new(Layout::arena(PAGES));
        config.design = Design {
            holds,
            ..Design::OURS
        };
        let fixed = config.tunables.set(Knob::HighFraction, FRACTION);
        fixed.expect("in bounds");
        mem::forget(host.enter(OWNER));
        let pages = PageAllocator::new(&host, config).expect("an arena is a layout");
        let request = Request::new(Order::ZERO).urgent(Urgency::Reserve);
        let take = |_| pages.alloc(&host, request).expect("there is a page");
        let held = (0..3000).map(take).collect();
        pages.drain_all_sync(&host);
        Self {
            host,
            pages,
            migrates,
            spills,
            held,
        }
    }

    /// Frees single pages onto the owner's lists, alternately from the middle and the end of
    /// `held`, until the lists spill (pages move to the zone). Returns the number of pages on the
    /// lists after the spill.
    fn spill(&mut self) -> u32 {
        mem::forget(self.host.enter(OWNER));
        self.spills.lock().expect("no test panicked").clear();
        while self.spilled() == 0 {
            let at = self.held.len() / 2;
            self.free(at);
        }
        self.listed()
    }

    fn free(&mut self, at: usize) {
        let pfn = self.held.swap_remove(at);
        let freed = self.pages.free(&self.host, pfn, Order::ZERO);
        freed.expect("it was handed out");
    }

    /// Frees pages until the lists spill (pages move to the zone). Makes the thread migrate after
    /// the first hold of the zone lock in this spill. Returns the number of pages that are still on
    /// the lists.
    fn spill_interrupted(&mut self) -> u32 {
        self.migrates.store(true, Relaxed);
        self.spill()
    }

    fn spilled(&self) -> u32 {
        let spills = self.spills.lock().expect("no test panicked");
        spills.iter().map(|(_, pages)| pages).sum()
    }

    fn listed(&self) -> u32 {
        self.pages.listed(&self.host, OWNER).0
    }

    fn decay(&self) -> u32 {
        let decayed = self.pages.decay_lists(&self.host, 0, OWNER);
        decayed.expect("there is a zone").0
    }
}

/// Returns the number of pages on the page lists of CPU `OWNER` after a spill (a transfer of pages
/// to the zone) that was not interrupted.
fn calm(holds: &'static dyn Holds) -> u32 {
    let mut owing = Owing::new(holds);
    let listed = owing.spill();
    assert_eq!(owing.decay(), 0, "it gave back all that was too much");
    listed
}

#[test]
fn a_spill_does_not_go_on_with_lists_of_a_cpu_that_it_has_left() {
    for holds in [&Bounded as &'static dyn Holds, &Batched] {
        let mut owing = Owing::new(holds);
        owing.spill_interrupted();
        let spills = owing.spills.lock().expect("no test panicked").clone();
        let [(OWNER, pages)] = spills[..] else {
            panic!("{holds:?}: one hold before the migration, none after it: {spills:?}");
        };
        assert!(pages <= 63, "one batch");
    }
}

#[test]
fn the_next_decay_gives_back_what_an_interrupted_spill_owes() {
    let calm = calm(&Bounded);
    let mut owing = Owing::new(&Bounded);
    let left = owing.spill_interrupted();
    assert!(left > calm + 63, "several batches are owed: {left}, {calm}");
    assert_eq!(owing.decay(), left - calm);
    assert_eq!(owing.listed(), calm, "as if nothing had come in between");
    assert_eq!(owing.decay(), 0, "once");
}

#[test]
fn the_next_spill_gives_back_what_an_interrupted_one_owes() {
    let calm = calm(&Bounded);
    let mut owing = Owing::new(&Bounded);
    let left = owing.spill_interrupted();
    let after = owing.spill();
    // A spill (a transfer of pages to the zone) that was not interrupted leaves `calm` pages on the
    // lists. The interrupted spill has left more pages. The next spill must return this excess in
    // addition, or all pages if the lists have fewer.
    assert_eq!(after, calm.saturating_sub(left - calm), "{calm} without it");
    assert!(after < calm);
    assert_eq!(owing.decay(), 0, "once");
}

#[test]
fn a_drain_settles_what_an_interrupted_spill_owes() {
    let mut owing = Owing::new(&Bounded);
    let left = owing.spill_interrupted();
    assert_eq!(owing.pages.drain_cpu(&owing.host, OWNER), Pages(left));
    mem::forget(owing.host.enter(OWNER));
    (0..200).for_each(|_| owing.free(0));
    assert_eq!(owing.decay(), 0, "later pages are not owed");
    assert_eq!(owing.listed(), 200);
}

#[test]
fn a_drain_settles_more_than_it_finds() {
    // After the spill, the owner allocates all pages on its lists except `kept` pages.
    for kept in [0, 10] {
        let mut owing = Owing::new(&Bounded);
        let left = owing.spill_interrupted();
        mem::forget(owing.host.enter(OWNER));
        let request = Request::new(Order::ZERO);
        for _ in kept..left {
            let page = owing.pages.alloc(&owing.host, request);
            owing.held.push(page.expect("it is on a list"));
        }
        assert_eq!(owing.listed(), kept);
        assert_eq!(owing.pages.drain_cpu(&owing.host, OWNER), Pages(kept));
        (0..200).for_each(|_| owing.free(0));
        assert_eq!(owing.decay(), 0, "later pages are not owed");
        assert_eq!(owing.listed(), 200);
    }
}

#[test]
fn linux_forgets_the_rest_of_an_interrupted_spill() {
    let mut owing = Owing::new(&Batched);
    let left = owing.spill_interrupted();
    assert!(left > calm(&Batched), "the rest is still there");
    assert_eq!((owing.decay(), owing.listed()), (0, left));
}
