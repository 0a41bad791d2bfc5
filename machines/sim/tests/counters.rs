//! The laws of counters on virtual CPUs, and that counters need not know of CPUs that go away.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use plimsoll_mm::counter::{Batch, Counters, Counting, Plan};
use plimsoll_mm::laws::Law;
use plimsoll_mm::laws::counter::{self, CPUS, Counted, Setup};
use plimsoll_mm::laws::under_way;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;
use plimsoll_sim::{Sim, SimOptions, run_law};
use support::{seeds, small};

const SEEDS: u64 = 200;

fn run_each(law: impl Fn(Setup<Sim>) -> Law<Sim, Counted<Sim>>) {
    let machine = small::profile(Topology::flat(CPUS), 1000);
    for setup in counter::setups() {
        run_law(&law(setup), &machine, seeds::chosen(SEEDS));
    }
}

#[test]
fn nothing_is_lost() {
    run_each(counter::nothing_is_lost);
}

#[test]
fn going_and_returning() {
    let machine = small::profile(Topology::flat(CPUS), 1000);
    for law in counter::going_and_returning() {
        run_law(&law, &machine, seeds::chosen(SEEDS));
    }
}

#[test]
fn looking_while_adding() {
    let machine = small::profile(Topology::flat(CPUS), 1000);
    for setup in counter::setups() {
        for law in counter::looking_while_adding(setup) {
            run_law(&law, &machine, seeds::chosen(SEEDS));
        }
    }
}

#[test]
fn setting_while_adding() {
    run_each(counter::setting_while_adding);
}

#[test]
fn making_and_ending() {
    run_each(counter::making_and_ending);
}

#[test]
fn growing_at_once() {
    let machine = small::profile(Topology::flat(CPUS), 1000);
    run_law(&counter::growing_at_once(), &machine, seeds::chosen(SEEDS));
}

#[test]
fn a_cpu_that_goes_offline_takes_nothing_with_it() {
    for counting in Counting::ALL {
        let profile = small::profile(Topology::flat(4), 1000);
        let sim = Sim::new(&profile, SimOptions::default());
        let plan = Plan::new(&sim, counting, 1, Batch::RSS).expect("four CPUs have a plan");
        let counters = Rc::new(plan.init_many(&sim).expect("there is memory"));
        let add_on_each = |deltas: [i64; 4]| {
            for (cpu, delta) in (0..).map(CpuId).zip(deltas) {
                let counters = Rc::clone(&counters);
                sim.spawn(cpu, move |sim| counters.add(sim, 0, delta));
                sim.run();
            }
            let (precise, range) = (counters.precise_sum(&sim, 0), counters.min_max(&sim, 0));
            assert!(range.contains(precise), "{counting:?}: {range:?}");
            precise
        };
        assert_eq!(add_on_each([3, 40, 500, -7]), 536, "{counting:?}");
        sim.set_online(CpuId(2), false);
        assert_eq!(counters.precise_sum(&sim, 0), 536, "{counting:?}");
        // What was to run on the CPU that is gone runs elsewhere.
        assert_eq!(add_on_each([1, 1, -500, 7]), 45, "{counting:?}");
        sim.set_online(CpuId(2), true);
        assert_eq!(add_on_each([-4, -41, 0, 0]), 0, "{counting:?}");
        let counters = Rc::into_inner(counters).expect("no task has it any more");
        counters.destroy_many(&sim);
    }
}

#[test]
fn one_addition_under_way() {
    let machine = small::profile(Topology::flat(CPUS), 1000);
    run_law(&under_way::one_under_way(), &machine, seeds::chosen(SEEDS));
    let forgotten = || run_law(&under_way::one_under_way_forgotten(), &machine, 0..SEEDS);
    let forgotten = catch_unwind(AssertUnwindSafe(forgotten));
    assert!(forgotten.is_err(), "what is under way counts");
}
