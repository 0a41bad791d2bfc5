//! Random kills, releases and exits of processes that share memory at random, on CPUs that stall.

use crate::support;

use std::rc::Rc;

use plimsoll_mm::oom::{Kind, Patience, ReleaseError, Released, State, release};
use plimsoll_mm::space::ExitError;
use plimsoll_mm::space::reap::Reaping;
use plimsoll_mm::units::{Nanos, Vpn};
use plimsoll_sim::{Faults, Sim, SimOptions};
use support::village::{Device, START, Space};
use support::{Dice, Village, seeds};

const MS: u32 = 1_000_000;
const ACTORS: u32 = 4;

/// Makes a village with random faults, reaping and patience.
fn village(seed: u64, dice: &mut Dice) -> Rc<Village> {
    let options = SimOptions {
        seed,
        jitter_ns: dice.below(300),
        faults: Faults {
            stall_every: Nanos::from_ms(5),
            stall_for: Nanos(u64::from(dice.below(2 * MS))),
            migrate_every: Nanos::from_ms(3),
            ..Faults::default()
        },
        ..SimOptions::default()
    };
    let reaping = *dice.pick(&Reaping::ALL);
    let exits = dice.chance(70);
    let exits_after = exits.then(|| Nanos(u64::from(dice.below(30 * MS))));
    let patience = Patience {
        delay: Nanos(u64::from(dice.below(20 * MS))),
        pause: Nanos(u64::from(dice.below(2 * MS))),
        attempts_max: dice.below(4),
    };
    Village::with_options(options, reaping, exits_after, patience)
}

/// Makes an address space of a few mappings, near each other or far apart, and perhaps with a
/// device.
fn space(sim: &Sim, village: &Village, dice: &mut Dice) -> Space {
    let device = dice.chance(25).then_some(Device::Refuses);
    let space = village.space(sim, None, device);
    let mut start = START;
    for _ in 0..dice.between(1, 6) {
        let pages = u64::from(dice.between(1, 1500));
        village.fill(sim, &space, start, pages);
        start = Vpn(start.0 + pages + dice.pick(&[1, 500, 1 << 18]));
    }
    space
}

fn populate(sim: &Sim, village: &Village, dice: &mut Dice) {
    let mut spaces: Vec<Space> = Vec::new();
    for id in 1..=dice.between(2, 8) {
        let mut nth = dice.index(spaces.len() + 1);
        if nth == spaces.len() || dice.chance(50) {
            nth = spaces.len();
            spaces.push(space(sim, village, dice));
        }
        let kind = match dice.below(10) {
            0 => Kind::Init,
            1 => Kind::KernelThread,
            _ => Kind::Process,
        };
        let process = village.enroll(sim, id, kind, &spaces[nth]);
        if dice.chance(20) {
            process.freeze(sim);
        }
    }
}

/// Kills or releases a random process, or lets it exit.
fn act(sim: &Sim, village: &Village, dice: &mut Dice) {
    let processes = village.processes.borrow().clone();
    let process = &processes[dice.index(processes.len())];
    let memory = village.memory(sim);
    match dice.below(4) {
        0 | 1 => {
            village
                .killer
                .kill(memory, process, &processes.iter(), None);
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
            // The process exits by itself.
            process.set(sim, State::Killed);
            let exited = village.killer.exit(memory, process);
            assert!(matches!(exited, Ok(_) | Err(ExitError::Ended)));
        }
    }
}

#[test]
fn whatever_happens_to_whom_all_memory_is_back_in_the_end() {
    let name = "whatever_happens_to_whom_all_memory_is_back_in_the_end";
    seeds::each(name, 150, |seed| {
        let mut dice = Dice::new(seed, 0);
        let village = village(seed, &mut dice);
        village.run(move |sim, village| populate(sim, village, &mut dice));
        let start = village.small.sim.stats().now.0;
        for actor in 0..ACTORS {
            village.at(actor, Nanos(start), move |sim, village| {
                let mut dice = Dice::new(seed, u64::from(actor) + 1);
                for _ in 0..dice.between(1, 5) {
                    sim.sleep(Nanos(u64::from(dice.below(15 * MS))));
                    act(sim, village, &mut dice);
                }
            });
        }
        village.small.sim.run();
        village.ends();
    });
}
