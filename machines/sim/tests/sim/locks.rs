//! Tests locks in virtual time: waiters are served in order of arrival, and both models of a lock
//! give equal results.

use crate::common;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use plimsoll_mm::machine::{CpuLock, Lock, Machine, Word};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::{LockModel, Sim, SimOptions, Stats};
use rand::Rng;

/// Lets each of `cpus` CPUs acquire the same zone lock `rounds` times. Every `nest`-th critical
/// section updates a word. Other CPUs run before that update, and those that request the lock then
/// *park*: they wait without knowing when they will get it. Returns the statistics of the run.
fn herd(cpus: u32, rounds: u32, nest: u32, options: SimOptions) -> Stats {
    let sim = Sim::new(&common::tall(cpus), options);
    let lock = Rc::new(sim.lock(LockClass::Zone, CpuId(0), 0_u64));
    let word = Rc::new(sim.word(0));
    for cpu in 0..cpus {
        let (lock, word) = (Rc::clone(&lock), Rc::clone(&word));
        sim.spawn(CpuId(cpu), move |sim| {
            for round in 0..rounds {
                sim.spend(Work::Think, sim.rng().next_u32() % 4000);
                let hold = sim.rng().next_u32() % 200;
                let site = Site::ALL[round as usize % 3];
                lock.with(sim, site, |count| {
                    *count += 1;
                    sim.spend(Work::Think, hold);
                    if nest > 0 && round % nest == 0 {
                        word.add(sim, 1, Ordering::AcqRel);
                        sim.spend(Work::Think, hold);
                    }
                });
            }
        });
    }
    sim.run();
    assert_eq!(
        lock.with(&sim, Site::Control, |count| *count),
        u64::from(cpus * rounds)
    );
    sim.stats()
}

/// Returns `stats` with 0 resumptions. The number of resumptions only says how the host simulated
/// the machine.
fn outcome(stats: Stats) -> Stats {
    Stats {
        resumptions: 0,
        ..stats
    }
}

#[test]
fn running_ahead_gives_what_ordered_releases_give() {
    let herds = [(2, 0), (16, 0), (72, 0), (2, 3), (16, 1), (72, 5), (200, 7)];
    let herds = herds.into_iter();
    for (cpus, nest, jitter) in
        herds.flat_map(|(cpus, nest)| [false, true].map(|is_fair| (cpus, nest, is_fair)))
    {
        let base = SimOptions {
            seed: u64::from(cpus),
            jitter,
            ..SimOptions::default()
        };
        let ahead = herd(cpus, 100, nest, base.clone());
        let strict = SimOptions {
            strict: true,
            ..base.clone()
        };
        let event = SimOptions {
            lock_model: LockModel::ReleaseEvent,
            ..base.clone()
        };
        // With these options, CPUs with earlier clocks run before each step of work that may be
        // preempted.
        let everywhere = SimOptions {
            run_ahead: Nanos(0),
            ..base.clone()
        };
        let both = SimOptions {
            strict: true,
            ..event.clone()
        };
        assert!(ahead.class(LockClass::Zone).contentions > 0);
        let ahead = outcome(ahead);
        for options in [strict, event, both, everywhere] {
            let other = outcome(herd(cpus, 100, nest, options.clone()));
            assert_eq!(ahead, other, "{cpus} CPUs, nesting {nest}, {options:?}");
        }
    }
}

#[test]
fn a_lock_is_handed_out_in_the_order_of_arrival() {
    for lock_model in [LockModel::RunAhead, LockModel::ReleaseEvent] {
        let options = SimOptions {
            lock_model,
            ..SimOptions::default()
        };
        let sim = Sim::new(&common::flat(8), options);
        let lock = Rc::new(sim.lock(LockClass::Zone, CpuId(0), ()));
        let order = Rc::new(RefCell::new(Vec::new()));
        for cpu in 0..8 {
            let (lock, order) = (Rc::clone(&lock), Rc::clone(&order));
            sim.spawn(CpuId(cpu), move |sim| {
                sim.spend(Work::Think, 100 * (7 - cpu));
                lock.with(sim, Site::Refill, |()| {
                    order.borrow_mut().push(cpu);
                    sim.spend(Work::Think, 5000);
                });
            });
        }
        sim.run();
        assert_eq!(*order.borrow(), [7, 6, 5, 4, 3, 2, 1, 0]);
        let stats = sim.stats();
        let zone = stats.class(LockClass::Zone);
        // Of the eight CPUs, the first finds the lock free. `perf` sees the waits of six other
        // CPUs, but not the wait of the second CPU: Linux has no trace event for the first waiter
        // of a queued spinlock.
        assert_eq!(
            (zone.acquisitions, zone.contentions, zone.perf_contentions),
            (8, 7, 6)
        );
        let longest = zone.wait_max.expect("seven waited");
        assert_eq!((longest.cpu, longest.blocker), (CpuId(0), CpuId(7)));
        // The wait of the second CPU is the shortest, and the only one that `perf` leaves out.
        let unseen = zone.wait_total.0 - zone.perf_wait_total.0;
        assert!(unseen > 0 && unseen * 6 < zone.perf_wait_total.0);
        assert_eq!(zone.perf_wait_max, longest.wait);
        assert_eq!(longest.blocker_site, Site::Refill);
        let far = stats.cpus_that_waited(LockClass::Zone, Nanos(15_000));
        assert_eq!(far, 4);
    }
}

/// Compares the waits for a simulated lock with the waits in a single-server queue that a request
/// reaches only after a delay. The test computes the waits in the queue step by step with Lindley's
/// recursion.
#[test]
fn waits_are_those_of_a_single_server_queue() {
    const CPUS: u32 = 16;
    let sim = Sim::new(
        &common::flat(CPUS),
        SimOptions {
            seed: 5,
            ..SimOptions::default()
        },
    );
    let lock = Rc::new(sim.lock(LockClass::Zone, CpuId(0), ()));
    let arrivals = Rc::new(RefCell::new(Vec::new()));
    for cpu in 0..CPUS {
        let (lock, arrivals) = (Rc::clone(&lock), Rc::clone(&arrivals));
        sim.spawn(CpuId(cpu), move |sim| {
            for _ in 0..200 {
                sim.spend(Work::Think, sim.rng().next_u32() % 9000);
                let hold = sim.rng().next_u32() % 800;
                arrivals
                    .borrow_mut()
                    .push((sim.now().0, cpu, u64::from(hold)));
                lock.with(sim, Site::Spill, |()| sim.spend(Work::Think, hold));
            }
        });
    }
    sim.run();
    let costs = common::costs();
    let transfer = u64::from(costs.transfer_ns[2]);
    let asked = arrivals.take().into_iter();
    let asked = asked.map(|(at, cpu, hold)| Reverse((at, cpu, None, hold)));
    let mut steps: BinaryHeap<_> = asked.collect();
    let (mut free, mut last, mut line, mut waits, mut count) = ((0, 0), 0, 0, 0, 0);
    while let Some(Reverse((at, cpu, request, hold))) = steps.pop() {
        let Some((asked, way)) = request else {
            // Before the request takes its place in the queue, it travels to the CPU that has the
            // line.
            let way = if line == cpu { 0 } else { transfer };
            steps.push(Reverse((at + way / 2, cpu, Some((at, way)), hold)));
            continue;
        };
        let start = if free > (at, cpu) {
            let start = free.0 + transfer + u64::from(costs.lock_handover_extra_ns);
            waits += start - asked;
            count += 1;
            start
        } else if last == cpu {
            at + u64::from(costs.lock_own_ns)
        } else {
            asked + way + u64::from(costs.lock_remote_extra_ns)
        };
        free = (start + hold, cpu);
        (last, line) = (cpu, cpu);
    }
    let zone = sim.stats().class(LockClass::Zone);
    assert_eq!((zone.wait_total.0, zone.contentions), (waits, count));
    assert!(
        count > 500,
        "{count} contentions are too few to mean anything"
    );
}

#[test]
fn a_waiter_for_a_sleeping_lock_leaves_its_cpu_to_others() {
    let sim = Sim::new(&common::flat(2), SimOptions::default());
    let mutex = Rc::new(sim.lock(LockClass::DrainAll, CpuId(0), ()));
    let ran_at = Rc::new(RefCell::new((0, 0)));
    let holder = Rc::clone(&mutex);
    sim.spawn(CpuId(0), move |sim| {
        holder.with(sim, Site::Drain, |()| sim.spend(Work::Think, 1_000_000));
    });
    let (waiter, waited) = (Rc::clone(&mutex), Rc::clone(&ran_at));
    sim.spawn(CpuId(1), move |sim| {
        sim.spend(Work::Think, 5_000);
        waiter.with(sim, Site::Drain, |()| waited.borrow_mut().0 = sim.now().0);
    });
    let other = Rc::clone(&ran_at);
    sim.spawn(CpuId(1), move |sim| other.borrow_mut().1 = sim.now().0);
    sim.run();
    let (waited, other) = *ran_at.borrow();
    assert!(waited > 1_000_000 && other < 20_000, "{waited} and {other}");
    assert_eq!(sim.stats().class(LockClass::DrainAll).contentions, 1);
}

#[test]
fn try_fails_exactly_while_the_lock_is_taken() {
    let sim = Sim::new(&common::flat(2), SimOptions::default());
    let lock = Rc::new(sim.lock(LockClass::Zone, CpuId(0), ()));
    let holder = Rc::clone(&lock);
    sim.spawn(CpuId(0), move |sim| {
        holder.with(sim, Site::Drain, |()| sim.spend(Work::Think, 10_000));
    });
    sim.spawn(CpuId(1), move |sim| {
        sim.spend(Work::Think, 5_000);
        assert!(lock.try_with(sim, Site::Spill, |()| ()).is_none());
        sim.spend(Work::Think, 10_000);
        assert!(lock.try_with(sim, Site::Spill, |()| ()).is_some());
    });
    sim.run();
    assert_eq!(sim.stats().class(LockClass::Zone).failed_tries, 1);
}

/// Lets every CPU use its own page list continuously while CPU 0 drains all lists. Returns the
/// statistics of the run.
fn drain(strict: bool) -> Stats {
    const CPUS: u32 = 8;
    let sim = Sim::new(
        &common::flat(CPUS),
        SimOptions {
            strict,
            ..SimOptions::default()
        },
    );
    let zone = Rc::new(sim.lock(LockClass::Zone, CpuId(0), 0));
    let lists: Rc<Vec<_>> = Rc::new(
        (0..CPUS)
            .map(|cpu| sim.cpu_lock(LockClass::Pcp, CpuId(cpu), 0))
            .collect(),
    );
    for cpu in 0..CPUS {
        let (zone, lists) = (Rc::clone(&zone), Rc::clone(&lists));
        sim.spawn(CpuId(cpu), move |sim| {
            let list = &lists[cpu as usize];
            for round in 1..2000 {
                sim.spend(Work::Think, sim.rng().next_u32() % 500);
                let local = list.try_local(sim, Site::PcpFree, |count| {
                    sim.spend(Work::PcpFree, 1);
                    *count += 1;
                    if round % 50 == 0 {
                        zone.with(sim, Site::Spill, |pages| *pages += std::mem::take(count));
                    }
                });
                if local.is_none() {
                    zone.with(sim, Site::FreeDirect, |pages| *pages += 1);
                }
            }
        });
    }
    let (drained, all) = (Rc::clone(&zone), Rc::clone(&lists));
    sim.spawn_daemon(CpuId(0), move |sim| {
        for _ in 0..20 {
            for list in all.iter() {
                list.with(sim, Site::Drain, |count| {
                    let pages = std::mem::take(count);
                    drained.with(sim, Site::Drain, |all| {
                        sim.spend(Work::BuddyFree, 10);
                        *all += pages;
                    });
                });
            }
            sim.sleep(Nanos(10_000));
        }
    });
    sim.run();
    let left: i64 = lists
        .iter()
        .map(|list| list.with(&sim, Site::Control, |count| *count))
        .sum();
    assert_eq!(
        zone.with(&sim, Site::Control, |pages| *pages) + left,
        1999 * i64::from(CPUS)
    );
    sim.stats()
}

#[test]
fn strict_mode_has_no_causality_slips() {
    let (ahead, strict) = (drain(false), drain(true));
    assert_eq!(strict.causality_slips, 0);
    assert!(
        ahead.causality_slips > 0,
        "an owner that runs ahead is met in its future"
    );
    assert!(strict.class(LockClass::Pcp).failed_tries > 0);
}
