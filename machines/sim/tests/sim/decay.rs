//! The decay of page lists, which is their periodic shrinking: how many pages the lists return to
//! the zone per interval, and at which length the decay stops.

use crate::support;

use plimsoll_mm::Manager;
use plimsoll_mm::design::{Design, HOLDS};
use plimsoll_mm::page::holds::Limit;
use plimsoll_mm::page::{Config, Layout, ZoneKind, ZoneLayout};
use plimsoll_mm::site::Site;
use plimsoll_mm::topology::{CpuPlace, Topology};
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};
use plimsoll_mm::vmstat::counters::ZoneItem;
use plimsoll_sim::Sim;
use support::Small;
use support::small::{any, profile};

/// The largest number of pages that one periodic shrinking of the lists (a decay) returns to the
/// zone: 32 batches of 63 pages.
const ONE_DRAIN: u32 = 2016;

/// Allocates many pages, because allocations raise `high`, the length up to which the lists keep
/// pages, and then frees some of them. Afterwards the calling CPU's lists have more pages than
/// eight decays return.
fn fill(sim: &Sim, mm: &Manager<Sim>) {
    let pages = mm.pages();
    let mut held: Vec<Pfn> = (0..100_000)
        .map(|_| {
            pages
                .alloc(sim, any(Order::ZERO))
                .expect("there is a block")
        })
        .collect();
    held.truncate(40_000);
    pages.free_pages(sim, &held).expect("all were handed out");
}

#[test]
fn high_falls_by_an_eighth_per_interval_and_never_by_more_than_2016_pages() {
    for holds in HOLDS {
        let small = Small::flat(
            2,
            1 << 19,
            Design {
                holds,
                ..Design::OURS
            },
        );
        small.on(0, |sim, mm| {
            fill(sim, mm);
            let sizes = mm.pages().view(sim)[0].sizes;
            let (least, most) = (sizes.high_min.0, sizes.high_max.0);
            let listed = || mm.pages().listed(sim, CpuId(0)).0;
            let mut before = listed();
            assert!(
                before > 8 * ONE_DRAIN && before <= most,
                "{before} of {most}"
            );
            // After a decay that returned pages, the lists have exactly `high` pages, so the result
            // of the next decay is known.
            let mut exact = false;
            let mut capped = 0;
            for _ in 0..100 {
                mm.refresh(sim);
                let after = listed();
                assert!(before - after <= ONE_DRAIN, "{before} to {after}");
                capped += u32::from(before - after == ONE_DRAIN);
                if exact {
                    let eighth = before - before / 8;
                    let expected = eighth.max(before.saturating_sub(ONE_DRAIN)).max(least);
                    assert_eq!(after, expected, "from {before}");
                }
                exact = after < before;
                before = after;
            }
            assert_eq!(before, least, "decay ends at high_min");
            assert!(capped > 0, "the limit was met");
        });
        let decays = small.holds(Site::Decay);
        let limit = if holds.limit(Site::Decay, Pages(63)) == Limit::None {
            ONE_DRAIN
        } else {
            63
        };
        assert_eq!(decays.iter().max(), Some(&limit), "{holds:?}");
    }
}

/// Creates a machine with two nodes, each with one CPU and one normal zone.
fn two_nodes() -> Small {
    let place = |cpu| CpuPlace {
        core: cpu,
        llc: cpu,
        node: NodeId(cpu),
        socket: cpu,
    };
    let zone = |node: u32| ZoneLayout {
        kind: ZoneKind::Normal,
        node: NodeId(node),
        start: Pfn(node << 18),
        spanned: Pages(1 << 18),
        holes: Vec::new(),
    };
    let topology = Topology::new([0, 1].map(place).to_vec());
    let layout = Layout::of([0, 1].map(zone));
    Small::new(&profile(topology, 1000), Config::new(layout))
}

#[test]
fn lists_of_a_remote_node_are_given_back_after_three_intervals_without_use() {
    let small = two_nodes();
    small.on(0, |sim, mm| {
        let pages = mm.pages();
        let remote = any(Order::ZERO).from_node(NodeId(1));
        let held: Vec<Pfn> = (0..200)
            .map(|_| pages.alloc(sim, remote).expect("there is a block"))
            .collect();
        pages.free_pages(sim, &held).expect("all were handed out");
        let listed = || pages.listed(sim, CpuId(0)).0;
        let all = listed();
        assert!(
            all > 63 && all < pages.view(sim)[1].sizes.high_min.0,
            "{all}: decay has no say"
        );
        // A refresh regards the lists as used only if it finds a differential: an amount that the
        // CPU has not yet added to the shared counters (as in Linux). The third refresh after a use
        // returns pages of the lists to the zone.
        for rest in [all - 63, all - 126] {
            pages.count(sim, held[0], ZoneItem::Anon, 1);
            mm.refresh(sim);
            mm.refresh(sim);
            assert_eq!(listed(), rest + 63, "used less than three intervals ago");
            mm.refresh(sim);
            assert_eq!(listed(), rest);
        }
        // Lists that are used in every interval keep their pages.
        for _ in 0..10 {
            pages.count(sim, held[0], ZoneItem::Anon, 1);
            mm.refresh(sim);
        }
        assert_eq!(listed(), all - 126);
    });
    assert_eq!(small.holds(Site::DrainRemoteNode), [63, 63]);
}

#[test]
fn lists_of_the_own_node_do_not_expire() {
    let small = two_nodes();
    small.on(1, |sim, mm| {
        let pages = mm.pages();
        let held: Vec<Pfn> = (0..200)
            .map(|_| {
                pages
                    .alloc(sim, any(Order::ZERO))
                    .expect("there is a block")
            })
            .collect();
        assert!(
            held.iter().all(|pfn| pfn.0 >= 1 << 18),
            "from the own node first"
        );
        pages.free_pages(sim, &held).expect("all were handed out");
        let listed = pages.listed(sim, CpuId(1));
        for _ in 0..40 {
            mm.refresh(sim);
        }
        assert_eq!(pages.listed(sim, CpuId(1)), listed);
    });
    assert_eq!(small.holds(Site::DrainRemoteNode), []);
}
