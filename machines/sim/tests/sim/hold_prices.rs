//! Tests that the price of a page depends on how many pages the CPU has moved since it took the
//! zone lock.

use crate::common;

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_mm::machine::{Lock, Machine};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::profile::{Card, CostKey, Profile, ProfileText, Slope, Slopes};
use plimsoll_sim::{LockModel, Sim, SimOptions};

const MINE: &str = include_str!("mine.toml");

/// The first 63 pages of a hold of the zone lock cost 42 ns each, and the average over 2047 pages
/// is 22 ns. So each page after the 63rd costs (2047 · 22 - 63 · 42) / 1984 ns, about 21.36.
const SLOPE: Slope = Slope {
    at: 63,
    pages: 2047,
    ns: 22,
};

fn profile(cpus: u32) -> Profile {
    let mut profile = common::flat(cpus);
    profile.costs.work_ns[Work::BuddyAlloc as usize] = 42;
    profile.costs.slopes = Slopes {
        alloc: Some(SLOPE),
        free: None,
    };
    profile
}

fn options(strict: bool, lock_model: LockModel) -> SimOptions {
    SimOptions {
        strict,
        lock_model,
        ..SimOptions::default()
    }
}

/// Holds a lock of `class`, and does one step of `work` for each number in `parts`. The number says
/// how many units of work the step has. Returns the time that passes under the lock, in
/// nanoseconds.
fn held_ns(sim: &Sim, class: LockClass, work: Work, parts: &[u32]) -> u64 {
    let lock = sim.lock(class, CpuId(0), ());
    lock.with(sim, Site::Refill, |_| {
        let begin = sim.now();
        for part in parts {
            sim.spend(work, *part);
        }
        sim.now().since(begin).0
    })
}

fn on_one_cpu<R: 'static>(
    profile: &Profile,
    options: SimOptions,
    f: impl FnOnce(&Sim) -> R + 'static,
) -> R {
    let sim = Sim::new(profile, options);
    let result = Rc::new(RefCell::new(None));
    let seen = Rc::clone(&result);
    sim.spawn(CpuId(0), move |sim| {
        seen.replace(Some(f(sim)));
    });
    sim.run();
    result.take().expect("the task has ended")
}

#[test]
fn the_price_of_a_hold_runs_through_both_points_in_whatever_parts_it_is_spent() {
    for strict in [false, true] {
        for lock_model in [LockModel::RunAhead, LockModel::ReleaseEvent] {
            let hold = |parts: &'static [u32]| {
                let options = options(strict, lock_model);
                let zone = move |sim: &Sim| held_ns(sim, LockClass::Zone, Work::BuddyAlloc, parts);
                on_one_cpu(&profile(1), options, zone)
            };
            assert_eq!(hold(&[8, 8, 8]), 24 * 42);
            assert_eq!(hold(&[63]), 63 * 42);
            assert_eq!(hold(&[2047]), 2047 * 22);
            assert_eq!(hold(&[8; 256][..255]), hold(&[2040]));
            assert_eq!(hold(&[60, 1, 1, 1, 1, 1983]), 2047 * 22);
            assert_eq!(hold(&[4096]), 63 * 42 + 4033 * 42_388 / 1984);
        }
    }
}

#[test]
fn only_pages_of_one_hold_of_a_zone_lock_get_cheaper() {
    let flat = 1000 * 42;
    let [other_lock, no_lock, other_work] = on_one_cpu(&profile(1), SimOptions::default(), |sim| {
        let begin = sim.now();
        sim.spend(Work::BuddyAlloc, 1000);
        let no_lock = sim.now().since(begin).0;
        [
            held_ns(sim, LockClass::Pcp, Work::BuddyAlloc, &[1000]),
            no_lock,
            held_ns(sim, LockClass::Zone, Work::BuddyFree, &[1000]),
        ]
    });
    assert_eq!([other_lock, no_lock, other_work], [flat, flat, 1000 * 50]);
    let (first, between, second) = on_one_cpu(&profile(1), SimOptions::default(), |sim| {
        let first = held_ns(sim, LockClass::Zone, Work::BuddyAlloc, &[500]);
        let begin = sim.now();
        sim.spend(Work::BuddyAlloc, 1);
        let between = sim.now().since(begin).0;
        let second = held_ns(sim, LockClass::Zone, Work::BuddyAlloc, &[500]);
        (first, between, second)
    });
    assert!(first < 500 * 42);
    assert_eq!((between, second), (42, first), "each hold begins anew");
}

#[test]
fn each_cpu_counts_the_pages_of_its_own_hold() {
    for lock_model in [LockModel::RunAhead, LockModel::ReleaseEvent] {
        let sim = Sim::new(&profile(4), options(false, lock_model));
        let lock = Rc::new(sim.lock(LockClass::Zone, CpuId(0), ()));
        let holds = Rc::new(RefCell::new(Vec::new()));
        for cpu in sim.topology().ids() {
            let (lock, holds) = (Rc::clone(&lock), Rc::clone(&holds));
            sim.spawn(cpu, move |sim| {
                for _ in 0..5 {
                    let hold = lock.with(sim, Site::Refill, |()| {
                        let begin: Nanos = sim.now();
                        for _ in 0..30 {
                            sim.spend(Work::BuddyAlloc, 8);
                        }
                        sim.now().since(begin).0
                    });
                    holds.borrow_mut().push(hold);
                }
            });
        }
        sim.run();
        let expected = 63 * 42 + (240 - 63) * 42_388 / 1984;
        assert_eq!(*holds.borrow(), [expected; 20]);
    }
}

#[test]
fn variants_cards_speeds_and_sensitivity_runs_change_both_points() {
    let slope = |profile: &Profile| profile.costs.slopes.free.expect("has a second point").ns;
    let first = |profile: &Profile| profile.costs.work_ns[Work::BuddyFree as usize];
    for listed in Profile::list() {
        for card in Card::ALL {
            let profile = Profile::load(&listed.name, card).expect("is built in");
            for (work, slope) in [
                (Work::BuddyAlloc, profile.costs.slopes.alloc),
                (Work::BuddyFree, profile.costs.slopes.free),
            ] {
                let slope = slope.expect("every built-in machine has one");
                assert_eq!((slope.at, slope.pages), (63, 2047));
                let first_ns = profile.costs.work_ns[work as usize];
                assert!(slope.ns < first_ns, "{} {work:?}", listed.name);
            }
        }
    }
    let [plain, kasan] = ["grace-72", "grace-72+kasan"]
        .map(|name| Profile::load(name, Card::Mid).expect("is built in"));
    assert_eq!((first(&plain), slope(&plain)), (43, 36));
    assert_eq!((first(&kasan), slope(&kasan)), (129, 108));
    let doubled = plain.with_scaled(CostKey::Work(Work::BuddyFree), 200);
    assert_eq!((first(&doubled), slope(&doubled)), (86, 72));
    assert_eq!(doubled.costs.slopes.alloc, plain.costs.slopes.alloc);

    let slow = Profile {
        speed_percent: vec![50],
        ..profile(1)
    };
    let hold = on_one_cpu(&slow, SimOptions::default(), |sim| {
        held_ns(sim, LockClass::Zone, Work::BuddyAlloc, &[2047])
    });
    assert_eq!(hold, 2047 * 44);
}

#[test]
fn a_second_point_that_cannot_be_is_refused() {
    const POINT: &str = "at = 63, then = { pages = 2047, low = 5, mid = 10, high = 50 }";
    const SHAPE: &str = "write then = { pages = …, low = …, mid = …, high = … }";
    let cases = [
        (
            "at: missing; write the pages of a hold to which low, mid and high apply, such as 63",
            "then = { pages = 2047, low = 5, mid = 10, high = 50 }",
        ),
        (
            &*format!("then: missing; {SHAPE}, or leave out at"),
            "at = 63",
        ),
        (
            &format!("then: 22 is not allowed here; {SHAPE}"),
            "at = 63, then = 22",
        ),
        (
            "then.pages: missing; write the number of pages in the longer hold",
            "at = 63, then = { low = 5, mid = 10, high = 50 }",
        ),
        (
            "then.pages: 63 pages, but at is 63; the second hold must be longer",
            "at = 63, then = { pages = 63, low = 5, mid = 10, high = 50 }",
        ),
        (
            "then.pages: 65536 pages; write at most 65535",
            "at = 63, then = { pages = 65536, low = 5, mid = 10, high = 50 }",
        ),
        (
            "at: 0 pages; a hold moves at least 1",
            "at = 0, then = { pages = 2047, low = 5, mid = 10, high = 50 }",
        ),
        (
            "then.high: missing; write the high end of its range in ns",
            "at = 63, then = { pages = 2047, low = 5, mid = 10 }",
        ),
        (
            "then.low: is above mid; order them low, mid, high",
            "at = 63, then = { pages = 2047, low = 10, mid = 9, high = 50 }",
        ),
        (
            "then.mid: 21 ns is more than the 20 ns in the shorter hold; write at most 20",
            "at = 63, then = { pages = 2047, low = 5, mid = 21, high = 50 }",
        ),
        (
            "then.low: 1 ns leaves less than 1 ns for each page after the first 63; write 2 or more",
            "at = 63, then = { pages = 2047, low = 1, mid = 10, high = 50 }",
        ),
        (
            "then.source: unknown key; docs/machines.md lists the keys",
            "at = 63, then = { pages = 2047, low = 5, mid = 10, high = 50, source = \"s\" }",
        ),
    ];
    let mut surprises = Vec::new();
    for (expected, to) in cases {
        let bad = MINE.replacen(POINT, to, 1);
        let error = ProfileText::parse("mine.toml", &bad)
            .expect_err(to)
            .to_string();
        let expected = format!("mine.toml:15: work.buddy_alloc.{expected}");
        if error != expected {
            surprises.push(format!("{to}\n  expected {expected}\n  told     {error}"));
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[test]
fn only_work_of_a_hold_has_a_second_point() {
    let elsewhere = MINE.replacen(
        "pcp_free = { low = 10, mid = 20, high = 60,",
        "pcp_free = { low = 10, mid = 20, high = 60, at = 63,",
        1,
    );
    let error = ProfileText::parse("mine.toml", &elsewhere).expect_err("no hold");
    assert_eq!(
        error.to_string(),
        "mine.toml:14: work.pcp_free.at: unknown key; docs/machines.md lists the keys"
    );
}
