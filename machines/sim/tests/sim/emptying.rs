//! Details of emptying an address space: when translations are flushed, what happens to page tables
//! that a listener did not let a helper empty, and when a helper gives way.

use crate::support;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_mm::design::Design;
use plimsoll_mm::event::{Event, Phase};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::site::Work;
use plimsoll_mm::space::reap::Reaped;
use plimsoll_mm::space::rss::RssKind;
use plimsoll_mm::space::{
    AddressSpace, Backing, Flag, MapError, MapRequest, Memory, Notified, Place, Refused, Spaces,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Nanos, Pages, Vpn};
use plimsoll_sim::Sim;
use support::Small;
use support::small::profile;

const US: u64 = 1000;
const MS: u64 = 1_000_000;
/// The page at which the memory of the address space begins. It is also the first page of a table.
const START: Vpn = Vpn(1024);
/// The number of pages in a table.
const TABLE: u64 = 512;

/// A machine with an address space whose pages are all present.
struct Scene {
    small: Small,
    spaces: Rc<Spaces<Sim>>,
    space: Rc<AddressSpace<Sim>>,
}

impl Scene {
    /// Creates an address space of `pages` pages, on a machine where a flush of translations takes
    /// `flush_ns` nanoseconds.
    fn new(pages: u64, flush_ns: u32, notified: Option<Choosy>) -> Self {
        Self::of(anonymous(START, pages), flush_ns, None, notified)
    }

    /// Does what [`Scene::new`] does, for any mapping. Sets aside `batches` batches for gathers, if
    /// that is given.
    fn of(
        mapping: MapRequest<Sim>,
        flush_ns: u32,
        batches: Option<u32>,
        notified: Option<Choosy>,
    ) -> Self {
        let mut profile = profile(Topology::flat(4), 1000);
        profile.costs.work_ns[Work::TlbFlush as usize] = flush_ns;
        let mut config = Config::new(Layout::arena(Pages(1 << 16)));
        config.design = Design::OURS;
        let small = Small::new(&profile, config);
        let mut spaces = Spaces::new(&small.sim, &Design::OURS, 0).expect("countable");
        if let Some(batches) = batches {
            let few = spaces.with_batches(&small.sim, batches);
            spaces = few.expect("there is memory");
        }
        let spaces = Rc::new(spaces);
        let made: Rc<Cell<Option<AddressSpace<Sim>>>> = Rc::default();
        let (out, shared) = (Rc::clone(&made), Rc::clone(&spaces));
        small.on(0, move |sim, mm| {
            let memory = Memory::new(sim, mm, &shared);
            let mut space = AddressSpace::new(memory).expect("there is memory");
            if let Some(notified) = notified {
                space = space.notifying(notified);
            }
            let pages = mapping.pages;
            space.map(memory, mapping).expect("free");
            let filled = space.populate(memory, START..Vpn(START.0 + pages));
            filled.expect("there is memory");
            out.set(Some(space));
        });
        let space = Rc::new(made.take().expect("it was made"));
        Self {
            small,
            spaces,
            space,
        }
    }

    /// Starts `work` on a CPU, `delay` nanoseconds from now.
    fn after(
        &self,
        cpu: u32,
        delay: u64,
        work: impl FnOnce(Memory<'_, Sim>, &AddressSpace<Sim>) + 'static,
    ) {
        let at = Nanos(self.small.sim.stats().now.0 + delay);
        let (mm, spaces) = (Rc::clone(&self.small.mm), Rc::clone(&self.spaces));
        let space = Rc::clone(&self.space);
        self.small.sim.spawn(CpuId(cpu), move |sim| {
            sim.sleep_until(at);
            work(Memory::new(sim, &mm, &spaces), &space);
        });
    }

    fn ends(self) {
        let space = Rc::clone(&self.space);
        self.after(0, 1, move |memory, _| {
            space.exit(memory).expect("it was not ended before");
        });
        self.small.sim.run();
        let space = Rc::into_inner(self.space).expect("no task uses it");
        assert_eq!(space.destroy(&self.small.sim), Ok(()));
    }
}

fn anonymous(start: Vpn, pages: u64) -> MapRequest<Sim> {
    MapRequest::anonymous(Place::Fixed(start), pages)
}

/// A listener that holds translations to the pages of every second page table. If the caller may
/// not wait, the listener refuses to drop them. The value is the number of times that it will still
/// refuse.
struct Choosy(AtomicU32);

impl Notified<Sim> for Choosy {
    fn start(&self, _: &Sim, pages: &Range<Vpn>, may_wait: bool) -> Result<(), Refused> {
        if may_wait || (pages.start.0 / TABLE).is_multiple_of(2) || self.0.load(Relaxed) == 0 {
            return Ok(());
        }
        self.0.fetch_sub(1, Relaxed);
        Err(Refused)
    }

    fn end(&self, _: &Sim, _: &Range<Vpn>) {}

    fn release(&self, _: &Sim) {}
}

/// Unmaps the `pages` pages of `scene`, where flushing takes long, while three CPUs look at its
/// tables. The gather must be full after every `each` pages, and the last flush must be for the
/// rest. Asserts that no CPU gets into the table that filled the gather before the flush has ended.
fn no_cpu_looks_before_the_flush(scene: Scene, pages: u64, each: u64) {
    let flushes: Rc<RefCell<Vec<Range<u64>>>> = Rc::default();
    let notes = Rc::clone(&flushes);
    scene.small.sim.observe(move |_, _, now, event| {
        let mut flushes = notes.borrow_mut();
        match *event {
            Event::Begin(Phase::Flush) => flushes.push(now.0..u64::MAX),
            Event::End(Phase::Flush) => flushes.last_mut().expect("it began").end = now.0,
            _ => {}
        }
    });
    // For each access: its table, and the times at which it began and ended. An access waits for
    // the lock of the table.
    let looks: Rc<RefCell<Vec<(u64, u64, u64)>>> = Rc::default();
    for cpu in 1..4 {
        let out = Rc::clone(&looks);
        scene.after(cpu, MS, move |memory, space| {
            let sim = memory.machine;
            while space.frame_of(sim, Vpn(START.0 + pages - 1)).is_some() {
                for table in (START.0 / TABLE..).take((pages / TABLE) as usize) {
                    let began = sim.now().0;
                    space.frame_of(sim, Vpn(table * TABLE));
                    out.borrow_mut().push((table, began, sim.now().0));
                }
            }
        });
    }
    scene.after(0, MS, move |memory, space| {
        space.unmap(memory, START, pages).expect("not killed");
    });
    scene.small.sim.run();
    let flushes = flushes.take();
    // The last flush happens at the end. Each of the others happens because the gather is full.
    let full = (pages - 1) / each;
    assert_eq!(flushes.len() as u64, full + 1, "{flushes:?}");
    for (nth, flush) in (1..=full).zip(&flushes) {
        let last = START.0 + nth * each - 1;
        let inside = looks
            .borrow()
            .iter()
            .filter(|&&(table, began, ended)| {
                table == last / TABLE && began < flush.end && flush.start < ended
            })
            .copied()
            .collect::<Vec<_>>();
        assert!(!inside.is_empty(), "no CPU looked at the table of {last}");
        let before = inside.iter().find(|look| look.2 < flush.end);
        assert_eq!(before, None, "{flush:?}");
    }
    scene.ends();
}

/// If the gather is full, translations are flushed before the table's lock is released. So a CPU
/// that acquires the lock and finds an empty entry knows that no stale translation to the page
/// exists.
#[test]
fn no_cpu_gets_into_a_table_between_its_emptying_and_the_flush_for_a_full_gather() {
    let pages = 20_000;
    let scene = Scene::new(pages, 200_000, None);
    no_cpu_looks_before_the_flush(scene, pages, 9698);
}

/// The same holds for the place of a huge page. The gather has no batches here, so it is full after
/// four huge pages: each comes with the table that was kept for splitting it.
#[test]
fn no_cpu_gets_to_the_place_of_a_huge_page_before_the_flush_for_a_full_gather() {
    let pages = 22 * TABLE;
    let mapping = MapRequest {
        place: Place::Fixed(START),
        pages,
        backing: Backing::Anonymous { huge: true },
    };
    let scene = Scene::of(mapping, 200_000, Some(0), None);
    no_cpu_looks_before_the_flush(scene, pages, 4 * TABLE);
}

/// A helper empties the tables that a listener refused to an earlier helper.
#[test]
fn tables_that_were_refused_are_emptied_by_the_next_helper() {
    let tables = 6;
    let refusals = Choosy(AtomicU32::new(3));
    let scene = Scene::new(tables * TABLE, 50, Some(refusals));
    scene.after(1, MS, |memory, space| {
        assert_eq!(space.try_reap(memory), Reaped::Partly);
        let left = space.rss().precise(memory.machine, RssKind::Anon);
        assert_eq!(left, 3 * TABLE, "three tables were refused");
        assert_eq!(space.try_reap(memory), Reaped::All);
        let left = space.rss().precise(memory.machine, RssKind::Anon);
        assert_eq!(left, 0, "all of it went");
    });
    scene.small.sim.run();
    scene.ends();
}

/// Runs a helper. While it runs, another CPU begins to wait, in order to map a page. If `skip` is
/// true, [`Flag::Skip`] is set after the helper has begun and before the other CPU waits. Returns
/// the result of the helper, and the number of pages that the helper did not free.
fn gives_way(skip: bool) -> (Reaped, u64) {
    let scene = Scene::new(100 * TABLE, 50, None);
    let done: Rc<Cell<Option<(Reaped, u64)>>> = Rc::default();
    let out = Rc::clone(&done);
    scene.after(1, MS, move |memory, space| {
        let reaped = space.try_reap(memory);
        let left = space.rss().precise(memory.machine, RssKind::Anon);
        out.set(Some((reaped, left)));
    });
    scene.after(2, MS + 20 * US, move |memory, space| {
        assert!(space.has(memory.machine, Flag::Unstable), "it has begun");
        if skip {
            space.raise(memory.machine, Flag::Skip);
        }
    });
    scene.after(3, MS + 40 * US, |memory, space| {
        let mapped = space.map(memory, anonymous(Vpn(16), 1));
        assert!(!matches!(mapped, Err(MapError::Killed)));
    });
    scene.small.sim.run();
    let done = done.get().expect("it has run");
    scene.ends();
    done
}

#[test]
fn a_helper_gives_way_only_if_another_one_will_come() {
    let (reaped, left) = gives_way(false);
    assert_eq!(reaped, Reaped::GaveWay);
    assert!(left > 50 * TABLE, "{left} pages are left");
    assert_eq!(gives_way(true), (Reaped::All, 0));
}
