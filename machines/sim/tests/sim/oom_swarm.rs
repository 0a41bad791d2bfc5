//! Tests random kills, releases (Linux: `process_mrelease`) and exits of processes, some of which
//! share memory, on CPUs that stall.

use crate::support;

use std::rc::Rc;

use plimsoll_mm::oom::{Kind, ReleaseError, Released, State, release};
use plimsoll_mm::space::ExitError;
use plimsoll_mm::units::{Nanos, Vpn};
use plimsoll_sim::{Faults, Sim};
use support::oom_world::{Device, START, Setting, Space};
use support::{Dice, OomWorld, seeds};

const MS: u32 = 1_000_000;
const ACTORS: u32 = 4;

fn world(seed: u64, dice: &mut Dice) -> Rc<OomWorld> {
    let faults = Faults {
        stall_every: Nanos::from_ms(5),
        stall_for: Nanos(u64::from(dice.below(2 * MS))),
        migrate_every: Nanos::from_ms(3),
        ..Faults::default()
    };
    Setting::drawn(seed, dice, faults).world()
}

/// Creates an address space of a few mappings that are close together or far apart. Some of these
/// address spaces have a device that does not let the reaper unmap anything.
fn space(sim: &Sim, world: &OomWorld, dice: &mut Dice) -> Space {
    let device = dice.chance(25).then_some(Device::Refuses);
    let space = world.space(sim, None, device);
    let mut start = START;
    for _ in 0..dice.between(1, 6) {
        let pages = u64::from(dice.between(1, 1500));
        world.fill(sim, &space, start, pages);
        start = Vpn(start.0 + pages + dice.pick(&[1, 500, 1 << 18]));
    }
    space
}

fn populate(sim: &Sim, world: &OomWorld, dice: &mut Dice) {
    let mut spaces: Vec<Space> = Vec::new();
    for id in 1..=dice.between(2, 8) {
        let mut nth = dice.index(spaces.len() + 1);
        if nth == spaces.len() || dice.chance(50) {
            nth = spaces.len();
            spaces.push(space(sim, world, dice));
        }
        let kind = match dice.below(10) {
            0 => Kind::Init,
            1 => Kind::KernelThread,
            _ => Kind::Process,
        };
        let process = world.enroll(sim, id, kind, &spaces[nth]);
        if dice.chance(20) {
            process.freeze(sim);
        }
    }
}

/// Kills a random process or releases its memory (Linux: `process_mrelease`), or makes it exit.
fn act(sim: &Sim, world: &OomWorld, dice: &mut Dice) {
    let processes = world.processes.borrow().clone();
    let process = &processes[dice.index(processes.len())];
    let memory = world.memory(sim);
    match dice.below(4) {
        0 | 1 => {
            world.killer.kill(memory, process, &processes.iter(), None);
        }
        2 => {
            let released = release(memory, Some(process), processes.iter(), 0, || false);
            let expected = matches!(
                released,
                Ok(Released::All | Released::Before)
                    | Err(ReleaseError::NotDying
                        | ReleaseError::NoSuchProcess
                        | ReleaseError::Again)
            );
            assert!(expected, "{released:?}");
        }
        _ => {
            // The process exits on its own initiative.
            process.set(sim, State::Killed);
            let exited = world.killer.exit(memory, process);
            assert!(matches!(exited, Ok(_) | Err(ExitError::Ended)));
        }
    }
}

#[test]
fn whatever_happens_to_whom_all_memory_is_back_in_the_end() {
    let name = "whatever_happens_to_whom_all_memory_is_back_in_the_end";
    seeds::each(name, 150, |seed| {
        let mut dice = Dice::new(seed, 0);
        let world = world(seed, &mut dice);
        world.run(move |sim, world| populate(sim, world, &mut dice));
        let start = world.small.sim.stats().now.0;
        for actor in 0..ACTORS {
            world.at(actor, Nanos(start), move |sim, world| {
                let mut dice = Dice::new(seed, u64::from(actor) + 1);
                for _ in 0..dice.between(1, 5) {
                    sim.sleep(Nanos(u64::from(dice.below(15 * MS))));
                    act(sim, world, &mut dice);
                }
            });
        }
        world.small.sim.run();
        world.ends();
    });
}
