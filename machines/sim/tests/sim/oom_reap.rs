//! Tests the reaper's attempts in virtual time, and `process_mrelease` (emptying a dying process on
//! request) while the process exits.

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
use support::OomWorld;
use support::oom_world::{Device, START, Setting, Space};

const US: u64 = 1000;
const MS: u64 = 1_000_000;
const DELAY: u64 = 2_000 * MS;
const PAUSE: u64 = 100 * MS;
/// The number of pages in 1 GiB.
const GIB: u64 = 1 << 18;

/// Creates a world with one process of 3000 pages. If `device` is given, the reaper has to notify
/// this device before it empties the memory. The process is killed 10 ms after the run begins. The
/// caller starts the run.
fn killed_with(reaping: Reaping, device: Option<Device>) -> Rc<OomWorld> {
    let world = OomWorld::new(reaping, None);
    world.run(move |sim, world| {
        let space = world.space(sim, None, device);
        world.fill(sim, &space, START, 3000);
        world.enroll(sim, 1, Kind::Process, &space);
    });
    world.at(0, Nanos(10 * MS), |sim, world| {
        world.kill(sim, 1);
    });
    world
}

/// Maps new memory over memory that is in use. Holds the lock of the mappings for as long as the
/// device is busy.
fn change_mappings(sim: &Sim, world: &OomWorld, space: &Space) {
    let request = MapRequest::anonymous(Place::Replace(START), 10);
    let mapped = space.map(world.memory(sim), request);
    assert!(mapped.is_ok(), "{mapped:?}");
}

/// Calls `process_mrelease` on process `id`. The caller is never killed while it waits.
fn mrelease(sim: &Sim, world: &OomWorld, id: u32) -> Result<Released, ReleaseError> {
    let (process, all) = (world.process(id), world.processes.borrow().clone());
    release(world.memory(sim), Some(&process), all.iter(), 0, || false)
}

#[test]
fn a_space_that_is_refused_ten_times_is_given_up_on_and_its_exit_does_the_rest() {
    for reaping in Reaping::ALL {
        let world = killed_with(reaping, Some(Device::Refuses));
        world.small.sim.run();
        let attempts = world.attempts();
        assert_eq!(attempts.len(), 10, "{reaping:?}");
        let first = attempts[0].0 - 10 * MS;
        assert!((DELAY..DELAY + 10 * US).contains(&first), "after {first}");
        for pair in attempts.windows(2) {
            let apart = pair[1].0 - pair[0].0;
            assert!((PAUSE..PAUSE + MS).contains(&apart), "apart {apart}");
        }
        world.run(|sim, world| {
            let space = world.space_of(sim, 1);
            assert!(space.has(sim, Flag::Skip), "not chosen again");
            assert_eq!(space.rss().resident_precise(sim), 3000, "all is there");
            let (last, resident) = (Reaped::Partly, space.rss().resident(sim));
            let gave_up = How::GaveUp { last, resident };
            assert_eq!(world.done.borrow()[0].1.how, gave_up);
        });
        world.ends();
    }
}

#[test]
fn mappings_that_are_being_changed_are_tried_again_a_tenth_of_a_second_later() {
    for reaping in Reaping::ALL {
        // The reaper's attempts are 2.0 s, 2.1 s and 2.2 s after the kill. The device is still busy
        // at the first two attempts, but not at the third.
        let until = Nanos(10 * MS + DELAY + 150 * MS);
        let world = killed_with(reaping, Some(Device::BusyUntil(until)));
        world.at(3, Nanos(5 * MS), |sim, world| {
            change_mappings(sim, world, &world.space_of(sim, 1));
        });
        world.small.sim.run();
        let events = world.events();
        let count =
            |event: fn(&Event) -> bool| events.iter().filter(|(_, seen)| event(seen)).count();
        let started = count(|event| matches!(event, Event::StartTaskReaping(_)));
        let skipped = count(|event| matches!(event, Event::SkipTaskReaping(_)));
        let finished = count(|event| matches!(event, Event::FinishTaskReaping(_)));
        let waked = count(|event| matches!(event, Event::WakeReaper(_)));
        assert_eq!((started, skipped, finished, waked), (1, 2, 1, 1));
        assert_eq!(world.done.borrow()[0].1.how, How::Emptied);
        world.ends();
    }
}

#[test]
fn who_waits_for_a_victim_does_not_keep_others_waiting() {
    // The device is busy until a second after the reaper's first attempt. In the meantime the
    // reaper empties the memory of the next victim.
    let until = Nanos(10 * MS + DELAY + 1000 * MS);
    let world = killed_with(Reaping::MeetInTheMiddle, Some(Device::BusyUntil(until)));
    world.at(3, Nanos(5 * MS), |sim, world| {
        change_mappings(sim, world, &world.space_of(sim, 1));
    });
    world.at(1, Nanos(20 * MS), |sim, world| {
        let space = world.filled(sim, 100);
        world.enroll(sim, 2, Kind::Process, &space);
        world.kill(sim, 2);
    });
    world.small.sim.run();
    let order: Vec<u32> = world
        .done
        .borrow()
        .iter()
        .map(|done| done.1.process.0)
        .collect();
    assert_eq!(order, [2, 1]);
    world.ends();
}

/// Creates a world with one process. For each number in `pages`, the process has one mapping with
/// this number of pages. Each mapping is in a separate gibibyte.
fn wide(reaping: Reaping, pages: &'static [u64]) -> Rc<OomWorld> {
    // The reaper makes only one attempt.
    let patience = Patience {
        attempts_max: 1,
        ..Patience::LINUX
    };
    let setting = Setting {
        reaping,
        patience,
        ..Setting::default()
    };
    let world = setting.world();
    world.run(move |sim, world| {
        let space = world.space(sim, None, None);
        for (number, pages) in (0..).zip(pages) {
            world.fill(sim, &space, Vpn(START.0 + number * GIB), *pages);
        }
        world.enroll(sim, 1, Kind::Process, &space);
    });
    world
}

#[test]
fn giving_way_counts_for_no_attempt() {
    let world = wide(Reaping::DescendingChunks, &[10, 10, 10, 30_000]);
    let start = world.small.sim.stats().now.0 + MS;
    world.at(0, Nanos(start), |sim, world| {
        world.kill(sim, 1);
    });
    // The process begins its exit while the reaper is emptying the highest mapping. The exit waits
    // until the reaper has left.
    world.at(3, Nanos(start + DELAY), |sim, world| {
        while world.attempts().is_empty() {
            sim.sleep(Nanos(US));
        }
        let exiting = world.process(1);
        world.exit(sim, &exiting);
    });
    world.small.sim.run();
    let events = world.events();
    let last = events.last().map(|&(_, event)| event);
    let attempts = world.attempts();
    assert_eq!(attempts.len(), 1, "{events:?}");
    assert!(
        matches!(last, Some(Event::SkipTaskReaping(_))),
        "{events:?}"
    );
    let (at, done) = world.done.borrow()[0];
    assert_eq!(done.how, How::Gone, "the exit was done by the next attempt");
    assert!(at.0 - attempts[0].0 > PAUSE, "it slept in between");
    world.ends();
}

#[test]
fn a_reaper_that_comes_while_tables_go_back_leaves_the_rest_to_the_exit() {
    // The reaper gives up after its first attempt.
    let patience = Patience {
        delay: Nanos(0),
        attempts_max: 1,
        ..Patience::LINUX
    };
    // This design frees page tables under the write lock of the mappings.
    let setting = Setting {
        reaping: Reaping::DescendingChunks,
        patience,
        ..Setting::default()
    };
    let world = setting.world();
    world.run(|sim, world| {
        let space = world.space(sim, None, None);
        for table in 0..700 {
            world.fill(sim, &space, Vpn(START.0 + 512 * table), 1);
        }
        world.enroll(sim, 1, Kind::Process, &space);
        world.reaps.set(false);
    });
    let start = world.small.sim.stats().now;
    world.at(0, start, |sim, world| {
        world.kill(sim, 1);
        world.exit(sim, &world.process(1));
    });
    let how: Rc<Cell<Option<How>>> = Rc::default();
    let out = Rc::clone(&how);
    world.at(2, start, move |sim, world| {
        let space = world.space_of(sim, 1);
        let begin = Event::Begin(Phase::FreeTables);
        let goes_back = || {
            world
                .small
                .seen
                .borrow()
                .iter()
                .any(|(_, _, seen)| *seen == begin)
        };
        while !goes_back() {
            sim.sleep(Nanos(US));
        }
        let stepped = world.killer.reaper().step(world.memory(sim));
        assert!(!space.has(sim, Flag::Ended), "it is still at it");
        out.set(stepped.done.map(|done| done.how));
    });
    world.small.sim.run();
    assert_eq!(how.get(), Some(How::Gone), "there is nothing to be done");
    world.ends();
}

#[test]
fn what_may_not_be_released_is_said_one_by_one() {
    let world = OomWorld::new(Reaping::MeetInTheMiddle, None);
    world.run(|sim, world| {
        let shared = world.filled(sim, 100);
        let process = world.enroll(sim, 1, Kind::Process, &shared);
        let other = world.enroll(sim, 2, Kind::Process, &shared);
        let all = world.processes.borrow().clone();
        let memory = world.memory(sim);
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
        world.exit(sim, &process);
        assert_eq!(ask(Some(&*process), 0), Err(ReleaseError::NoSuchProcess));
    });
    world.ends();
}

#[test]
fn who_is_killed_while_it_waits_for_the_mappings_is_told_so() {
    let until = Nanos(50 * MS);
    let world = OomWorld::new(Reaping::MeetInTheMiddle, None);
    world.run(move |sim, world| {
        let space = world.space(sim, None, Some(Device::BusyUntil(until)));
        world.fill(sim, &space, START, 100);
        world.enroll(sim, 1, Kind::Process, &space);
    });
    world.at(3, Nanos(5 * MS), |sim, world| {
        change_mappings(sim, world, &world.space_of(sim, 1));
    });
    world.at(0, Nanos(10 * MS), |sim, world| {
        let process = world.process(1);
        process.set(sim, State::Killed);
        let all = world.processes.borrow().clone();
        let memory = world.memory(sim);
        let killed = || sim.now().0 >= 20 * MS;
        let outcome = release(memory, Some(&process), all.iter(), 0, killed);
        assert_eq!(outcome, Err(ReleaseError::Interrupted));
        assert!((20 * MS..30 * MS).contains(&sim.now().0), "soon");
        let space = world.space_of(sim, 1);
        assert!(!space.has(sim, Flag::Unstable), "nothing was done");
    });
    world.small.sim.run();
    world.ends();
}

#[test]
fn what_a_device_refuses_is_said_and_left_to_the_exit() {
    for reaping in Reaping::ALL {
        let world = OomWorld::new(reaping, None);
        world.run(|sim, world| {
            let space = world.space(sim, None, Some(Device::Refuses));
            world.fill(sim, &space, START, 700);
            world
                .enroll(sim, 1, Kind::Process, &space)
                .set(sim, State::Killed);
            for _ in 0..2 {
                assert_eq!(mrelease(sim, world, 1), Err(ReleaseError::Again));
            }
            assert_eq!(space.rss().resident_precise(sim), 700);
            assert!(!space.has(sim, Flag::Skip));
        });
        world.ends();
    }
}

#[test]
#[expect(
    clippy::arc_with_non_send_sync,
    reason = "on real machines they are both; a simulated one has one thread"
)]
fn only_private_memory_is_released() {
    for reaping in Reaping::ALL {
        let world = OomWorld::new(reaping, None);
        world.run(move |sim, world| {
            let file = Arc::new(Object::new(sim, ObjectKind::File));
            let memory = Arc::new(Object::new(sim, ObjectKind::Shared));
            let space = world.filled(sim, 64);
            let (object, offset) = (Arc::clone(&memory), 0);
            use_pages(sim, world, &space, 1, Backing::Shared { object, offset });
            let private = Backing::PrivateFile {
                file: Arc::clone(&file),
                offset,
            };
            use_pages(sim, world, &space, 2, private);
            use_pages(sim, world, &space, 3, Backing::Reserved);
            use_pages(sim, world, &space, 4, Backing::Frames { first: Pfn(0) });
            let process = world.enroll(sim, 1, Kind::Process, &space);
            process.set(sim, State::Killed);
            world.small.mm.pages().drain_all_sync(sim);
            let free = world.small.zone().free;
            assert_eq!(mrelease(sim, world, 1), Ok(Released::All));
            world.small.mm.pages().drain_all_sync(sim);
            let came_back = world.small.zone().free.0 - free.0;
            let private = 64 + 512;
            assert!((private..private + 10).contains(&came_back), "{came_back}");
            let rss = space.rss();
            let left = [RssKind::Shmem, RssKind::Anon, RssKind::File];
            assert_eq!(left.map(|kind| rss.precise(sim, kind)), [512, 0, 0]);
            drop(space);
            world.exit(sim, &process);
            for object in [file, memory] {
                object.empty(sim, world.small.mm.pages());
            }
        });
        world.ends();
    }
}

/// Maps 512 pages at the start of gibibyte `number`, counted from 0, and populates them.
fn use_pages(sim: &Sim, world: &OomWorld, space: &Space, number: u64, backing: Backing<Sim>) {
    let start = Vpn(START.0 + number * GIB);
    let (place, pages) = (Place::Fixed(start), 512);
    let request = MapRequest {
        place,
        pages,
        backing,
    };
    let memory = world.memory(sim);
    space.map(memory, request).expect("nothing is there");
    let used = space.populate(memory, start..Vpn(start.0 + pages));
    used.expect("there is memory");
}

#[test]
fn the_exit_and_those_who_release_meet_and_every_page_is_back() {
    for reaping in Reaping::ALL {
        for helpers in 1..=3 {
            let world = wide(reaping, &[8000; 4]);
            let start = world.small.sim.stats().now.0 + MS;
            let freed: Rc<Cell<u32>> = Rc::default();
            for helper in 1..=helpers {
                let freed = Rc::clone(&freed);
                world.at(helper, Nanos(start), move |sim, world| {
                    world.process(1).set(sim, State::Killed);
                    let released = mrelease(sim, world, 1);
                    assert_eq!(released, Ok(Released::All), "{reaping:?}");
                    freed.set(freed.get() + 1);
                });
            }
            world.at(0, Nanos(start + 50 * US), |sim, world| {
                let process = world.process(1);
                world.exit(sim, &process);
            });
            world.small.sim.run();
            assert_eq!(freed.get(), helpers, "all helped while it left");
            world.ends();
        }
    }
}
