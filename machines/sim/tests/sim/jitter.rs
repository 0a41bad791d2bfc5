//! Disturbances: interrupts, softirqs and steals come at the rates of the profile, and interrupts
//! wait while they are masked.

use crate::common;

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use plimsoll_mm::machine::{CpuLock, Lock, Machine, Word};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::{CpuId, Nanos};
use plimsoll_sim::profile::{Card, Disturbance, Jitter, Profile, ProfileText, Rate};
use plimsoll_sim::{Sim, SimOptions};
use rand::Rng;

const MINE: &str = include_str!("mine.toml");

fn options() -> SimOptions {
    SimOptions {
        jitter: true,
        ..SimOptions::default()
    }
}

/// A machine on which only disturbances of `kind` happen. On average they come `every_ns` apart and
/// last `length_ns`.
fn only(cpus: u32, kind: Disturbance, every_ns: u64, length_ns: u64) -> Sim {
    let mut jitter = Jitter::default();
    jitter.rates[kind as usize] = Some(Rate {
        every_ns,
        length_ns,
    });
    let profile = Profile {
        jitter: Some(jitter),
        ..common::flat(cpus)
    };
    Sim::new(&profile, options())
}

/// Lets the running CPU do local work for `ns` nanoseconds, in steps of 100 ns.
fn compute(sim: &Sim, ns: u32) {
    (0..ns / 100).for_each(|_| sim.spend(Work::Think, 100));
}

fn count(sim: &Sim, kind: Disturbance) -> u64 {
    sim.stats().disturbances[kind as usize]
}

#[test]
fn disturbances_come_at_their_rates_and_have_their_lengths() {
    const WORK_NS: u32 = 50_000_000;
    for (kind, every_ns, length_ns) in [
        (Disturbance::Interrupt, 20_000, 2000),
        (Disturbance::Softirq, 100_000, 10_000),
        (Disturbance::Steal, 100_000, 300_000),
    ] {
        let sim = only(4, kind, every_ns, length_ns);
        for cpu in 0..4 {
            sim.spawn(CpuId(cpu), |sim| compute(sim, WORK_NS));
        }
        sim.run();
        let stats = sim.stats();
        let counted = stats.disturbances[kind as usize];
        let expected = 4 * u64::from(WORK_NS) / every_ns;
        // A Poisson process of 2000 events has a standard deviation of 45, which is 2.2 %.
        let percent = |of: u64, expected: u64| 100 * of.abs_diff(expected) / expected;
        assert!(
            percent(counted, expected) <= 7,
            "{kind:?}: {counted} of {expected}"
        );
        let mean = stats.disturbed_ns[kind as usize] / counted;
        assert!(percent(mean, length_ns) <= 7, "{kind:?}: {mean} ns");
        assert_eq!(counted, stats.disturbances.iter().sum());
    }
}

#[test]
fn nothing_disturbs_a_machine_unless_asked_to() {
    let sim = Sim::new(&common::flat(1), SimOptions::default());
    sim.spawn(CpuId(0), |sim| compute(sim, 1_000_000));
    sim.run();
    assert_eq!(sim.stats().disturbances, [0; 3]);
}

/// Holds a lock of `class` for 200 µs. Returns how many disturbances of `kind` there have been at
/// the end of the hold, and how many right after the release.
fn while_holding(class: LockClass, kind: Disturbance) -> (u64, u64) {
    let sim = only(1, kind, 20_000, 1000);
    let lock = Rc::new(sim.lock(class, CpuId(0), ()));
    let counts = Rc::new(Cell::new((0, 0)));
    let seen = Rc::clone(&counts);
    sim.spawn(CpuId(0), move |sim| {
        let inside = lock.with(sim, Site::Control, |()| {
            compute(sim, 200_000);
            count(sim, kind)
        });
        seen.set((inside, count(sim, kind)));
    });
    sim.run();
    counts.get()
}

#[test]
fn a_holder_that_masks_interrupts_takes_them_at_the_release() {
    use Disturbance::{Interrupt, Softirq, Steal};
    for class in LockClass::ALL {
        if class.sleeps() || class.is_free_of_charge() {
            continue;
        }
        for kind in [Interrupt, Softirq] {
            let (inside, after) = while_holding(class, kind);
            if class.masks_interrupts() {
                assert_eq!((inside, after), (0, 1), "{class:?}: {kind:?}");
            } else {
                assert!(inside > 3, "{class:?}: {inside} of {kind:?}");
            }
        }
        let (inside, _) = while_holding(class, Steal);
        assert!(inside > 3, "{class:?}: {inside} steals");
    }
}

#[test]
fn the_owner_of_page_lists_is_interrupted_also_between_two_holds_of_the_zone_lock() {
    let sim = only(1, Disturbance::Interrupt, 5000, 100);
    let (lists, zone) = (
        sim.cpu_lock(LockClass::Pcp, CpuId(0), ()),
        sim.lock(LockClass::Zone, CpuId(0), ()),
    );
    sim.spawn(CpuId(0), move |sim| {
        lists.with(sim, Site::Control, |()| {
            let before = count(sim, Disturbance::Interrupt);
            zone.with(sim, Site::Refill, |()| compute(sim, 100_000));
            assert_eq!(count(sim, Disturbance::Interrupt), before + 1);
            compute(sim, 100_000);
            assert!(count(sim, Disturbance::Interrupt) > before + 5);
        });
    });
    sim.run();
}

/// Two CPUs acquire the same zone lock again and again, and hold it for 1 µs each time. Returns the
/// longest wait for the lock.
fn longest_wait(sim: &Sim) -> Nanos {
    let lock = Rc::new(sim.lock(LockClass::Zone, CpuId(0), ()));
    for cpu in 0..2 {
        let lock = Rc::clone(&lock);
        sim.spawn(CpuId(cpu), move |sim| {
            for _ in 0..2000 {
                lock.with(sim, Site::Control, |()| compute(sim, 1000));
            }
        });
    }
    sim.run();
    let waits = sim.stats().class(LockClass::Zone).wait_max;
    waits.expect("they wait").wait
}

#[test]
fn a_steal_from_a_holder_lengthens_the_wait_of_the_other_and_an_interrupt_does_not() {
    let calm = longest_wait(&Sim::new(&common::flat(2), SimOptions::default()));
    assert!(calm.0 < 3000, "{calm:?}");
    let stolen = longest_wait(&only(2, Disturbance::Steal, 200_000, 50_000));
    assert!(stolen.0 > 50_000, "{stolen:?}");
    let interrupted = longest_wait(&only(2, Disturbance::Interrupt, 50_000, 20_000));
    assert_eq!(interrupted, calm);
}

/// CPU 1 waits 100 µs for a lock of `class` that CPU 0 holds. During the wait, an interrupt comes
/// due on CPU 1. Returns two pairs, one for the end of the wait and one for the moment after the
/// release. A pair is the number of interrupts since the wait began, and their total delay in
/// nanoseconds.
fn interrupted_while_waiting(class: LockClass) -> [(u64, u64); 2] {
    let sim = only(2, Disturbance::Interrupt, 2000, 200);
    let (lock, word) = (Rc::new(sim.lock(class, CpuId(0), ())), sim.word(0));
    let held = Rc::clone(&lock);
    sim.spawn(CpuId(0), move |sim| {
        held.with(sim, Site::Control, |()| sim.spend(Work::Think, 100_000));
    });
    let seen = Rc::new(Cell::new([(0, 0); 2]));
    let seen_at = Rc::clone(&seen);
    sim.spawn(CpuId(1), move |sim| {
        let so_far = || {
            let stats = sim.stats();
            (stats.disturbances[0], stats.disturbed_ns[0])
        };
        compute(sim, 5000);
        // Before this addition, CPUs with earlier clocks run. So CPU 0 has already run its critical
        // section when CPU 1 continues.
        word.add(sim, 1, Ordering::AcqRel);
        let before = so_far();
        let waited = lock.with(sim, Site::Control, |()| so_far());
        let since = |(count, ns)| (count - before.0, ns - before.1);
        seen_at.set([since(waited), since(so_far())]);
    });
    sim.run();
    assert!(sim.stats().class(class).wait_total.0 > 80_000);
    seen.get()
}

#[test]
fn an_interrupt_of_a_waiter_overlaps_the_wait_unless_it_is_masked() {
    assert_eq!(
        interrupted_while_waiting(LockClass::PageTable),
        [(1, 0), (1, 0)]
    );
    let [waited, released] = interrupted_while_waiting(LockClass::Zone);
    assert_eq!(waited, (0, 0));
    assert!(released.0 == 1 && released.1 > 0, "{released:?}");
}

#[test]
fn the_program_draws_the_same_numbers_with_disturbances() {
    let one = |cpu: u32, jitter| {
        let sim = Sim::new(
            &common::flat(2),
            SimOptions {
                jitter,
                ..options()
            },
        );
        let last = Rc::new(Cell::new(0));
        let seen = Rc::clone(&last);
        sim.spawn(CpuId(cpu), move |sim| {
            compute(sim, 1_000_000);
            seen.set(sim.rng().next_u64());
        });
        sim.run();
        (last.get(), sim.stats().disturbances[0])
    };
    for cpu in 0..2 {
        let (disturbed, calm) = (one(cpu, true), one(cpu, false));
        assert!(disturbed.1 > 10 && calm.1 == 0);
        assert_eq!(disturbed.0, calm.0);
    }
}

#[test]
fn an_idle_cpu_is_not_disturbed() {
    let sim = only(1, Disturbance::Interrupt, 10_000, 1000);
    sim.spawn(CpuId(0), |sim| {
        let before = count(sim, Disturbance::Interrupt);
        sim.sleep(Nanos(10_000_000));
        sim.spend(Work::Think, 1);
        assert_eq!(count(sim, Disturbance::Interrupt), before);
    });
    sim.run();
}

/// A CPU sleeps 50 times for 100 ms, and works for a nanosecond in between, while a disturbance
/// comes due each millisecond. If disturbances that come due during a sleep waited until the CPU
/// wakes, a disturbance would happen at each of the 50 wakeups.
#[test]
fn nothing_that_came_due_while_a_cpu_was_idle_happens_when_it_wakes() {
    for kind in Disturbance::ALL {
        let sim = only(1, kind, 1_000_000, 1000);
        sim.spawn(CpuId(0), move |sim| {
            for _ in 0..50 {
                sim.sleep(Nanos::from_ms(100));
                sim.spend(Work::Think, 1);
            }
            assert!(count(sim, kind) <= 2, "{kind:?}: {}", count(sim, kind));
        });
        sim.run();
    }
}

/// Disturbances of all three kinds come due during each sleep, and none of them happens when the
/// CPU wakes.
#[test]
fn every_kind_that_came_due_while_a_cpu_was_idle_is_forgotten() {
    let rate = Some(Rate {
        every_ns: 1_000_000,
        length_ns: 1000,
    });
    let profile = Profile {
        jitter: Some(Jitter { rates: [rate; 3] }),
        ..common::flat(1)
    };
    let sim = Sim::new(&profile, options());
    sim.spawn(CpuId(0), |sim| {
        for _ in 0..50 {
            sim.sleep(Nanos::from_ms(100));
            sim.spend(Work::Think, 1);
        }
    });
    sim.run();
    let counts = sim.stats().disturbances;
    assert!(counts.iter().all(|count| *count <= 2), "{counts:?}");
}

#[test]
fn kasan_and_little_cores_make_handlers_longer_and_steals_no_longer() {
    let text = ProfileText::parse("mine.toml", MINE).expect("is a good profile");
    let lengths = |text: &ProfileText| {
        let jitter = text.at(Card::Mid).jitter.expect("has a table");
        jitter
            .rates
            .map(|rate| rate.expect("has all kinds").length_ns)
    };
    assert_eq!(lengths(&text), [1000, 10_000, 1_000_000]);
    let debug = text.variant("debug").expect("has it");
    assert_eq!(lengths(&debug), [2500, 25_000, 1_000_000]);

    let mean = |speed_percent: u32, kind: Disturbance| {
        let profile = Profile {
            speed_percent: vec![speed_percent],
            ..common::flat(1)
        };
        let sim = Sim::new(&profile, options());
        sim.spawn(CpuId(0), |sim| compute(sim, 100_000_000));
        sim.run();
        let stats = sim.stats();
        stats.disturbed_ns[kind as usize] / stats.disturbances[kind as usize]
    };
    let ratio = |kind| 100 * mean(50, kind) / mean(100, kind);
    assert!(ratio(Disturbance::Interrupt).abs_diff(200) < 20);
    assert!(ratio(Disturbance::Softirq).abs_diff(200) < 30);
    assert!(ratio(Disturbance::Steal).abs_diff(100) < 30);
}

#[test]
fn guests_have_steals_and_every_machine_has_interrupts() {
    for listed in Profile::list() {
        let text = Profile::describe(&listed.name).expect("is listed");
        let kinds: Vec<Disturbance> = text.jitter.iter().map(|of| of.kind).collect();
        let guest = ["laptop-2", "epyc-9654-256"].contains(&listed.name.as_str());
        let expected = if guest { 3 } else { 2 };
        assert_eq!(kinds, Disturbance::ALL[..expected], "{}", listed.name);
        assert!(text.at(Card::Mid).without_jitter().jitter.is_none());
    }
}

#[test]
fn a_bad_table_is_named_with_file_line_and_key() {
    let line = |key: &str| {
        let before = MINE.split(key).next().expect("a first part");
        before.matches('\n').count() + 1
    };
    let every = line("interrupt_every_us");
    for (from, to, expected) in [
        (
            "low = 1000, mid = 600",
            "low = 100, mid = 600",
            format!(
                "mine.toml:{every}: jitter.interrupt_every_us: order low, mid, high from long to \
                 short; the low card is the cheapest, so its disturbances are the rarest"
            ),
        ),
        (
            "low = 500, mid = 1000",
            "low = 500, mid = 0",
            format!(
                "mine.toml:{}: jitter.interrupt_ns.mid: 0 is out of range; write 1 to 1000000000 ns",
                every + 1
            ),
        ),
        (
            "mid = 10000, high = 20000",
            "mid = 10000, high = 2000000",
            format!(
                "mine.toml:{}: jitter.softirq_every_us: a softirq is as long as the time between \
                 two of them at the card high; write a longer time",
                every + 2
            ),
        ),
        (
            "steal_ns",
            "steel_ns",
            format!(
                "mine.toml:{}: jitter.steel_ns: unknown key; did you mean steal_ns?",
                every + 5
            ),
        ),
        (
            "softirq_ns",
            "# softirq_ns",
            format!(
                "mine.toml:{}: jitter.softirq_ns: missing; write {{ low = …, mid = …, high = …, \
                 source = \"…\" }}",
                every - 1
            ),
        ),
    ] {
        let bad = MINE.replacen(from, to, 1);
        assert_ne!(bad, MINE, "nothing to replace: {from}");
        let told = ProfileText::parse("mine.toml", &bad).expect_err("is bad");
        assert_eq!(told.to_string(), expected);
    }
}

#[test]
fn every_machine_has_a_variant_that_nothing_disturbs() {
    let name = "grace-72+kasan+no-jitter";
    let calm = Profile::load(name, Card::Mid).expect("built in");
    assert_eq!((calm.name.as_str(), calm.jitter), (name, None));
    let kasan = Profile::load("grace-72+kasan", Card::Mid).expect("built in");
    assert!(kasan.jitter.is_some());
    assert_eq!(calm.costs, kasan.costs);
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/sim/mine.toml+debug+no-jitter"
    );
    let mine = Profile::from_path(Path::new(file), Card::Mid).expect("is a good profile");
    assert_eq!(
        (mine.name.as_str(), mine.jitter),
        ("mine+debug+no-jitter", None)
    );
}
