//! Processes that use memory on a machine that runs out of memory.

use std::sync::Arc;

use plimsoll_mm::oom::{Kind, State};
use plimsoll_mm::space::budget::Budget;
use plimsoll_mm::space::{Access, FaultError, MapRequest, Place};
use plimsoll_mm::units::Vpn;
use plimsoll_sim::Sim;

use super::OomWorld;
use super::oom_world::{START, Space};

/// The number of pages in a mapping: more than the machine of any of these tests has.
const SPACE_PAGES: u64 = 1 << 14;

/// Creates process `id`, which has already touched `pages` pages, and adds it to the processes of
/// `world`.
pub(crate) fn process(sim: &Sim, world: &OomWorld, id: u32, pages: u64) {
    let space = roomy(sim, world, None, pages);
    world.enroll(sim, id, Kind::Process, &space);
}

/// Creates an address space whose mapping is larger than memory, and populates `pages` pages of it.
pub(crate) fn roomy(
    sim: &Sim,
    world: &OomWorld,
    budget: Option<&Arc<Budget<Sim>>>,
    pages: u64,
) -> Space {
    let space = world.space(sim, budget, None);
    let request = MapRequest::anonymous(Place::Fixed(START), SPACE_PAGES);
    let memory = world.memory(sim);
    space.map(memory, request).expect("nothing is there");
    let used = space.populate(memory, START..Vpn(START.0 + pages));
    used.expect("there is memory");
    space
}

/// Lets process `id` touch `pages` pages of its mapping on this CPU, from page number `first` of
/// the mapping on. If the process is killed, it stops and exits. Returns the number of pages that
/// it touched.
pub(crate) fn grow(sim: &Sim, world: &OomWorld, id: u32, first: u64, pages: u64) -> u64 {
    let process = world.process(id);
    let space = Arc::clone(process.space(sim).expect("it lives"));
    world.becomes(sim, id);
    let mut touched = 0;
    while touched < pages && !process.is(sim, State::Killed) {
        let page = Vpn(START.0 + first + touched);
        match space.fault(world.memory(sim), page, Access::Write) {
            Ok(_) => touched += 1,
            Err(FaultError::Unstable(_) | FaultError::OutOfMemory(_)) => break,
            Err(error) => panic!("there is memory once a process has died: {error}"),
        }
    }
    if process.is(sim, State::Killed) {
        world.exit(sim, &process);
    }
    touched
}
