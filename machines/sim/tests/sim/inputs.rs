//! Tests that the random numbers of a CPU do not depend on the draws of other CPUs, and that
//! observers do not change a run. Also tests that an idle machine costs the host next to nothing.

use crate::common;

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_mm::event::Event;
use plimsoll_mm::machine::{Due, Job, Lock, Machine, WhenIdle};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::{CpuId, Jiffies, Nanos, Order, Pfn};
use plimsoll_sim::{Sim, SimOptions};
use rand::Rng;

/// Returns the numbers that CPU 1 draws while CPU 0 draws `extra` numbers between its own steps.
fn draws(seed: u64, extra: u32) -> Vec<u64> {
    let options = SimOptions {
        seed,
        ..SimOptions::default()
    };
    let sim = Sim::new(&common::flat(2), options);
    let drawn = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&drawn);
    sim.spawn(CpuId(0), move |sim| {
        for _ in 0..100 {
            let wasted: u64 = (0..extra).map(|_| sim.rng().next_u64() >> 32).sum();
            assert!(extra > 0 || wasted == 0);
            sim.spend(Work::Think, 20_000);
        }
    });
    sim.spawn(CpuId(1), move |sim| {
        for _ in 0..100 {
            log.borrow_mut().push(sim.rng().next_u64());
            sim.spend(Work::Think, 30_000);
        }
    });
    sim.run();
    drawn.take()
}

#[test]
fn a_draw_on_one_cpu_does_not_shift_the_numbers_of_another() {
    assert_eq!(draws(7, 0), draws(7, 3));
    assert_ne!(draws(7, 0), draws(8, 0));
}

#[test]
fn observers_see_every_event_and_leave_the_hash_alone() {
    let run = |observed: bool| {
        let sim = Sim::new(&common::flat(2), SimOptions::default());
        let seen = Rc::new(RefCell::new(Vec::new()));
        if observed {
            let log = Rc::clone(&seen);
            sim.observe(move |_, cpu, at, event| log.borrow_mut().push((cpu, at, *event)));
            sim.observe_pages();
        }
        sim.spawn(CpuId(1), |sim| {
            sim.spend(Work::Think, 500);
            sim.emit(Event::PageAlloc {
                pfn: Pfn(1),
                order: Order::ZERO,
            });
            sim.emit(Event::Kick { cpu: CpuId(0) });
        });
        sim.run();
        (sim.stats().hash, seen.take())
    };
    let ((plain, _), (hash, seen)) = (run(false), run(true));
    assert_eq!(plain, hash);
    let kick = Event::Kick { cpu: CpuId(0) };
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1], (CpuId(1), Nanos(2_000), kick));
}

#[test]
fn a_mostly_idle_machine_costs_next_to_nothing() {
    let sim = Sim::new(&common::flat(1024), SimOptions::default());
    let zone = Rc::new(sim.lock(LockClass::Zone, CpuId(0), 0_u64));
    sim.on_job(move |sim, job| {
        zone.with(sim, Site::Decay, |count| *count += 1);
        sim.defer(
            sim.this_cpu(),
            job,
            Due::Wheel(Jiffies(1000)),
            WhenIdle::Wake,
        );
    });
    for cpu in sim.topology().ids() {
        let first = Jiffies(u64::from(cpu.0));
        sim.defer(cpu, Job::VmstatUpdate, Due::Wheel(first), WhenIdle::Wake);
    }
    sim.run_until(Nanos(100 * Nanos::SECOND.0));
    let stats = sim.stats();
    let jobs = stats.jobs_run[Job::VmstatUpdate as usize];
    assert!((90_000..110_000).contains(&jobs), "{jobs} jobs");
    // A resumption is a switch of the host to a simulated CPU. Each job takes one resumption to
    // wake the CPU, one to run the job, and a few more where CPUs contend for a lock. An idle CPU
    // has no ticks.
    assert!(
        stats.resumptions < 6 * jobs,
        "{} resumptions",
        stats.resumptions
    );
    assert_eq!(stats.now, Nanos(100 * Nanos::SECOND.0));
}
