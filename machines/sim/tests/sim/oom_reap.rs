//! The reaper's attempts in virtual time, and `process_mrelease` next to the exit.

use crate::support;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_mm::event::{Event, Phase};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::oom::{How, Kind, Patience, ReleaseError, Released, State, release};
use plimsoll_mm::space::object::{Object, ObjectKind};
use plimsoll_mm::space::reap::{Reaped, Reaping};
use plimsoll_mm::space::rss::RssKind;
use plimsoll_mm::space::{Backing, Flag, MapRequest, Place};
use plimsoll_mm::units::{Nanos, Pfn, Vpn};
use plimsoll_sim::Sim;
use support::Village;
use support::village::{Device, START, Space};

const US: u64 = 1000;
const MS: u64 = 1_000_000;
const DELAY: u64 = 2_000 * MS;
const PAUSE: u64 = 100 * MS;
/// The number of pages in 1 GiB.
const GIB: u64 = 1 << 18;

/// Makes a village with one process of 3000 pages, and with `device` if any. The process is killed
/// 10 ms into the run that the caller starts.
fn killed_with(reaping: Reaping, device: Option<Device>) -> Rc<Village> {
    let village = Village::new(reaping, None);
    village.run(move |sim, village| {
        let space = village.space(sim, None, device);
        village.fill(sim, &space, START, 3000);
        village.enroll(sim, 1, Kind::Process, &space);
    });
    village.at(0, Nanos(10 * MS), |sim, village| {
        village.kill(sim, 1);
    });
    village
}

/// Maps over memory in use. This keeps the mappings locked for as long as the device is busy.
fn change_mappings(sim: &Sim, village: &Village, space: &Space) {
    let request = MapRequest {
        place: Place::Replace(START),
        pages: 10,
        backing: Backing::Anonymous { huge: false },
    };
    let mapped = space.map(village.memory(sim), request);
    assert!(mapped.is_ok(), "{mapped:?}");
}

/// Calls `process_mrelease` on process `id`; the caller is not killed meanwhile.
fn mrelease(sim: &Sim, village: &Village, id: u32) -> Result<Released, ReleaseError> {
    let (process, all) = (village.process(id), village.processes.borrow().clone());
    release(village.memory(sim), Some(&process), all.iter(), 0, || false)
}

#[test]
fn a_space_that_is_refused_ten_times_is_given_up_on_and_its_exit_does_the_rest() {
    for reaping in Reaping::ALL {
        let village = killed_with(reaping, Some(Device::Refuses));
        village.small.sim.run();
        let attempts = village.attempts();
        assert_eq!(attempts.len(), 10, "{reaping:?}");
        let first = attempts[0].0 - 10 * MS;
        assert!((DELAY..DELAY + 10 * US).contains(&first), "after {first}");
        for pair in attempts.windows(2) {
            let apart = pair[1].0 - pair[0].0;
            assert!((PAUSE..PAUSE + MS).contains(&apart), "apart {apart}");
        }
        village.run(|sim, village| {
            let space = village.space_of(sim, 1);
            assert!(space.has(sim, Flag::Skip), "not chosen again");
            assert_eq!(space.rss().resident_precise(sim), 3000, "all is there");
            let (last, resident) = (Reaped::Partly, space.rss().resident(sim));
            let gave_up = How::GaveUp { last, resident };
            assert_eq!(village.done.borrow()[0].1.how, gave_up);
        });
        village.ends();
    }
}

#[test]
fn mappings_that_are_being_changed_are_tried_again_a_tenth_of_a_second_later() {
    for reaping in Reaping::ALL {
        // The device is busy 2.0 and 2.1 s after the kill, but no longer at 2.2 s.
        let until = Nanos(10 * MS + DELAY + 150 * MS);
        let village = killed_with(reaping, Some(Device::BusyUntil(until)));
        village.at(3, Nanos(5 * MS), |sim, village| {
            change_mappings(sim, village, &village.space_of(sim, 1));
        });
        village.small.sim.run();
        let events = village.events();
        let count = |event: fn(&Event) -> bool| events.iter().filter(|it| event(&it.1)).count();
        let started = count(|event| matches!(event, Event::StartTaskReaping(_)));
        let skipped = count(|event| matches!(event, Event::SkipTaskReaping(_)));
        let finished = count(|event| matches!(event, Event::FinishTaskReaping(_)));
        let waked = count(|event| matches!(event, Event::WakeReaper(_)));
        assert_eq!((started, skipped, finished, waked), (1, 2, 1, 1));
        assert_eq!(village.done.borrow()[0].1.how, How::Emptied);
        village.ends();
    }
}

#[test]
fn who_waits_for_a_victim_does_not_keep_others_waiting() {
    // The device is busy for a second; meanwhile the next victim is reaped.
    let until = Nanos(10 * MS + DELAY + 1000 * MS);
    let village = killed_with(Reaping::MeetInTheMiddle, Some(Device::BusyUntil(until)));
    village.at(3, Nanos(5 * MS), |sim, village| {
        change_mappings(sim, village, &village.space_of(sim, 1));
    });
    village.at(1, Nanos(20 * MS), |sim, village| {
        let space = village.filled(sim, 100);
        village.enroll(sim, 2, Kind::Process, &space);
        village.kill(sim, 2);
    });
    village.small.sim.run();
    let order: Vec<u32> = village
        .done
        .borrow()
        .iter()
        .map(|done| done.1.process.0)
        .collect();
    assert_eq!(order, [2, 1]);
    village.ends();
}

/// Makes a village with one process that has a mapping for each number in `pages`: of that many
/// pages, and in a gibibyte of its own.
fn wide(reaping: Reaping, pages: &'static [u64]) -> Rc<Village> {
    // The reaper has one attempt only.
    let patience = Patience {
        attempts_max: 1,
        ..Patience::LINUX
    };
    let village = Village::with_patience(reaping, None, patience);
    village.run(move |sim, village| {
        let space = village.space(sim, None, None);
        for (number, pages) in (0..).zip(pages) {
            village.fill(sim, &space, Vpn(START.0 + number * GIB), *pages);
        }
        village.enroll(sim, 1, Kind::Process, &space);
    });
    village
}

#[test]
fn giving_way_counts_for_no_attempt() {
    let village = wide(Reaping::DescendingChunks, &[10, 10, 10, 30_000]);
    let start = village.small.sim.stats().now.0 + MS;
    village.at(0, Nanos(start), |sim, village| {
        village.kill(sim, 1);
    });
    // The process exits while the reaper is emptying the highest mapping, and waits for the reaper
    // to leave.
    village.at(3, Nanos(start + DELAY), |sim, village| {
        while village.attempts().is_empty() {
            sim.sleep(Nanos(US));
        }
        let exiting = village.process(1);
        village.exit(sim, &exiting);
    });
    village.small.sim.run();
    let events = village.events();
    let last = events.last().map(|&(_, event)| event);
    let attempts = village.attempts();
    assert_eq!(attempts.len(), 1, "{events:?}");
    assert!(
        matches!(last, Some(Event::SkipTaskReaping(_))),
        "{events:?}"
    );
    let (at, done) = village.done.borrow()[0];
    assert_eq!(done.how, How::Gone, "the exit was done by the next attempt");
    assert!(at.0 - attempts[0].0 > PAUSE, "it slept in between");
    village.ends();
}

#[test]
fn a_reaper_that_comes_while_tables_go_back_leaves_the_rest_to_the_exit() {
    // The reaper gives up after its first attempt.
    let patience = Patience {
        delay: Nanos(0),
        attempts_max: 1,
        ..Patience::LINUX
    };
    // This variant frees page tables under the write lock of the mappings.
    let village = Village::with_patience(Reaping::DescendingChunks, None, patience);
    village.run(|sim, village| {
        let space = village.space(sim, None, None);
        for table in 0..700 {
            village.fill(sim, &space, Vpn(START.0 + 512 * table), 1);
        }
        village.enroll(sim, 1, Kind::Process, &space);
        village.killer.signals().without_reaper();
    });
    let start = village.small.sim.stats().now;
    village.at(0, start, |sim, village| {
        village.kill(sim, 1);
        village.exit(sim, &village.process(1));
    });
    let how: Rc<Cell<Option<How>>> = Rc::default();
    let out = Rc::clone(&how);
    village.at(2, start, move |sim, village| {
        let space = village.space_of(sim, 1);
        let begin = Event::Begin(Phase::FreeTables);
        let goes_back = || village.small.seen.borrow().iter().any(|it| it.2 == begin);
        while !goes_back() {
            sim.sleep(Nanos(US));
        }
        let stepped = village.killer.reaper().step(village.memory(sim));
        assert!(!space.has(sim, Flag::Ended), "it is still at it");
        out.set(stepped.done.map(|done| done.how));
    });
    village.small.sim.run();
    assert_eq!(how.get(), Some(How::Gone), "there is nothing to be done");
    village.ends();
}

#[test]
fn what_may_not_be_released_is_said_one_by_one() {
    let village = Village::new(Reaping::MeetInTheMiddle, None);
    village.run(|sim, village| {
        let shared = village.filled(sim, 100);
        let process = village.enroll(sim, 1, Kind::Process, &shared);
        let other = village.enroll(sim, 2, Kind::Process, &shared);
        let all = village.processes.borrow().clone();
        let memory = village.memory(sim);
        let ask = |process, flags| release(memory, process, all.iter(), flags, || false);
        assert_eq!(ask(Some(&*process), 4), Err(ReleaseError::InvalidFlags(4)));
        assert_eq!(
            ask(None, 4),
            Err(ReleaseError::InvalidFlags(4)),
            "flags first"
        );
        assert_eq!(ask(None, 0), Err(ReleaseError::NoSuchProcess));
        assert_eq!(ask(Some(&*process), 0), Err(ReleaseError::NotDying));
        process.set(sim, State::Killed);
        let alive = ask(Some(&*process), 0);
        assert_eq!(alive, Err(ReleaseError::NotDying), "another one lives");
        other.set(sim, State::Exiting);
        process.set(sim, State::CoreDumping);
        let dumping = ask(Some(&*process), 0);
        assert_eq!(dumping, Err(ReleaseError::NotDying), "not soon");
        process.clear(sim, State::CoreDumping);
        assert_eq!(shared.rss().resident_precise(sim), 100, "nothing is gone");
        assert_eq!(ask(Some(&*process), 0), Ok(Released::All));
        assert_eq!(shared.rss().resident_precise(sim), 0);
        assert!(!shared.has(sim, Flag::Skip), "it may be chosen again");
        shared.raise(sim, Flag::Skip);
        assert_eq!(ask(Some(&*process), 0), Ok(Released::Before));
        village.exit(sim, &process);
        assert_eq!(ask(Some(&*process), 0), Err(ReleaseError::NoSuchProcess));
    });
    village.ends();
}

#[test]
fn who_is_killed_while_it_waits_for_the_mappings_is_told_so() {
    let until = Nanos(50 * MS);
    let village = Village::new(Reaping::MeetInTheMiddle, None);
    village.run(move |sim, village| {
        let space = village.space(sim, None, Some(Device::BusyUntil(until)));
        village.fill(sim, &space, START, 100);
        village.enroll(sim, 1, Kind::Process, &space);
    });
    village.at(3, Nanos(5 * MS), |sim, village| {
        change_mappings(sim, village, &village.space_of(sim, 1));
    });
    village.at(0, Nanos(10 * MS), |sim, village| {
        let process = village.process(1);
        process.set(sim, State::Killed);
        let all = village.processes.borrow().clone();
        let memory = village.memory(sim);
        let killed = || sim.now().0 >= 20 * MS;
        let outcome = release(memory, Some(&process), all.iter(), 0, killed);
        assert_eq!(outcome, Err(ReleaseError::Interrupted));
        assert!((20 * MS..30 * MS).contains(&sim.now().0), "soon");
        let space = village.space_of(sim, 1);
        assert!(!space.has(sim, Flag::Unstable), "nothing was done");
    });
    village.small.sim.run();
    village.ends();
}

#[test]
fn what_a_device_refuses_is_said_and_left_to_the_exit() {
    for reaping in Reaping::ALL {
        let village = Village::new(reaping, None);
        village.run(|sim, village| {
            let space = village.space(sim, None, Some(Device::Refuses));
            village.fill(sim, &space, START, 700);
            village
                .enroll(sim, 1, Kind::Process, &space)
                .set(sim, State::Killed);
            for _ in 0..2 {
                assert_eq!(mrelease(sim, village, 1), Err(ReleaseError::Again));
            }
            assert_eq!(space.rss().resident_precise(sim), 700);
            assert!(!space.has(sim, Flag::Skip));
        });
        village.ends();
    }
}

#[test]
#[expect(
    clippy::arc_with_non_send_sync,
    reason = "on real machines they are both; a simulated one has one thread"
)]
fn only_private_memory_is_released() {
    for reaping in Reaping::ALL {
        let village = Village::new(reaping, None);
        village.run(move |sim, village| {
            let file = Arc::new(Object::new(sim, ObjectKind::File));
            let memory = Arc::new(Object::new(sim, ObjectKind::Shared));
            let space = village.filled(sim, 64);
            let (object, offset) = (Arc::clone(&memory), 0);
            use_pages(sim, village, &space, 1, Backing::Shared { object, offset });
            let private = Backing::PrivateFile {
                file: Arc::clone(&file),
                offset,
            };
            use_pages(sim, village, &space, 2, private);
            use_pages(sim, village, &space, 3, Backing::Reserved);
            use_pages(sim, village, &space, 4, Backing::Frames { first: Pfn(0) });
            let process = village.enroll(sim, 1, Kind::Process, &space);
            process.set(sim, State::Killed);
            village.small.mm.pages().drain_all_sync(sim);
            let free = village.small.zone().free;
            assert_eq!(mrelease(sim, village, 1), Ok(Released::All));
            village.small.mm.pages().drain_all_sync(sim);
            let came_back = village.small.zone().free.0 - free.0;
            let private = 64 + 512;
            assert!((private..private + 10).contains(&came_back), "{came_back}");
            let rss = space.rss();
            let left = [RssKind::Shmem, RssKind::Anon, RssKind::File];
            assert_eq!(left.map(|kind| rss.precise(sim, kind)), [512, 0, 0]);
            drop(space);
            village.exit(sim, &process);
            for object in [file, memory] {
                object.empty(sim, village.small.mm.pages());
            }
        });
        village.ends();
    }
}

/// Maps 512 pages in gibibyte `number`, counted from 0, and populates them.
fn use_pages(sim: &Sim, village: &Village, space: &Space, number: u64, backing: Backing<Sim>) {
    let start = Vpn(START.0 + number * GIB);
    let (place, pages) = (Place::Fixed(start), 512);
    let request = MapRequest {
        place,
        pages,
        backing,
    };
    let memory = village.memory(sim);
    space.map(memory, request).expect("nothing is there");
    let used = space.populate(memory, start..Vpn(start.0 + pages));
    used.expect("there is memory");
}

#[test]
fn the_exit_and_those_who_release_meet_and_every_page_is_back() {
    for reaping in Reaping::ALL {
        for helpers in 1..=3 {
            let village = wide(reaping, &[8000; 4]);
            let start = village.small.sim.stats().now.0 + MS;
            let freed: Rc<Cell<u32>> = Rc::default();
            for helper in 1..=helpers {
                let freed = Rc::clone(&freed);
                village.at(helper, Nanos(start), move |sim, village| {
                    village.process(1).set(sim, State::Killed);
                    let released = mrelease(sim, village, 1);
                    assert_eq!(released, Ok(Released::All), "{reaping:?}");
                    freed.set(freed.get() + 1);
                });
            }
            village.at(0, Nanos(start + 50 * US), |sim, village| {
                let process = village.process(1);
                village.exit(sim, &process);
            });
            village.small.sim.run();
            assert_eq!(freed.get(), helpers, "all helped while it left");
            village.ends();
        }
    }
}
