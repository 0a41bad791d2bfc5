//! Tests which pages zones hand out near their watermarks, and how long page lists become. Also
//! tests for how long the hold policy `bounded` lets a CPU hold a zone lock.

use crate::support;

use std::rc::Rc;

use plimsoll_mm::Manager;
use plimsoll_mm::design::Design;
use plimsoll_mm::event::Event;
use plimsoll_mm::page::sizing::Sizes;
use plimsoll_mm::page::watermark::Urgency;
use plimsoll_mm::page::{Config, Layout, Request, ZoneKind, ZoneLayout};
use plimsoll_mm::site::Site;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, NodeId, Order, Pages, Pfn};
use plimsoll_sim::Sim;
use support::Small;
use support::small::{any, profile};

/// Returns a request for one page that must be allocated from zone 0. The allocation must not wait.
fn at_once() -> Request {
    Request::new(Order::ZERO)
        .urgent(Urgency::NoWait)
        .from_zone(0)
}

/// Allocates with `request` until an allocation fails. Returns all pages.
fn take_all(sim: &Sim, mm: &Manager<Sim>, request: Request) -> Vec<Pfn> {
    let next = || mm.pages().alloc(sim, request).ok();
    std::iter::from_fn(next).collect()
}

fn free_all(sim: &Sim, mm: &Manager<Sim>, pfns: &[Pfn]) {
    let freed = mm.pages().free_pages(sim, pfns);
    freed.expect("all were handed out");
}

#[test]
fn a_bounded_hold_ends_soon_after_its_time_is_over() {
    let most_blocks = |limit_ns: u64| {
        let small = Small::flat(1, 1 << 18, Design::OURS);
        small.tune(Knob::HoldTimeMax, limit_ns);
        small.on(0, |sim, mm| {
            let all = take_all(sim, mm, any(Order::ZERO));
            // Free every other page, so that no two free pages can merge.
            let apart: Vec<Pfn> = all.into_iter().step_by(2).take(60_000).collect();
            free_all(sim, mm, &apart);
        });
        let seen = small.seen.borrow();
        let blocks = seen.iter().filter_map(|(_, _, event)| match *event {
            Event::ZoneHold {
                site: Site::Spill,
                blocks,
                ..
            } => Some(blocks),
            _ => None,
        });
        blocks.max().expect("so many pages spill")
    };
    assert_eq!(most_blocks(0), 63, "a batch, if there is no limit");
    // While the CPU holds the zone lock, it checks the time after every eighth block. A block takes
    // 50 ns, and so does reading the clock.
    assert_eq!(most_blocks(1), 8);
    assert_eq!(most_blocks(1000), 24, "16 take 900 ns, 24 take 1350");
}

#[test]
fn a_node_without_cpus_is_shared_by_all_of_them() {
    let zone = |node| ZoneLayout {
        kind: ZoneKind::Normal,
        node: NodeId(node),
        start: Pfn(node << 17),
        spanned: Pages(1 << 17),
        holes: Vec::new(),
    };
    let small = Small::new(
        &profile(Topology::flat(8), 1000),
        Config::new(Layout::of([zone(0), zone(1)])),
    );
    let sizes = |online| -> Vec<Sizes> {
        let of = |zone: plimsoll_mm::page::ZoneView| {
            let expected = Sizes::of(zone.managed, zone.watermarks.low, online, 0);
            assert_eq!(
                zone.sizes, expected,
                "{online} CPUs share node {}",
                zone.node.0
            );
            zone.sizes
        };
        let views = small.mm.pages().view(&small.sim);
        views.into_iter().map(of).collect()
    };
    let all = sizes(8);
    for cpu in 3..8 {
        small.on(0, move |sim, mm| {
            mm.cpu_going(sim, CpuId(cpu));
            mm.cpu_dead(sim, CpuId(cpu));
        });
    }
    let three = sizes(3);
    assert!(three[1].high_min > all[1].high_min, "{three:?} {all:?}");
}

#[test]
fn a_zone_keeps_its_reserve_from_requests_that_zones_up_to_their_class_could_serve() {
    let kinds = [ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::Movable];
    let starts = [0, 1 << 14, 1 << 16, 1 << 18];
    let zones = kinds.into_iter().zip(starts.windows(2));
    let zones = zones.map(|(kind, span)| ZoneLayout {
        kind,
        node: NodeId(0),
        start: Pfn(span[0]),
        spanned: Pages(span[1] - span[0]),
        holes: Vec::new(),
    });
    let small = Small::new(
        &profile(Topology::flat(1), 1000),
        Config::new(Layout::of(zones)),
    );
    small.tune(Knob::BatchScaleMax, 0);
    let above = [0, starts[2] - starts[1], starts[3] - starts[1]];
    for (class, above) in kinds.into_iter().zip(above) {
        small.on(0, move |sim, mm| {
            let taken = take_all(sim, mm, at_once().of_class(class));
            let zone = &mm.pages().view(sim)[0];
            assert_eq!(zone.listed, Pages(0), "lists are used up first");
            let kept = zone.watermarks.min.0 + above / 256;
            let batch = zone.sizes.batch.0;
            assert!(
                zone.free.0 <= kept && zone.free.0 + batch > kept,
                "{} are left of {kept} to be kept from {class:?}",
                zone.free
            );
            free_all(sim, mm, &taken);
            mm.pages().drain_all_sync(sim);
        });
    }
}

#[test]
fn what_differentials_hide_is_no_way_below_the_watermark() {
    const CPUS: u32 = 32;
    let small = Small::flat(CPUS, 1 << 17, Design::OURS);
    small.tune(Knob::BatchScaleMax, 0);
    let zone = small.zone();
    let (marks, batch) = (zone.watermarks, zone.sizes.batch.0);
    let distance = marks.low.0 - marks.min.0;
    assert!(
        CPUS * batch > 3 * distance,
        "all CPUs' differentials hide more than there is between low and min"
    );
    let left = Rc::new(std::cell::Cell::new(u32::MAX));
    // CPU 0 allocates pages until the zone is near its low watermark. Then CPU 0 adds what it has
    // counted to the zone's counters.
    small.on(0, move |sim, mm| {
        let above = zone.free.0 - marks.low.0 - batch;
        for _ in 0..above {
            mm.pages().alloc(sim, any(Order::ZERO)).expect("a page");
        }
        mm.refresh(sim);
    });
    for _round in 0..4 {
        for cpu in 0..CPUS {
            let left = Rc::clone(&left);
            small.on(cpu, move |sim, mm| {
                // Allocate as many pages as one refill provides.
                for _ in 0..batch {
                    if mm.pages().alloc(sim, at_once()).is_err() {
                        break;
                    }
                }
                left.set(mm.pages().view(sim)[0].free.0);
            });
        }
    }
    let left = left.get();
    assert!(
        left <= marks.min.0 && left + batch > marks.min.0,
        "{left} are left, a request may go to {}",
        marks.min
    );
}

#[test]
fn once_there_is_plenty_again_lists_grow_again() {
    let small = Small::flat(1, 1 << 17, Design::OURS);
    let grown = |small: &Small| {
        small.on(0, |sim, mm| {
            for _ in 0..20 {
                let next = |_| mm.pages().alloc(sim, any(Order::ZERO)).expect("a page");
                let taken: Vec<Pfn> = (0..2000).map(next).collect();
                free_all(sim, mm, &taken);
            }
        });
        let state = small.mm.pages().list_state(&small.sim, 0, CpuId(0));
        state.expect("there is a zone").high
    };
    let (before, high_min) = (grown(&small), small.zone().sizes.high_min);
    assert!(before > high_min, "lists grow while there is plenty");
    small.on(0, move |sim, mm| {
        let taken = take_all(sim, mm, at_once());
        let zone = &mm.pages().view(sim)[0];
        assert!(zone.free < zone.watermarks.high, "the zone is nearly empty");
        let (few, rest) = taken.split_at(300);
        free_all(sim, mm, few);
        let state = mm.pages().list_state(sim, 0, CpuId(0));
        let high = state.expect("there is a zone").high;
        assert_eq!(high, high_min, "frees keep lists short while it is");
        free_all(sim, mm, rest);
    });
    let again = grown(&small);
    assert!(again > high_min, "{again} with plenty, {high_min} at least");
}

#[test]
fn memory_on_lists_of_others_counts_when_it_is_asked_whether_there_is_plenty() {
    let small = Small::flat(2, 1 << 14, Design::OURS);
    small.tune(Knob::HighFraction, 8);
    small.on(1, |sim, mm| {
        let taken = take_all(sim, mm, any(Order::ZERO));
        mm.pages().drain_all_sync(sim);
        let high = mm.pages().view(sim)[0].watermarks.high.0 as usize;
        let (free, listed) = taken[..high + 500].split_at(high - 100);
        free_all(sim, mm, free);
        mm.pages().drain_all_sync(sim);
        free_all(sim, mm, listed);
        assert_eq!(mm.pages().listed(sim, CpuId(1)), Pages(600));
    });
    small.on(0, |sim, mm| {
        let request = Request::new(Order::ZERO);
        let got = mm.pages().alloc_if_plenty(sim, request);
        assert!(got.is_some(), "500 pages more than the high mark are free");
        let zone = &mm.pages().view(sim)[0];
        assert!(zone.listed < Pages(600), "they were on a list");
    });
}
