//! A [`Machine`] inside loom, which tries every interleaving of a
//! few threads, on weak memory.
//!
//! The machine's shared integers and page tags are atomics of loom, with the orderings that the
//! code gives. Loom treats `SeqCst` accesses as `AcqRel`. So it may report a failure that cannot
//! happen, because `SeqCst` accesses have a total order. The machine's locks are mutexes of loom.
//! Any waiter can get such a mutex next, which allows more interleavings than a queued lock does.
//!
//! The machine's time is not an atomic of loom, so loom does not switch threads when the time is
//! read.

use ::loom::{model, thread};
use plimsoll_mm::laws::Law;

use crate::front::checked_front;
use crate::machine::checked_machine;
use crate::rw_lock::checked_rw_lock;

/// The largest number of threads in one test. Each body of a law (a contract that loom checks) runs
/// in one thread. With more threads, no test finishes within minutes.
const BODIES_MAX: usize = 3;

/// The largest number of preemptions in the interleavings that loom tries by default. The
/// environment variable `LOOM_MAX_PREEMPTIONS` and callers of [`run_law_within`] can set another
/// limit. Nearly all races need at most two preemptions. `.ci/run` tries up to three, which takes
/// about twice as long.
const PREEMPTIONS: usize = 2;

/// The largest number of steps of one interleaving. If a test needs more steps, loom panics.
const BRANCHES_MAX: usize = 10_000;

/// Tries every interleaving of the bodies of `law` on a machine of `cpus` CPUs.
///
/// # Panics
/// If the law is broken. Also if the law has more bodies than CPUs or more than three bodies, or
/// needs more steps than loom can try.
pub fn run_law<S: Send + Sync + 'static>(law: &Law<LoomMachine, S>, cpus: u32) {
    let asked = model::Builder::new().preemption_bound;
    run_law_within(law, cpus, asked.unwrap_or(PREEMPTIONS));
}

/// Tries only the interleavings of `law` that have at most `preemptions` preemptions, or fewer if
/// `LOOM_MAX_PREEMPTIONS` is smaller. This is for laws with many steps. Loom still tries every
/// value that a load can see, and every waiter that can acquire a lock next.
///
/// # Panics
/// As [`run_law`].
pub fn run_law_within<S: Send + Sync + 'static>(
    law: &Law<LoomMachine, S>,
    cpus: u32,
    preemptions: usize,
) {
    run_law_with(Fronts::Off, law, cpus, preemptions);
}

/// Does the same as [`run_law_within`], on a machine with this kind of fronts (stacks of free pages).
///
/// # Panics
/// As [`run_law`].
pub fn run_law_with<S: Send + Sync + 'static>(
    fronts: Fronts,
    law: &Law<LoomMachine, S>,
    cpus: u32,
    preemptions: usize,
) {
    let Law {
        name,
        setup,
        bodies,
        check,
    } = law;
    assert!(
        bodies.len() <= cpus as usize,
        "law {name:?} needs a CPU per body"
    );
    assert!(
        bodies.len() <= BODIES_MAX,
        "law {name:?} has too many bodies for loom"
    );
    let _says = SaysWhich { law: name };
    let (setup, bodies, check) = (*setup, bodies.clone(), *check);
    let mut builder = model::Builder::new();
    let asked = builder.preemption_bound.unwrap_or(preemptions);
    builder.preemption_bound = Some(asked.min(preemptions));
    builder.max_branches = builder.max_branches.max(BRANCHES_MAX);
    builder.check(move || {
        let machine = LoomMachine::with_fronts(cpus, fronts);
        let state = Arc::new(setup(&machine));
        let run = |(cpu, &body): (CpuId, &fn(&LoomMachine, &S))| {
            let (machine, state) = (machine.on(cpu), Arc::clone(&state));
            thread::spawn(move || body(&machine, &state))
        };
        let threads: Vec<_> = (0..).map(CpuId).zip(&bodies).map(run).collect();
        for thread in threads {
            thread
                .join()
                .expect("a body that panics ends the whole model");
        }
        check(&machine, &state);
    });
}

/// A guard that prints the name of the law (the tested contract) if the thread panics.
struct SaysWhich<'a> {
    law: &'a str,
}

impl Drop for SaysWhich<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "law {:?} is broken under loom; LOOM_LOG=trace shows the steps",
                self.law
            );
        }
    }
}

checked_machine!(LoomMachine, loom);
checked_front!(LoomMachine, loom);
checked_rw_lock!(LoomMachine, loom);
