//! Checks the contracts (laws) of reclaim on simulated CPUs, each law with many seeds.

use std::cell::RefCell;
use std::rc::Rc;

use crate::support;
use crate::support::law::run_law;

use plimsoll_mm::laws::{Law, direct, kswapd, reclaim};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::reclaim::Next;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::{KswapdThread, Sim, SimOptions};
use support::small;

fn run<S: 'static>(law: &Law<Sim, S>) {
    let machine = small::profile(Topology::flat(4), 1000);
    run_law(law, &machine, support::seeds::chosen(500));
}

/// Runs a law (a contract that tests check) under three seeds only: all its steps run on a single
/// CPU, so there are no interleavings.
fn run_few<S: 'static>(law: &Law<Sim, S>) {
    let machine = small::profile(Topology::flat(4), 1000);
    run_law(law, &machine, 0..3);
}

#[test]
fn reclaimed_while_touched() {
    run(&reclaim::reclaimed_while_touched());
}

#[test]
fn reclaimed_while_unmapped() {
    run(&reclaim::reclaimed_while_unmapped());
}

#[test]
fn reclaimed_while_exiting() {
    run(&reclaim::reclaimed_while_exiting());
}

#[test]
fn kept_while_reaped() {
    run_few(&reclaim::kept_while_reaped());
}

#[test]
fn kept_while_exiting() {
    run_few(&reclaim::kept_while_exiting());
}

#[test]
fn costs_are_weighed_by_all_pages() {
    run_few(&reclaim::costs_are_weighed_by_all_pages());
}

#[test]
fn reclaimed_by_two() {
    run(&reclaim::reclaimed_by_two());
}

#[test]
fn reclaimed_by_two_while_used() {
    run(&reclaim::reclaimed_by_two_while_used());
}

#[test]
fn reclaimed_by_two_while_dying() {
    run(&reclaim::reclaimed_by_two_while_dying());
}

#[test]
fn asked_while_falling_asleep() {
    run(&kswapd::asked_while_falling_asleep());
}

#[test]
fn asked_while_dozing() {
    run(&kswapd::asked_while_dozing());
}

#[test]
fn dozes_again_when_asked() {
    run_few(&kswapd::dozes_again_when_asked());
}

#[test]
fn asked_for_a_lower_zone_too() {
    run_few(&kswapd::asked_for_a_lower_zone_too());
}

#[test]
fn asked_without_memory() {
    run_few(&kswapd::asked_without_memory());
}

#[test]
fn waits_for_isolated_pages() {
    run_few(&direct::waits_for_isolated_pages());
}

#[test]
fn waits_for_isolated_pages_in_vain() {
    run_few(&direct::waits_for_isolated_pages_in_vain());
}

#[test]
fn killed_while_pages_are_isolated() {
    run_few(&direct::killed_while_pages_are_isolated());
}

#[test]
fn killed_while_it_waits_for_kswapd() {
    run_few(&direct::killed_while_it_waits_for_kswapd());
}

#[test]
fn a_hopeless_kswapd_is_revived() {
    run_few(&direct::a_hopeless_kswapd_is_revived());
}

#[test]
fn progress_gives_kswapd_hope() {
    run_few(&direct::progress_gives_kswapd_hope());
}

#[test]
fn a_node_without_cpus_has_a_kswapd() {
    run_few(&direct::a_node_without_cpus_has_a_kswapd());
}

#[test]
fn a_pass_of_kswapd_has_at_least_a_batch() {
    run_few(&direct::a_pass_of_kswapd_has_at_least_a_batch());
}

#[test]
fn enlisted_while_exiting() {
    run(&reclaim::enlisted_while_exiting());
}

/// kswapd's thread sleeps until the time that its last step returned, unless it is woken earlier.
#[test]
fn a_thread_of_kswapd_is_woken_early() {
    let sim = Sim::new(
        &small::profile(Topology::flat(2), 1000),
        SimOptions::default(),
    );
    let thread = Rc::new(KswapdThread::default());
    let steps: Rc<RefCell<Vec<Nanos>>> = Rc::default();
    let start = {
        let (thread, steps) = (Rc::clone(&thread), Rc::clone(&steps));
        move |sim: &Sim| {
            let (sleeper, steps) = (Rc::clone(&thread), Rc::clone(&steps));
            thread.wake(sim, || {
                sim.spawn_daemon(CpuId(1), move |sim| {
                    sleeper.run(sim, || {
                        steps.borrow_mut().push(sim.now());
                        match steps.borrow().len() {
                            1 | 3 => Next::At(Nanos(sim.now().0 + 100_000_000)),
                            _ => Next::Woken,
                        }
                    });
                })
            });
        }
    };
    sim.spawn(CpuId(0), move |sim| {
        start(sim);
        sim.sleep(Nanos::from_ms(10));
        // The thread sleeps until a given time, because its first step returned `Next::At`.
        start(sim);
        sim.sleep(Nanos::from_ms(10));
        // The thread's task has ended, because the thread's second step returned `Next::Woken`.
        start(sim);
        sim.sleep(Nanos::from_ms(150));
    });
    sim.run();
    let steps: Vec<u64> = steps.borrow().iter().map(|at| at.0 / 1_000_000).collect();
    assert_eq!(steps, [0, 10, 20, 120]);
}
