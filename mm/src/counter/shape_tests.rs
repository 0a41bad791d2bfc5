//! Tests of the shapes of counter trees: the shapes of the tree that was proposed for Linux, and
//! shapes that follow a machine's topology.

use super::*;
use crate::units::NodeId;

fn published(cpus: u32) -> Shape {
    Shape::published(cpus, Batch::RSS).expect("in the table")
}

/// Creates the topology of a machine of `sockets` sockets with `llcs` last-level caches each. Each
/// cache has `cores` cores, and each core `smt` hardware threads. CPUs are numbered as in Linux:
/// the second threads of the cores come last.
fn machine(sockets: u32, llcs: u32, cores: u32, smt: u32) -> Topology {
    let total = sockets * llcs * cores;
    let place = |cpu: u32| {
        let core = cpu % total;
        CpuPlace {
            core,
            llc: core / cores,
            node: NodeId(core / cores / llcs),
            socket: core / cores / llcs,
        }
    };
    Topology::new((0..total * smt).map(place).collect())
}

#[test]
fn the_published_tree_has_as_many_items_as_its_table_says() {
    let expected = [
        0, 1, 3, 7, 7, 11, 21, 21, 37, 73, 149, 293, 585, 1173, 2341, 4681, 4681, 8777, 17481,
        34953, 69905,
    ];
    for (order, items) in expected.into_iter().enumerate().skip(1) {
        assert_eq!(published(1 << order).items(), items, "order {order}");
        assert_eq!(ARITIES[order].iter().sum::<u32>() as usize, order);
    }
}

#[test]
fn the_published_tree_is_behind_by_at_most_half_of_what_it_documents() {
    let behind = [62, 188, 504, 1136, 2528, 5056, 0, 22_272, 44_544];
    for (order, expected) in (1..).zip(behind).filter(|(_, expected)| *expected > 0) {
        assert_eq!(published(1 << order).error_max(), expected, "order {order}");
    }
    let documented = |cpus| published(cpus).published_accuracy();
    assert_eq!(documented(256).under, 24_576);
    let of_384 = Accuracy {
        under: 49_152,
        over: 47_616,
    };
    assert_eq!(documented(384), of_384);
    assert_eq!(documented(1), Accuracy::EXACT);
}

#[test]
fn the_published_tree_groups_cpus_far_apart() {
    let shape = published(384);
    assert_eq!(shape.path(0), shape.path(64));
    assert_ne!(shape.path(0), shape.path(1));
}

#[test]
fn ours_follows_caches_and_sockets() {
    let topology = machine(2, 12, 8, 2);
    let shape = Shape::of_topology(&topology, Batch::RSS, 16).expect("a shape");
    assert_eq!((shape.items(), shape.roots()), (26, 2));
    assert_eq!(shape.error_max(), 384 * 31 + 24 * 480);
    for (a, b) in topology
        .ids()
        .flat_map(|a| topology.ids().map(move |b| (a, b)))
    {
        let (at, bt) = (topology.place(a), topology.place(b));
        let (one, other) = (shape.path(a.index()), shape.path(b.index()));
        assert_eq!(one[0] == other[0], at.llc == bt.llc, "{a} and {b}");
        assert_eq!(one[1] == other[1], at.socket == bt.socket, "{a} and {b}");
    }
}

#[test]
fn a_large_cache_is_split_evenly() {
    let shape = Shape::of_topology(&Topology::flat(72), Batch::RSS, 16).expect("a shape");
    assert_eq!((shape.items(), shape.roots()), (6, 1));
    assert_eq!(shape.error_max(), 72 * 31 + 5 * 480);
    let members = |item| (0..72).filter(|&cpu| shape.path(cpu)[0] == item).count();
    assert!((0..5).all(|item| [14, 15].contains(&members(item))));
}

/// On this machine, each last-level cache has only one CPU. So CPUs with different caches share the
/// items of the lowest level, which add up what the CPUs' cells pass on. Each level has fewer items
/// than the level below, and the tree ends in one root.
#[test]
fn caches_of_one_cpu_do_not_stop_the_tree() {
    let shape = Shape::of_topology(&machine(1, 100, 1, 1), Batch::RSS, 8).expect("a shape");
    assert_eq!(shape.roots(), 1);
    assert_eq!(shape.items(), 13 + 2 + 1);
}

#[test]
fn every_machine_has_a_shape_that_leads_every_cpu_to_a_root() {
    for (sockets, llcs, cores, smt) in [
        (1, 1, 1, 1),
        (1, 1, 2, 1),
        (8, 1, 4, 2),
        (2, 16, 8, 2),
        (3, 5, 7, 1),
    ] {
        for fan_in in [2, 3, 8, 16, 4096] {
            let topology = machine(sockets, llcs, cores, smt);
            let shape = Shape::of_topology(&topology, Batch::RSS, fan_in).expect("a shape");
            assert_eq!(shape.roots(), sockets);
            for cpu in 0..topology.cpus() as usize {
                let path = shape.path(cpu);
                assert!(path.is_sorted(), "levels come one after the other");
                assert!(
                    shape
                        .root_items()
                        .contains(&(path[path.len() - 1] as usize))
                );
            }
            let ordered = shape
                .levels()
                .windows(2)
                .all(|pair| pair[0].batch == pair[1].step);
            assert!(ordered, "each level receives what the one below carries");
        }
    }
}

/// A batch, a number of CPUs or a fan-in with which no tree can be built is rejected with an error.
#[test]
fn what_cannot_be_is_refused() {
    assert_eq!(Batch::new(1), Err(ShapeError::Batch(1)));
    assert_eq!(Batch::new(48), Err(ShapeError::Batch(48)));
    assert_eq!(Shape::published(0, Batch::RSS), Err(ShapeError::NoCpus));
    let too_many = Shape::published((1 << 20) + 1, Batch::RSS);
    assert!(matches!(too_many, Err(ShapeError::TooManyCpus { max, .. }) if max == 1 << 20));
    assert_eq!(published(1 << 20).cpus(), 1 << 20);
    let lonely = Shape::of_topology(&Topology::flat(2), Batch::RSS, 1);
    assert_eq!(lonely, Err(ShapeError::FanIn(1)));
}
