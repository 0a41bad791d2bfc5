//! A [`Machine`] inside shuttle, which tries random interleavings of
//! several threads.
//!
//! The machine's shared integers and page tags are atomics of shuttle, which are sequentially
//! consistent, even if the code gives another ordering. The machine's locks are mutexes of shuttle.
//! Any waiter can get such a mutex next, which allows more interleavings than a queued lock does.
//!
//! The machine's time is not an atomic of shuttle, so shuttle does not switch threads when the time
//! is read.

use ::shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use ::shuttle::{Config, Runner, thread};
use plimsoll_mm::laws::Law;

use crate::front::checked_front;
use crate::machine::checked_machine;
use crate::rw_lock::checked_rw_lock;

/// The seed of the random choices. It is the same in every run, so a test that failed will fail
/// again.
const SEED: u64 = 0x706c_696d;

/// The number of preemptions that PCT (probabilistic concurrency testing) tries to place in an
/// interleaving. The second half of the iterations uses PCT.
const PCT_DEPTH: usize = 3;

/// The size of each thread's stack, in bytes. In a build without optimization, a thread that
/// empties a whole address space needs this much.
const STACK_BYTES: usize = 256 << 10;

/// Tries `iterations` interleavings of the bodies of `law`, on a machine of `cpus` CPUs. Half of
/// the interleavings are uniformly random; the other half have few preemptions, at random places
/// (PCT).
///
/// # Panics
/// If the law is broken: shuttle then prints the schedule, which [`replay_law`] takes. Also if the
/// law has more bodies than CPUs.
pub fn run_law<S: Send + Sync + 'static>(law: &Law<ShuttleMachine, S>, cpus: u32, iterations: u32) {
    run_law_with(Fronts::Off, law, cpus, iterations);
}

/// Does the same as [`run_law`], on a machine with this kind of fronts (stacks of free pages).
///
/// # Panics
/// As [`run_law`].
pub fn run_law_with<S: Send + Sync + 'static>(
    fronts: Fronts,
    law: &Law<ShuttleMachine, S>,
    cpus: u32,
    iterations: u32,
) {
    let random_iterations = iterations.div_ceil(2) as usize;
    let random = RandomScheduler::new_from_seed(SEED, random_iterations);
    run_schedules(fronts, law, cpus, random);
    let pct_iterations = iterations as usize - random_iterations;
    if law.bodies.len() > 1 && pct_iterations > 0 {
        run_schedules(
            fronts,
            law,
            cpus,
            PctScheduler::new_from_seed(SEED, PCT_DEPTH, pct_iterations),
        );
    }
}

/// Runs `law` once, in the `schedule` that shuttle printed for a failure.
///
/// # Panics
/// If the law is broken, which is expected.
pub fn replay_law<S: Send + Sync + 'static>(
    law: &Law<ShuttleMachine, S>,
    cpus: u32,
    schedule: &str,
) {
    run_schedules(
        Fronts::Off,
        law,
        cpus,
        ReplayScheduler::new_from_encoded(schedule),
    );
}

fn run_schedules<S: Send + Sync + 'static>(
    fronts: Fronts,
    law: &Law<ShuttleMachine, S>,
    cpus: u32,
    scheduler: impl Scheduler + 'static,
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
    let _says = SaysWhich { law: name };
    let (setup, bodies, check) = (*setup, bodies.clone(), *check);
    let mut config = Config::new();
    // Turn off shuttle's warning that it ignores memory orderings; see the comment at the top of
    // this file.
    config.silence_warnings = true;
    config.stack_size = STACK_BYTES;
    Runner::new(scheduler, config).run(move || {
        let machine = ShuttleMachine::with_fronts(cpus, fronts);
        let state = Arc::new(setup(&machine));
        let run = |(cpu, &body): (CpuId, &fn(&ShuttleMachine, &S))| {
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
            eprintln!("law {:?} is broken under shuttle", self.law);
        }
    }
}

checked_machine!(ShuttleMachine, shuttle);
checked_front!(ShuttleMachine, shuttle);
checked_rw_lock!(ShuttleMachine, shuttle);
