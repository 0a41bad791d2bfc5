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
    AddressSpace, Backing, Exited, Flag, MapRequest, Notified, Place, Refused,
};
use plimsoll_mm::units::{Nanos, Vpn};
use plimsoll_sim::Sim;
use support::{Lone, Small};

const PAGES: u32 = 1 << 17;
const MS: u64 = 1_000_000;

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

/// A listener (Linux: MMU notifier). The first task that notifies it sleeps for this number of
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

/// The duration of a run, and the total time that the threads which empty the address space waited
/// for locks of page tables.
struct Took {
    wall: Nanos,
    waited: Nanos,
}

/// Creates the address space of `victim`. The first task that notifies the listener of this address
/// space sleeps for the time `stall`.
fn build(design: &Design, victim: Victim, stall: Nanos) -> Rc<Lone> {
    let notify = |space: AddressSpace<Sim>| space.notifying(Stall(AtomicU64::new(stall.0)));
    let small = Small::flat(4, PAGES, *design);
    Lone::new(small, design, notify, move |memory, space| {
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
        assert_eq!(space.rss().precise(memory.machine, RssKind::Anon), pages);
    })
}

/// Runs the exit on CPU 0. At the same time, `helpers` tasks on other CPUs help to empty the
/// address space. Returns how long all these tasks took, and how long they waited for locks.
fn race(reaping: Reaping, victim: Victim, helpers: u32) -> Took {
    let design = Design {
        reaping,
        ..Design::OURS
    };
    let lone = build(&design, victim, Nanos(0));
    let started = lone.small.sim.stats().now.0 + MS;
    let done: Rc<Cell<u64>> = Rc::default();
    for cpu in 0..=helpers {
        let done = Rc::clone(&done);
        lone.after(cpu, MS, move |memory, space| {
            if cpu == 0 {
                space.exit(memory).expect("it was not ended before");
            } else {
                let reaped = space.try_reap(memory);
                assert!(
                    matches!(reaped, Reaped::All | Reaped::GaveWay),
                    "{reaped:?}"
                );
            }
            done.set(done.get().max(memory.machine.now().0));
        });
    }
    lone.small.sim.run();
    assert!(lone.space.has(&lone.small.sim, Flag::Ended));
    assert_eq!(lone.space.table_pages(&lone.small.sim), 0);
    let stats = lone.small.sim.stats();
    lone.ends();
    let waited = |class: LockClass| {
        stats.locks[class as usize]
            .iter()
            .map(|lock| lock.wait_total.0)
            .sum::<u64>()
    };
    Took {
        wall: Nanos(done.get() - started),
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
    let lone = build(&Design::OURS, ONE, Nanos::from_ms(500));
    lone.after(1, MS, |memory, space| {
        assert_eq!(space.try_reap(memory), Reaped::All);
        assert!(space.has(memory.machine, Flag::Ended), "it was the last");
    });
    // By this time the helper has claimed (reserved for itself) a tenth of all page tables. It is
    // still delayed, and has not yet emptied the first of these tables.
    lone.after(0, 2 * MS, |memory, space| {
        let exited = space.exit(memory);
        assert_eq!(exited, Ok(Exited::LeftToHelpers));
    });
    lone.after(2, 400 * MS, |memory, space| {
        let left = space.rss().precise(memory.machine, RssKind::Anon);
        assert!((1..=512).contains(&left), "{left} pages are left");
    });
    lone.small.sim.run();
    lone.ends();
}
