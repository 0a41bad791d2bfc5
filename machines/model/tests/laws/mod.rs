//! Laws (contracts) that hold under every model checker, and broken variants of these laws. Every
//! checker must find the errors in the broken variants.
//!
//! The test that includes this module provides the machine and runs laws on it.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use plimsoll_mm::laws::{Body, Law};
use plimsoll_mm::machine::{
    CpuLock, Due, Job, JobState, LocalWord, Lock, Machine, Tags, WhenIdle, Word,
};
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Jiffies, Nanos, Pages};

use crate::{COUNTERS, M, ModelLock, ModelWord, STEPS, broken_by, run};

/// A minimal counter: a shared total, and for each CPU the part that is not yet in the total.
struct Folded {
    total: ModelWord,
    parts: Vec<ModelWord>,
}

/// Adds 1 to the counter `STEPS` times on the calling CPU. Adds the CPU's part to the total
/// whenever the part reaches two.
fn count(machine: &M, state: &Folded) {
    let part = &state.parts[machine.this_cpu().index()];
    for _ in 0..STEPS {
        if LocalWord::add(part, machine, 1) >= 2 {
            Word::add(&state.total, machine, part.take(machine), Relaxed);
        }
    }
}

/// Moves each CPU's part to the total. The calling CPU does this for all CPUs.
fn fold(machine: &M, state: &Folded) {
    for part in &state.parts {
        Word::add(&state.total, machine, part.take(machine), Relaxed);
    }
}

/// Moves the parts of all CPUs to the total in a wrong way: reads a part, and sets it to 0 only in
/// a second step. Additions between these two steps are lost.
fn fold_in_two_steps(machine: &M, state: &Folded) {
    for part in &state.parts {
        Word::add(&state.total, machine, part.read(machine), Relaxed);
        part.set(machine, 0);
    }
}

fn folding_loses_nothing(folder: Body<M, Folded>) -> Law<M, Folded> {
    let setup = |machine: &M| {
        let part = |cpu| machine.local_word(CpuId(cpu), 0);
        Folded {
            total: machine.word(0),
            parts: (0..).map(part).take(COUNTERS).collect(),
        }
    };
    let check = |machine: &M, state: &Folded| {
        fold(machine, state);
        let counters = i64::try_from(COUNTERS).expect("small");
        assert_eq!(state.total.load(machine, Acquire), counters * STEPS);
    };
    let mut bodies = vec![count as Body<M, Folded>; COUNTERS];
    bodies.push(folder);
    Law {
        name: "folding loses no count",
        setup,
        bodies,
        check,
    }
}

#[test]
fn folding_loses_no_count() {
    run(&folding_loses_nothing(fold));
}

#[test]
fn folding_in_two_steps_is_caught() {
    let why = broken_by(&folding_loses_nothing(fold_in_two_steps));
    assert!(why.is_some_and(|why| why.contains("left == right")));
}

#[test]
fn a_lost_update_is_caught() {
    let update = |machine: &M, word: &ModelWord| {
        let seen = word.load(machine, Acquire);
        word.store(machine, seen + 1, Release);
    };
    let check = |machine: &M, word: &ModelWord| assert_eq!(word.load(machine, Acquire), 2);
    let name = "a load and a store are an update";
    let setup = |machine: &M| machine.word(0);
    let why = broken_by(&Law {
        name,
        setup,
        bodies: vec![update, update],
        check,
    });
    assert!(why.is_some_and(|why| why.contains("left == right")));
}

/// A value, and a flag that a thread sets after it has stored the value.
pub(crate) struct Published {
    value: ModelWord,
    flag: ModelWord,
}

fn publishing(publish: Body<M, Published>) -> Law<M, Published> {
    let setup = |machine: &M| Published {
        value: machine.word(0),
        flag: machine.word(0),
    };
    let read = |machine: &M, state: &Published| {
        if state.flag.load(machine, Acquire) == 1 {
            assert_eq!(Word::load(&state.value, machine, Relaxed), 7);
        }
    };
    Law {
        name: "a flag publishes",
        setup,
        bodies: vec![publish, read],
        check: |_, _| (),
    }
}

#[test]
fn a_released_flag_publishes() {
    run(&publishing(|machine, state| {
        state.value.store(machine, 7, Relaxed);
        state.flag.store(machine, 1, Release);
    }));
}

/// Returns a law that fails on weak memory: a thread stores a value and then sets a flag, both with
/// `Relaxed`, so another thread that sees the flag may not see the value.
pub(crate) fn a_relaxed_flag_publishes() -> Law<M, Published> {
    publishing(|machine, state| {
        state.value.store(machine, 7, Relaxed);
        state.flag.store(machine, 1, Relaxed);
    })
}

/// A zone lock and a per-CPU lock, each around a count, and the number of failed attempts to
/// acquire a lock.
struct Locked {
    zone: ModelLock<i64>,
    pcp: ModelLock<i64>,
    turned_away: ModelWord,
}

#[test]
fn locks_exclude_and_tries_are_turned_away() {
    let setup = |machine: &M| Locked {
        zone: machine.lock(LockClass::Zone, CpuId(0), 0),
        pcp: machine.cpu_lock(LockClass::Pcp, CpuId(0), 0),
        turned_away: machine.word(0),
    };
    let owner = |machine: &M, state: &Locked| {
        let taken = state
            .pcp
            .try_local(machine, Site::PcpFree, |count| *count += 1);
        if taken.is_none() {
            Word::add(&state.turned_away, machine, 1, Relaxed);
        }
        Lock::with(&state.zone, machine, Site::Spill, |count| *count += 1);
    };
    let drain = |machine: &M, state: &Locked| {
        CpuLock::with(&state.pcp, machine, Site::Drain, |count| {
            *count += 1;
            Lock::with(&state.zone, machine, Site::Drain, |count| *count += 1);
        });
    };
    let check = |machine: &M, state: &Locked| {
        let in_pcp = CpuLock::with(&state.pcp, machine, Site::Control, |count| *count);
        assert_eq!(in_pcp + state.turned_away.load(machine, Acquire), 2);
        assert_eq!(
            state.zone.try_with(machine, Site::Control, |count| *count),
            Some(2)
        );
    };
    let law = Law {
        name: "locks exclude",
        setup,
        bodies: vec![owner, drain],
        check,
    };
    run(&law);
}

#[test]
fn a_job_runs_once_however_its_cpu_meets_its_cancel() {
    const JOB: Job = Job::VmstatUpdate;
    let setup = |machine: &M| {
        machine.set_now(Nanos(5));
        machine.defer(CpuId(0), JOB, Due::Wheel(Jiffies(1)), WhenIdle::Defer);
        assert_eq!(
            machine
                .deferral(CpuId(0), JOB)
                .map(|deferral| deferral.idle),
            Some(WhenIdle::Defer)
        );
        machine.word(0)
    };
    let worker = |machine: &M, runs: &ModelWord| {
        for _ in 0..2 {
            machine.run_pending(|machine, job| {
                assert_eq!(
                    (machine.this_cpu(), job, machine.now()),
                    (CpuId(0), JOB, Nanos(5))
                );
                assert_eq!(machine.job_state(CpuId(0), JOB), JobState::Running);
                Word::add(runs, machine, 1, Relaxed);
            });
        }
    };
    let canceller = |machine: &M, _: &ModelWord| machine.cancel(CpuId(0), JOB);
    let check = |machine: &M, runs: &ModelWord| {
        assert_eq!(machine.job_state(CpuId(0), JOB), JobState::Dormant);
        assert!(Word::load(runs, machine, Acquire) <= 1);
    };
    let name = "a job runs once at most";
    run(&Law {
        name,
        setup,
        bodies: vec![worker, canceller],
        check,
    });
}

#[test]
fn one_cpu_wins_a_tag() {
    let setup = |machine: &M| (machine.tags(Pages(8)), machine.word(0));
    let claim = |machine: &M, (tags, wins): &(_, ModelWord)| {
        if Tags::replace(tags, 3, 0, 9).is_ok() {
            Word::add(wins, machine, 1, Relaxed);
        }
    };
    let check = |machine: &M, (tags, wins): &(_, ModelWord)| {
        assert_eq!((Tags::get(tags, 0), Tags::get(tags, 3)), (0x1a, 9));
        assert_eq!(Word::load(wins, machine, Acquire), 1);
    };
    run(&Law {
        name: "one CPU wins a tag",
        setup,
        bodies: vec![claim, claim],
        check,
    });
}
