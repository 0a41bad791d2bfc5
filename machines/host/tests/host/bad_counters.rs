//! Counters of every size either work or are refused with an error, and their sums are correct for
//! all additions.
//!
//! Sums wrap, so the tests compare them with integers that wrap.

use crate::support;

use std::sync::Arc;

use plimsoll_host::Host;
use plimsoll_mm::counter::{
    AnyCounters, Area, Batch, Counters, Counting, InitError, Items, OneSidedTree, Plan, Shape,
    ShapeError, Tree, precise_totals,
};
use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::units::{CpuId, NodeId};
use proptest::prelude::*;
use proptest::{collection, sample};
use support::numbers::{any_i64, any_u32};

/// Generates topologies in which CPUs share some cores, caches and sockets. The ids are arbitrary.
fn topology() -> impl Strategy<Value = Topology> {
    let number = || prop_oneof![3 => 0..4u32, 1 => any_u32()];
    let place = (number(), number(), 0..4u32, number());
    let place = place.prop_map(|(core, llc, node, socket)| CpuPlace {
        core,
        llc,
        node: NodeId(node),
        socket,
    });
    collection::vec(place, 1..70).prop_map(Topology::new)
}

/// Generates any valid batch size: a power of two from 2 to 2³¹.
fn batch() -> impl Strategy<Value = Batch> {
    (1..32u32).prop_map(|bit| Batch::new(1 << bit).expect("a power of two"))
}

/// A list of additions: for each the CPU, the counter and the amount.
type Additions = Vec<(u32, usize, i64)>;

fn additions() -> impl Strategy<Value = Additions> {
    let delta = prop_oneof![2 => any_i64(), 1 => -100..100i64];
    collection::vec((any::<u32>(), any::<usize>(), delta), 0..100)
}

/// Applies the additions, and asserts that every kind of sum agrees with plain integers.
fn add(host: &Host, counters: &AnyCounters<Host>, additions: &Additions, cpus: u32) {
    let width = counters.width();
    let mut sums = vec![0_i64; width];
    // `travelled` is the sum of all amounts without their signs. If it is less than 2^60, no sum
    // has wrapped, so the range of each approximate sum must contain the precise sum.
    let mut travelled = 0_u128;
    for &(cpu, counter, delta) in additions {
        let _entered = host.enter(CpuId(cpu % cpus));
        let counter = counter % width;
        counters.add_growing(host, counter, delta);
        sums[counter] = sums[counter].wrapping_add(delta);
        travelled += u128::from(delta.unsigned_abs());
    }
    let whole = sums.iter().fold(0, |sum: i64, one| sum.wrapping_add(*one));
    assert_eq!(counters.precise_total(host), whole);
    let mut totals = [0_i64];
    precise_totals(
        host,
        &mut totals,
        |_| Some(counters),
        |total, more| *total = total.wrapping_add(more),
    );
    assert_eq!(totals, [whole]);
    for (counter, &sum) in sums.iter().enumerate() {
        assert_eq!(counters.precise_sum(host, counter), sum);
        let about = counters.approximate_sum(host, counter);
        let accuracy = counters.accuracy(host, counter);
        let range = counters.min_max(host, counter);
        assert!(range.min <= range.max, "{range:?}");
        if travelled < 1 << 60 {
            assert!(
                accuracy.allows(about, sum) && range.contains(sum),
                "{range:?}"
            );
        }
        for value in [0, -7, i64::MIN, i64::MAX] {
            counters.set(host, counter, value);
            assert_eq!(counters.precise_sum(host, counter), value);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_group_of_any_size_counts_or_is_refused(
        topology in topology(),
        counting in sample::select(Counting::ALL.to_vec()),
        width in prop_oneof![4 => 0..10usize, 1 => any::<usize>()],
        batch in batch(),
        additions in additions(),
    ) {
        let cpus = topology.cpus();
        let host = Host::with_topology(topology);
        let _entered = host.enter(CpuId(0));
        let max = 8;
        let plan = match Plan::new(&host, counting, width, batch) {
            Ok(plan) => plan,
            Err(why) => {
                prop_assert_eq!(why, InitError::Width { counters: width, max });
                prop_assert!(!(1..=max).contains(&width));
                return Ok(());
            }
        };
        prop_assert!((1..=max).contains(&width));
        let counters = match plan.init_many(&host) {
            Ok(counters) => counters,
            Err(why) => {
                prop_assert_eq!(why, InitError::Width { counters: width, max: 6 });
                prop_assert!(counting == Counting::OneSided && width > 6);
                return Ok(());
            }
        };
        add(&host, &counters, &additions, cpus);
        counters.destroy_many(&host);
        prop_assert_eq!(plan.area().groups(&host), 0);
    }

    #[test]
    fn a_tree_of_any_shape_counts_or_is_refused(
        topology in topology(),
        other in any_u32(),
        fan_in in prop_oneof![2 => 0..20u32, 1 => any_u32()],
        (size, batch) in (any_u32(), batch()),
        width in 1..9usize,
        lines in prop_oneof![0..2000usize, usize::MAX - 10..=usize::MAX],
        is_ours in any::<bool>(),
        additions in additions(),
    ) {
        prop_assert_eq!(Batch::new(size).is_ok(), size >= 2 && size.is_power_of_two());
        let cpus = topology.cpus();
        // Shapes of counter trees for 5000 to 2^20 CPUs would take too long to create in each run
        // of this test. Shapes for more CPUs are refused at once.
        let other = if (5000..=1 << 20).contains(&other) { cpus } else { other };
        let host = Host::with_topology(topology.clone());
        let _entered = host.enter(CpuId(0));
        let shape = if is_ours {
            let shape = Shape::of_topology(&topology, batch, fan_in);
            prop_assert_eq!(shape.is_ok(), fan_in >= 2);
            shape
        } else {
            let shape = Shape::published(other, batch);
            prop_assert_eq!(shape.is_ok(), (1..=1 << 20).contains(&other));
            shape
        };
        let shape = match shape {
            Ok(shape) => Arc::new(shape),
            Err(ShapeError::FanIn(_) | ShapeError::NoCpus | ShapeError::TooManyCpus { .. }) => {
                return Ok(());
            }
            Err(why) => panic!("{why}"),
        };
        prop_assert!(shape.in_flight(i64::MIN) >= 1 << 63);
        let area = Arc::new(Area::new(&host, width).expect("a width in bounds"));
        let Ok(items) = Items::new(&host, lines) else {
            prop_assert!(lines > 2000);
            return Ok(());
        };
        let (made, needed) = if is_ours {
            let made = OneSidedTree::init_many_grown(&host, &area, &shape, items);
            let needed = OneSidedTree::<Host>::items_lines(&shape);
            (made.map(AnyCounters::OneSided), needed)
        } else {
            let made = Tree::init_many(&host, &area, &shape, items);
            (made.map(AnyCounters::Tree), Tree::<Host>::items_lines(&shape, width))
        };
        let fits = shape.cpus() == cpus && lines >= needed && (width <= 6 || !is_ours);
        prop_assert_eq!(made.is_ok(), fits, "{:?}", made.err());
        if let Ok(counters) = made {
            add(&host, &counters, &additions, cpus);
            counters.destroy_many(&host);
        }
        prop_assert_eq!(area.groups(&host), 0, "refused counters hold no place");
    }
}
