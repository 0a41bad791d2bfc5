//! Tests the effects of load: busy CPUs take clock frequency, execution units and memory bandwidth
//! from each other.

use crate::common;

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_mm::machine::{Lock, Machine};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::profile::{Card, Load, LoadedBandwidth, LoadedClock, Profile};
use plimsoll_sim::{LockModel, Sim, SimOptions};

/// Returns a profile with the effects of load `load`. The machine has two sockets with eight cores
/// each, and each core has two CPUs.
fn profile(load: Load) -> Profile {
    Profile {
        load,
        ..common::tall(32)
    }
}

fn bandwidth(node_gb_per_s: u32) -> Load {
    let mut moved_bytes = [0; Work::ALL.len()];
    moved_bytes[Work::Fault as usize] = 1000;
    Load {
        clock: None,
        bandwidth: Some(LoadedBandwidth {
            node_gb_per_s,
            moved_bytes,
        }),
    }
}

fn clock(all_core_percent: u32, sibling_percent: u32) -> Load {
    Load {
        clock: Some(LoadedClock {
            all_core_percent,
            sibling_percent,
        }),
        bandwidth: None,
    }
}

fn under_load(lock_model: LockModel) -> SimOptions {
    SimOptions {
        under_load: true,
        lock_model,
        ..SimOptions::default()
    }
}

/// Lets each of `cpus` handle page faults for 50 ms. Returns the number of faults that each CPU has
/// handled.
fn faults(load: Load, cpus: &[u32]) -> Vec<u64> {
    let sim = Sim::new(&profile(load), under_load(LockModel::RunAhead));
    let done = Rc::new(RefCell::new(vec![0; cpus.len()]));
    for (nth, &cpu) in cpus.iter().enumerate() {
        let done = Rc::clone(&done);
        sim.spawn(CpuId(cpu), move |sim| {
            loop {
                sim.spend(Work::Fault, 1);
                done.borrow_mut()[nth] += 1;
            }
        });
    }
    sim.run_until(Nanos::from_ms(50));
    done.take()
}

/// Checks that `number` is within 3 % of `expected`.
#[track_caller]
fn near(number: u64, expected: u64) {
    let off = number.abs_diff(expected);
    assert!(off * 100 <= expected * 3, "{number}, expected {expected}");
}

/// The number of faults that a CPU handles in 50 ms if nothing slows it down: one every 50 ns.
const ALONE: u64 = 1_000_000;

#[test]
fn one_cpu_alone_is_not_slowed() {
    for load in [bandwidth(20), clock(50, 50)] {
        near(faults(load, &[3])[0], ALONE);
    }
}

#[test]
fn twice_the_bandwidth_of_a_node_halves_the_work_of_its_cpus_alike() {
    // If nothing slowed the eight CPUs down, each of them would move 20 GB/s, together twice the
    // bandwidth of the memory.
    let cpus = [0, 2, 4, 6, 8, 10, 12, 14];
    for done in faults(bandwidth(80), &cpus) {
        near(done, ALONE / 2);
    }
    for done in faults(bandwidth(160), &cpus) {
        near(done, ALONE);
    }
}

/// If nothing interrupts a CPU, the bytes that the CPU moves in a window of virtual time slow down
/// the CPU's steps from the next window on, and not later.
#[test]
fn a_cpu_that_runs_alone_is_bound_by_its_node_too() {
    near(faults(bandwidth(10), &[3])[0], ALONE / 2);
}

#[test]
fn each_node_has_bandwidth_of_its_own() {
    let cpus = [0, 2, 4, 6, 16, 18, 20, 22];
    for done in faults(bandwidth(80), &cpus) {
        near(done, ALONE);
    }
}

#[test]
fn only_steps_that_move_pages_wait_for_memory() {
    let sim = Sim::new(&profile(bandwidth(10)), under_load(LockModel::RunAhead));
    for cpu in [0, 2, 4, 6] {
        sim.spawn(CpuId(cpu), |sim| sim.spend(Work::Zap, 200_000));
    }
    sim.run();
    assert!(sim.now() < Nanos(10_100_000), "{:?}", sim.now());
}

#[test]
fn a_clock_falls_with_the_busy_cores_of_its_socket() {
    // These are one CPU of each of the eight cores of the first socket, and one CPU of the second
    // socket.
    let done = faults(clock(50, 100), &[0, 2, 4, 6, 8, 10, 12, 14, 16]);
    for of_first in &done[..8] {
        near(*of_first, ALONE / 2);
    }
    near(done[8], ALONE);
    let half = faults(clock(44, 100), &[0, 2, 4, 6, 8]);
    near(half[0], ALONE * 68 / 100);
}

/// A little core has half the speed of the core to which the prices apply. Both of its CPUs are
/// busy, so each of them has 60 % of that half.
#[test]
fn load_slows_a_little_core_in_proportion_to_its_own_speed() {
    let sim = Sim::new(
        &Profile {
            speed_percent: vec![50; 32],
            ..profile(clock(100, 60))
        },
        under_load(LockModel::RunAhead),
    );
    for cpu in [0, 1] {
        sim.spawn(CpuId(cpu), |sim| {
            (0..100_000).for_each(|_| sim.spend(Work::Fault, 1));
        });
    }
    sim.run();
    // At 30 % of the speed, a step of 50 ns takes about 167 ns.
    near(sim.now().0, 100_000 * 167);
}

/// Limited memory bandwidth slows down reading a page back from swap, just as it slows down a page
/// fault.
#[test]
fn every_step_that_moves_pages_waits_for_memory() {
    let mut load = bandwidth(80);
    let moved = load.bandwidth.as_mut().expect("has one");
    moved.moved_bytes[Work::SwapIn as usize] = 1000;
    let sim = Sim::new(&profile(load), under_load(LockModel::RunAhead));
    for cpu in [0, 2, 4, 6, 8, 10, 12, 14] {
        sim.spawn(CpuId(cpu), |sim| {
            (0..200_000).for_each(|_| sim.spend(Work::SwapIn, 1));
        });
    }
    sim.run();
    near(sim.now().0, 2 * 200_000 * 50);
}

#[test]
fn siblings_share_a_core_while_both_are_busy() {
    let done = faults(clock(100, 60), &[0, 1, 2]);
    for (done, percent) in done.into_iter().zip([60, 60, 100]) {
        near(done, ALONE * percent / 100);
    }
}

#[test]
fn a_program_computes_as_slowly_as_the_kernel_works() {
    let sim = Sim::new(&profile(clock(100, 50)), under_load(LockModel::RunAhead));
    let took = Rc::new(RefCell::new(Vec::new()));
    sim.spawn(CpuId(1), |sim| sim.spend(Work::Fault, 200_000));
    let told = Rc::clone(&took);
    sim.spawn(CpuId(0), move |sim| {
        sim.sleep(Nanos::from_ms(5));
        for _ in 0..2 {
            let begin = sim.now();
            sim.compute(Nanos(60_000));
            told.borrow_mut().push(sim.now().0 - begin.0);
            sim.sleep(Nanos::from_ms(30));
        }
    });
    sim.run();
    assert_eq!(*took.borrow(), [120_000, 60_000]);
}

#[test]
fn a_cpu_is_fast_again_once_others_are_idle() {
    let sim = Sim::new(&profile(clock(100, 50)), under_load(LockModel::RunAhead));
    let took = Rc::new(RefCell::new(Vec::new()));
    sim.spawn(CpuId(1), |sim| sim.spend(Work::Fault, 200_000));
    let told = Rc::clone(&took);
    sim.spawn(CpuId(0), move |sim| {
        sim.sleep(Nanos::from_ms(5));
        for _ in 0..2 {
            let begin = sim.now();
            (0..1000).for_each(|_| sim.spend(Work::Fault, 1));
            told.borrow_mut().push(sim.now().0 - begin.0);
            sim.sleep(Nanos::from_ms(30));
        }
    });
    sim.run();
    assert_eq!(*took.borrow(), [100_000, 50_000]);
}

/// Runs CPUs that fault, take locks, sleep and wake. Returns the hash of all events, the time at
/// the end of the run, and the nanoseconds that all CPUs together spent on faults.
fn run(load: Load, options: SimOptions) -> (u64, Nanos, u64) {
    let sim = Sim::new(&profile(load), options);
    let lock = Rc::new(sim.lock(LockClass::Zone, CpuId(0), ()));
    let mutex = Rc::new(sim.lock(LockClass::Mmap, CpuId(0), ()));
    for cpu in 0..32 {
        let (lock, mutex) = (Rc::clone(&lock), Rc::clone(&mutex));
        sim.spawn(CpuId(cpu), move |sim| {
            for round in 0..40 {
                (0..600).for_each(|_| sim.spend(Work::Fault, 1));
                lock.with(sim, Site::Refill, |()| sim.spend(Work::BuddyAlloc, 3));
                mutex.with(sim, Site::Mmap, |()| sim.spend(Work::MapEdit, 3));
                if round % 8 == u64::from(cpu) % 8 {
                    sim.sleep(Nanos(70_000));
                }
            }
        });
    }
    sim.run();
    let stats = sim.stats();
    (stats.hash, sim.now(), stats.work_ns[Work::Fault as usize])
}

#[test]
fn both_lock_models_see_one_load() {
    let both = Load {
        clock: clock(70, 60).clock,
        bandwidth: bandwidth(60).bandwidth,
    };
    for load in [clock(50, 70), bandwidth(40), both] {
        let ahead = run(load.clone(), under_load(LockModel::RunAhead));
        assert_eq!(ahead, run(load.clone(), under_load(LockModel::RunAhead)));
        let strict = SimOptions {
            strict: true,
            ..under_load(LockModel::RunAhead)
        };
        assert_eq!(ahead, run(load.clone(), strict));
        assert_eq!(
            ahead,
            run(load.clone(), under_load(LockModel::ReleaseEvent))
        );
        let free = run(Load::default(), under_load(LockModel::RunAhead));
        assert!(ahead.1 > free.1, "load takes time");
        assert_eq!(free, run(load, SimOptions::default()), "unless it is off");
    }
}

/// Lets all CPUs work for a few microseconds at a time and sleep in between. Returns the time at
/// which each CPU has done all its work.
fn naps(run_ahead: Nanos) -> Vec<Nanos> {
    let options = SimOptions {
        run_ahead,
        ..under_load(LockModel::RunAhead)
    };
    let sim = Sim::new(&profile(clock(100, 50)), options);
    let ends = Rc::new(RefCell::new(vec![Nanos(0); 32]));
    for cpu in 0..32 {
        let ends = Rc::clone(&ends);
        sim.spawn(CpuId(cpu), move |sim| {
            // Two siblings never do anything at the same nanosecond.
            sim.spend(Work::Think, cpu % 2);
            for _ in 0..2000 {
                (0..60).for_each(|_| sim.spend(Work::Fault, 1));
                sim.sleep(Nanos(2000 + 10 * u64::from(cpu)));
            }
            ends.borrow_mut()[cpu as usize] = sim.now();
        });
    }
    sim.run();
    ends.take()
}

/// A CPU whose clock is ahead may become idle before its sibling, whose clock is behind, enters a
/// window (an interval of constant speed). When the sibling enters the window, the CPU still counts
/// as busy.
#[test]
fn running_ahead_changes_no_speed() {
    assert_eq!(naps(Nanos(100_000)), naps(Nanos(1)));
}

#[test]
fn each_card_has_speeds_and_a_bandwidth_of_its_own() {
    for listed in Profile::list() {
        let text = Profile::describe(&listed.name).expect("is listed");
        let (clock, bandwidth) = (text.clock.as_ref(), text.bandwidth.as_ref());
        for card in Card::ALL {
            let load = text.at(card).load;
            let at = load.clock.expect("has a clock");
            let clock = clock.expect("has a clock");
            assert_eq!(at.all_core_percent, clock.all_core.range.at(card));
            let sibling = clock.sibling.as_ref();
            let sibling = sibling.map_or(100, |speed| speed.range.at(card));
            assert_eq!(at.sibling_percent, sibling, "{} {card}", listed.name);
            let node = bandwidth.expect("has one").node.range.at(card);
            let at = load.bandwidth.expect("has a bandwidth");
            assert_eq!(at.node_gb_per_s, node, "{} {card}", listed.name);
        }
    }
}

#[test]
fn every_built_in_machine_has_effects_of_load() {
    for listed in Profile::list() {
        for card in Card::ALL {
            let load = Profile::load(&listed.name, card).expect("is built in").load;
            let bandwidth = load.bandwidth.expect("has a bandwidth");
            let fault = bandwidth.moved_bytes[Work::Fault as usize];
            assert!((4096..=16384).contains(&fault), "{} {fault}", listed.name);
            assert!(load.clock.is_some(), "{}", listed.name);
        }
    }
}
