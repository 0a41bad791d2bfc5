//! Summing many groups of counters in one call gives the same results as summing each group
//! separately.

use plimsoll_host::Host;
use plimsoll_mm::counter::{AnyCounters, Batch, Counters, Counting, Plan, precise_totals};
use plimsoll_mm::machine::Machine;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;
use proptest::collection::vec;
use proptest::prelude::*;

/// The largest number of groups of counters in a test. It is more than two chunks of per-CPU memory
/// can hold.
const GROUPS_MAX: usize = 150;

/// An addition: the group of counters, the counter in the group, the CPU, and the amount. The first
/// three numbers are taken modulo the number of groups, counters and CPUs.
type Addition = (usize, usize, u32, i64);

fn additions() -> impl Strategy<Value = Vec<Addition>> {
    let addition = (
        0..GROUPS_MAX,
        0_usize..8,
        // Half of all additions are on the first few CPUs.
        prop_oneof![0_u32..3, any::<u32>()],
        -5000_i64..5000,
    );
    vec(addition, 0..800)
}

/// Creates `count` groups of counters and applies `additions`. Returns the groups and the sum of
/// each. In a third of the groups, every CPU has added.
fn groups(
    host: &Host,
    counting: Counting,
    width: usize,
    count: usize,
    additions: &[Addition],
) -> (Vec<AnyCounters<Host>>, Vec<i64>) {
    let plan = Plan::new(host, counting, width, Batch::RSS).expect("in the table");
    let groups = (0..count).map(|_| plan.init_many(host).expect("there is memory"));
    let groups: Vec<_> = groups.collect();
    for group in groups.iter().step_by(3) {
        if let AnyCounters::OneSided(tree) = group {
            tree.grow(host).expect("there is memory");
        }
    }
    let mut held = vec![0; count];
    for cpu in host.topology().ids() {
        let _entered = host.enter(cpu);
        for (group, held) in groups.iter().zip(&mut held).step_by(3) {
            group.add_growing(host, 0, 7);
            *held += 7;
        }
    }
    for &(group, counter, cpu, delta) in additions {
        let _entered = host.enter(CpuId(cpu % plan.area().cpus()));
        groups[group % count].add_growing(host, counter % width, delta);
        held[group % count] += delta;
    }
    (groups, held)
}

fn totals(host: &Host, groups: &[AnyCounters<Host>], order: &[usize]) -> Vec<i64> {
    let mut items: Vec<(usize, i64)> = order.iter().map(|&group| (group, 0)).collect();
    let group = |&(group, _): &(usize, i64)| groups.get(group);
    precise_totals(host, &mut items, group, |(_, total), more| *total += more);
    items.into_iter().map(|(_, total)| total).collect()
}

fn counting() -> impl Strategy<Value = Counting> {
    prop::sample::select(Counting::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn totals_taken_together_are_those_of_each(
        (counting, width, count) in (counting(), 1_usize..=6, 1..=GROUPS_MAX),
        cpus in prop_oneof![1_u32..5, 60_u32..70, Just(256)],
        additions in additions(),
    ) {
        let host = Host::with_topology(Topology::flat(cpus));
        let (groups, held) = groups(&host, counting, width, count, &additions);
        let order: Vec<usize> = (0..count).collect();
        prop_assert_eq!(totals(&host, &groups, &order), &*held);
        for (group, &held) in groups.iter().zip(&held) {
            prop_assert_eq!(group.precise_total(&host), held);
            let sums = (0..width).map(|counter| group.precise_sum(&host, counter));
            prop_assert_eq!(sums.sum::<i64>(), held);
        }
    }

    /// One call sums groups of counters whose indexes are in any order. An index that occurs twice
    /// counts twice, and an index without a group adds nothing.
    #[test]
    fn the_order_changes_nothing(
        counting in counting(),
        order in vec(0..2 * GROUPS_MAX, 0..400),
        additions in additions(),
    ) {
        let host = Host::with_topology(Topology::flat(100));
        let (groups, held) = groups(&host, counting, 4, GROUPS_MAX, &additions);
        let expected: Vec<i64> = order
            .iter()
            .map(|&group| held.get(group).copied().unwrap_or(0))
            .collect();
        prop_assert_eq!(totals(&host, &groups, &order), expected);
    }
}

/// An area of per-CPU memory grows by chunks. From the 257th group on, several chunks are allocated
/// together. Groups of counters in each of them must find their own words, not those of another
/// chunk.
#[test]
fn groups_in_chunks_that_were_allocated_together_share_no_words() {
    const COUNT: usize = 1000;
    let host = Host::with_topology(Topology::flat(3));
    let each = (0..COUNT).zip((0..5).cycle()).zip(1..);
    let additions: Vec<Addition> = each
        .map(|((group, cpu), delta)| (group, group, cpu, delta))
        .collect();
    for counting in Counting::ALL {
        for width in [3, 4] {
            let (groups, held) = groups(&host, counting, width, COUNT, &additions);
            // The order leaves out every seventh group, so that fewer than 64 groups of each chunk
            // of per-CPU memory are summed together.
            let order: Vec<usize> = (0..COUNT).filter(|group| group % 7 != 0).collect();
            let expected: Vec<i64> = order.iter().map(|&group| held[group]).collect();
            assert_eq!(totals(&host, &groups, &order), expected, "{counting:?}");
            for (group, &held) in groups.iter().zip(&held) {
                assert_eq!(group.precise_total(&host), held, "{counting:?}");
                let sums = (0..width).map(|counter| group.precise_sum(&host, counter));
                assert_eq!(sums.sum::<i64>(), held, "{counting:?}");
            }
        }
    }
}

/// A group of counters that was dropped or destroyed gives its place (its memory) back, and a new
/// group in this place begins at 0. Neither the return nor the reuse of a place changes another
/// group, whichever chunk the place is in.
#[test]
fn places_come_back_from_every_chunk() {
    const COUNT: usize = 400;
    let host = Host::with_topology(Topology::flat(2));
    let _entered = host.enter(CpuId(1));
    let plan = Plan::new(&host, Counting::Flat, 8, Batch::RSS).expect("in the table");
    let make = |value: i64| {
        let group = plan.init_many(&host).expect("there is memory");
        assert_eq!(group.precise_total(&host), 0, "a new group counts nothing");
        group.add(&host, 2, value - 1);
        group.add(&host, 7, 1);
        group
    };
    let mut groups: Vec<_> = (1..).take(COUNT).map(make).collect();
    let (area, bytes) = (plan.area(), plan.area().bytes(&host));
    for (at, value) in [(1, 2), (255, 256), (256, 257), (330, 331), (399, 400)] {
        let position = groups[at].position();
        drop(groups.remove(at));
        assert_eq!(area.groups(&host), COUNT - 1);
        groups.insert(at, make(value));
        assert_eq!(groups[at].position(), position, "the one free place");
        for (group, value) in groups.iter().zip(1..) {
            assert_eq!(group.precise_total(&host), value, "after {at} was replaced");
        }
    }
    for _ in 0..2 {
        groups.drain(..).for_each(|group| group.destroy_many(&host));
        assert_eq!(area.groups(&host), 0);
        groups.extend((1..).take(COUNT).map(make));
    }
    assert_eq!(area.bytes(&host), bytes, "no memory was added");
}

#[test]
fn groups_made_in_a_row_are_in_the_order_of_memory() {
    let host = Host::with_topology(Topology::flat(256));
    for counting in [Counting::Flat, Counting::Tree] {
        let (groups, _) = groups(&host, counting, 4, GROUPS_MAX, &[]);
        let positions = groups.iter().map(AnyCounters::position);
        assert!(positions.is_sorted_by(|a, b| a < b), "{counting:?}");
    }
}

#[test]
fn who_has_nothing_in_per_cpu_memory_has_no_position() {
    let host = Host::with_topology(Topology::flat(256));
    let one = |counting| groups(&host, counting, 4, 1, &[]).0.remove(0);
    assert_eq!(one(Counting::Shared).position(), 0);
    let plan = Plan::new(&host, Counting::OneSided, 4, Batch::RSS).expect("in the table");
    let counters = plan.init_many(&host).expect("there is memory");
    assert_eq!(counters.position(), 0);
    let AnyCounters::OneSided(tree) = &counters else {
        unreachable!("it is the kind that was asked for");
    };
    tree.grow(&host).expect("there is memory");
    assert!(counters.position() > 0);
}
