//! The OOM killer waits for some time for a victim that is exiting, even if the reaper has given up
//! on it, because the victim still has its memory.
//!
//! In these tests, a task that changes the victim's mappings holds the lock of the mappings. So the
//! exit is delayed, and the reaper cannot start.

use crate::support;

use std::rc::Rc;

use plimsoll_mm::event::Event;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::oom::{How, Kind, Patience};
use plimsoll_mm::space::{MapRequest, Place};
use plimsoll_mm::units::{Nanos, ProcessId};
use plimsoll_sim::Sim;
use support::OomWorld;
use support::oom_world::{Device, START, Setting};
use support::pressure::{grow, process};

const PAGES: u32 = 1 << 13;
const MS: u64 = 1_000_000;
/// The time at which memory runs out, in nanoseconds. Every process has populated its memory by
/// then.
const SHORT: u64 = 200 * MS;

/// Creates a machine on which a killed process begins to exit after 0.1 ms. The reaper makes its
/// only attempt 0.3 ms after the kill.
fn pressed() -> Rc<OomWorld> {
    let patience = Patience {
        delay: Nanos(3 * MS / 10),
        attempts_max: 1,
        ..Patience::LINUX
    };
    let setting = Setting {
        pages: PAGES,
        patience,
        exits_after: Some(Nanos(MS / 10)),
        ..Setting::default()
    };
    setting.world()
}

/// Creates process `id`, with `pages` pages and a device. If a task later changes the mappings of
/// the process, this task waits for the device until time `until`, in nanoseconds.
fn kept(sim: &Sim, world: &OomWorld, id: u32, pages: u64, until: u64) {
    let space = world.space(sim, None, Some(Device::BusyUntil(Nanos(until))));
    world.fill(sim, &space, START, pages);
    world.enroll(sim, id, Kind::Process, &space);
}

/// Starts a task that begins to change the mappings of process `id` before the time [`SHORT`]. So
/// the task holds the lock of these mappings when memory runs out.
fn keep(world: &Rc<OomWorld>, id: u32) {
    world.at(3, Nanos(SHORT / 2), move |sim, world| {
        let request = MapRequest::anonymous(Place::Replace(START), 10);
        let space = world.space_of(sim, id);
        let mapped = space.map(world.memory(sim), request);
        mapped.expect("there is memory by then");
    });
}

/// Asserts that the reaper has given up on the victims `ids` and on no others.
fn has_given_up_on(world: &OomWorld, ids: &[u32]) {
    let done = world.done.borrow();
    let given_up = done.iter().filter_map(|(_, done)| match done.how {
        How::GaveUp { .. } => Some(done.process.0),
        How::Gone | How::Emptied => None,
    });
    assert_eq!(given_up.collect::<Vec<_>>(), ids);
}

#[test]
fn nobody_else_dies_while_a_victim_is_leaving() {
    let world = pressed();
    let until = SHORT + 6 * MS;
    world.run(move |sim, world| {
        process(sim, world, 1, 10);
        kept(sim, world, 2, 4000, until);
        process(sim, world, 3, 3900);
    });
    keep(&world, 2);
    world.at(0, Nanos(SHORT), move |sim, world| {
        world.kill(sim, 2);
        assert_eq!(grow(sim, world, 1, 10, 2000), 2000);
        let now = sim.now();
        assert!(now.0 >= until, "{now:?}: the victim's memory was needed");
    });
    world.small.sim.run();
    assert_eq!(world.killed(), [2]);
    has_given_up_on(&world, &[2]);
    world.ends();
}

#[test]
fn a_victim_that_is_stuck_is_waited_for_once_and_the_next_one_anew() {
    let world = pressed();
    world.run(move |sim, world| {
        process(sim, world, 1, 10);
        kept(sim, world, 2, 2500, SHORT + 100 * MS);
        kept(sim, world, 3, 2400, SHORT + 17 * MS);
        process(sim, world, 4, 2300);
    });
    keep(&world, 2);
    keep(&world, 3);
    world.at(0, Nanos(SHORT), |sim, world| {
        world.kill(sim, 2);
        assert_eq!(grow(sim, world, 1, 10, 2000), 2000);
    });
    world.small.sim.run();
    let of = |(at, event)| (event == Event::OomKill(ProcessId(3))).then_some(at);
    let second: Vec<Nanos> = world.events().into_iter().filter_map(of).collect();
    let soon_after = SHORT + 10 * MS..SHORT + 13 * MS;
    assert!(
        second.len() == 1 && soon_after.contains(&second[0].0),
        "after ten pauses of a millisecond: {second:?}"
    );
    assert_eq!(world.killed(), [2, 3], "the third is spared");
    has_given_up_on(&world, &[2, 3]);
    world.ends();
}
