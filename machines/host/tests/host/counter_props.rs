//! Properties of counters that hold for all additions on any machine, if the additions are not
//! concurrent.

use std::cmp::Ordering;
use std::sync::Arc;

use plimsoll_host::Host;
use plimsoll_mm::counter::{
    Accuracy, AnyCounters, Area, Batch, Counters, Counting, OneSidedTree, Plan, Range, Shape,
};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::units::{CpuId, NodeId};
use proptest::collection::vec;
use proptest::prelude::*;

/// An addition: the CPU, taken modulo the number of CPUs, and the amount.
type Addition = (u32, i64);

fn addition() -> impl Strategy<Value = Addition> {
    let delta = prop_oneof![
        4 => -40_i64..40,
        2 => (0_u32..20).prop_map(|bit| 1 << bit),
        1 => (0_u32..20).prop_map(|bit| -(1 << bit)),
        1 => -100_000_i64..100_000,
    ];
    // Half of all additions are on the first few CPUs.
    (prop_oneof![0_u32..4, any::<u32>()], delta)
}

fn batch() -> impl Strategy<Value = Batch> {
    (1_u32..31).prop_map(|log| Batch::new(1 << log).expect("a power of two"))
}

fn small_batch() -> impl Strategy<Value = Batch> {
    (1_u32..8).prop_map(|log| Batch::new(1 << log).expect("a power of two"))
}

/// A topology of sockets, last-level caches and CPUs, with at most 285 CPUs.
fn topology() -> impl Strategy<Value = Topology> {
    (1_u32..4, 1_u32..6, 1_u32..20).prop_map(|(sockets, llcs, cpus)| {
        let place = |cpu| CpuPlace {
            core: cpu,
            llc: cpu / cpus,
            node: NodeId(cpu / cpus / llcs),
            socket: cpu / cpus / llcs,
        };
        Topology::new((0..sockets * llcs * cpus).map(place).collect())
    })
}

fn add(host: &Host, counters: &impl Counters<Host>, (cpu, delta): Addition) {
    let _entered = host.enter(CpuId(cpu % host.topology().cpus()));
    counters.add_growing(host, 0, delta);
}

fn one_counter(host: &Host, counting: Counting, batch: Batch) -> (Plan<Host>, AnyCounters<Host>) {
    let plan = Plan::new(host, counting, 1, batch).expect("in the table");
    let counters = plan.init_many(host).expect("there is memory");
    (plan, counters)
}

/// Returns whether the result of a comparison is compatible with the true order. `Equal` always is,
/// because it also means that the comparison cannot decide.
fn agrees(told: Ordering, truth: Ordering) -> bool {
    told == Ordering::Equal || told == truth
}

/// Returns the value of a counter, and values so close to it that an approximate comparison may not
/// be able to decide.
fn values_near(precise: i64, accuracy: Accuracy) -> Vec<i64> {
    let [under, over] = [accuracy.under, accuracy.over].map(u64::cast_signed);
    let steps = [0, 1, under, over, under + over, under + over + 1];
    steps
        .into_iter()
        .flat_map(|step| [precise - step, precise + step])
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_comparison_of_ranges_does_not_contradict_what_is_in_them(
        sums in [-1_000_000_i64..1_000_000, -1_000_000..1_000_000],
        accuracies in [[0_u64..500_000, 0..500_000], [0..500_000, 0..500_000]],
        errors in [0_u64..=100, 0..=100],
    ) {
        let [one, other] = [0, 1].map(|at| {
            let [under, over] = accuracies[at];
            let part = (under + over) * errors[at] / 100;
            let approximate = sums[at] - under.cast_signed() + part.cast_signed();
            let accuracy = Accuracy { under, over };
            assert!(accuracy.allows(approximate, sums[at]));
            accuracy.range(approximate)
        });
        prop_assert!(agrees(one.compare(other), sums[0].cmp(&sums[1])));
        prop_assert_eq!(one.compare(other), other.compare(one).reverse());
        prop_assert!(agrees(one.compare(Range::exactly(sums[1])), sums[0].cmp(&sums[1])));
        prop_assert_eq!(one.compare(Range::exactly(sums[0])), Ordering::Equal);
        prop_assert!((one + other).contains(sums[0] + sums[1]));
    }

    #[test]
    fn a_published_tree_is_behind_by_the_sum_of_what_its_levels_keep(
        order in 0_usize..=20,
        batch in (1_u32..16).prop_map(|log| 1 << log),
    ) {
        let shape = Shape::published(1 << order, Batch::new(batch).expect("a power of two"));
        let shape = shape.expect("in the table");
        prop_assert_eq!(shape.error_max(), published_error_max(order, batch));
        let levels = ARITIES[order].len() as u64;
        let under = u64::from(batch) * (levels << order);
        prop_assert!(shape.error_max() <= under, "as documented");
    }
}

/// The shapes of the counter tree in the Linux patch. The index of a shape is its order: log₂ of
/// the number of CPUs, rounded up. A shape lists log₂ of the number of children of each inner node,
/// level by level from the leaves (one for each CPU) upwards.
#[rustfmt::skip]
const ARITIES: [&[u32]; 21] = [
    &[], &[1], &[1, 1], &[1, 1, 1], &[2, 1, 1], &[2, 2, 1], &[2, 2, 2], &[3, 2, 2], &[3, 3, 2],
    &[3, 3, 3], &[3, 3, 2, 2], &[3, 3, 3, 2], &[3, 3, 3, 3], &[3, 3, 3, 2, 2], &[3, 3, 3, 3, 2],
    &[3, 3, 3, 3, 3], &[4, 3, 3, 3, 3], &[4, 4, 3, 3, 3], &[4, 4, 4, 3, 3], &[4, 4, 4, 4, 3],
    &[4, 4, 4, 4, 4],
];

/// Returns the largest error that an approximate sum has according to the Linux patch: `items ×
/// (batch − batch of the level below)`, summed over all levels of the tree from the leaves upwards.
/// `items` is the number of nodes of a level.
fn published_error_max(order: usize, batch: u32) -> u64 {
    let (mut items, mut below, mut batch) = (1_u64 << order, 1, u64::from(batch));
    let mut sum = 0;
    for arity in ARITIES[order] {
        sum += items * (batch - below);
        below = batch;
        batch <<= arity;
        items >>= arity;
    }
    sum
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn approximate_comparisons_do_not_contradict_precise_sums(
        cpus in prop_oneof![1_u32..=70, 1_u32..=300],
        batch in batch(),
        additions in vec((addition(), any::<bool>()), 1..300),
    ) {
        let host = Host::with_topology(Topology::flat(cpus));
        let _entered = host.enter(CpuId(0));
        for counting in [Counting::Shared, Counting::Flat, Counting::OneSided] {
            let (_plan, one) = one_counter(&host, counting, batch);
            let (_plan, other) = one_counter(&host, counting, batch);
            for &(addition, to_other) in &additions {
                add(&host, if to_other { &other } else { &one }, addition);
            }
            let [precise, theirs] = [&one, &other].map(|counters| counters.precise_sum(&host, 0));
            let told = one.approximate_compare(&host, 0, &other, 0);
            prop_assert!(agrees(told, precise.cmp(&theirs)), "{:?}", counting);
            let told = one.precise_compare(&host, 0, &other, 0);
            prop_assert_eq!(told, precise.cmp(&theirs), "{:?}", counting);
            for value in values_near(precise, one.accuracy(&host, 0)) {
                let told = one.approximate_compare_value(&host, 0, value);
                prop_assert!(agrees(told, precise.cmp(&value)), "{:?} and {}", counting, value);
                let told = one.precise_compare_value(&host, 0, value);
                prop_assert_eq!(told, precise.cmp(&value), "{:?} and {}", counting, value);
            }
        }
    }

    #[test]
    fn every_counter_is_within_its_accuracy_after_every_addition(
        cpus in 1_u32..=70,
        batch in batch(),
        additions in vec(addition(), 1..200),
    ) {
        let host = Host::with_topology(Topology::flat(cpus));
        let _entered = host.enter(CpuId(0));
        for counting in Counting::ALL {
            let (_plan, counters) = one_counter(&host, counting, batch);
            let mut sum = 0;
            for &addition in &additions {
                add(&host, &counters, addition);
                sum += addition.1;
                prop_assert_eq!(counters.precise_sum(&host, 0), sum, "{:?}", counting);
                let approximate = counters.approximate_sum(&host, 0);
                let accuracy = counters.accuracy(&host, 0);
                prop_assert!(accuracy.allows(approximate, sum), "{:?}", counting);
                prop_assert!(counters.min_max(&host, 0).contains(sum), "{:?}", counting);
            }
        }
    }

    #[test]
    fn a_one_sided_tree_is_never_ahead_and_its_bound_grows_only_with_cpus(
        topology in topology(),
        batch in small_batch(),
        fan_in in 2_u32..20,
        additions in vec(addition(), 1..300),
    ) {
        let host = Host::with_topology(topology.clone());
        let _entered = host.enter(CpuId(0));
        let shape = Shape::of_topology(&topology, batch, fan_in).expect("a shape");
        let error_max = shape.error_max();
        let area = Arc::new(Area::new(&host, 1).expect("one counter fits"));
        let tree = OneSidedTree::init_many(&host, &area, &Arc::new(shape)).expect("they belong");
        let (mut sum, mut used, mut width) = (0, vec![], 0);
        for (cpu, delta) in additions {
            add(&host, &tree, (cpu, delta));
            sum += delta;
            let range = tree.min_max(&host, 0);
            prop_assert_eq!(tree.precise_sum(&host, 0), sum);
            prop_assert!(range.contains(sum), "{} is not in {:?}", sum, range);
            prop_assert!(range.width() <= error_max);
            if !tree.is_grown() {
                prop_assert_eq!(range, Range::exactly(sum), "a line is exact");
                continue;
            }
            let cpu = cpu % topology.cpus();
            if used.contains(&cpu) {
                prop_assert_eq!(range.width(), width, "CPU {} has added before", cpu);
            } else {
                used.push(cpu);
                let more = range.width() - width;
                let cells = u64::from(batch.get()) - 1;
                prop_assert!(more >= cells || topology.cpus() == 1, "its cell may keep that");
            }
            width = range.width();
        }
    }

    #[test]
    fn a_tree_that_every_cpu_has_used_promises_no_more_than_its_shape(
        topology in topology(),
        batch in small_batch(),
        fan_in in 2_u32..20,
    ) {
        let host = Host::with_topology(topology.clone());
        let _entered = host.enter(CpuId(0));
        let shape = Shape::of_topology(&topology, batch, fan_in).expect("a shape");
        let error_max = shape.error_max();
        let area = Arc::new(Area::new(&host, 1).expect("one counter fits"));
        let tree = OneSidedTree::init_many(&host, &area, &Arc::new(shape)).expect("they belong");
        tree.grow(&host).expect("there is memory");
        prop_assert_eq!(tree.accuracy(&host, 0), Accuracy::EXACT, "no CPU has added");
        for cpu in topology.ids() {
            add(&host, &tree, (cpu.0, 1));
        }
        prop_assert_eq!(tree.min_max(&host, 0).width(), error_max);
    }
}

#[test]
fn thousands_of_cpus_count_right() {
    const CPUS: u32 = 4096;
    for counting in Counting::ALL {
        for size in [2, 32] {
            let host = Host::with_topology(Topology::flat(CPUS));
            let _entered = host.enter(CpuId(0));
            let batch = Batch::new(size).expect("a power of two");
            let (_plan, counters) = one_counter(&host, counting, batch);
            for cpu in 0..CPUS {
                let delta = i64::from(cpu) * 7919 % 301 - 100;
                add(&host, &counters, (cpu, delta));
            }
            let sum = (0..i64::from(CPUS)).map(|cpu| cpu * 7919 % 301 - 100).sum();
            assert_eq!(counters.precise_sum(&host, 0), sum, "{counting:?}");
            assert!(counters.min_max(&host, 0).contains(sum), "{counting:?}");
            if counting != Counting::Tree {
                let told = counters.approximate_compare_value(&host, 0, sum);
                assert_eq!(told, Ordering::Equal, "{counting:?}");
            }
        }
    }
}
