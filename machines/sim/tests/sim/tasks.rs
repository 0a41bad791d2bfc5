//! Tests tasks and jobs on simulated CPUs: time slices, preemption, timers, CPUs that go offline,
//! faults, and panics.

use crate::common;
use crate::support::law::run_law;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use plimsoll_mm::laws::Law;
use plimsoll_mm::machine::{Due, Job, JobState, Lock, Machine, WhenIdle, Word};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::{CpuId, Jiffies, Nanos};
use plimsoll_sim::{Faults, Sim, SimOptions, SimWord};
use rand::Rng;

fn sim(cpus: u32) -> Sim {
    Sim::new(&common::flat(cpus), SimOptions::default())
}

/// Returns the hash of all events of a run with tasks, jobs, a shared word and migrations.
fn hash(seed: u64) -> u64 {
    let options = SimOptions {
        seed,
        ..SimOptions::default()
    };
    let sim = Sim::new(&common::flat(32), options);
    let word = Rc::new(sim.word(0));
    sim.on_job(|sim, job| {
        sim.spend(Work::ScanCpu, 10);
        let ahead = Jiffies(sim.rng().next_u64() % 5);
        sim.defer(sim.this_cpu(), job, Due::Wheel(ahead), WhenIdle::Wake);
    });
    for cpu in 0..32 {
        let word = Rc::clone(&word);
        sim.defer(
            CpuId(cpu),
            Job::VmstatUpdate,
            Due::Wheel(Jiffies(1)),
            WhenIdle::Wake,
        );
        sim.spawn(CpuId(cpu), move |sim| {
            for _ in 0..200 {
                sim.spend(Work::Think, sim.rng().next_u32() % 30_000);
                word.add(sim, 1, Ordering::Relaxed);
                if sim.rng().next_u32().is_multiple_of(50) {
                    sim.migrate(CpuId(sim.rng().next_u32() % 32));
                }
            }
        });
    }
    sim.run();
    sim.stats().hash
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

/// The hash is the same on every platform and in every build. Change the expected hash only if the
/// model is meant to change.
#[test]
fn the_hash_of_a_run_is_the_same_everywhere() {
    assert_eq!(format!("{:#018x}", hash(1)), "0x08fc6a1e530a1e83");
}

#[test]
fn tasks_share_a_cpu_in_slices() {
    let sim = sim(1);
    let turns = Rc::new(RefCell::new(Vec::new()));
    for task in 0..2 {
        let turns = Rc::clone(&turns);
        sim.spawn(CpuId(0), move |sim| {
            for _ in 0..55 {
                sim.spend(Work::Think, 100_000);
                let mut turns = turns.borrow_mut();
                if turns.last() != Some(&task) {
                    turns.push(task);
                }
            }
        });
    }
    sim.run();
    assert_eq!(*turns.borrow(), [0, 1, 0, 1]);
    assert_eq!(sim.stats().preemptions, 2);
}

#[test]
fn a_pinned_section_is_not_preempted() {
    let sim = sim(1);
    let inside = Rc::new(Cell::new(false));
    let seen = Rc::clone(&inside);
    sim.spawn(CpuId(0), move |sim| {
        sim.pinned(|| {
            inside.set(true);
            (0..100).for_each(|_| sim.spend(Work::Think, 1_000_000));
            inside.set(false);
        });
        sim.spend(Work::Think, 1);
    });
    sim.spawn(CpuId(0), move |_| assert!(!seen.get()));
    sim.run();
}

#[test]
fn a_deferrable_timer_does_not_wake_an_idle_cpu_and_fires_when_it_wakes() {
    let sim = sim(2);
    let fired = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&fired);
    sim.on_job(move |sim, _| {
        let ms = sim.now().0 / 1_000_000;
        log.borrow_mut().push((sim.this_cpu().0, ms));
    });
    sim.defer(
        CpuId(0),
        Job::VmstatUpdate,
        Due::Wheel(Jiffies(10)),
        WhenIdle::Wake,
    );
    sim.defer(
        CpuId(1),
        Job::VmstatUpdate,
        Due::Wheel(Jiffies(10)),
        WhenIdle::Defer,
    );
    sim.spawn(CpuId(0), |sim| sim.sleep(Nanos::from_ms(100)));
    sim.run_until(Nanos::from_ms(50));
    assert_eq!(*fired.borrow(), [(0, 11)]);
    assert_eq!(
        sim.job_state(CpuId(1), Job::VmstatUpdate),
        JobState::Pending
    );
    sim.spawn(CpuId(1), |sim| sim.spend(Work::Think, 10));
    sim.run();
    assert_eq!(*fired.borrow(), [(0, 11), (1, 50)]);
    assert_eq!(
        sim.job_state(CpuId(1), Job::VmstatUpdate),
        JobState::Dormant
    );
}

#[test]
fn a_job_is_pending_running_and_pending_again_when_it_defers_itself() {
    let sim = sim(2);
    let states = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&states);
    sim.on_job(move |sim, job| {
        let cpu = sim.this_cpu();
        let mut log = log.borrow_mut();
        log.push(sim.job_state(cpu, job));
        if log.len() < 4 {
            sim.defer(cpu, job, Due::Now, WhenIdle::Wake);
            log.push(sim.job_state(cpu, job));
        }
    });
    sim.spawn(CpuId(0), |sim| {
        sim.defer(CpuId(1), Job::Shepherd, Due::Now, WhenIdle::Defer);
        assert_eq!(sim.job_state(CpuId(1), Job::Shepherd), JobState::Pending);
        sim.sleep(Nanos::from_ms(1));
        assert_eq!(sim.job_state(CpuId(1), Job::Shepherd), JobState::Dormant);
    });
    sim.run();
    let (running, pending) = (JobState::Running, JobState::Pending);
    assert_eq!(
        *states.borrow(),
        [running, pending, running, pending, running]
    );
    assert_eq!(sim.stats().jobs_run[Job::Shepherd as usize], 3);
}

#[test]
fn a_job_interrupts_a_long_spend_where_it_arrives() {
    let sim = sim(2);
    let at = Rc::new(Cell::new(0));
    let when = Rc::clone(&at);
    sim.on_job(move |sim, _| when.set(sim.now().0));
    sim.spawn(CpuId(1), |sim| sim.spend(Work::Think, 1_000_000));
    sim.spawn(CpuId(0), |sim| {
        sim.spend(Work::Think, 300_000);
        sim.defer(CpuId(1), Job::VmstatUpdate, Due::Now, WhenIdle::Wake);
    });
    sim.run();
    // The terms are, in this order: the start of the task, the work of the task, the IPI, the
    // interrupt, and the context switch.
    assert_eq!(at.get(), 1_500 + 300_000 + 200 + 500 + 1_000);
}

#[test]
fn a_cancelled_or_replaced_job_does_not_run_and_a_late_one_runs_on_its_jiffy() {
    let sim = sim(1);
    let at = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&at);
    sim.on_job(move |sim, job| log.borrow_mut().push((job, sim.now().0 / 1_000_000)));
    let cpu = CpuId(0);
    sim.defer(cpu, Job::VmstatUpdate, Due::At(Nanos(5)), WhenIdle::Wake);
    sim.defer(
        cpu,
        Job::VmstatUpdate,
        Due::Wheel(Jiffies(1000)),
        WhenIdle::Wake,
    );
    sim.defer(cpu, Job::Shepherd, Due::At(Nanos(7)), WhenIdle::Wake);
    sim.cancel(cpu, Job::Shepherd);
    sim.run_until(Nanos::SECOND);
    assert!(at.borrow().is_empty());
    sim.run_until(Nanos(2 * Nanos::SECOND.0));
    assert_eq!(*at.borrow(), [(Job::VmstatUpdate, 1024)]);
}

#[test]
fn a_cpu_that_runs_out_of_work_calls_the_idle_hook_once() {
    let sim = sim(2);
    let calls = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&calls);
    sim.on_idle(move |sim| log.borrow_mut().push(sim.this_cpu().0));
    sim.spawn(CpuId(1), |sim| {
        sim.sleep(Nanos::from_ms(1));
        sim.spend(Work::Think, 1);
    });
    sim.run_until(Nanos::from_ms(5));
    assert_eq!(*calls.borrow(), [1, 1]);
}

#[test]
fn tasks_leave_a_cpu_that_goes_offline_and_its_jobs_are_forgotten() {
    let sim = sim(3);
    sim.on_job(|_, _| panic!("an offline CPU runs no job"));
    for task in 0..6 {
        sim.spawn(CpuId(1), move |sim| {
            if task % 2 == 0 {
                sim.sleep(Nanos::from_ms(20));
            }
            sim.spend(Work::Think, 20_000_000);
            assert_ne!(sim.this_cpu(), CpuId(1));
        });
    }
    sim.spawn(CpuId(0), |sim| {
        sim.spend(Work::Think, 5_000_000);
        sim.defer(
            CpuId(1),
            Job::VmstatUpdate,
            Due::Wheel(Jiffies(5)),
            WhenIdle::Wake,
        );
        sim.set_online(CpuId(1), false);
        sim.defer(CpuId(1), Job::VmstatUpdate, Due::Now, WhenIdle::Wake);
    });
    sim.run();
    assert_eq!(sim.stats().jobs_ignored, 1);
}

#[test]
fn faults_disturb_a_run_without_changing_what_it_draws() {
    let draws = |faults: Faults| {
        let options = SimOptions {
            faults,
            ..SimOptions::default()
        };
        let sim = Sim::new(&common::flat(4), options);
        let sum = Rc::new(Cell::new(0_u64));
        for cpu in 0..4 {
            let sum = Rc::clone(&sum);
            sim.spawn(CpuId(cpu), move |sim| {
                for _ in 0..100 {
                    sum.set(sum.get().wrapping_add(sim.pinned(|| sim.rng().next_u64())));
                    sim.spend(Work::Think, 100_000);
                }
            });
        }
        sim.run();
        (sum.get(), sim.stats())
    };
    let stall = Faults {
        stall_every: Nanos::from_ms(1),
        stall_for: Nanos::from_ms(1),
        ..Faults::default()
    };
    let ((calm, before), (stalled, after)) = (draws(Faults::default()), draws(stall));
    assert_eq!(calm, stalled);
    assert!(after.stalls > 10 && after.now > before.now);
    let (_, moved) = draws(Faults {
        migrate_every: Nanos::from_ms(1),
        ..Faults::default()
    });
    assert!(moved.migrations > 10);
}

#[test]
#[should_panic(expected = "out of pages; on CPU 1 at 1507 ns, seed 42")]
fn a_panic_in_a_task_names_the_seed() {
    let sim = Sim::new(
        &common::flat(2),
        SimOptions {
            seed: 42,
            ..SimOptions::default()
        },
    );
    sim.spawn(CpuId(0), |sim| sim.sleep(Nanos::SECOND));
    sim.spawn(CpuId(1), |sim| {
        sim.spend(Work::Think, 7);
        panic!("out of pages");
    });
    sim.run();
}

#[test]
fn a_machine_of_1024_cpus_runs() {
    let sim = sim(1024);
    let sum = Rc::new(sim.word(0));
    for cpu in 0..1024 {
        let sum = Rc::clone(&sum);
        sim.spawn(CpuId(cpu), move |sim| {
            for _ in 0..10 {
                sim.spend(Work::Think, 1000);
                sum.add(sim, 1, Ordering::Relaxed);
            }
        });
    }
    sim.run();
    assert_eq!(sum.load(&sim, Ordering::Relaxed), 10_240);
}

#[test]
fn what_an_unfinished_task_holds_is_dropped_with_the_machine() {
    let held = Rc::new(());
    let sim = sim(2);
    for cpu in [0, 1, 1] {
        let held = Rc::clone(&held);
        sim.spawn(CpuId(cpu), move |sim| {
            sim.sleep(Nanos::SECOND);
            drop(held);
        });
    }
    sim.run_until(Nanos::from_ms(1));
    assert_eq!(sim.live_tasks(), 3);
    drop(sim);
    assert_eq!(Rc::strong_count(&held), 1);
}

#[test]
fn a_stopped_run_goes_on_where_it_was() {
    let sim = sim(2);
    let rounds = Rc::new(Cell::new(0));
    for cpu in 0..2 {
        let rounds = Rc::clone(&rounds);
        sim.spawn(CpuId(cpu), move |sim| {
            for _ in 0..100 {
                sim.spend(Work::Think, 50_000);
                rounds.set(rounds.get() + 1);
                if rounds.get() == 50 {
                    sim.stop();
                }
            }
        });
    }
    sim.run();
    assert!(
        rounds.get() < 55 && sim.live_tasks() == 2,
        "{} rounds",
        rounds.get()
    );
    sim.run();
    assert_eq!((rounds.get(), sim.live_tasks()), (200, 0));
}

#[test]
#[should_panic(expected = "deadlock: 1 tasks wait")]
fn a_deadlock_is_reported() {
    let sim = sim(2);
    let mutex = Rc::new(sim.lock(LockClass::Sizing, CpuId(0), ()));
    sim.spawn(CpuId(0), move |sim| {
        mutex.with(sim, Site::Control, |()| {
            mutex.with(sim, Site::Control, |()| ());
        });
    });
    sim.run();
}

fn add_one(sim: &Sim, word: &SimWord) {
    word.add(sim, 1, Ordering::Relaxed);
}

fn add_one_badly(sim: &Sim, word: &SimWord) {
    let value = word.load(sim, Ordering::Acquire);
    word.store(sim, value + 1, Ordering::Release);
}

fn counting(body: fn(&Sim, &SimWord)) -> Law<Sim, SimWord> {
    Law {
        name: "every addition counts",
        setup: |sim| sim.word(0),
        bodies: vec![body; 3],
        check: |sim, word| assert_eq!(word.load(sim, Ordering::Acquire), 3),
    }
}

#[test]
fn a_law_that_holds_holds_for_every_seed() {
    run_law(&counting(add_one), &common::flat(3), 0..50);
}

#[test]
#[should_panic(expected = "is broken with seed")]
fn a_law_that_is_broken_is_found() {
    run_law(&counting(add_one_badly), &common::flat(3), 0..50);
}
