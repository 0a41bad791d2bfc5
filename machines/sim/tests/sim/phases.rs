//! Tests at which times the vmstat work of each CPU runs, on the timer wheel and on exact timers.

use crate::support;

use std::collections::BTreeMap;

use plimsoll_mm::design::Design;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Hz, Nanos, Pages};
use plimsoll_mm::vmstat::schedule::{Phased, RoundJiffies};
use plimsoll_mm::vmstat::shepherd::AtOnce;
use support::small::profile;
use support::{Dice, Small, seeds};

const INTERVAL: Nanos = Nanos::SECOND;

/// Creates a machine whose CPUs are all busy and always have differentials: amounts that are not
/// yet added to the shared counters.
fn busy(cpus: u32, hz: u32, design: Design) -> Small {
    let mut config = Config::new(Layout::arena(Pages(1 << 16)));
    config.design = design;
    let small = Small::new(&profile(Topology::flat(cpus), hz), config);
    small.mm.start(&small.sim);
    for cpu in small.sim.topology().ids() {
        small.keep_busy(cpu);
    }
    small
}

/// Lets the machine run for `intervals` more intervals of the vmstat work.
fn run_on(small: &Small, intervals: u64) {
    let now = small.sim.now().0;
    small.sim.run_until(Nanos(now + intervals * INTERVAL.0));
}

/// Takes random CPUs offline and brings them back online. Runs on CPU 0, which stays online.
fn plug(small: &Small, dice: &mut Dice) {
    let cpus = small.sim.topology().cpus();
    let mut gone = Vec::new();
    for _ in 0..dice.below(cpus) {
        let cpu = CpuId(dice.below(cpus));
        if cpu.0 == 0 || !small.sim.is_online(cpu) {
            continue;
        }
        gone.push(cpu);
        small.on(0, move |sim, mm| {
            mm.cpu_going(sim, cpu);
            sim.set_online(cpu, false);
            sim.sleep(Nanos::from_ms(2));
            mm.cpu_dead(sim, cpu);
        });
    }
    run_on(small, u64::from(dice.below(3)));
    for cpu in gone {
        if dice.chance(50) {
            small.on(0, move |sim, mm| {
                sim.set_online(cpu, true);
                mm.cpu_online(sim, cpu);
            });
            // When `cpu` went offline, its busy task migrated to another CPU, from which it does
            // not return. So start another task.
            small.keep_busy(cpu);
        }
    }
}

/// Checks that the vmstat work of every online CPU starts once per interval, within a jiffy of the
/// CPU's *phase*: the moment in each interval that the schedule gives to this CPU.
fn fires_in_turn(small: &Small, hz: u32) {
    // If CPUs have come back online, the shepherd, which restarts their vmstat work, finds them
    // within two of its rounds. After that, the vmstat work of each CPU has to start once before it
    // starts at the right moment of each interval.
    run_on(small, 5);
    let from = small.sim.now();
    run_on(small, 6);
    let jiffy = Nanos::SECOND.0 / u64::from(hz);
    let mut phases = Vec::new();
    for cpu in small.sim.topology().ids() {
        let mut starts = small.starts_of(cpu);
        starts.retain(|&at| at > from);
        if !small.sim.is_online(cpu) {
            assert_eq!(starts, [], "CPU {cpu} is offline");
            continue;
        }
        assert!(
            (6..=7).contains(&starts.len()),
            "CPU {cpu} starts at {starts:?}"
        );
        for pair in starts.windows(2) {
            let gap = pair[1].since(pair[0]).0;
            assert!(
                gap.abs_diff(INTERVAL.0) <= jiffy,
                "CPU {cpu} starts at {starts:?}"
            );
        }
        phases.push(starts[0].0 % INTERVAL.0);
    }
    phases.sort_unstable();
    let online = phases.len();
    let apart = INTERVAL.0 / online as u64 / 2;
    for (index, &phase) in phases.iter().enumerate() {
        let next = phases[(index + 1) % online];
        let gap = if online == 1 {
            INTERVAL.0
        } else {
            (next + INTERVAL.0 - phase) % INTERVAL.0
        };
        assert!(gap >= apart, "{online} CPUs, {gap} ns apart: {phases:?}");
    }
}

#[test]
fn phased_fires_every_cpu_once_per_interval_at_a_phase_of_its_own() {
    seeds::each("phased_fires_every_cpu_once_per_interval", 100, |seed| {
        let dice = &mut Dice::new(seed, 0);
        // Machines with 1, 2 and 64 CPUs, the extremes, are drawn more often than others.
        let cpus = *dice.clone().pick(&[1, 2, 64, dice.between(1, 64)]);
        let hz = *dice.pick(&[100, 250, 300, 1000]);
        let design = Design {
            schedule: &Phased,
            ..Design::OURS
        };
        let small = busy(cpus, hz, design);
        fires_in_turn(&small, hz);
        for _ in 0..dice.below(3) {
            plug(&small, dice);
            fires_in_turn(&small, hz);
        }
    });
}

/// Runs Linux's schedule for five seconds. Counts for each tick how often the vmstat work of a CPU
/// starts between this tick and the next. Returns the largest of these counts.
fn crowd(hz: u32, cpus: u32) -> usize {
    let linux = Design {
        schedule: &RoundJiffies,
        shepherd: &AtOnce,
        ..Design::UNPATCHED
    };
    let small = busy(cpus, hz, linux);
    run_on(&small, 12);
    let from = small.sim.now();
    run_on(&small, 5);
    let hz = Hz::new(hz).expect("in range");
    let mut ticks = BTreeMap::new();
    for cpu in small.sim.topology().ids() {
        for at in small.starts_of(cpu).into_iter().filter(|&at| at > from) {
            *ticks.entry(hz.jiffies(at)).or_insert(0) += 1;
        }
    }
    ticks.into_values().max().unwrap_or(0)
}

/// Checks how many of 72 CPUs do their vmstat work in the same tick. Linux sets the CPUs' timers 3
/// jiffies apart. The timer wheel rounds the expiry times to a multiple of 64 jiffies at HZ 1000,
/// and of 8 jiffies at HZ 250. So about 64 / 3 CPUs share a tick at HZ 1000, and 3 or 4 CPUs share
/// one at HZ 250.
#[test]
fn the_wheel_crowds_round_jiffies_at_hz_1000_and_hardly_at_hz_250() {
    let crowds = [crowd(1000, 72), crowd(250, 72)];
    assert!(
        (20..=22).contains(&crowds[0]) && crowds[1] <= 4,
        "{crowds:?}"
    );
}
