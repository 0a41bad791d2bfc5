//! Runs the laws of the memory manager (contracts that hold on every machine) on virtual CPUs.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use plimsoll_mm::laws::Law;
use plimsoll_mm::machine::Machine;
use plimsoll_mm::site::Work;
use plimsoll_mm::units::CpuId;
use plimsoll_sim::profile::Profile;
use plimsoll_sim::{Sim, SimOptions};
use rand::Rng;

/// The upper bound of the random delay after which a body of a law (the code of one CPU) starts, in
/// nanoseconds.
const START_SPREAD_NS: u32 = 2_000;
/// The upper bound of the random delay of each step at which CPUs with earlier clocks run first, in
/// nanoseconds. Because of the delays, the steps of different CPUs interleave in different ways
/// with different seeds.
const SHAKE_NS: u32 = 300;

/// Runs `law` once per seed, with body `i` on CPU `i`. The bodies start at random times.
///
/// # Panics
/// If the law is broken; the message names the law and the seed.
pub(crate) fn run_law<S: 'static>(law: &Law<Sim, S>, profile: &Profile, seeds: Range<u64>) {
    for seed in seeds {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| run_once(law, profile, seed))) {
            let words = payload.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| payload.downcast_ref::<&str>().copied());
            let (name, words) = (law.name, words.unwrap_or("a panic without words"));
            panic!("the law \"{name}\" is broken with seed {seed}: {words}");
        }
    }
}

fn run_once<S: 'static>(law: &Law<Sim, S>, profile: &Profile, seed: u64) {
    let options = SimOptions {
        seed,
        shake_ns: SHAKE_NS,
        // In half of the runs, accesses to per-CPU words also wait for CPUs with earlier clocks, so
        // that a CPU can observe the state between two steps of another CPU.
        strict: seed % 2 == 1,
        ..SimOptions::default()
    };
    let sim = Sim::new(profile, options);
    let state = Rc::new((law.setup)(&sim));
    for (cpu, &body) in (0..).zip(&law.bodies) {
        let state = Rc::clone(&state);
        sim.spawn(CpuId(cpu), move |sim| {
            let delay = sim.rng().next_u32() % START_SPREAD_NS;
            sim.spend(Work::Think, delay);
            body(sim, &state);
        });
    }
    sim.run();
    (law.check)(&sim, &state);
}
