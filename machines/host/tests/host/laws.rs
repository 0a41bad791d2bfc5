//! Tests the runner of laws on real threads, with two laws about shared words. A law is a contract
//! that holds on every machine. Another test checks that a broken law is detected.

use std::panic::catch_unwind;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use plimsoll_host::Host;
use plimsoll_host::words::{CpuWord, SharedWord};
use plimsoll_mm::laws::{Body, Law};
use plimsoll_mm::machine::{LocalWord, Machine, Word};
use plimsoll_mm::units::CpuId;

use crate::support::law::run_law;

const CPUS: u32 = 4;
const STEPS: i64 = 200;

/// A minimal counter: a shared total, and for each CPU the part that is not in the total yet.
#[derive(Debug)]
struct Folded {
    total: SharedWord,
    parts: Vec<CpuWord>,
}

fn setup(host: &Host) -> Folded {
    let parts = host
        .topology()
        .ids()
        .map(|cpu| host.local_word(cpu, 0))
        .collect();
    Folded {
        total: host.word(0),
        parts,
    }
}

/// Counts on the calling CPU. Adds the CPU's part to the total whenever the part reaches eight.
fn count(host: &Host, state: &Folded) {
    let part = &state.parts[host.this_cpu().index()];
    for _ in 0..STEPS {
        if part.add(host, 1) >= 8 {
            state.total.add(host, part.take(host), Relaxed);
        }
    }
}

/// Adds the parts of all CPUs to the total, `STEPS` times. The calling CPU makes all these
/// additions.
fn fold(host: &Host, state: &Folded) {
    for _ in 0..STEPS {
        for part in &state.parts {
            state.total.add(host, part.take(host), Relaxed);
        }
    }
}

/// A broken way to add the parts of all CPUs to the total: reads each part, and sets it to 0
/// afterwards. An addition between these two steps is lost.
fn fold_in_two_steps(host: &Host, state: &Folded) {
    for _ in 0..STEPS {
        for part in &state.parts {
            state.total.add(host, part.read(host), Relaxed);
            part.set(host, 0);
        }
    }
}

fn nothing_is_lost(host: &Host, state: &Folded) {
    fold(host, state);
    assert_eq!(state.total.load(host, Acquire), 3 * STEPS);
}

fn law(folder: Body<Host, Folded>) -> Law<Host, Folded> {
    let name = "folding loses no count";
    Law {
        name,
        setup,
        bodies: vec![count, count, count, folder],
        check: nothing_is_lost,
    }
}

#[test]
fn folding_loses_no_count() {
    run_law(&law(fold), CPUS, 200);
}

#[test]
fn folding_in_two_steps_is_caught() {
    let broken = catch_unwind(|| run_law(&law(fold_in_two_steps), CPUS, 2000));
    assert!(broken.is_err(), "2000 rounds lose a count somewhere");
}

#[test]
fn every_value_of_a_word_is_seen_by_one_cpu() {
    let bodies = vec![step as Body<Host, Steps>; CPUS as usize];
    let check = |host: &Host, steps: &Steps| {
        let counted = i64::from(CPUS) * STEPS;
        assert_eq!(steps.next.load(host, Acquire), counted);
        assert_eq!(steps.sum.load(host, Acquire), counted * (counted - 1) / 2);
    };
    let name = "every value of a word is seen by one CPU";
    run_law(
        &Law {
            name,
            setup: Steps::new,
            bodies,
            check,
        },
        CPUS,
        200,
    );
}

struct Steps {
    next: SharedWord,
    sum: SharedWord,
}

impl Steps {
    fn new(host: &Host) -> Self {
        assert_eq!(host.this_cpu(), CpuId(0), "setup runs on CPU 0");
        Self {
            next: host.word(0),
            sum: host.word(0),
        }
    }
}

/// Takes the next number of a sequence that all CPUs share, by compare-exchange, and adds it to a
/// shared sum. Repeats that [`STEPS`] times.
fn step(host: &Host, steps: &Steps) {
    for _ in 0..STEPS {
        let mut seen = steps.next.load(host, Relaxed);
        // The loop ends: an exchange fails only if another CPU's exchange has succeeded.
        while let Err(now) = steps.next.compare_exchange(host, seen, seen + 1, AcqRel) {
            seen = now;
        }
        steps.sum.add(host, seen, Relaxed);
    }
}
