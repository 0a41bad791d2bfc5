//! Tests of CPUs with nothing to do: on which of them the vmstat work becomes *dormant* (it stops),
//! and on which of them the shepherd, a job on one CPU, starts this work again. Also tests which
//! pages remain on the lists of an idle CPU.

use crate::support;

use std::rc::Rc;

use plimsoll_mm::design::{Design, SHEPHERDS};
use plimsoll_mm::event::Event;
use plimsoll_mm::machine::{Job, JobState, Machine};
use plimsoll_mm::site::Work;
use plimsoll_mm::units::{CpuId, Nanos, Order, Pages, Pfn};
use plimsoll_mm::vmstat::counters::ZoneItem;
use plimsoll_mm::vmstat::shepherd::{AtOnce, AtPhase};
use support::Small;
use support::small::any;

const CPU: CpuId = CpuId(1);

/// Creates a machine with 1 GiB and two CPUs. The shepherd, the job that restarts the vmstat work
/// of CPUs, is on CPU 0.
fn started(design: Design) -> Small {
    let small = Small::flat(2, 1 << 18, design);
    small.mm.start(&small.sim);
    small
}

/// Keeps `cpu` busy without changing any state of the memory manager.
fn spin(small: &Small, cpu: CpuId) {
    small.sim.spawn_daemon(cpu, |sim| {
        loop {
            sim.spend(Work::Think, 10_000_000);
        }
    });
}

fn run_for(small: &Small, seconds: u64) {
    let now = small.sim.now().0;
    small.sim.run_until(Nanos(now + seconds * Nanos::SECOND.0));
}

fn state(small: &Small) -> JobState {
    small.sim.job_state(CPU, Job::VmstatUpdate)
}

fn kicks(small: &Small) -> usize {
    let seen = small.seen.borrow();
    let kick = |event: &Event| *event == Event::Kick { cpu: CPU };
    seen.iter().filter(|(_, _, event)| kick(event)).count()
}

/// Leaves more pages on the lists of CPU 1 than the lower bound of their length (`high_min`), and
/// returns the number of these pages. Leaves nothing that CPU 1 has yet to add to shared counters.
fn hoard(small: &Small) -> Pages {
    small.on(0, |sim, mm| {
        let pages = mm.pages();
        let all: Vec<Pfn> = (0..6000)
            .map(|_| {
                pages
                    .alloc(sim, any(Order::ZERO))
                    .expect("there is a block")
            })
            .collect();
        sim.migrate(CPU);
        pages.free_pages(sim, &all).expect("all were handed out");
        // Each return of pages to the zone moves more pages than the threshold up to which a CPU
        // keeps an amount as its differential. So the CPU adds these pages to the shared counters
        // at once, and no differential is left.
        assert!(!mm.is_dirty(sim, CPU), "the hoard alone is to be seen");
    });
    let listed = small.mm.pages().listed(&small.sim, CPU);
    assert!(
        listed > small.zone().sizes.high_min,
        "{listed} pages are a hoard"
    );
    listed
}

#[test]
fn a_cpu_without_changes_goes_dormant_and_differentials_revive_it() {
    for shepherd in SHEPHERDS {
        let small = started(Design {
            shepherd,
            ..Design::OURS
        });
        spin(&small, CpuId(0));
        spin(&small, CPU);
        run_for(&small, 5);
        assert_eq!((state(&small), kicks(&small)), (JobState::Dormant, 0));
        assert_eq!(small.starts_of(CPU), []);
        for round in 1..=3 {
            small.on(1, |sim, mm| {
                mm.pages().count(sim, Pfn(0), ZoneItem::Anon, 1);
            });
            assert!(small.mm.is_dirty(&small.sim, CPU));
            run_for(&small, 6);
            assert!(
                !small.mm.is_dirty(&small.sim, CPU),
                "{shepherd:?} saw to it"
            );
            assert_eq!((state(&small), kicks(&small)), (JobState::Dormant, round));
            // In each round, one run of the vmstat work finds an amount to add to the shared
            // counters. The next run finds nothing, so the work stops.
            assert_eq!(small.starts_of(CPU).len(), 2 * round);
        }
    }
}

/// Plimsoll's shepherd, the job that restarts the vmstat work of CPUs, does not queue the vmstat
/// work of a CPU while this work is running. Linux queues the work again, so in Linux it runs twice
/// in a row.
#[test]
fn work_that_is_running_is_not_queued_again() {
    for shepherd in SHEPHERDS {
        let small = started(Design {
            shepherd,
            ..Design::OURS
        });
        spin(&small, CpuId(0));
        spin(&small, CPU);
        // The vmstat work takes longer here than the interval at which the shepherd looks at CPUs.
        // Only at the end does the work add the CPU's amounts to the shared counters.
        let mm = Rc::clone(&small.mm);
        small.sim.on_job(move |sim, job| {
            if job == Job::VmstatUpdate {
                sim.spend(Work::Think, 3_000_000_000);
            }
            mm.run(sim, job);
        });
        small.on(1, |sim, mm| {
            mm.pages().count(sim, Pfn(0), ZoneItem::Anon, 1);
        });
        let mut seen_running = 0;
        for _ in 0..20 {
            run_for(&small, 1);
            if state(&small) == JobState::Running && small.mm.is_dirty(&small.sim, CPU) {
                seen_running += 1;
            }
        }
        assert!(seen_running >= 2, "{shepherd:?} has come by meanwhile");
        assert_eq!(kicks(&small), 1, "{shepherd:?}");
    }
}

#[test]
fn a_dormant_idle_cpu_is_woken_for_its_differentials() {
    for shepherd in SHEPHERDS {
        let small = started(Design {
            shepherd,
            ..Design::OURS
        });
        spin(&small, CpuId(0));
        small.on(1, |sim, mm| {
            mm.pages().count(sim, Pfn(0), ZoneItem::Anon, 1);
        });
        assert!(
            small.mm.is_dirty(&small.sim, CPU),
            "its work is not pending: no quieting"
        );
        run_for(&small, 4);
        assert!(
            !small.mm.is_dirty(&small.sim, CPU),
            "{shepherd:?} saw to it"
        );
        assert_eq!(kicks(&small), 1);
    }
}

#[test]
fn a_shepherd_that_kicks_at_once_leaves_a_dormant_hoard_alone() {
    let small = started(Design {
        shepherd: &AtOnce,
        ..Design::OURS
    });
    spin(&small, CpuId(0));
    spin(&small, CPU);
    let hoarded = hoard(&small);
    run_for(&small, 30);
    assert_eq!(small.mm.pages().listed(&small.sim, CPU), hoarded);
    assert_eq!((kicks(&small), small.starts_of(CPU).len()), (0, 0));
}

#[test]
fn a_shepherd_that_kicks_at_phase_gets_a_dormant_hoard_back() {
    let small = started(Design {
        shepherd: &AtPhase,
        ..Design::OURS
    });
    spin(&small, CpuId(0));
    spin(&small, CPU);
    hoard(&small);
    run_for(&small, 30);
    let (kept, least) = (
        small.mm.pages().listed(&small.sim, CPU),
        small.zone().sizes.high_min,
    );
    assert_eq!(kept, least, "decay stops at high_min");
    assert_eq!(kicks(&small), 1, "once kicked it goes on by itself");
    assert_eq!(state(&small), JobState::Dormant);
}

#[test]
fn going_idle_folds_differentials_and_leaves_lists() {
    let small = started(Design::OURS);
    spin(&small, CpuId(0));
    hoard(&small);
    // The shepherd started the vmstat work of CPU 1 at 1.5 s, and the lists of CPU 1 have been
    // shortened once. The vmstat work of CPU 1 is pending until 2.5 s.
    small.sim.run_until(Nanos::from_ms(1700));
    assert_eq!(state(&small), JobState::Pending);
    let listed = small.mm.pages().listed(&small.sim, CPU);
    let (starts, spilled) = (small.starts_of(CPU), small.zone().free);
    small.on(1, |sim, mm| {
        mm.pages().count(sim, Pfn(0), ZoneItem::Anon, 1);
    });
    // After the task, the CPU runs its idle hook, which adds the amount that the CPU has counted to
    // the shared counters.
    small.sim.run_until(Nanos(small.sim.now().0 + 100_000));
    assert!(!small.mm.is_dirty(&small.sim, CPU), "idling folds");
    assert_eq!(small.mm.pages().listed(&small.sim, CPU), listed);
    assert_eq!(small.zone().free, spilled);
    assert_eq!(
        small.starts_of(CPU),
        starts,
        "it was not the work that did it"
    );
    assert_eq!(state(&small), JobState::Pending, "which is still to come");
}
