//! Checks the contracts (laws) of counters on simulated CPUs, and the prices of additions and sums.
//! Also checks that counters need not be notified when a CPU goes offline.

use crate::support;
use crate::support::law::run_law;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_mm::counter::{
    AnyCounters, Area, Batch, Counters, Counting, Flat, Plan, precise_totals,
};
use plimsoll_mm::laws::Law;
use plimsoll_mm::laws::counter::{self, CPUS, Counted, Setup};
use plimsoll_mm::laws::{area, under_way};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::Work;
use plimsoll_mm::topology::{Distance, Topology};
use plimsoll_mm::units::CpuId;
use plimsoll_sim::{Sim, SimOptions};
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
fn summing_while_it_wraps() {
    run_each(counter::summing_while_it_wraps);
}

#[test]
fn making_and_ending() {
    run_each(counter::making_and_ending);
}

#[test]
fn first_groups_at_once() {
    let machine = small::profile(Topology::flat(CPUS), 1000);
    run_law(
        &area::first_groups_at_once(),
        &machine,
        seeds::chosen(SEEDS),
    );
    run_law(
        &area::a_group_dropped_meanwhile(),
        &machine,
        seeds::chosen(SEEDS),
    );
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
                sim.spawn(cpu, move |sim| counters.add_growing(sim, 0, delta));
                sim.run();
            }
            let (precise, range) = (counters.precise_sum(&sim, 0), counters.min_max(&sim, 0));
            assert!(range.contains(precise), "{counting:?}: {range:?}");
            precise
        };
        assert_eq!(add_on_each([3, 40, 500, -7]), 536, "{counting:?}");
        sim.set_online(CpuId(2), false);
        assert_eq!(counters.precise_sum(&sim, 0), 536, "{counting:?}");
        // CPU 2 is offline, so the task that is started for it runs on another CPU.
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
    assert!(forgotten.is_err(), "additions under way count");
}

#[test]
fn what_has_arrived_at_the_roots_is_in_every_later_sum() {
    let machine = small::profile(Topology::flat(CPUS), 1000);
    run_law(&under_way::first_addition(), &machine, seeds::chosen(SEEDS));
}

/// Runs `task` on CPU 0. Returns how long it takes, in nanoseconds.
fn ns(sim: &Sim, task: impl FnOnce(&Sim) + 'static) -> u64 {
    let begin = sim.now();
    sim.spawn(CpuId(0), move |sim| task(sim));
    sim.run();
    sim.now().0 - begin.0
}

#[test]
fn many_sums_cost_a_streamed_look_each_and_few_scattered_ones_a_full_one() {
    const CPUS: u32 = 96;
    let mut profile = small::profile(Topology::flat(CPUS), 1000);
    profile.costs.work_ns[Work::StreamCpu as usize] = 5;
    let price = |work: Work| u64::from(profile.costs.work_ns[work as usize]);
    let sim = Sim::new(&profile, SimOptions::default());
    let plan = Plan::new(&sim, Counting::Tree, 4, Batch::RSS).expect("it has a plan");
    let groups: Vec<_> = (0..128)
        .map(|_| plan.init_many(&sim).expect("there is memory"))
        .collect();
    let groups = Rc::new(groups);
    let sum = |every: usize| {
        let groups = Rc::clone(&groups);
        ns(&sim, move |sim| {
            let mut chosen: Vec<_> = groups.iter().step_by(every).collect();
            precise_totals(
                sim,
                &mut chosen,
                |group| Some(*group),
                |_, total| {
                    assert_eq!(total, 0, "no CPU has added");
                },
            );
        })
    };
    let idle = ns(&sim, |_| {});
    // A sum over a group of counters visits the CPUs, and also fetches up to four cache lines that
    // the group shares. No other CPU has touched these lines, so each fetch costs only a cache hit.
    let looks = |groups: u64, work| groups * u64::from(CPUS) * price(work);
    let (all, few) = (sum(1) - idle, sum(8) - idle);
    let own = |groups: u64| groups * 4 * u64::from(profile.costs.transfer_ns[0]);
    assert!((looks(128, Work::StreamCpu)..=looks(128, Work::StreamCpu) + own(128)).contains(&all));
    assert!((looks(16, Work::ScanCpu)..=looks(16, Work::ScanCpu) + own(16)).contains(&few));
}

/// Creates a group of counters. The tree through which the CPUs pass their counts upwards, which is
/// usually allocated later, is allocated at once.
fn grown(sim: &Sim, plan: &Plan<Sim>) -> AnyCounters<Sim> {
    let group = plan.init_many(sim).expect("there is memory");
    let AnyCounters::OneSided(tree) = &group else {
        unreachable!("it is the kind that was asked for")
    };
    tree.grow(sim).expect("there is memory");
    group
}

/// An addition through a `LocalTree` takes as much virtual time as one to the tree.
#[test]
fn an_addition_through_a_local_tree_has_the_price_of_an_addition() {
    let mut profile = small::profile(Topology::flat(4), 1000);
    profile.costs.work_ns[Work::Count as usize] = 7;
    let sim = Sim::new(&profile, SimOptions::default());
    let plan = Plan::new(&sim, Counting::OneSided, 1, Batch::RSS).expect("it has a plan");
    let group = Rc::new(grown(&sim, &plan));
    let addition = |through_local: bool| {
        let group = Rc::clone(&group);
        ns(&sim, move |sim| match &*group {
            AnyCounters::OneSided(tree) if through_local => {
                tree.local(sim, CpuId(0)).add(sim, 0, 1);
            }
            group => group.add(sim, 0, 1),
        })
    };
    addition(false); // The first addition of a CPU takes longer.
    let idle = ns(&sim, |_| {});
    let price = addition(false);
    assert!(price - idle >= 7);
    assert_eq!(addition(true), price);
}

/// Sums many groups of counters in one call, after `ran` of 96 CPUs have added to each group.
/// Returns the number of cache lines that the sum fetches for each group. The function computes
/// this number from the time that the sum takes, and from `looks`, the number of CPUs that the sum
/// visits for each group.
fn lines(ran: u32, looks: u64) -> u64 {
    const CPUS: u32 = 96;
    const GROUPS: u64 = 64;
    let mut profile = small::profile(Topology::flat(CPUS), 1000);
    profile.costs.work_ns[Work::StreamCpu as usize] = 5;
    let sim = Sim::new(&profile, SimOptions::default());
    let plan = Plan::new(&sim, Counting::OneSided, 4, Batch::RSS).expect("it has a plan");
    let groups: Rc<Vec<_>> = Rc::new((0..GROUPS).map(|_| grown(&sim, &plan)).collect());
    // Two of every three consecutive CPUs add, so that every node of the tree through which they
    // pass their counts is used.
    for cpu in (0..CPUS).filter(|cpu| cpu % 3 != 0).take(ran as usize) {
        let groups = Rc::clone(&groups);
        sim.spawn(CpuId(cpu), move |sim| {
            for group in &*groups {
                group.add_growing(sim, 0, 3);
            }
        });
    }
    sim.run();
    let idle = ns(&sim, |_| {});
    let all = ns(&sim, move |sim| {
        let mut totals: Vec<_> = groups.iter().map(|group| (group, 0)).collect();
        let group = |&(group, _): &(_, i64)| Some(group);
        precise_totals(sim, &mut totals, group, |(_, total), more| *total += more);
        assert!(totals.iter().all(|(_, total)| *total == i64::from(ran) * 3));
    });
    let look = u64::from(profile.costs.work_ns[Work::StreamCpu as usize]);
    let line = u64::from(profile.costs.transfer_ns[Distance::Llc as usize]);
    (all - idle - looks * GROUPS * look) / (GROUPS * line)
}

#[test]
fn who_ran_nearly_everywhere_is_summed_without_asking_where() {
    // If 32 of the 96 CPUs have added nothing, the sum visits all CPUs, and fetches only one line
    // of each group.
    assert_eq!(lines(64, 96), 1);
    // If 33 CPUs have added nothing, reading the sum also fetches the record of which CPUs have
    // added to the group. The reader then visits only these CPUs.
    assert_eq!(lines(63, 63), 2);
}

/// An item (an inner node) of a counter's tree passes multiples of its batch to the item above, and
/// keeps the remainder. If the amount that reaches an item is a multiple of its batch, the
/// remainder would be 0, so the addition skips the item. So an addition that goes directly to the
/// root costs as much as one that stays in the first item.
#[test]
fn a_carry_skips_the_items_that_would_pass_all_of_it_on() {
    for counting in [Counting::Tree, Counting::OneSided] {
        let profile = small::profile(Topology::flat(96), 1000);
        let sim = Sim::new(&profile, SimOptions::default());
        let plan = Plan::new(&sim, counting, 1, Batch::RSS).expect("it has a plan");
        let add = |delta: i64| {
            let group = plan.init_many(&sim).expect("there is memory");
            if let AnyCounters::OneSided(tree) = &group {
                tree.grow(&sim).expect("there is memory");
            }
            let group = Rc::new(group);
            let of_task = Rc::clone(&group);
            // The first addition of a CPU also records that this CPU has added, so it is not
            // measured.
            sim.spawn(CpuId(0), move |sim| of_task.add(sim, 0, 1));
            sim.run();
            let before = group.approximate_sum(&sim, 0);
            let of_task = Rc::clone(&group);
            let took = ns(&sim, move |sim| of_task.add(sim, 0, delta));
            (took, group.approximate_sum(&sim, 0) - before)
        };
        let (batch, large) = (i64::from(Batch::RSS.get()), 1 << 30);
        let (to_root, more) = add(large);
        assert_eq!(more, large, "{counting:?}: it is in the root");
        let (to_first, more) = add(batch);
        assert_eq!(more, 0, "{counting:?}: it is not in the root");
        let (to_both, more) = add(large + batch);
        assert_eq!(more, large, "{counting:?}: a batch is not in the root");
        assert_eq!(to_root, to_first, "{counting:?}: one line besides the cell");
        assert!(to_both > to_root, "{counting:?}: two lines");
    }
}

/// A group (the counters of one owner) takes one place in its area, the memory for counters. An
/// area grows by a run of 64 places. If all CPUs need places at the same moment, each of them
/// allocates memory for the area's next run. All but one of them must free this memory again, or
/// the area would have as many runs as there are CPUs.
#[test]
fn cpus_that_need_places_at_once_add_one_run() {
    const GROUPS_OF_A_RUN: u32 = 64;
    const BATCHES: u32 = 3;
    let cpus = GROUPS_OF_A_RUN * BATCHES;
    let one = bytes_of_groups(1);
    assert_eq!(bytes_of_groups(GROUPS_OF_A_RUN), one);
    assert_eq!(bytes_of_groups(cpus), BATCHES as usize * one);
}

/// Creates one group on each of `groups` CPUs at the same moment, on a machine of 192 CPUs. Returns
/// the number of bytes that the area of these groups has allocated after that.
#[expect(
    clippy::arc_with_non_send_sync,
    reason = "an area is both on real machines; a simulated machine has one thread"
)]
fn bytes_of_groups(groups: u32) -> usize {
    let profile = small::profile(Topology::flat(192), 1000);
    let sim = Sim::new(&profile, SimOptions::default());
    let area = Arc::new(Area::new(&sim, 4).expect("four counters fit into a line"));
    let made = Rc::new(Cell::new(0));
    for cpu in 0..groups {
        let (area, made) = (Arc::clone(&area), Rc::clone(&made));
        sim.spawn(CpuId(cpu), move |sim| {
            let flat = Flat::init_many(sim, &area).expect("there is memory");
            // The group stays until the end of the test, so that no other CPU gets the group's
            // place in the area.
            std::mem::forget(flat);
            made.set(made.get() + 1);
        });
    }
    sim.run();
    assert_eq!(made.get(), groups);
    area.bytes(&sim)
}

/// While a CPU allocates memory for a new run of places for groups of counters, another CPU
/// destroys a group and so frees the group's place. The first CPU must take that place. Otherwise
/// the area would grow although a place is free.
#[test]
#[expect(
    clippy::arc_with_non_send_sync,
    reason = "an area is both on real machines; a simulated machine has one thread"
)]
fn a_place_that_comes_back_meanwhile_is_taken_instead_of_a_new_run() {
    const GROUPS_OF_A_RUN: u32 = 64;
    let profile = small::profile(Topology::flat(2), 1000);
    let sim = Sim::new(&profile, SimOptions::default());
    let area = Arc::new(Area::new(&sim, 4).expect("four counters fit into a line"));
    let make =
        |sim: &Sim, area: &Arc<Area<Sim>>| Flat::init_many(sim, area).expect("there is memory");
    let (groups, filled) = (Rc::new(Cell::new(Vec::new())), Arc::clone(&area));
    let kept = Rc::clone(&groups);
    sim.spawn(CpuId(0), move |sim| {
        kept.set((0..GROUPS_OF_A_RUN).map(|_| make(sim, &filled)).collect());
    });
    sim.run();
    let bytes = area.bytes(&sim);
    let mut groups = groups.take();
    let last = groups.pop().expect("there are some");
    let (made, grown) = (Rc::new(Cell::new(None)), Arc::clone(&area));
    let new = Rc::clone(&made);
    sim.spawn(CpuId(0), move |sim| new.set(Some(make(sim, &grown))));
    sim.spawn(CpuId(1), move |sim| last.destroy_many(sim));
    sim.run();
    assert!(made.take().is_some(), "the new group was made");
    assert_eq!(area.bytes(&sim), bytes, "the area did not grow");
}
