//! Several CPUs empty one address space. No page is lost or freed twice; the tests also check which
//! CPUs wait for each other.

use crate::support;

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_mm::design::Design;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::LockClass;
use plimsoll_mm::space::reap::{Reaped, Reaping};
use plimsoll_mm::space::rss::RssKind;
use plimsoll_mm::space::{
    AddressSpace, Backing, Exited, Flag, MapRequest, Memory, Notified, Place, Refused, Spaces,
};
use plimsoll_mm::units::{CpuId, Nanos, Vpn};
use plimsoll_mm::vmstat::counters::{NodeItem, ZoneItem};
use plimsoll_sim::Sim;
use support::Small;

const PAGES: u32 = 1 << 17;

/// The mappings of a victim. All mappings have the same size (`pages`), and the gaps between them
/// are also of one size (`gap`), both in pages.
#[derive(Clone, Copy)]
struct Victim {
    mappings: u64,
    pages: u64,
    gap: u64,
    huge: bool,
}

const MANY: Victim = Victim {
    mappings: 400,
    pages: 100,
    gap: 7,
    huge: false,
};

const ONE: Victim = Victim {
    mappings: 1,
    pages: 40_000,
    gap: 0,
    huge: false,
};

/// A listener that delays the first helper that notifies it of a range. The value is the delay in
/// nanoseconds.
struct Stall(AtomicU64);

impl Notified<Sim> for Stall {
    fn start(&self, sim: &Sim, _: &Range<Vpn>, _: bool) -> Result<(), Refused> {
        let stall = self.0.swap(0, Relaxed);
        if stall > 0 {
            sim.sleep_until(Nanos(sim.now().0 + stall));
        }
        Ok(())
    }

    fn end(&self, _: &Sim, _: &Range<Vpn>) {}

    fn release(&self, _: &Sim) {}
}

/// The duration of a run, and the total time that the walkers waited for locks of page tables.
struct Took {
    wall: Nanos,
    waited: Nanos,
}

fn build(small: &Small, spaces: &Rc<Spaces<Sim>>, victim: Victim) -> Rc<AddressSpace<Sim>> {
    build_told(small, spaces, victim, Nanos(0))
}

/// Creates an address space as [`build`] does. The first helper that is about to empty a range of
/// the address space is delayed by `stall`.
fn build_told(
    small: &Small,
    spaces: &Rc<Spaces<Sim>>,
    victim: Victim,
    stall: Nanos,
) -> Rc<AddressSpace<Sim>> {
    let made: Rc<Cell<Option<AddressSpace<Sim>>>> = Rc::default();
    let out = Rc::clone(&made);
    let spaces = Rc::clone(spaces);
    small.on(0, move |sim, mm| {
        let memory = Memory::new(sim, mm, &spaces);
        let space = AddressSpace::new(memory).expect("there is memory");
        let space = space.notifying(Stall(AtomicU64::new(stall.0)));
        for number in 0..victim.mappings {
            let start = Vpn(1000 + number * (victim.pages + victim.gap));
            let request = MapRequest {
                place: Place::Fixed(start),
                pages: victim.pages,
                backing: Backing::Anonymous { huge: victim.huge },
            };
            let vma = space.map(memory, request).expect("nothing is there");
            space
                .populate(memory, start..Vpn(start.0 + victim.pages))
                .expect("there is memory");
            assert!(vma.contains(start));
        }
        let pages = victim.mappings * victim.pages;
        assert_eq!(space.rss().precise(sim, RssKind::Anon), pages);
        out.set(Some(space));
    });
    Rc::new(made.take().expect("it was made"))
}

/// Runs the exit on CPU 0 and `helpers` helpers on other CPUs, all at the same time.
fn race(reaping: Reaping, victim: Victim, helpers: u32) -> Took {
    let design = Design {
        reaping,
        ..Design::OURS
    };
    let small = Small::flat(4, PAGES, design);
    let spaces = Rc::new(Spaces::new(&small.sim, &design, 0).expect("countable"));
    let space = build(&small, &spaces, victim);
    let started = small.sim.stats().now;
    let done: Rc<Cell<u64>> = Rc::default();
    for cpu in 0..=helpers {
        let (mm, spaces) = (Rc::clone(&small.mm), Rc::clone(&spaces));
        let (space, done) = (Rc::clone(&space), Rc::clone(&done));
        small.sim.spawn(CpuId(cpu), move |sim| {
            sim.sleep_until(Nanos(started.0 + 1_000_000));
            let memory = Memory::new(sim, &mm, &spaces);
            if cpu == 0 {
                space.exit(memory).expect("it was not ended before");
            } else {
                let reaped = space.try_reap(memory);
                assert!(
                    matches!(reaped, Reaped::All | Reaped::GaveWay),
                    "{reaped:?}"
                );
            }
            done.set(done.get().max(sim.now().0));
        });
    }
    small.sim.run();
    assert!(space.has(&small.sim, Flag::Ended));
    assert_eq!(space.table_pages(&small.sim), 0);
    assert_eq!(spaces.lru().total(&small.sim), 0);
    let space = Rc::into_inner(space).expect("no task uses it");
    assert_eq!(space.destroy(&small.sim), Ok(()));
    assert_eq!(
        small.mm.counted_on_nodes(&small.sim, NodeItem::PageTables),
        0
    );
    assert_eq!(
        small.mm.counted_on_nodes(&small.sim, NodeItem::AnonMapped),
        0
    );
    let counted = |item| small.mm.pages().counted(&small.sim, item);
    let listed: u32 = (0..4)
        .map(|cpu| small.mm.pages().listed(&small.sim, CpuId(cpu)).0)
        .sum();
    let managed = u64::from(small.zone().managed.0);
    assert_eq!(counted(ZoneItem::FreePages) + u64::from(listed), managed);
    assert_eq!(counted(ZoneItem::Anon), 0);
    let stats = small.sim.stats();
    let waited = |class: LockClass| {
        stats.locks[class as usize]
            .iter()
            .map(|lock| lock.wait_total.0)
            .sum::<u64>()
    };
    Took {
        wall: Nanos(done.get() - started.0 - 1_000_000),
        waited: Nanos(waited(LockClass::PageTable) + waited(LockClass::UpperTable)),
    }
}

#[test]
fn who_meets_in_the_middle_waits_for_no_table_and_is_done_first() {
    let huge = Victim { huge: true, ..ONE };
    for (name, victim) in [("many", MANY), ("one", ONE), ("huge", huge)] {
        for helpers in [1, 3] {
            let [ascending, by_vma, _chunks, ours] =
                Reaping::ALL.map(|reaping| race(reaping, victim, helpers));
            assert!(ascending.waited.0 > 0, "{name}, {helpers}: no helper raced");
            assert_eq!(ours.waited, Nanos(0), "{name}, {helpers}");
            for others in [ascending, by_vma] {
                assert!(ours.wall < others.wall, "{name}, {helpers}");
            }
        }
    }
}

#[test]
fn a_lone_exit_waits_for_nobody_in_any_way() {
    for reaping in Reaping::ALL {
        assert_eq!(
            race(reaping, MANY, 0).waited,
            Nanos(0),
            "{}",
            reaping.name()
        );
    }
}

#[test]
fn a_helper_that_stalls_keeps_one_table_and_the_last_user_does_the_rest() {
    let design = Design::OURS;
    let small = Small::flat(4, PAGES, design);
    let spaces = Rc::new(Spaces::new(&small.sim, &design, 0).expect("countable"));
    let stall = Nanos::from_ms(500);
    let space = build_told(&small, &spaces, ONE, stall);
    let started = small.sim.stats().now;
    let start = |cpu, after_ms: u64, work: fn(&AddressSpace<Sim>, Memory<'_, Sim>)| {
        let (mm, spaces, space) = (Rc::clone(&small.mm), Rc::clone(&spaces), Rc::clone(&space));
        small.sim.spawn(CpuId(cpu), move |sim| {
            sim.sleep_until(Nanos(started.0 + after_ms * 1_000_000));
            work(&space, Memory::new(sim, &mm, &spaces));
        });
    };
    start(1, 1, |space, memory| {
        assert_eq!(space.try_reap(memory), Reaped::All);
        assert!(space.has(memory.machine, Flag::Ended), "it was the last");
    });
    // By this time the helper has claimed a tenth of all page tables, and is delayed before it
    // empties the first of them.
    start(0, 2, |space, memory| {
        let exited = space.exit(memory);
        assert_eq!(exited, Ok(Exited::LeftToHelpers));
    });
    start(2, 400, |space, memory| {
        let left = space.rss().precise(memory.machine, RssKind::Anon);
        assert!((1..=512).contains(&left), "{left} pages are left");
    });
    small.sim.run();
    let space = Rc::into_inner(space).expect("no task uses it");
    assert_eq!(space.destroy(&small.sim), Ok(()));
}
