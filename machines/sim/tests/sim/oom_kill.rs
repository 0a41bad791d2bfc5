//! OOM kills: which processes are told to die, in which order, and what happens to their memory.

use crate::support;

use std::rc::Rc;
use std::sync::Arc;

use plimsoll_mm::event::Event;
use plimsoll_mm::oom::{Aftermath, How, Killed, Kind, ScoreAdj, State};
use plimsoll_mm::space::budget::Budget;
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::space::{Access, ExitError, Flag};
use plimsoll_mm::units::{Nanos, Order, ProcessId};
use support::OomWorld;
use support::embedder::{Call, Counted, Marked};
use support::oom_world::START;
use support::small::any;

const US: u64 = 1000;
const MS: u64 = 1_000_000;
const DELAY: u64 = 2_000 * MS;

fn lone(reaping: Reaping, exits_after: Option<Nanos>) -> Rc<OomWorld> {
    let world = OomWorld::new(reaping, exits_after);
    world.run(|sim, world| {
        let space = world.filled(sim, 3000);
        world.enroll(sim, 1, Kind::Process, &space);
    });
    world
}

#[test]
fn a_kill_is_counted_then_sent_then_the_victim_is_marked_and_reaped_two_seconds_later() {
    for reaping in Reaping::ALL {
        let world = lone(reaping, None);
        world.run(|sim, world| {
            let killed = world.kill(sim, 1);
            let expected = Killed {
                signalled: 1,
                aftermath: Aftermath::Queued,
            };
            assert_eq!(killed, expected);
            let space = world.space_of(sim, 1);
            assert!(space.has(sim, Flag::Victim) && space.has(sim, Flag::Killed));
            assert_eq!((world.killer.victims(sim), world.killer.kills(sim)), (1, 1));
        });
        let events = world.events();
        let one = ProcessId(1);
        let names: Vec<Event> = events.iter().map(|&(_, event)| event).collect();
        let expected = [
            Event::OomKill(one),
            Event::MarkVictim(one),
            Event::WakeReaper(one),
            Event::StartTaskReaping(one),
            Event::FinishTaskReaping(one),
        ];
        assert_eq!(names, expected, "{reaping:?}");
        let told = Call::Kill(1, Counted(true), Marked(false));
        let log = world.log.borrow().clone();
        assert_eq!(log[0], told, "counted before, marked after");
        let Call::ReapAt(due) = log[1] else {
            panic!("the reaper is told when: {log:?}");
        };
        assert!((events[1].0.0..events[1].0.0 + 10 * US).contains(&(due.0 - DELAY)));
        assert!((due.0..due.0 + 10 * US).contains(&events[2].0.0), "on time");
        world.run(|sim, world| {
            let space = world.space_of(sim, 1);
            assert_eq!(space.rss().resident_precise(sim), 0, "reaped");
            assert!(space.has(sim, Flag::Skip) && !space.has(sim, Flag::Ended));
            assert_eq!(world.killer.victims(sim), 1, "it still lives");
            assert_eq!(world.done.borrow()[0].1.how, How::Emptied);
        });
        world.ends();
    }
}

#[test]
fn a_frozen_victim_is_thawed_once_exits_and_cannot_be_frozen_again() {
    let world = lone(Reaping::MeetInTheMiddle, Some(Nanos(MS)));
    world.run(|sim, world| {
        let victim = world.process(1);
        assert!(victim.freeze(sim));
        world.kill(sim, 1);
        assert!(!victim.is(sim, State::Frozen) && victim.is(sim, State::Victim));
        assert!(!victim.freeze(sim), "the freezer leaves victims alone");
        world.kill(sim, 1);
    });
    let log = world.log.borrow().clone();
    let thaws = log.iter().filter(|call| matches!(call, Call::Thaw(1)));
    assert_eq!(thaws.count(), 1);
    assert!(world.process(1).is(&world.small.sim, State::Left));
    world.ends();
}

#[test]
fn a_victim_that_exits_in_time_is_not_reaped() {
    for reaping in Reaping::ALL {
        let world = lone(reaping, Some(Nanos(1500 * MS)));
        world.run(|sim, world| {
            world.kill(sim, 1);
        });
        let waked = |(_, event): &(Nanos, Event)| matches!(event, Event::WakeReaper(_));
        assert!(!world.events().iter().any(waked), "{reaping:?}");
        assert_eq!(world.done.borrow()[0].1.how, How::Gone);
        assert_eq!(world.killer.victims(&world.small.sim), 0);
        world.ends();
    }
}

#[test]
fn all_who_share_the_memory_die_with_it_but_threads_of_the_kernel() {
    let world = OomWorld::new(Reaping::DescendingByVma, None);
    world.run(|sim, world| {
        let (shared, other) = (world.filled(sim, 500), world.filled(sim, 10));
        world.enroll(sim, 1, Kind::Process, &shared);
        world.enroll(sim, 2, Kind::Process, &shared);
        world.enroll(sim, 3, Kind::KernelThread, &shared);
        world.enroll(sim, 4, Kind::Process, &other);
        let killed = world.kill(sim, 2);
        assert_eq!(killed.signalled, 2);
        assert_eq!(world.killed(), [2, 1]);
        let victims = [1, 2, 3, 4].map(|id| world.process(id).is(sim, State::Victim));
        assert_eq!(victims, [false, true, false, false]);
        // Another process that shares this memory is killed. No process is told to die a second
        // time.
        let again = world.kill(sim, 1);
        assert_eq!(
            (again.signalled, again.aftermath),
            (0, Aftermath::QueuedBefore)
        );
        assert_eq!(world.killer.reaper().queued(sim), 1);
        // The address space exists until the last process has left it.
        world.exit(sim, &world.process(1));
        world.exit(sim, &world.process(2));
        assert!(!shared.has(sim, Flag::Ended));
    });
    world.ends();
}

#[test]
fn memory_of_the_first_process_is_neither_reaped_nor_chosen_again() {
    let world = OomWorld::new(Reaping::MeetInTheMiddle, None);
    world.run(|sim, world| {
        let shared = world.filled(sim, 500);
        world.enroll(sim, 1, Kind::Init, &shared);
        world.enroll(sim, 2, Kind::Process, &shared);
        let killed = world.kill(sim, 2);
        assert_eq!(
            (killed.signalled, killed.aftermath),
            (1, Aftermath::Shielded)
        );
        assert_eq!(world.killer.reaper().queued(sim), 0);
        assert!(shared.has(sim, Flag::Skip));
        assert!(!shared.has(sim, Flag::Unstable) && !shared.has(sim, Flag::Killed));
        let touched = shared.fault(world.memory(sim), START, Access::Write);
        assert!(touched.is_ok(), "it goes on: {touched:?}");
        // A kill of init itself is refused, and so is a kill of a process that shares init's
        // memory.
        let killed = world.kill(sim, 1);
        assert_eq!(
            (killed.signalled, killed.aftermath),
            (0, Aftermath::Shielded)
        );
        assert!(!world.process(1).is(sim, State::Victim));
    });
    world.ends();
}

#[test]
#[expect(
    clippy::arc_with_non_send_sync,
    reason = "on real machines they are both; a simulated one has one thread"
)]
fn a_group_that_dies_together_does_so_but_for_who_is_exempt() {
    let world = OomWorld::new(Reaping::MeetInTheMiddle, None);
    world.run(|sim, world| {
        let root = Arc::new(Budget::new(sim, u64::MAX));
        let group = Budget::under(sim, u64::MAX, Arc::clone(&root)).killed_together();
        let group = Arc::new(group);
        let member = Arc::new(Budget::under(sim, u64::MAX, Arc::clone(&group)));
        let enroll = |id, kind, budget| {
            let space = world.space(sim, Some(budget), None);
            world.fill(sim, &space, START, 100);
            world.enroll(sim, id, kind, &space)
        };
        enroll(1, Kind::Process, &member);
        enroll(2, Kind::Process, &group);
        enroll(3, Kind::Process, &member).set_adj(ScoreAdj::NEVER);
        enroll(4, Kind::Init, &group);
        enroll(5, Kind::Process, &root);
        enroll(6, Kind::Process, &member);
        // The OOM code looks for a budget (a limit on the pages of a group of processes) whose
        // processes die together. The search begins at the process's own budget, goes upwards, and
        // stops at the budget that ran out. Here the member's own budget ran out, and its processes
        // do not die together. So only process 6 is killed.
        world.kill_for(sim, 6, Some(&member));
        assert_eq!(world.killed(), [6]);
        let killed = world.kill_for(sim, 1, Some(&root));
        assert_eq!(killed.signalled, 2);
        assert_eq!(world.killed(), [6, 1, 2]);
        assert_eq!(world.killer.victims(sim), 3);
        assert_eq!(world.killer.reaper().queued(sim), 3);
    });
    let order: Vec<u32> = world
        .done
        .borrow()
        .iter()
        .map(|(_, done)| done.process.0)
        .collect();
    assert_eq!(order.len(), 3, "all are reaped");
    world.ends();
}

#[test]
fn of_those_that_are_due_the_last_one_is_reaped_first() {
    let world = OomWorld::new(Reaping::Ascending, None);
    world.run(|sim, world| {
        for id in 1..=3 {
            let space = world.filled(sim, 100);
            world.enroll(sim, id, Kind::Process, &space);
        }
        world.reaps.set(false);
        for id in 1..=3 {
            world.kill(sim, id);
            sim.sleep(Nanos(MS));
        }
        sim.sleep(Nanos(DELAY));
        let reaper = world.killer.reaper();
        let mut reaped = Vec::new();
        while let Some(done) = reaper.step(world.memory(sim)).done {
            reaped.push(done.process.0);
        }
        assert_eq!(reaped, [3, 2, 1]);
    });
    world.ends();
}

#[test]
fn who_is_dying_anyway_is_not_told_but_may_use_the_reserves_and_is_reaped() {
    let world = lone(Reaping::DescendingByVma, None);
    world.run(|sim, world| {
        let dying = world.process(1);
        dying.set(sim, State::Exiting);
        let killed = world.kill(sim, 1);
        assert_eq!((killed.signalled, killed.aftermath), (0, Aftermath::Queued));
        assert!(dying.is(sim, State::Victim));
        assert_eq!(world.killer.kills(sim), 0);
    });
    assert_eq!(world.done.borrow()[0].1.how, How::Emptied);
    world.ends();
}

#[test]
fn who_writes_its_memory_to_a_file_is_told_again() {
    let world = lone(Reaping::DescendingByVma, None);
    world.run(|sim, world| {
        let dumping = world.process(1);
        dumping.set(sim, State::Killed);
        dumping.set(sim, State::CoreDumping);
        assert_eq!(world.kill(sim, 1).signalled, 1);
        assert_eq!(world.killed(), [1]);
    });
    world.ends();
}

#[test]
fn who_has_left_is_not_killed_does_not_become_a_victim_and_does_not_exit_again() {
    let world = lone(Reaping::MeetInTheMiddle, None);
    world.run(|sim, world| {
        let process = world.process(1);
        world.exit(sim, &process);
        let killed = world.kill(sim, 1);
        assert_eq!((killed.signalled, killed.aftermath), (0, Aftermath::Gone));
        assert!(!process.is(sim, State::Victim));
        assert_eq!(world.killer.victims(sim), 0);
        let again = world.killer.exit(world.memory(sim), &process);
        assert_eq!(again, Err(ExitError::Ended));
        assert_eq!(world.killer.victims(sim), 0);
    });
    world.ends();
}

#[test]
#[should_panic(expected = "every page is back")]
fn a_page_that_is_not_given_back_is_found() {
    let world = lone(Reaping::MeetInTheMiddle, None);
    world.run(|sim, world| {
        let page = world.small.mm.pages().alloc(sim, any(Order::ZERO));
        page.expect("there is memory");
    });
    world.ends();
}
