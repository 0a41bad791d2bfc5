//! Any input of these kinds either works or is refused with an error:
//!
//! * a list of CPUs from which a machine is created;
//! * numbers that are added to the counters of that machine;
//! * numbers of free blocks with which a zone is to start;
//! * the memory usage and the readings of the candidates from which the OOM code selects a victim.

use crate::support;

use plimsoll_host::Host;
use plimsoll_mm::Manager;
use plimsoll_mm::counter::Reading;
use plimsoll_mm::design::Design;
use plimsoll_mm::oom::{
    Candidates, Facts, Outcome, Scope, ScoreAdj, SelectError, Selecting, Slot, TotalPages, Usage,
    badness, oom_score,
};
use plimsoll_mm::page::{Config, Layout, Mobility, NODES_MAX, PageAllocator, SeedError};
use plimsoll_mm::space::Spaces;
use plimsoll_mm::topology::{CpuPlace, NodeSet, Topology, TopologyError};
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};
use plimsoll_mm::vmstat::counters::{Direction, NodeItem, ZoneItem};
use proptest::prelude::*;
use proptest::{collection, sample};
use support::numbers::{any_i64, any_u32, any_u64};

/// Generates the core, cache, node and socket of each CPU. Most of the node numbers are ones that a
/// machine accepts.
fn places() -> impl Strategy<Value = Vec<CpuPlace>> {
    let node = prop_oneof![8 => 0..5u32, 2 => 1000..1030u32, 1 => any_u32()];
    let place = (any_u32(), any_u32(), node, any_u32());
    let place = place.prop_map(|(core, llc, node, socket)| CpuPlace {
        core,
        llc,
        node: NodeId(node),
        socket,
    });
    collection::vec(place, 0..5)
}

/// Candidates for a kill, whose readings (approximate sums of pages) may be false. A reading is a
/// range with two arbitrary ends, which may even be in the wrong order.
#[derive(Debug)]
struct Liars(Vec<(Facts, Reading)>);

impl Candidates for Liars {
    fn len(&self) -> u32 {
        u32::try_from(self.0.len()).expect("few")
    }

    fn facts(&self, candidate: u32) -> Option<Facts> {
        Some(self.0.get(candidate as usize)?.0)
    }

    fn approximate(&self, candidate: u32) -> Option<Reading> {
        Some(self.0.get(candidate as usize)?.1)
    }

    fn precise(&self, candidate: u32) -> Option<i64> {
        Some(self.approximate(candidate)?.estimate)
    }
}

fn adj() -> impl Strategy<Value = ScoreAdj> {
    (-1000..=1000i16).prop_map(|adj| ScoreAdj::new(adj.into()).expect("in range"))
}

fn liars() -> impl Strategy<Value = Liars> {
    let reading = (any_i64(), any_i64(), any_i64(), any::<bool>());
    let reading = reading.prop_map(|(a, b, c, in_order)| {
        let mut of = [a, b, c];
        if in_order {
            of.sort_unstable();
        }
        let mut reading = Reading::exactly(of[1]);
        (reading.range.min, reading.range.max) = (of[0], of[2]);
        reading
    });
    let candidate = (adj(), reading).prop_map(|(adj, reading)| {
        let facts = Facts {
            adj,
            ..Facts::PROCESS
        };
        (facts, reading)
    });
    collection::vec(candidate, 0..6).prop_map(Liars)
}

/// A random operation on the counters of zones and nodes, with an amount in pages.
#[derive(Clone, Debug)]
enum Count {
    Zone(u32, i64),
    Node(i64),
    Each(Vec<u32>, i64),
    Step(bool),
    Refresh,
}

fn count() -> impl Strategy<Value = Count> {
    prop_oneof![
        (any_u32(), any_i64()).prop_map(|(pfn, delta)| Count::Zone(pfn, delta)),
        any_i64().prop_map(Count::Node),
        (collection::vec(any_u32(), 0..5), any_i64())
            .prop_map(|(pfns, each)| Count::Each(pfns, each)),
        any::<bool>().prop_map(Count::Step),
        Just(Count::Refresh),
    ]
}

fn do_count(host: &Host, manager: &Manager<Host>, count: &Count) {
    let (zone_item, node_item) = (ZoneItem::Anon, NodeItem::AnonMapped);
    match count {
        Count::Zone(pfn, delta) => {
            manager.pages().count(host, Pfn(*pfn), zone_item, *delta);
        }
        Count::Node(delta) => manager.count_node(host, node_item, *delta),
        Count::Each(pfns, each) => {
            let pfns: Vec<Pfn> = pfns.iter().copied().map(Pfn).collect();
            manager.count_each_on_nodes(host, &pfns, node_item, *each);
        }
        Count::Step(up) => {
            let step = if *up { Direction::Up } else { Direction::Down };
            manager.step_node(host, node_item, step);
        }
        Count::Refresh => {
            manager.refresh(host);
        }
    }
    let _zones = manager.pages().counted(host, zone_item);
    let _nodes = manager.counted_on_nodes(host, node_item);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_machine_of_any_cpus_counts_or_is_refused(
        places in places(),
        swap in 0..100u32,
        counts in collection::vec(count(), 0..40),
    ) {
        let on_no_node = places.iter().position(|place| place.node.0 >= NODES_MAX);
        let topology = match Topology::try_new(places.clone()) {
            Ok(topology) => topology,
            Err(TopologyError::NoCpu) => {
                prop_assert!(places.is_empty());
                return Ok(());
            }
            Err(TopologyError::NoSuchNode(cpu)) => {
                prop_assert_eq!(Some(cpu), on_no_node);
                return Ok(());
            }
        };
        prop_assert!(on_no_node.is_none() && !places.is_empty());
        let cpus = topology.cpus();
        let host = Host::with_topology(topology);
        let _entered = host.enter(CpuId(0));
        let config = Config::new(Layout::arena(Pages(1 << 12)));
        let manager = Manager::new(&host, config).expect("an arena is a layout");
        let spaces = Spaces::new(&host, &Design::OURS, swap);
        prop_assert!(spaces.is_ok());
        for (nth, count) in (0..).zip(&counts) {
            let _entered = host.enter(CpuId(nth % cpus));
            do_count(&host, &manager, count);
        }
    }

    #[test]
    fn any_wish_for_free_blocks_is_met_or_refused(
        pages in 1..200_000u32,
        counts in collection::vec(
            (sample::select(Mobility::ALL.to_vec()), 0..Order::COUNT, any_u32()), 0..4,
        ),
        zone in prop_oneof![4 => Just(0u32), 1 => any_u32()],
    ) {
        let host = Host::with_topology(Topology::flat(1));
        let _entered = host.enter(CpuId(0));
        let config = Config::new(Layout::arena(Pages(pages)));
        let allocator = PageAllocator::new(&host, config).expect("an arena is a layout");
        let mut free = [[0; Order::COUNT]; Mobility::COUNT];
        let mut wanted = 0;
        for (mobility, order, count) in counts {
            free[mobility.index()][order] = count;
            wanted = free
                .iter()
                .flat_map(|of| of.iter().zip(Order::all()))
                .map(|(&count, order)| u64::from(count) * u64::from(order.pages().0))
                .sum();
        }
        match allocator.seed_free(&host, zone, &free) {
            Ok(in_use) => {
                prop_assert_eq!(u64::from(allocator.view(&host)[0].free.0), wanted);
                for block in in_use {
                    prop_assert_eq!(allocator.free(&host, block.pfn, block.order), Ok(()));
                }
            }
            Err(why) => {
                let expected = if zone == 0 { SeedError::TooSmall(0) } else { SeedError::NoSuchZone(zone) };
                prop_assert_eq!(why, expected);
            }
        }
        allocator.drain_all_sync(&host);
        let view = &allocator.view(&host)[0];
        prop_assert_eq!((view.free.0, view.counted_free), (pages, u64::from(pages)));
    }

    #[test]
    fn whatever_candidates_say_somebody_is_chosen_or_they_are_refused(
        liars in liars(),
        total in any_u64(),
        slots in 0..8usize,
        selecting in sample::select(Selecting::ALL.to_vec()),
    ) {
        let Ok(pages) = TotalPages::new(total) else {
            prop_assert_eq!(total, 0);
            return Ok(());
        };
        let mut slots = vec![Slot::EMPTY; slots];
        let selection = selecting.select(&liars, &Scope::machine(pages), &mut slots);
        match selection {
            Ok(selection) => if let Outcome::Victim(victim) = selection.outcome {
                prop_assert!(victim.candidate < liars.len());
            },
            Err(SelectError::NoSlot) => prop_assert!(slots.is_empty()),
            Err(SelectError::Reading { candidate, reading }) => {
                prop_assert_eq!(Some(reading), liars.approximate(candidate));
                prop_assert!(!reading.is_ordered());
            }
            Err(error) => prop_assert!(false, "only a `Selector` of the embedder: {}", error),
        }
    }

    #[test]
    fn any_usage_has_points_and_a_score(
        (resident_pages, swap_pages, table_bytes) in (any_u64(), any_u64(), any_u64()),
        adj in adj(),
        (total, pages) in (1..=u64::MAX, any_i64()),
        node in any_u32(),
    ) {
        let usage = Usage { resident_pages, swap_pages, table_bytes };
        let total = TotalPages::new(total).expect("some");
        let facts = Facts { adj, ..Facts::PROCESS };
        for pages in [usage.pages(), pages] {
            let points = badness(&facts, pages, total);
            prop_assert_eq!(points.is_none(), adj == ScoreAdj::NEVER);
            let _score = oom_score(points, total);
        }
        let _none = NodeSet::NONE.with(NodeId(node));
        let _adj = ScoreAdj::new(node.cast_signed());
    }
}
