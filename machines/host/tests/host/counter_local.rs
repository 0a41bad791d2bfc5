//! Additions through a [`LocalTree`] have the same results as additions to the tree.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use plimsoll_host::affinity::{self, CpuMask};
use plimsoll_host::fronts::Fronts;
use plimsoll_host::{Host, OwnerLocks};
use plimsoll_mm::counter::{Area, Batch, Counters, LocalTree, OneSidedTree, Shape};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;
use proptest::collection::vec;
use proptest::prelude::*;

/// The number of groups in the tests. The words of a few groups are in two blocks, if a group has
/// three counters or more.
const GROUPS: usize = 12;

struct Made {
    host: Host,
    groups: Vec<OneSidedTree<Host>>,
}

fn made(fronts: Fronts, cpus: u32, width: usize) -> Made {
    made_many(GROUPS, fronts, cpus, width)
}

fn made_many(groups: usize, fronts: Fronts, cpus: u32, width: usize) -> Made {
    let host = Host::with_fronts(Topology::flat(cpus), fronts, OwnerLocks::Exchanged);
    let area = Arc::new(Area::new(&host, width).expect("there is memory"));
    let fan_in = OneSidedTree::<Host>::FAN_IN;
    let shape = Shape::of_topology(host.topology(), Batch::RSS, fan_in);
    let shape = Arc::new(shape.expect("there are few CPUs"));
    let group = |_| OneSidedTree::init_many(&host, &area, &shape).expect("there is memory");
    let groups = (0..groups).map(group).collect();
    Made { host, groups }
}

fn cells_of<'t>(made: &'t Made, group: usize, cpu: u32) -> LocalTree<'t, Host> {
    made.groups[group].local(&made.host, CpuId(cpu))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Each addition is the CPU, the group, the counter, the amount and the way in which the CPU
    /// adds: to the group, through its own `LocalTree`, or through that of another CPU.
    #[test]
    fn additions_through_a_local_tree_are_those_to_the_tree(
        cpus in 1_u32..70,
        width in 1_usize..=6,
        restartable in any::<bool>(),
        grown in vec(any::<bool>(), GROUPS),
        additions in vec((any::<u32>(), 0..GROUPS, 0_usize..6, -70_i64..70, 0..3), 0..200),
    ) {
        let fronts = if restartable { Fronts::best() } else { Fronts::Off };
        let made = made(fronts, cpus, width);
        let Made { host, groups } = &made;
        for (group, grown) in groups.iter().zip(grown) {
            if grown {
                group.grow(host).expect("there is memory");
            }
        }
        let mut sums = vec![vec![0; width]; GROUPS];
        for (cpu, group, counter, delta, way) in additions {
            let (cpu, counter) = (cpu % cpus, counter % width);
            let _entered = host.enter(CpuId(cpu));
            match way {
                0 => groups[group].add(host, counter, delta),
                1 => cells_of(&made, group, cpu).add(host, counter, delta),
                _ => cells_of(&made, group, (cpu + 1) % cpus).add(host, counter, delta),
            }
            sums[group][counter] += delta;
        }
        for (group, sums) in groups.iter().zip(sums) {
            for (counter, sum) in sums.into_iter().enumerate() {
                prop_assert_eq!(group.precise_sum(host, counter), sum);
                prop_assert!(group.min_max(host, counter).contains(sum));
            }
        }
    }
}

/// The words of 64 groups on one CPU are together. After the first 256 groups, the memory for several
/// times 64 groups is allocated at once.
#[test]
fn each_of_many_groups_has_cells_of_its_own() {
    for fronts in [Fronts::best(), Fronts::Off] {
        let made = made_many(400, fronts, 2, 1);
        let Made { host, groups } = &made;
        for group in groups {
            group.grow(host).expect("there is memory");
        }
        for cpu in [CpuId(0), CpuId(1)] {
            let _entered = host.enter(cpu);
            for (delta, group) in (1..).zip(groups) {
                group.local(host, cpu).add(host, 0, delta);
            }
        }
        let sums = groups.iter().map(|group| group.precise_sum(host, 0));
        assert!(sums.eq((1..=400).map(|delta| 2 * delta)), "{fronts}");
    }
}

#[test]
fn a_local_tree_widens_the_range_as_much_as_an_addition() {
    let made = made(Fronts::best(), 40, 2);
    let Made { host, groups } = &made;
    for group in &groups[..2] {
        group.grow(host).expect("there is memory");
    }
    let _entered = host.enter(CpuId(3));
    groups[0].add(host, 0, 0);
    let first = cells_of(&made, 1, 3);
    assert_eq!(groups[0].accuracy(host, 0), groups[1].accuracy(host, 0));
    let second = cells_of(&made, 1, 3);
    first.add(host, 0, 1);
    second.add(host, 0, 1);
    assert_eq!(groups[0].accuracy(host, 0), groups[1].accuracy(host, 0));
    assert_eq!(first.group().precise_sum(host, 0), 2);
}

#[test]
fn additions_stay_in_the_cell_of_the_cpu() {
    // If the kernel moved the thread, an addition might go to the group's first line.
    let real = CpuMask::of_this_thread()
        .real(0)
        .expect("it runs somewhere");
    let _pinned = affinity::pin(&CpuMask::only(real));
    for fronts in [Fronts::best(), Fronts::Off] {
        let made = made(fronts, 4, 1);
        let group = &made.groups[0];
        group.grow(&made.host).expect("there is memory");
        let _entered = made.host.enter(CpuId(1));
        let here = cells_of(&made, 0, 1);
        for _ in 0..31 {
            here.add(&made.host, 0, 1);
        }
        // A cell keeps 31 of a batch of 32. An addition that went to the shared line would already
        // be a part of the smallest possible sum.
        assert_eq!(group.min_max(&made.host, 0).min, 0, "{fronts}");
        here.add(&made.host, 0, 1);
        assert_eq!(group.precise_sum(&made.host, 0), 32, "{fronts}");
    }
}

/// Only threads on one real CPU, the home, may add to the cells of a CPU without an atomic
/// instruction. This is the home of the CPU whose cell it is, and not that of the CPU that adds.
#[test]
fn an_addition_far_from_the_home_of_a_cell_leaves_the_cell_alone() {
    let real = CpuMask::of_this_thread();
    let (Fronts::Restartable, [first, second, ..]) = (Fronts::best(), real.cpus()) else {
        return;
    };
    let made = made(Fronts::Restartable, 2, 1);
    let Made { host, groups } = &made;
    groups[0].grow(host).expect("there is memory");
    let add = |real: &u32, cpu: u32, cells: u32| {
        thread::scope(|scope| {
            scope.spawn(|| {
                let _pinned = affinity::pin(&CpuMask::only(*real));
                let _entered = host.enter(CpuId(cpu));
                cells_of(&made, 0, cells).add(host, 0, 1);
            });
        });
        groups[0].min_max(host, 0).min
    };
    let mins = [add(first, 0, 0), add(second, 1, 1), add(first, 0, 1)];
    // An addition that goes to the shared line changes the smallest possible sum at once.
    assert_eq!(
        mins,
        [0, 0, 1],
        "the last addition falls on the shared line"
    );
    assert_eq!(groups[0].precise_sum(host, 0), 3);
}

#[test]
fn a_local_tree_that_is_older_than_the_tree_counts_right() {
    let made = made(Fronts::best(), 2, 1);
    let Made { host, groups } = &made;
    let _entered = host.enter(CpuId(0));
    let old = cells_of(&made, 0, 0);
    old.add(host, 0, 5);
    assert!(!groups[0].is_grown());
    groups[0].grow(host).expect("there is memory");
    old.add(host, 0, 7);
    cells_of(&made, 0, 0).add(host, 0, 9);
    assert_eq!(groups[0].precise_sum(host, 0), 21);
}

#[test]
fn a_cpu_or_a_counter_that_is_not_there_is_refused() {
    let made = made(Fronts::best(), 2, 3);
    let Made { host, groups } = &made;
    for group in groups {
        group.grow(host).expect("there is memory");
    }
    let refused = |f: &dyn Fn()| catch_unwind(AssertUnwindSafe(f)).is_err();
    assert!(refused(&|| {
        groups[0].local(host, CpuId(2));
    }));
    assert!(refused(&|| cells_of(&made, 0, 0).add(host, 3, 1)));
    assert_eq!(groups[1].precise_sum(host, 0), 0, "the next group's words");
}
