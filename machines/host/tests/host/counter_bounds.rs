//! The error of a counter's approximate sum can be exactly as large as the bound that follows from
//! the shape of the counter's tree. The comparison in the Linux patch allows for a smaller error,
//! so with many CPUs that comparison is wrong.

use std::cmp::Ordering;
use std::sync::Arc;

use plimsoll_host::Host;
use plimsoll_mm::counter::{
    AnyCounters, Area, Batch, Counters, Counting, OneSidedTree, Plan, Shape, flat_batch,
};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::units::{CpuId, NodeId};

/// Returns a topology of `sockets` sockets, each with `llcs` last-level caches of `cpus` CPUs.
fn topology(sockets: u32, llcs: u32, cpus: u32) -> Topology {
    let place = |cpu| CpuPlace {
        core: cpu,
        llc: cpu / cpus,
        node: NodeId(cpu / cpus / llcs),
        socket: cpu / cpus / llcs,
    };
    Topology::new((0..sockets * llcs * cpus).map(place).collect())
}

fn batch(size: u32) -> Batch {
    Batch::new(size).expect("a power of two")
}

fn add(host: &Host, counters: &impl Counters<Host>, cpu: u32, delta: i64) {
    let _entered = host.enter(CpuId(cpu));
    counters.add_growing(host, 0, delta);
}

/// Makes the approximate sum of a counter as wrong as possible: fills the levels of its tree below
/// the root, and leaves the root unchanged. For that, adds powers of two on each CPU, the largest
/// first, and takes back each addition that changes the root. The top level fills up first. From
/// then on, an addition that reaches the full top level would change the root.
fn fill<C: Counters<Host>>(host: &Host, counters: &C, at_root: impl Fn(&C) -> i64) {
    const TOP_BIT: u32 = 16;
    let cpus = host.topology().cpus();
    for delta in (0..=TOP_BIT).rev().map(|bit| 1_i64 << bit) {
        for cpu in 0..cpus {
            let before = at_root(counters);
            add(host, counters, cpu, delta);
            if at_root(counters) != before {
                add(host, counters, cpu, -delta);
                assert_eq!(
                    at_root(counters),
                    before,
                    "additions that are taken back leave nothing"
                );
            }
        }
    }
}

/// Creates one counter whose approximate sum can be wrong in one direction only. The memory of its
/// tree is already allocated.
fn grown(host: &Host, shape: Shape) -> OneSidedTree<Host> {
    let area = Arc::new(Area::new(host, 1).expect("one counter fits"));
    let tree = OneSidedTree::init_many(host, &area, &Arc::new(shape)).expect("made for the host");
    tree.grow(host).expect("there is memory");
    tree
}

#[test]
fn a_full_tree_is_behind_by_all_that_its_shape_says() {
    for (sockets, llcs, cpus) in [
        (1, 1, 1),
        (1, 1, 2),
        (1, 1, 65),
        (2, 1, 8),
        (2, 3, 8),
        (4, 5, 3),
        (1, 20, 1),
    ] {
        let topology = topology(sockets, llcs, cpus);
        for fan_in in [2, 4, 16] {
            for size in [2, 4, 32, 64] {
                let host = Host::with_topology(topology.clone());
                let _entered = host.enter(CpuId(0));
                let shape = Shape::of_topology(&topology, batch(size), fan_in).expect("a shape");
                let error_max = shape.error_max();
                let tree = grown(&host, shape);
                fill(&host, &tree, |tree| tree.min_max(&host, 0).min);
                let (precise, range) = (tree.precise_sum(&host, 0), tree.min_max(&host, 0));
                let what = format!("{sockets} × {llcs} × {cpus} by {fan_in}, batch {size}");
                if error_max > 0 {
                    assert_eq!(precise.abs_diff(range.min), error_max, "{what}");
                    assert_eq!(precise, range.max, "{what}");
                }
                let accuracy = tree.accuracy(&host, 0);
                assert_eq!(accuracy.under + accuracy.over, error_max, "{what}");
                assert!(accuracy.allows(tree.approximate_sum(&host, 0), precise));
            }
        }
    }
}

#[test]
fn the_published_tree_is_as_far_behind_as_its_shape_says() {
    for cpus in [2, 3, 8, 16, 64, 100, 256] {
        for size in [2, 4, 32] {
            let host = Host::with_topology(Topology::flat(cpus));
            let _entered = host.enter(CpuId(0));
            let plan = Plan::new(&host, Counting::Tree, 1, batch(size)).expect("in the table");
            let tree = plan.init_many(&host).expect("there is memory");
            fill(&host, &tree, |tree| tree.approximate_sum(&host, 0));
            let behind = tree
                .precise_sum(&host, 0)
                .abs_diff(tree.approximate_sum(&host, 0));
            let error_max = plan.shape().error_max();
            if cpus.is_power_of_two() {
                assert_eq!(behind, error_max, "{cpus} CPUs, batch {size}");
            } else {
                assert!(behind <= error_max, "{cpus} CPUs, batch {size}");
            }
            assert!(error_max <= tree.accuracy(&host, 0).under);
        }
    }
}

/// Makes the approximate sum of a counter as wrong as possible ([`fill`]), with a batch of 4.
/// Returns how the counter then compares with its own precise sum.
fn compared_with_itself(counting: Counting, cpus: u32) -> Ordering {
    let host = Host::with_topology(Topology::flat(cpus));
    let _entered = host.enter(CpuId(0));
    let plan = Plan::new(&host, counting, 1, batch(4)).expect("in the table");
    let counters = plan.init_many(&host).expect("there is memory");
    if let AnyCounters::OneSided(tree) = &counters {
        tree.grow(&host).expect("there is memory");
    }
    let at_root = |counters: &AnyCounters<Host>| match counters {
        AnyCounters::OneSided(tree) => tree.min_max(&host, 0).min,
        others => others.approximate_sum(&host, 0),
    };
    fill(&host, &counters, at_root);
    let precise = counters.precise_sum(&host, 0);
    assert!(counters.min_max(&host, 0).contains(precise));
    let told = counters.precise_compare_value(&host, 0, precise);
    assert_eq!(told, counters.approximate_compare_value(&host, 0, precise));
    told
}

/// The smallest number of CPUs with which the comparison in the Linux patch is wrong. For 65 to 128
/// CPUs, the patch builds the same tree. From this number on, the approximate sum can be too small
/// by one more than the comparison allows for.
const TOO_MANY: u32 = 107;

#[test]
fn the_published_comparison_tells_a_counter_from_its_own_value() {
    for (cpus, told) in [
        (64, Ordering::Equal),
        (TOO_MANY - 1, Ordering::Equal),
        (TOO_MANY, Ordering::Less),
        (128, Ordering::Less),
    ] {
        let compared = compared_with_itself(Counting::Tree, cpus);
        assert_eq!(compared, told, "{cpus} CPUs");
    }
}

#[test]
fn ours_does_not() {
    for cpus in [64, 65, TOO_MANY, 128] {
        let compared = compared_with_itself(Counting::OneSided, cpus);
        assert_eq!(compared, Ordering::Equal, "{cpus} CPUs");
    }
}

#[test]
fn a_full_flat_counter_is_wrong_by_its_whole_accuracy_either_way() {
    for cpus in [1, 2, 65, 384] {
        for sign in [1, -1] {
            let host = Host::with_topology(Topology::flat(cpus));
            let _entered = host.enter(CpuId(0));
            let plan = Plan::new(&host, Counting::Flat, 1, Batch::RSS).expect("in the table");
            let flat = plan.init_many(&host).expect("there is memory");
            for cpu in 0..cpus {
                add(&host, &flat, cpu, sign * (flat_batch(cpus) - 1));
            }
            let behind = flat.precise_sum(&host, 0) - flat.approximate_sum(&host, 0);
            let accuracy = flat.accuracy(&host, 0);
            let side = if sign > 0 {
                accuracy.under
            } else {
                accuracy.over
            };
            assert_eq!(behind.unsigned_abs(), side, "{cpus} CPUs");
            let range = flat.min_max(&host, 0);
            assert!(range.contains(flat.precise_sum(&host, 0)), "{cpus} CPUs");
        }
    }
}

#[test]
fn a_group_that_one_cpu_adds_to_makes_no_tree() {
    let host = Host::with_topology(Topology::flat(64));
    let area = Arc::new(Area::new(&host, 1).expect("a width in bounds"));
    let shape = Arc::new(Shape::published(64, Batch::RSS).expect("in the table"));
    let tree = OneSidedTree::init_many(&host, &area, &shape).expect("a width in bounds");
    for _ in 0..1000 {
        add(&host, &tree, 5, 1);
    }
    assert!(!tree.is_grown());
    assert_eq!(tree.approximate_sum(&host, 0), 1000);
    for cpu in 0..64 {
        add(&host, &tree, cpu, 1);
    }
    assert!(tree.is_grown(), "it moved often enough");
    assert_eq!(tree.precise_sum(&host, 0), 1064);
}
