//! Details of emptying an address space: when translations are flushed, and when a helper (a thread
//! other than the last user) stops so that a waiting CPU can continue. Another detail is what
//! happens to page tables that a helper could not empty because a listener (Linux: MMU notifier)
//! refused.

use crate::support;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_mm::design::Design;
use plimsoll_mm::event::{Event, Phase};
use plimsoll_mm::laws::cast;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::site::Work;
use plimsoll_mm::space::reap::Reaped;
use plimsoll_mm::space::rss::RssKind;
use plimsoll_mm::space::{
    AddressSpace, Backing, Flag, MapError, MapRequest, Memory, Notified, Place, Refused, Spaces,
};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{Pages, Vpn};
use plimsoll_sim::Sim;
use support::small::profile;
use support::{Lone, Small};

const US: u64 = 1000;
const MS: u64 = 1_000_000;
/// The page at which the memory of the address space begins. It is also the first page of a table.
const START: Vpn = Vpn(1024);
/// The number of pages that one page table maps.
const TABLE: u64 = 512;

/// Creates a machine where a flush of translations takes `flush_ns` nanoseconds.
fn machine(flush_ns: u32) -> Small {
    let mut profile = profile(Topology::flat(4), 1000);
    profile.costs.work_ns[Work::TlbFlush as usize] = flush_ns;
    let mut config = Config::new(Layout::arena(Pages(1 << 16)));
    config.design = Design::OURS;
    Small::new(&profile, config)
}

/// Creates an address space of `pages` present pages, on a machine where a flush of translations
/// takes `flush_ns` nanoseconds.
fn full(pages: u64, flush_ns: u32, notified: Option<Choosy>) -> Rc<Lone> {
    let small = machine(flush_ns);
    let notify = |space: AddressSpace<Sim>| match notified {
        Some(notified) => space.notifying(notified),
        None => space,
    };
    Lone::new(small, &Design::OURS, notify, move |memory, space| {
        cast::fill(memory, space, START, pages);
    })
}

/// A listener (Linux: MMU notifier) that holds translations to the pages of every second page
/// table. If the caller must not wait, the listener refuses to drop these translations. The value
/// is the number of times that the listener will still refuse.
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

/// Unmaps the `pages` pages of `lone`, on a machine on which a flush takes long. At the same time,
/// three other CPUs look at the page tables. Asserts that the gather, which collects unmapped
/// pages, is full after every `each` pages, and that the last flush is for the remaining pages.
/// Also asserts that no CPU takes the lock of the table whose pages filled the gather before the
/// flush has ended.
fn no_cpu_looks_before_the_flush(lone: Rc<Lone>, pages: u64, each: u64) {
    let flushes: Rc<RefCell<Vec<Range<u64>>>> = Rc::default();
    let notes = Rc::clone(&flushes);
    lone.small.sim.observe(move |_, _, now, event| {
        let mut flushes = notes.borrow_mut();
        match *event {
            Event::Begin(Phase::Flush) => flushes.push(now.0..u64::MAX),
            Event::End(Phase::Flush) => flushes.last_mut().expect("it began").end = now.0,
            _ => {}
        }
    });
    // Each entry stands for one access to a table. It has the number of the table, and the times at
    // which the access began and ended. An access waits for the lock of its table.
    let looks: Rc<RefCell<Vec<(u64, u64, u64)>>> = Rc::default();
    for cpu in 1..4 {
        let out = Rc::clone(&looks);
        lone.after(cpu, MS, move |memory, space| {
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
    lone.after(0, MS, move |memory, space| {
        space.unmap(memory, START, pages).expect("not killed");
    });
    lone.small.sim.run();
    let flushes = flushes.take();
    // The last flush happens at the end of the unmapping. Each of the other flushes happens because
    // the gather, which collects unmapped pages, is full.
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
    lone.ends();
}

/// If the gather, which collects unmapped pages, is full, translations are flushed before the
/// table's lock is released. So a CPU that acquires the lock and finds an empty entry knows that no
/// stale translation to the page exists.
#[test]
fn no_cpu_gets_into_a_table_between_its_emptying_and_the_flush_for_a_full_gather() {
    let pages = 20_000;
    let lone = full(pages, 200_000, None);
    no_cpu_looks_before_the_flush(lone, pages, 9698);
}

/// A gather, which collects unmapped pages, has room for 8 records in itself. Here it gets no
/// further memory. Four huge pages fill it, because each of them comes with the page table that was
/// kept for splitting it. Translations are then flushed before another CPU can get at the place of
/// the fourth huge page.
#[test]
fn no_cpu_gets_to_the_place_of_a_huge_page_before_the_flush_for_a_full_gather() {
    let pages = 22 * TABLE;
    let small = machine(200_000);
    let spaces = Spaces::new(&small.sim, &Design::OURS, 0).expect("countable");
    let spaces = spaces.with_batches(&small.sim, 0);
    let spaces = spaces.expect("there is memory");
    let fill = move |memory: Memory<'_, Sim>, space: &AddressSpace<Sim>| {
        let huge = MapRequest {
            place: Place::Fixed(START),
            pages,
            backing: Backing::Anonymous { huge: true },
        };
        space.map(memory, huge).expect("nothing is mapped there");
        let filled = space.populate(memory, START..Vpn(START.0 + pages));
        filled.expect("there is memory");
    };
    let lone = Lone::of(small, spaces, |space| space, fill);
    no_cpu_looks_before_the_flush(lone, pages, 4 * TABLE);
}

/// If a listener (Linux: MMU notifier) has not let one helping thread empty some page tables, the
/// next helper empties them.
#[test]
fn tables_that_were_refused_are_emptied_by_the_next_helper() {
    let tables = 6;
    let refusals = Choosy(AtomicU32::new(3));
    let lone = full(tables * TABLE, 50, Some(refusals));
    lone.after(1, MS, |memory, space| {
        assert_eq!(space.try_reap(memory), Reaped::Partly);
        let left = space.rss().precise(memory.machine, RssKind::Anon);
        assert_eq!(left, 3 * TABLE, "three tables were refused");
        assert_eq!(space.try_reap(memory), Reaped::All);
        let left = space.rss().precise(memory.machine, RssKind::Anon);
        assert_eq!(left, 0, "all of it went");
    });
    lone.small.sim.run();
    lone.ends();
}

/// Runs a helper (a thread that empties an address space that is not its own). While the helper
/// runs, another CPU begins to map a page and has to wait. If `skip` is true, [`Flag::Skip`] is set
/// after the helper has begun and before the other CPU waits. Returns the result of the helper, and
/// the number of pages that the helper did not free.
fn gives_way(skip: bool) -> (Reaped, u64) {
    let lone = full(100 * TABLE, 50, None);
    let done: Rc<Cell<Option<(Reaped, u64)>>> = Rc::default();
    let out = Rc::clone(&done);
    lone.after(1, MS, move |memory, space| {
        let reaped = space.try_reap(memory);
        let left = space.rss().precise(memory.machine, RssKind::Anon);
        out.set(Some((reaped, left)));
    });
    lone.after(2, MS + 20 * US, move |memory, space| {
        assert!(space.has(memory.machine, Flag::Unstable), "it has begun");
        if skip {
            space.raise(memory.machine, Flag::Skip);
        }
    });
    lone.after(3, MS + 40 * US, |memory, space| {
        let mapped = space.map(memory, MapRequest::anonymous(Place::Fixed(Vpn(16)), 1));
        assert!(!matches!(mapped, Err(MapError::Killed)));
    });
    lone.small.sim.run();
    let done = done.get().expect("it has run");
    lone.ends();
    done
}

#[test]
fn a_helper_gives_way_only_if_another_one_will_come() {
    let (reaped, left) = gives_way(false);
    assert_eq!(reaped, Reaped::GaveWay);
    assert!(left > 50 * TABLE, "{left} pages are left");
    assert_eq!(gives_way(true), (Reaped::All, 0));
}
