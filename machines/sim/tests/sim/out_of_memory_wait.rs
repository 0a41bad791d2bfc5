//! The OOM killer waits a while for a victim that is exiting and that the reaper has given up on,
//! because that victim still has its memory.
//!
//! A task that changes the victim's mappings holds their lock, which delays the exit and keeps the
//! reaper out.

use crate::support;

use std::rc::Rc;

use plimsoll_mm::event::Event;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::oom::{How, Kind, Patience, Rules};
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::space::{Backing, MapRequest, Place};
use plimsoll_mm::units::{Nanos, ProcessId};
use plimsoll_sim::{Sim, SimOptions};
use support::Village;
use support::village::{Device, Press, START};
use support::village_press::{grow, killed, process};

const PAGES: u32 = 1 << 13;
const MS: u64 = 1_000_000;
/// The time, in nanoseconds, at which memory runs out. Every process has its memory by then.
const SHORT: u64 = 200 * MS;

/// A machine on which a killed process begins to exit after 0.1 ms, and on which the reaper makes its
/// only attempt 0.3 ms after the kill.
fn pressed() -> Rc<Village> {
    let patience = Patience {
        delay: Nanos(3 * MS / 10),
        attempts_max: 1,
        ..Patience::LINUX
    };
    Village::pressed(
        SimOptions::default(),
        Reaping::MeetInTheMiddle,
        (Some(Nanos(MS / 10)), patience),
        Press {
            pages: PAGES,
            rules: Rules::default(),
        },
    )
}

/// Makes process `id`, which uses `pages`. A change of its mappings takes until `until`.
fn kept(sim: &Sim, village: &Village, (id, pages): (u32, u64), until: u64) {
    let space = village.space(sim, None, Some(Device::BusyUntil(Nanos(until))));
    village.fill(sim, &space, START, pages);
    village.enroll(sim, id, Kind::Process, &space);
}

/// Starts a task that changes the mappings of process `id` from before [`SHORT`] on.
fn keep(village: &Rc<Village>, id: u32) {
    village.at(3, Nanos(SHORT / 2), move |sim, village| {
        let request = MapRequest {
            place: Place::Replace(START),
            pages: 10,
            backing: Backing::Anonymous { huge: false },
        };
        let space = village.space_of(sim, id);
        let mapped = space.map(village.memory(sim), request);
        mapped.expect("there is memory by then");
    });
}

/// Asserts that the reaper has given up on these victims, and on no others.
fn has_given_up_on(village: &Village, ids: &[u32]) {
    let done = village.done.borrow();
    let given_up = done.iter().filter_map(|(_, done)| match done.how {
        How::GaveUp { .. } => Some(done.process.0),
        How::Gone | How::Emptied => None,
    });
    assert_eq!(given_up.collect::<Vec<_>>(), ids);
}

#[test]
fn nobody_else_dies_while_a_victim_is_leaving() {
    let village = pressed();
    let until = SHORT + 6 * MS;
    village.run(move |sim, village| {
        process(sim, village, 1, 10);
        kept(sim, village, (2, 4000), until);
        process(sim, village, 3, 3900);
    });
    keep(&village, 2);
    village.at(0, Nanos(SHORT), move |sim, village| {
        village.kill(sim, 2);
        assert_eq!(grow(sim, village, 1, (10, 2000)), 2000);
        let now = sim.now();
        assert!(now.0 >= until, "{now:?}: the victim's memory was needed");
    });
    village.small.sim.run();
    assert_eq!(killed(&village), [2]);
    has_given_up_on(&village, &[2]);
    village.ends();
}

#[test]
fn a_victim_that_is_stuck_is_waited_for_once_and_the_next_one_anew() {
    let village = pressed();
    village.run(move |sim, village| {
        process(sim, village, 1, 10);
        kept(sim, village, (2, 2500), SHORT + 100 * MS);
        kept(sim, village, (3, 2400), SHORT + 17 * MS);
        process(sim, village, 4, 2300);
    });
    keep(&village, 2);
    keep(&village, 3);
    village.at(0, Nanos(SHORT), |sim, village| {
        village.kill(sim, 2);
        assert_eq!(grow(sim, village, 1, (10, 2000)), 2000);
    });
    village.small.sim.run();
    let of = |(at, event)| (event == Event::OomKill(ProcessId(3))).then_some(at);
    let second: Vec<Nanos> = village.events().into_iter().filter_map(of).collect();
    let soon_after = SHORT + 10 * MS..SHORT + 13 * MS;
    assert!(
        second.len() == 1 && soon_after.contains(&second[0].0),
        "after ten pauses of a millisecond: {second:?}"
    );
    assert_eq!(killed(&village), [2, 3], "the third is spared");
    has_given_up_on(&village, &[2, 3]);
    village.ends();
}
