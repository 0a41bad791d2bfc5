//! The race between an exiting task and helper tasks to empty an address space, on the simulated
//! machine `laptop-2`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::site::LockClass;
use plimsoll_mm::space::{AddressSpace, Flag, Memory, Spaces};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Nanos, Pages};
use plimsoll_sim::profile::{Card, Profile};
use plimsoll_sim::{Sim, SimOptions};

use super::victim::{Shape, build, frames};
use super::{Case, Took};
use crate::catalog::machines;
use crate::error::Error;

/// The simulated machine. Its prices were measured on a computer that is similar to the computers
/// on which this benchmark is meant to run.
pub(super) const MACHINE: &str = "laptop-2";

/// How long the machine waits between building the victim (an address space) and starting the race
/// to empty it.
const PAUSE: Nanos = Nanos(1_000_000);

/// Loads the profile of [`MACHINE`]. If the profile has fewer than `threads` CPUs, gives it
/// `threads` CPUs.
pub(super) fn profile(threads: u32) -> Result<Profile, Error> {
    let mut profile = machines::load(MACHINE, Card::Mid)?;
    if threads > profile.topology.cpus() {
        profile.topology = Topology::flat(threads);
    }
    Ok(profile)
}

/// Builds a victim of `pages`. The exiting task and `helpers` helper tasks empty it together. In a
/// case without helpers, the exiting task empties it alone.
pub(super) fn race(
    profile: &Profile,
    (case, shape, helpers): (&Case, Shape, u32),
    pages: Pages,
    seed: u64,
) -> Result<Took, Error> {
    let design = Design {
        reaping: case.reaping,
        ..Design::OURS
    };
    let options = SimOptions {
        seed,
        under_load: true,
        ..SimOptions::default()
    };
    let cannot = |why: &dyn std::fmt::Display| Error::Invalid(why.to_string());
    let sim = Sim::new(profile, options);
    let mut config = Config::new(Layout::arena(frames(pages)));
    config.design = design;
    let manager = Rc::new(Manager::new(&sim, config).map_err(|why| cannot(&why))?);
    let spaces = Rc::new(Spaces::new(&sim, &design, 0).map_err(|why| cannot(&why))?);

    let made: Rc<Cell<Option<AddressSpace<Sim>>>> = Rc::default();
    let (out, of) = (Rc::clone(&made), (Rc::clone(&manager), Rc::clone(&spaces)));
    sim.spawn(CpuId(0), move |sim| {
        out.set(Some(build(Memory::new(sim, &of.0, &of.1), shape, pages)));
    });
    sim.run();
    let space = Rc::new(made.take().expect("the task made it"));

    let start = Nanos(sim.stats().now.0 + PAUSE.0);
    let ends: Rc<RefCell<Vec<u64>>> = Rc::default();
    let helpers = if case.helps { helpers } else { 0 };
    for cpu in (0..=helpers).map(CpuId) {
        let of = (Rc::clone(&manager), Rc::clone(&spaces));
        let (space, ends) = (Rc::clone(&space), Rc::clone(&ends));
        sim.spawn(cpu, move |sim| {
            sim.sleep_until(start);
            let memory = Memory::new(sim, &of.0, &of.1);
            if cpu == CpuId(0) {
                space.exit(memory).expect("it was not ended before");
            } else {
                let _reaped = space.try_reap(memory);
            }
            ends.borrow_mut().push(sim.now().0 - start.0);
        });
    }
    sim.run();
    assert!(space.has(&sim, Flag::Ended), "the last walker has ended it");
    let space = Rc::into_inner(space).expect("all tasks have ended");
    assert_eq!(space.destroy(&sim), Ok(()));

    let (ends, stats) = (ends.take(), sim.stats());
    let waits = [LockClass::PageTable, LockClass::UpperTable];
    let wait_ns: u64 = waits
        .map(|class| stats.class(class).wait_total.0)
        .iter()
        .sum();
    Ok(Took {
        wall_ns: ends.iter().copied().max().unwrap_or(0) as f64,
        work_ns: ends.iter().sum::<u64>() as f64,
        table_wait_ns: wait_ns as f64,
        ..Took::default()
    })
}
