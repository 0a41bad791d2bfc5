//! Tests that the memory manager takes virtual time not only for moving pages, but also for its
//! other work: for sorting, for reading the clock, and for looking at the counts of other CPUs.

use crate::support;

use std::sync::Arc;

use plimsoll_mm::Manager;
use plimsoll_mm::counter::{Area, Flat};
use plimsoll_mm::design::Design;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::page::holds::{Bounded, BoundedPages};
use plimsoll_mm::site::Work;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, Nanos, Order, Pfn};
use plimsoll_mm::vmstat::schedule::Phased;
use plimsoll_mm::vmstat::shepherd::{AtOnce, AtPhase, Shepherd};
use plimsoll_sim::Sim;
use support::Small;
use support::small::any;

/// The price of each kind of work that these tests count.
const PRICE_NS: u64 = 50;

fn spent(small: &Small, work: Work) -> u64 {
    small.sim.stats().work_ns[work as usize] / PRICE_NS
}

fn alloc(sim: &Sim, mm: &Manager<Sim>, pages: usize) -> Vec<Pfn> {
    let page = || mm.pages().alloc(sim, any(Order::ZERO)).expect("is free");
    (0..pages).map(|_| page()).collect()
}

/// Allocates 4000 pages, frees them in the order that `reorder` makes, and drains them. Returns two
/// numbers: how many comparisons and how many readings of the clock the machine charged for.
fn freed(design: Design, hold_time_max: u64, reorder: fn(&mut Vec<Pfn>)) -> [u64; 2] {
    let small = Small::flat(1, 1 << 16, design);
    small.tune(Knob::HoldTimeMax, hold_time_max);
    small.on(0, move |sim, mm| {
        let mut pages = alloc(sim, mm, 4000);
        reorder(&mut pages);
        mm.pages().free_pages(sim, &pages).expect("are allocated");
        mm.pages().drain_all_sync(sim);
    });
    [spent(&small, Work::Compare), spent(&small, Work::Clock)]
}

fn with_holds(bounded: bool) -> Design {
    Design {
        holds: if bounded { &Bounded } else { &BoundedPages },
        ..Design::LINUX
    }
}

#[test]
fn a_design_that_sorts_pays_for_it_and_more_if_pages_are_out_of_order() {
    let shuffle =
        |pages: &mut Vec<Pfn>| pages.sort_by_key(|page| page.0.wrapping_mul(2_654_435_769));
    let [in_order, _] = freed(with_holds(true), 0, |pages| pages.sort_unstable());
    let [out_of_order, _] = freed(with_holds(true), 0, shuffle);
    assert!(
        (3000..=6000).contains(&in_order),
        "about one for each page: {in_order}"
    );
    assert!(out_of_order > 2 * in_order, "{out_of_order}, {in_order}");
    for design in [Design::LINUX, with_holds(false)] {
        assert_eq!(
            freed(design, 0, shuffle)[0],
            0,
            "moves pages without sorting"
        );
    }
}

#[test]
fn a_design_that_bounds_the_time_of_holds_pays_for_reading_the_clock() {
    let keep = |_: &mut Vec<Pfn>| {};
    let [_, pages] = freed(with_holds(false), 20_000, keep);
    // All 4000 pages go to the page lists and back to the zone. Each hold of the zone lock moves at
    // most 63 pages, and reads the clock when it begins and after every 8 pages.
    assert!(
        (900..=1400).contains(&pages),
        "4000 pages, there and back: {pages}"
    );
    let [_, blocks] = freed(with_holds(true), 20_000, keep);
    assert!(0 < blocks && blocks < pages, "fewer blocks: {blocks}");
    assert_eq!(
        freed(with_holds(true), 0, keep)[1],
        0,
        "the time is not bounded"
    );
    assert_eq!(freed(Design::LINUX, 20_000, keep)[1], 0);
}

#[test]
fn a_timer_at_a_point_in_time_needs_the_clock_and_a_timer_of_the_wheel_does_not() {
    let readings = |design: Design| {
        let small = Small::flat(2, 1 << 18, design);
        small.mm.start(&small.sim);
        // Both CPUs are kept busy. The shepherd, a job on CPU 0, restarts the vmstat work of other
        // CPUs, but it does not wake an idle CPU.
        small.keep_busy(CpuId(0));
        small.keep_busy(CpuId(1));
        small.sim.run_until(Nanos(10 * Nanos::SECOND.0));
        (spent(&small, Work::Clock), small.starts_of(CpuId(1)).len())
    };
    let (wheel, fired) = readings(Design::LINUX);
    assert!(wheel == 0 && fired >= 3, "{wheel} for {fired}");
    let (exact, fired) = readings(Design {
        schedule: &Phased,
        ..Design::LINUX
    });
    assert!(exact >= fired as u64 && fired >= 3, "{exact} for {fired}");
}

/// Runs the machine for ten seconds, while only CPU 0 has anything to do. Returns two numbers: how
/// often the shepherd (the job that restarts the vmstat work of CPUs) looked at a CPU, and how many
/// CPUs there are.
fn looks_of(shepherd: &'static dyn Shepherd) -> (u64, u64) {
    let small = Small::flat(
        4,
        1 << 18,
        Design {
            shepherd,
            ..Design::LINUX
        },
    );
    small.mm.start(&small.sim);
    let cpus = 4;
    small.sim.run_until(Nanos(3 * Nanos::SECOND.0));
    let before = spent(&small, Work::ScanCpu);
    small.sim.spawn_daemon(CpuId(0), |sim| {
        loop {
            sim.spend(Work::Think, 10_000_000);
        }
    });
    small.sim.run_until(Nanos(13 * Nanos::SECOND.0));
    (spent(&small, Work::ScanCpu) - before, cpus)
}

#[test]
fn only_the_shepherd_that_cares_for_page_lists_pays_for_looking_at_them() {
    // In each round, the shepherd looks at each CPU three times: at the CPU's vmstat work, at the
    // amounts that the CPU has not yet added to the zone's counters, and at the amounts that the
    // CPU has not yet added to the node's counters. Our shepherd also looks at the length of the
    // CPU's lists.
    let (linux, cpus) = looks_of(&AtOnce);
    let (ours, _) = looks_of(&AtPhase);
    assert_eq!(linux % (3 * cpus), 0, "{linux}");
    assert!(linux / (3 * cpus) >= 9, "{linux}");
    assert_eq!(linux / 3, ours / 4, "{linux}, {ours}");
}

#[test]
fn a_drain_looks_at_each_cpu_and_a_check_near_the_watermark_adds_all_differentials() {
    const CPUS: u32 = 64;
    let small = Small::flat(CPUS, 1 << 16, Design::LINUX);
    small.on(0, |sim, mm| {
        mm.pages().drain_all_sync(sim);
    });
    assert_eq!(spent(&small, Work::ScanCpu), u64::from(CPUS), "one zone");
    let high = small.zone().watermarks.high.0;
    let plenty = spent(&small, Work::ScanCpu);
    small.on(1, |sim, mm| {
        alloc(sim, mm, 1000);
    });
    assert_eq!(
        spent(&small, Work::ScanCpu),
        plenty,
        "the shared word is enough"
    );
    let free = small.zone().free.0;
    small.on(1, move |sim, mm| {
        alloc(sim, mm, (free - high) as usize);
    });
    let checks = spent(&small, Work::ScanCpu) - plenty;
    assert!(
        checks > 0 && checks.is_multiple_of(u64::from(CPUS)),
        "{checks}"
    );
}

/// When a group (all counters of one owner) is created, the machine charges for clearing the
/// counters of each CPU. It charges for this whether the memory is new (as for the first group) or
/// was that of a destroyed group. The area, the memory for counters, grows with the number of CPUs.
#[test]
#[expect(
    clippy::arc_with_non_send_sync,
    reason = "on real machines it is both; a simulated one has one thread"
)]
fn a_group_of_counters_pays_for_each_cpu_whether_its_place_is_new_or_was_used() {
    let bytes_of = |cpus: u32| {
        let small = Small::flat(cpus, 1 << 16, Design::OURS);
        let area = Area::new(&small.sim, 4).expect("four counters fit");
        let area = Arc::new(area);
        let shared = Arc::clone(&area);
        small.on(0, move |sim, _| {
            let looks = || sim.stats().work_ns[Work::ScanCpu as usize] / PRICE_NS;
            for _ in 0..3 {
                let before = looks();
                let group = Flat::init_many(sim, &shared).expect("there is memory");
                assert_eq!(looks() - before, u64::from(cpus));
                group.destroy_many(sim);
            }
        });
        area.bytes(&small.sim)
    };
    assert!(bytes_of(1) > 0);
    assert_eq!(bytes_of(3), 3 * bytes_of(1));
}
