//! Runs laws on real threads, many times.
//!
//! This finds what the model checkers cannot: wrong wiring, and the behaviour of real atomics on
//! this very computer. It cannot prove the absence of a race.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::{hint, thread};

use plimsoll_host::Host;
use plimsoll_mm::laws::Law;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;

/// The times that a thread looks at the gate before it starts to yield: about two microseconds.
const SPINS_MAX: u32 = 200;

/// Runs `law` for `rounds` rounds on a machine of `cpus` equal CPUs, each round on fresh state:
/// every body runs on its own thread, entered as its CPU, and all start at once.
///
/// # Panics
/// If the law is broken; law and round are printed. Also if it has more bodies than CPUs.
pub(crate) fn run_law<S: Send + Sync + 'static>(law: &Law<Host, S>, cpus: u32, rounds: u32) {
    assert!(
        law.bodies.len() <= cpus as usize,
        "law {:?} needs a CPU per body",
        law.name
    );
    let host = Host::with_topology(Topology::flat(cpus));
    for round in 0..rounds {
        let _says = SaysWhich {
            law: law.name,
            round,
        };
        let state = {
            let _entered = host.enter(CpuId(0));
            (law.setup)(&host)
        };
        run_bodies(law, &host, &state);
        let _entered = host.enter(CpuId(0));
        (law.check)(&host, &state);
    }
}

fn run_bodies<S: Sync>(law: &Law<Host, S>, host: &Host, state: &S) {
    let gate = Gate {
        missing: AtomicUsize::new(law.bodies.len()),
    };
    thread::scope(|scope| {
        for (cpu, body) in (0..).map(CpuId).zip(&law.bodies) {
            let gate = &gate;
            scope.spawn(move || {
                let _entered = host.enter(cpu);
                gate.pass();
                body(host, state);
            });
        }
    });
}

/// A barrier that lets all threads through when the last has come. It spins: a barrier that sleeps
/// would let threads go one wake-up after the other, and short bodies would never meet.
struct Gate {
    missing: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        // Release pairs with the Acquire below, so that the bodies start after all setup.
        self.missing.fetch_sub(1, Release);
        let mut looks = 0;
        while self.missing.load(Acquire) != 0 {
            if looks < SPINS_MAX {
                hint::spin_loop();
            } else {
                // With more threads than CPUs, the missing ones may be waiting for this CPU.
                thread::yield_now();
            }
            looks += 1;
        }
    }
}

/// Prints the law and the round if the thread panics.
struct SaysWhich {
    law: &'static str,
    round: u32,
}

impl Drop for SaysWhich {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!(
                "law {:?} is broken on real threads, round {}",
                self.law, self.round
            );
        }
    }
}
