//! Tests of a CPU whose page lists are locked by a drain on another CPU. The CPU must never wait
//! for its lists, and no page must be lost.

use crate::support;

use std::rc::Rc;

use plimsoll_mm::design::{Design, HOLDS};
use plimsoll_mm::page::holds::{Batched, BatchedDrains, BatchedZoneLock, Bounded, Holds};
use plimsoll_mm::page::{Config, Layout};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::tunables::Knob;
use plimsoll_mm::units::{CpuId, Nanos, Order, Pages, Pfn};
use plimsoll_sim::SimOptions;
use support::small::{any, profile};
use support::{Dice, Small, seeds};

const OWNER: CpuId = CpuId(0);
/// The number of pages that the owner of the page lists frees. This is a little more than `high`,
/// the longest allowed length of the lists, so the last frees return pages to the zone.
const FREED: usize = 700;
/// The value of [`Knob::HighFraction`]. It sets `high`, the number at which frees return pages to
/// the zone, to 655 pages.
const FRACTION: u64 = 200;

/// Creates a machine with 1 GiB and two CPUs, where `holds` limits how many pages one hold of the
/// zone lock moves.
fn machine(holds: &'static dyn Holds, seed: u64) -> Small {
    let mut config = Config::new(Layout::arena(Pages(1 << 18)));
    config.design = Design {
        holds,
        ..Design::OURS
    };
    let options = SimOptions {
        seed,
        shake_ns: 200,
        ..SimOptions::default()
    };
    let fixed = config.tunables.set(Knob::HighFraction, FRACTION);
    fixed.expect("in bounds");
    Small::with_options(&profile(Topology::flat(2), 1000), config, options)
}

/// Allocates `count` pages, and leaves all page lists empty.
fn take(small: &Small, count: usize) -> Vec<Pfn> {
    let pages = small.mm.pages();
    let take = |_| {
        pages
            .alloc(&small.sim, any(Order::ZERO))
            .expect("there is a block")
    };
    let held = (0..count).map(take).collect();
    pages.drain_all_sync(&small.sim);
    held
}

#[test]
fn while_a_drain_has_the_lists_their_owner_goes_to_the_zone() {
    for holds in HOLDS {
        let small = machine(holds, 1);
        let mut held = take(&small, 3000);
        let rest = held.split_off(600);
        small.on(OWNER.0, move |sim, mm| {
            mm.pages()
                .free_pages(sim, &held)
                .expect("all were handed out");
        });
        let mm = Rc::clone(&small.mm);
        small.sim.spawn(CpuId(1), move |sim| {
            for _ in 0..20 {
                mm.pages().drain_cpu(sim, OWNER);
            }
        });
        let mm = Rc::clone(&small.mm);
        small.sim.spawn(OWNER, move |sim| {
            for pfn in rest {
                mm.pages()
                    .free(sim, pfn, Order::ZERO)
                    .expect("it was handed out");
                let again = mm
                    .pages()
                    .alloc(sim, any(Order::ZERO))
                    .expect("there is a block");
                mm.pages()
                    .free(sim, again, Order::ZERO)
                    .expect("it was handed out");
            }
        });
        small.sim.run();
        for site in [Site::AllocDirect, Site::FreeDirect] {
            let direct = small.holds(site);
            assert!(
                !direct.is_empty(),
                "{holds:?} never went to the zone by {site:?}"
            );
            assert!(direct.iter().all(|&pages| pages == 1));
        }
        let stats = small.sim.stats();
        let waits = [Site::PcpAlloc, Site::PcpFree, Site::Spill]
            .map(|site| stats.site(LockClass::Pcp, site).contentions);
        assert_eq!(waits, [0; 3], "the owner never waits for its lists");
        small.mm.pages().drain_all_sync(&small.sim);
        let view = small.zone();
        assert_eq!((view.free.0, view.counted_free), (1 << 18, 1 << 18));
    }
}

/// What one spill (a return of pages from the owner's lists to the zone) did, in pages.
#[derive(Debug)]
struct Spill {
    /// True if a drain took the lock of the owner's lists while the spill was between two holds of
    /// the zone lock.
    interrupted: bool,
    spilled: u32,
    /// The number of pages that the owner freed directly to the zone, because the drain held the
    /// lock of the owner's lists.
    direct: u32,
    /// The number of pages on the owner's lists after the spill.
    left: u32,
    /// The number of pages on the lists of the CPU `OWNER` after its next vmstat work. This work
    /// returns the pages that the interrupted spill should have returned.
    after_refresh: u32,
}

/// Makes the owner free [`FREED`] pages. If `drain_ns` is given, the other CPU drains the owner's
/// lists `drain_ns` nanoseconds after the owner has begun.
fn spill(holds: &'static dyn Holds, seed: u64, drain_ns: Option<u32>) -> Spill {
    let small = machine(holds, seed);
    let held = take(&small, FREED);
    small.seen.borrow_mut().clear();
    let mm = Rc::clone(&small.mm);
    small.sim.spawn(OWNER, move |sim| {
        sim.sleep_until(Nanos::from_ms(1));
        mm.pages()
            .free_pages(sim, &held)
            .expect("all were handed out");
    });
    if let Some(after) = drain_ns {
        let mm = Rc::clone(&small.mm);
        small.sim.spawn(CpuId(1), move |sim| {
            sim.sleep_until(Nanos(1_000_000 + u64::from(after)));
            mm.pages().drain_cpu(sim, OWNER);
        });
    }
    small.sim.run();
    let lost = small
        .sim
        .stats()
        .site(LockClass::Pcp, Site::Spill)
        .failed_tries;
    let listed = |small: &Small| small.mm.pages().listed(&small.sim, OWNER).0;
    let left = listed(&small);
    small.on(OWNER.0, |sim, mm| {
        mm.refresh(sim);
    });
    Spill {
        interrupted: lost > 0,
        spilled: small.holds(Site::Spill).iter().sum(),
        direct: small.holds(Site::FreeDirect).iter().sum(),
        left,
        after_refresh: listed(&small),
    }
}

/// For each seed, runs one spill (a return of pages to the zone), with a drain at a random time. If
/// the drain interrupted the spill, calls `check` with this spill and a spill that nothing
/// interrupted.
fn interrupted(test: &str, holds: &'static dyn Holds, check: impl Fn(&Spill, &Spill)) {
    let calm = spill(holds, 0, None);
    assert!(calm.spilled > 4 * 63, "several batches: {calm:?}");
    assert!(
        !calm.interrupted && calm.left == calm.after_refresh,
        "{calm:?}"
    );
    let met = std::cell::Cell::new(0);
    seeds::each(test, 300, |seed| {
        let drain_ns = Dice::new(seed, 0).below(120_000);
        let spill = spill(holds, seed, Some(drain_ns));
        if spill.interrupted {
            met.set(met.get() + 1);
            check(&spill, &calm);
        }
    });
    let alone = std::env::var_os("PLIMSOLL_SEED").is_some();
    assert!(
        alone || met.get() > 3,
        "{} spills were interrupted",
        met.get()
    );
}

#[test]
fn batched_abandons_the_rest_of_an_interrupted_spill() {
    let test = "batched_abandons_the_rest_of_an_interrupted_spill";
    interrupted(test, &Batched, |spill, calm| {
        assert!(spill.spilled < calm.spilled, "{spill:?}");
        assert_eq!(
            spill.left, spill.after_refresh,
            "no CPU remembers: {spill:?}"
        );
    });
}

#[test]
fn bounded_gives_the_rest_of_an_interrupted_spill_back_later() {
    let test = "bounded_gives_the_rest_of_an_interrupted_spill_back_later";
    interrupted(test, &Bounded, |spill, calm| {
        assert!(spill.spilled < calm.spilled, "{spill:?}");
        assert!(
            spill.after_refresh <= calm.left,
            "all is given back: {spill:?}, {calm:?}"
        );
    });
}

/// If a drain interrupts a spill (a return of pages to the zone), the pages that the drain took
/// count as returned by the spill. So the CPU of the spill later returns only the pages that are
/// still missing, and not the same number of pages a second time.
#[test]
fn bounded_does_not_owe_what_the_drain_gave_back() {
    let test = "bounded_does_not_owe_what_the_drain_gave_back";
    interrupted(test, &Bounded, |spill, calm| {
        let least = spill.left.min(calm.left);
        assert!(
            spill.after_refresh + spill.direct >= least,
            "given back twice: {spill:?}, {calm:?}"
        );
    });
}

#[test]
fn a_spill_that_keeps_the_pcp_lock_is_never_interrupted() {
    let calm = spill(&BatchedZoneLock, 0, None);
    assert!(calm.spilled > 4 * 63, "several batches: {calm:?}");
    let test = "a_spill_that_keeps_the_pcp_lock_is_never_interrupted";
    seeds::each(test, 100, |seed| {
        let drain_ns = Dice::new(seed, 0).below(120_000);
        let spill = spill(&BatchedZoneLock, seed, Some(drain_ns));
        assert!(!spill.interrupted, "{spill:?}");
    });
}

/// Makes the owner return pages to the zone once (a spill), and then drains its lists. Returns the
/// number of pages in each hold of the zone lock: during the spill, and during the drain.
fn spill_and_drain(holds: &'static dyn Holds) -> (Vec<u32>, Vec<u32>) {
    let small = machine(holds, 1);
    let held = take(&small, FREED);
    small.seen.borrow_mut().clear();
    small.on(OWNER.0, move |sim, mm| {
        mm.pages()
            .free_pages(sim, &held)
            .expect("all were handed out");
    });
    small.on(1, |sim, mm| {
        mm.pages().drain_cpu(sim, OWNER);
    });
    (small.holds(Site::Spill), small.holds(Site::Drain))
}

#[test]
fn batched_drains_divides_drains_and_nothing_else() {
    let (spills, drains) = spill_and_drain(&BatchedDrains);
    assert_eq!(spills.len(), 1, "{spills:?}");
    assert!(drains.iter().all(|&pages| pages <= 63), "{drains:?}");
    let (spills, drains) = spill_and_drain(&Batched);
    assert!(spills.len() > 4, "{spills:?}");
    assert_eq!(drains.len(), 1, "{drains:?}");
}
