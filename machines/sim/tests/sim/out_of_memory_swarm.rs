//! Memory runs out at random times, on CPUs that stall. In the end all memory is free again, and no
//! process is killed needlessly.

use crate::support;

use std::cell::Cell;
use std::rc::Rc;

use plimsoll_mm::oom::{Kind, ScoreAdj};
use plimsoll_mm::units::Nanos;
use plimsoll_sim::{Faults, Sim};
use support::oom_world::Setting;
use support::pressure::{grow, roomy};
use support::{Dice, OomWorld, seeds};

const MS: u32 = 1_000_000;
const PAGES: u32 = 1 << 12;
/// The CPUs on which processes allocate. Of the machine's two other CPUs, one runs the exits of
/// victims, and one runs the reaper.
const ALLOCATORS: [u32; 2] = [0, 3];

fn world(seed: u64, dice: &mut Dice) -> Rc<OomWorld> {
    let faults = Faults {
        stall_every: Nanos::from_ms(2),
        stall_for: Nanos(u64::from(dice.below(3 * MS))),
        ..Faults::default()
    };
    let setting = Setting {
        pages: PAGES,
        ..Setting::drawn(seed, dice, faults)
    };
    setting.world()
}

fn enroll(sim: &Sim, world: &OomWorld, id: u32, kind: Kind, pages: u32) {
    let space = roomy(sim, world, None, u64::from(pages));
    world.enroll(sim, id, kind, &space);
}

/// Runs both allocating processes to the end. Returns how many pages each of them touched.
fn pressure(world: &Rc<OomWorld>, wanted: [u32; 2]) -> [u64; 2] {
    let start = world.small.sim.stats().now;
    let touched: Rc<[Cell<Option<u64>>; 2]> = Rc::default();
    for (nth, (id, cpu)) in (1..).zip(ALLOCATORS).enumerate() {
        let touched = Rc::clone(&touched);
        world.at(cpu, start, move |sim, world| {
            let got = grow(sim, world, id, 0, u64::from(wanted[nth]));
            touched[nth].set(Some(got));
        });
    }
    world.small.sim.run();
    [0, 1].map(|nth: usize| touched[nth].get().expect("no task waits for ever"))
}

#[test]
fn one_victim_is_enough_if_it_has_enough() {
    let name = "one_victim_is_enough_if_it_has_enough";
    seeds::each(name, 120, |seed| {
        let mut dice = Dice::new(seed, 0);
        let world = world(seed, &mut dice);
        let hog = dice.between(2000, 3500);
        world.run(move |sim, world| {
            for id in 1..=2 {
                enroll(sim, world, id, Kind::Process, 0);
                world
                    .process(id)
                    .set_adj(ScoreAdj::new(-500).expect("in range"));
            }
            enroll(sim, world, 3, Kind::Process, 100);
            enroll(sim, world, 4, Kind::Process, hog);
        });
        // Together, the two processes want at most the pages that are free and the pages of the hog
        // (the large process that can be killed), except some pages that page tables need.
        let most = PAGES - 100 - 200;
        let one = dice.between(0, most);
        let wanted = [one, dice.between(0, most - one)];
        let touched = pressure(&world, wanted);
        assert_eq!(
            touched,
            wanted.map(u64::from),
            "all tasks got the pages they wanted"
        );
        let killed = world.killed();
        let needed = wanted.iter().sum::<u32>() + hog + 100 > PAGES;
        let is_enough = killed == [4] || killed.is_empty() && !needed;
        assert!(is_enough, "{killed:?} for {wanted:?} of {hog}");
        world.ends();
    });
}

#[test]
fn whoever_is_killed_in_whatever_order_all_memory_is_back_in_the_end() {
    let name = "whoever_is_killed_in_whatever_order_all_memory_is_back_in_the_end";
    seeds::each(name, 120, |seed| {
        let mut dice = Dice::new(seed, 0);
        let world = world(seed, &mut dice);
        let others: Vec<(Kind, i32, u32)> = (0..dice.between(1, 5))
            .map(|_| {
                let kind = *dice.pick(&[Kind::Process, Kind::Process, Kind::Init]);
                (kind, *dice.pick(&[-1000, -500, 0, 0, 700]), dice.below(600))
            })
            .collect();
        world.run(move |sim, world| {
            (1..=2).for_each(|id| enroll(sim, world, id, Kind::Process, 0));
            for (id, (kind, adj, pages)) in (3..).zip(others) {
                enroll(sim, world, id, kind, pages);
                let adj = ScoreAdj::new(adj).expect("in range");
                world.process(id).set_adj(adj);
            }
        });
        pressure(&world, [PAGES; 2].map(|pages| pages + 100));
        let mut killed = world.killed();
        assert!(!killed.is_empty(), "there is not so much");
        killed.sort_unstable();
        let told = killed.len();
        killed.dedup();
        assert_eq!(killed.len(), told, "no process is killed twice");
        world.ends();
    });
}
