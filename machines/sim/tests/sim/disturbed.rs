//! Tests disturbances: interrupts, softirqs and steals. The tests check how long disturbances can
//! be, and how they differ between CPUs and kinds. The tests also check which disturbances a CPU
//! masks while it holds one lock and waits for another. They also check the values at each card
//! (low, middle and high prices).

use crate::common;

use std::cell::Cell;
use std::rc::Rc;

use plimsoll_mm::machine::{Lock, Machine};
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::CpuId;
use plimsoll_sim::profile::{Card, Disturbance, Jitter, Profile, ProfileText, Rate};
use plimsoll_sim::{Sim, SimOptions};

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
    let options = SimOptions {
        jitter: true,
        ..SimOptions::default()
    };
    Sim::new(&profile, options)
}

/// Lets the running CPU do local work for `ns` nanoseconds, in steps of 100 ns.
fn compute(sim: &Sim, ns: u32) {
    (0..ns / 100).for_each(|_| sim.spend(Work::Think, 100));
}

/// Returns how many disturbances of `kind` all CPUs have had so far, and the total time that they
/// took, in nanoseconds.
fn so_far(sim: &Sim, kind: Disturbance) -> (u64, u64) {
    let stats = sim.stats();
    let kind = kind as usize;
    (stats.disturbances[kind], stats.disturbed_ns[kind])
}

/// CPU 1 holds a zone lock, which masks interrupts, while it waits for a lock that masks nothing.
/// An interrupt that comes due during the wait must happen only when the zone lock is released.
#[test]
fn a_waiter_that_holds_a_lock_which_masks_interrupts_takes_them_at_its_release() {
    let sim = only(2, Disturbance::Interrupt, 2000, 200);
    let lock = |class| Rc::new(sim.lock(class, CpuId(0), ()));
    let (table, zone) = (lock(LockClass::PageTable), lock(LockClass::Zone));
    let held = Rc::clone(&table);
    sim.spawn(CpuId(0), move |sim| {
        held.with(sim, Site::Control, |()| sim.spend(Work::Think, 100_000));
    });
    let waited = Rc::new(Cell::new(false));
    let seen = Rc::clone(&waited);
    sim.spawn(CpuId(1), move |sim| {
        compute(sim, 5000);
        let count = || so_far(sim, Disturbance::Interrupt).0;
        let before = zone.with(sim, Site::Control, |()| {
            let before = count();
            table.with(sim, Site::Control, |()| ());
            assert_eq!(count(), before, "the zone lock masks them");
            before
        });
        assert_eq!(count(), before + 1, "one waited for the release");
        seen.set(true);
    });
    sim.run();
    assert!(sim.stats().class(LockClass::PageTable).wait_total.0 > 80_000);
    assert!(waited.get());
}

/// A lock masks interrupts if Linux disables interrupts while the lock is held. Linux takes the
/// locks of zones, counters, areas of counters and the reap queue with `spin_lock_irqsave` or
/// `raw_spin_lock_irqsave`. It takes the locks of lists of used pages with `spin_lock_irq`, and
/// `i_pages` with `xa_lock_irq`.
#[test]
fn the_locks_that_mask_interrupts_are_those_of_linux() {
    let masking = LockClass::ALL
        .into_iter()
        .filter(|kind| kind.masks_interrupts());
    let names: Vec<&str> = masking.map(LockClass::name).collect();
    let expected = [
        "zone->lock",
        "percpu_counter.lock",
        "pcpu_lock",
        "lruvec->lru_lock",
        "i_pages",
        "oom_reaper_lock",
    ];
    assert_eq!(names, expected);
}

#[test]
fn each_cpu_is_disturbed_at_times_of_its_own() {
    let sim = only(4, Disturbance::Interrupt, 10_000, 1000);
    let ends: Vec<Rc<Cell<u64>>> = (0..4).map(|_| Rc::default()).collect();
    for (cpu, end) in (0..).zip(&ends) {
        let end = Rc::clone(end);
        sim.spawn(CpuId(cpu), move |sim| {
            compute(sim, 1_000_000);
            end.set(sim.now().0);
        });
    }
    sim.run();
    let mut ends: Vec<u64> = ends.iter().map(|end| end.get()).collect();
    ends.sort_unstable();
    ends.dedup();
    assert_eq!(ends.len(), 4, "no two CPUs lose the same time");
}

/// If rates and seed are equal, interrupts in one run come at the same times as softirqs in
/// another. The runs end at the same time, but must have different hashes.
#[test]
fn the_hash_depends_on_the_kind_of_a_disturbance() {
    let run = |kind| {
        let sim = only(1, kind, 10_000, 1000);
        sim.spawn(CpuId(0), |sim| compute(sim, 100_000));
        sim.run();
        (sim.now(), sim.stats().hash)
    };
    let (interrupts, softirqs) = (run(Disturbance::Interrupt), run(Disturbance::Softirq));
    assert_eq!(interrupts.0, softirqs.0);
    assert_ne!(interrupts.1, softirqs.1);
}

#[test]
fn each_card_has_rates_and_lengths_of_its_own_with_kasan_too() {
    let text = ProfileText::parse("mine.toml", include_str!("mine.toml"));
    let text = text.expect("is a good profile");
    let at = |text: &ProfileText, card| {
        let jitter = text.at(card).jitter.expect("has a table");
        let rate = |rate: Option<Rate>| rate.expect("has all kinds");
        jitter
            .rates
            .map(|kind| (rate(kind).every_ns, rate(kind).length_ns))
    };
    let steal_low = (900_000_000, 600_000);
    assert_eq!(
        at(&text, Card::Low),
        [(1_000_000, 500), (10_000_000, 5000), steal_low]
    );
    let steal_high = (50_000_000, 2_000_000);
    assert_eq!(
        at(&text, Card::High),
        [(200_000, 2000), (1_000_000, 20_000), steal_high]
    );
    // The variant multiplies the lengths of interrupts and softirqs: by 1 at the low card (the
    // lowest prices), by 10 at the high card (the highest prices).
    let debug = text.variant("debug").expect("has it");
    assert_eq!(at(&debug, Card::Low), at(&text, Card::Low));
    assert_eq!(
        at(&debug, Card::High),
        [(200_000, 20_000), (1_000_000, 200_000), steal_high]
    );
}
