//! Tests waiters of the reader-writer lock that are killed while they wait, in virtual time.

use crate::common;

use std::cell::Cell;
use std::rc::Rc;

use common::rw_fixture::{Fixture, HANDOVER, OWN, TICK, TRANSFER, WAKE_UP};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::Work;
use plimsoll_mm::units::CpuId;

#[test]
fn a_killed_waiter_leaves_within_a_tick_and_those_behind_it_get_in() {
    let fixture = Fixture::new();
    let killed = Rc::new(Cell::new(false));
    fixture.reads(0, 10, 10_000);
    let flag = Rc::clone(&killed);
    fixture.at(1, 20, move |sim, fixture| {
        let outcome = fixture.write_unless(sim, 1, || flag.get());
        assert_eq!(outcome, None, "its closure does not run");
        let left = sim.now().0;
        assert!((3_500_000..3_500_000 + TICK + 10_000).contains(&left));
    });
    fixture.reads(2, 30, 1);
    fixture.at(3, 3500, move |_, _| killed.set(true));
    let stays = fixture.run();
    let order: Vec<_> = stays.iter().map(|stay| stay.who).collect();
    assert_eq!(order, [('r', 0), ('r', 2)]);
    assert!(stays[1].end < stays[0].end, "the reader joined the other");
    let stats = fixture.stats();
    assert_eq!((stats.acquisitions, stats.failed_tries), (2, 1));
    assert_eq!(stats.contentions, 1);
}

#[test]
fn who_is_killed_before_it_gets_in_hands_on() {
    let fixture = Fixture::new();
    let killed = Rc::new(Cell::new(false));
    let flag = Rc::clone(&killed);
    fixture.at(0, 10, move |sim, fixture| {
        fixture.write(sim, 100);
        // CPU 0 has released the lock at the end of `write`, so the hand-over to CPU 1 may already
        // be in progress.
        flag.set(true);
    });
    fixture.at(1, 20, move |sim, fixture| {
        assert_eq!(fixture.write_unless(sim, 1, || killed.get()), None);
    });
    fixture.writes(2, 30, 1);
    assert_eq!(fixture.order(), [('w', 0), ('w', 2)]);
}

#[test]
fn who_was_killed_gets_in_if_it_need_not_wait() {
    let fixture = Fixture::new();
    fixture.at(0, 10, |sim, fixture| {
        assert_eq!(fixture.write_unless(sim, 100, || true), Some(()));
    });
    fixture.at(1, 20, |sim, fixture| {
        let asked = sim.now().0;
        assert_eq!(fixture.write_unless(sim, 1, || true), None);
        assert!(sim.now().0 < asked + 100, "it does not wait to be told");
    });
    assert_eq!(fixture.order(), [('w', 0)]);
}

#[test]
fn a_waiter_that_looks_gets_in_when_others_would() {
    let start = |looks: bool| {
        let fixture = Fixture::new();
        fixture.writes(0, 10, 3_300);
        fixture.at(1, 20, move |sim, fixture| {
            if looks {
                assert_eq!(fixture.write_unless(sim, 1, || false), Some(()));
            } else {
                fixture.write(sim, 1);
            }
        });
        fixture.run()[1].start
    };
    assert_eq!(start(true), start(false));
}

/// A writer on CPU 0 hands the lock to a waiter on CPU 1 while that waiter checks whether it was
/// killed. The check lasts until `late` nanoseconds after the release by the writer, and its result
/// is `killed`. Returns the time of the release, and the time at which the waiter acquired the
/// lock; `None` if the waiter did not acquire it.
fn let_in_while_looking(late: u64, killed: bool) -> (u64, Option<u64>) {
    let fixture = Fixture::new();
    let leaves = Rc::new(Cell::new(0));
    let tell = Rc::clone(&leaves);
    fixture.at(0, 10, move |sim, fixture| {
        tell.set(sim.now().0 + OWN + 100_000);
        fixture.write(sim, 100);
        fixture.writes(2, 2_000, 1);
    });
    fixture.at(1, 20, move |sim, fixture| {
        let looks = || {
            let rest = (leaves.get() + late).saturating_sub(sim.now().0);
            sim.spend(Work::Think, u32::try_from(rest).expect("soon"));
            killed
        };
        assert_eq!(fixture.write_unless(sim, 1, looks).is_none(), killed);
    });
    let stays = fixture.run();
    assert_eq!(stays.last().map(|last| last.who), Some(('w', 2)));
    let start = |cpu| {
        stays
            .iter()
            .find(|stay| stay.who.1 == cpu)
            .map(|stay| stay.start)
    };
    (stays[0].end, start(1))
}

#[test]
fn who_is_let_in_while_it_looks_gets_in_once_it_has_looked() {
    let (left, start) = let_in_while_looking(200_000, false);
    assert_eq!(start, Some(left + 200_000));
}

#[test]
fn who_has_looked_before_the_hand_over_arrives_waits_for_it() {
    let (left, start) = let_in_while_looking(TRANSFER + 20, false);
    let arrives = left + TRANSFER + TRANSFER + HANDOVER;
    assert_eq!(start, Some(arrives + WAKE_UP));
}

#[test]
fn who_is_let_in_while_it_learns_that_it_was_killed_hands_on() {
    assert_eq!(let_in_while_looking(200_000, true).1, None);
    assert_eq!(let_in_while_looking(TRANSFER + 20, true).1, None);
}

#[test]
fn a_waiter_leaves_its_cpu_to_others_and_wakes_up_elsewhere_if_that_goes_away() {
    let fixture = Fixture::new();
    fixture.writes(0, 10, 5_000);
    fixture.at(1, 20, |sim, fixture| {
        assert_eq!(fixture.write_unless(sim, 1, || false), Some(()));
        assert_ne!(sim.this_cpu(), CpuId(1));
    });
    fixture.at(1, 30, |sim, _| {
        assert!(sim.now().0 < 50_000, "the CPU is free");
    });
    fixture.at(2, 2_500, |sim, _| sim.set_online(CpuId(1), false));
    let stays = fixture.run();
    assert_eq!(stays.len(), 2);
    assert!(stays[1].start > stays[0].end);
}
