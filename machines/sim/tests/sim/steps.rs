//! Tests that observers of steps see every hold of a lock, every disturbance and every switch that
//! the statistics count, and that observers change nothing.

use crate::common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use plimsoll_mm::machine::{CpuLock, Lock, Machine, RwLock, Word};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::profile::{Disturbance, Jitter, Profile, Rate};
use plimsoll_sim::{Hold, LockId, LockModel, Runs, Sim, SimOptions, Stats, Step, Wait};
use rand::Rng;

const CPUS: u32 = 6;
const TASKS: u32 = 10;

/// A step or a wait that the simulator reported to an observer.
#[derive(Clone, Copy)]
enum Seen {
    Step(Step),
    Wait(Wait),
}

/// A machine of six CPUs, each of which is often interrupted, and on which ten tasks take four
/// kinds of locks.
fn machine(lock_model: LockModel) -> Sim {
    let mut jitter = Jitter::default();
    for kind in Disturbance::ALL {
        jitter.rates[kind as usize] = Some(Rate {
            every_ns: 30_000,
            length_ns: 3000,
        });
    }
    let profile = Profile {
        jitter: Some(jitter),
        ..common::flat(CPUS)
    };
    let options = SimOptions {
        jitter: true,
        lock_model,
        slice: Nanos(50_000),
        ..SimOptions::default()
    };
    let sim = Sim::new(&profile, options);
    let zone = Rc::new(sim.lock(LockClass::Zone, CpuId(0), ()));
    let mutex = Rc::new(sim.lock(LockClass::DrainAll, CpuId(0), ()));
    let mmap = Rc::new(sim.rw_lock(LockClass::Mmap, CpuId(0), ()));
    let pcp = Rc::new(sim.cpu_lock(LockClass::Pcp, CpuId(0), ()));
    let word = Rc::new(sim.word(0));
    for task in 0..TASKS {
        let locks = (zone.clone(), mutex.clone(), mmap.clone(), pcp.clone());
        let word = Rc::clone(&word);
        sim.spawn(CpuId(task % CPUS), move |sim| {
            let (zone, mutex, mmap, pcp) = &locks;
            for _ in 0..200 {
                let length = sim.rng().next_u32() % 2000;
                let work = |sim: &Sim| sim.spend(Work::Think, length);
                work(sim);
                match sim.rng().next_u32() % 6 {
                    0 => mutex.with(sim, Site::Drain, |()| work(sim)),
                    1 => mmap.read(sim, Site::Fault, |()| work(sim)),
                    2 => mmap.write(sim, Site::Mmap, |()| work(sim)),
                    3 => pcp.with(sim, Site::Drain, |()| work(sim)),
                    _ => zone.with(sim, Site::Refill, |()| {
                        work(sim);
                        word.add(sim, 1, Ordering::AcqRel);
                        work(sim);
                    }),
                }
            }
        });
    }
    sim
}

fn observed(lock_model: LockModel) -> (Stats, Vec<Seen>) {
    let sim = machine(lock_model);
    let seen: Rc<RefCell<Vec<Seen>>> = Rc::default();
    let steps = Rc::clone(&seen);
    sim.observe_steps(move |step| steps.borrow_mut().push(Seen::Step(*step)));
    let waits = Rc::clone(&seen);
    sim.observe_waits(move |wait| waits.borrow_mut().push(Seen::Wait(*wait)));
    sim.run();
    let stats = sim.stats();
    (stats, seen.take())
}

fn steps(seen: &[Seen]) -> impl Iterator<Item = Step> {
    seen.iter().filter_map(|seen| match seen {
        Seen::Step(step) => Some(*step),
        Seen::Wait(_) => None,
    })
}

const MODELS: [LockModel; 2] = [LockModel::RunAhead, LockModel::ReleaseEvent];

#[test]
fn an_observed_run_is_the_same_run() {
    for model in MODELS {
        let sim = machine(model);
        sim.run();
        assert_eq!(sim.stats(), observed(model).0, "{model:?}");
    }
}

#[test]
fn steps_have_all_that_the_statistics_count() {
    for model in MODELS {
        let (stats, seen) = observed(model);
        let mut held: BTreeMap<(LockClass, Site), (u64, u64)> = BTreeMap::new();
        let mut disturbed = [0; Disturbance::ALL.len()];
        let (mut switches, mut preempted) = (0, 0);
        for step in steps(&seen) {
            match step {
                Step::Held(Hold {
                    class,
                    site,
                    from,
                    until,
                    ..
                }) => {
                    let of = held.entry((class, site)).or_default();
                    of.0 += until.0 - from.0;
                    of.1 = of.1.max(until.0 - from.0);
                }
                Step::Disturbed {
                    kind, from, until, ..
                } => disturbed[kind as usize] += until.0 - from.0,
                Step::Switch { runs, .. } => switches += u64::from(runs != Runs::Nothing),
                Step::Preempted { .. } => preempted += 1,
            }
        }
        for class in [
            LockClass::Zone,
            LockClass::DrainAll,
            LockClass::Mmap,
            LockClass::Pcp,
        ] {
            for site in Site::ALL {
                let want = stats.site(class, site);
                let got = held.get(&(class, site)).copied().unwrap_or_default();
                assert_eq!(
                    got,
                    (want.hold_total.0, want.hold_max.0),
                    "{class:?} {site:?}"
                );
            }
        }
        assert!(held.len() >= 5, "every kind of lock was held");
        assert_eq!(disturbed, stats.disturbed_ns);
        assert_eq!(switches, stats.context_switches);
        assert_eq!(preempted, stats.preemptions);
        assert!(preempted > 0 && disturbed.iter().all(|ns| *ns > 0));
    }
}

/// A waiter continues when another task releases the lock. Observers are told of this release
/// before they are told of the wait. So the last release of a lock that is reported before a wait
/// for the lock must have happened during this wait.
#[test]
fn a_wait_follows_the_hold_that_it_waited_for() {
    for model in MODELS {
        let mut last: BTreeMap<LockId, Hold> = BTreeMap::new();
        let mut waits = 0;
        for seen in observed(model).1 {
            match seen {
                Seen::Step(Step::Held(hold)) => drop(last.insert(hold.lock, hold)),
                Seen::Step(_) => {}
                Seen::Wait(wait) => {
                    let hold = last[&wait.lock];
                    waits += 1;
                    assert_eq!(hold.class, wait.class);
                    assert!(hold.task != wait.task, "{wait:?} after {hold:?}");
                    let during = wait.from..=wait.until;
                    assert!(during.contains(&hold.until), "{wait:?} after {hold:?}");
                }
            }
        }
        assert!(waits > 100, "{waits} waits");
    }
}

/// Any two spans of time of one CPU are disjoint, or one contains the other. These are the spans of
/// tasks and jobs, of waits for spinlocks and their holds, and of disturbances. So a viewer can
/// draw them one below the other.
#[test]
fn the_spans_of_a_cpu_nest() {
    let (_, seen) = observed(LockModel::RunAhead);
    for cpu in (0..CPUS).map(CpuId) {
        let mut spans: Vec<(u64, u64)> = Vec::new();
        let mut running = None;
        for seen in &seen {
            match *seen {
                Seen::Wait(wait) if wait.cpu == cpu && !wait.class.sleeps() => {
                    spans.push((wait.from.0, wait.until.0));
                }
                Seen::Step(Step::Held(hold)) if hold.cpu == cpu && !hold.class.sleeps() => {
                    spans.push((hold.from.0, hold.until.0));
                }
                Seen::Step(Step::Disturbed {
                    cpu: on,
                    from,
                    until,
                    ..
                }) if on == cpu => spans.push((from.0, until.0)),
                Seen::Step(Step::Switch { cpu: on, at, .. }) if on == cpu => {
                    spans.extend(running.replace(at.0).map(|from| (from, at.0)));
                }
                _ => {}
            }
        }
        spans.retain(|(from, until)| from < until);
        assert!(spans.len() > 100);
        spans.sort_by_key(|&(from, until)| (from, std::cmp::Reverse(until)));
        let mut open: Vec<u64> = Vec::new();
        for (from, until) in spans {
            while open.last().is_some_and(|end| *end <= from) {
                open.pop();
            }
            assert!(
                open.last().is_none_or(|end| until <= *end),
                "{from} {until} on {cpu}"
            );
            open.push(until);
        }
    }
}
