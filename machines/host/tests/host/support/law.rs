//! Runs laws on real threads, for many rounds.
//!
//! Such runs find errors that the model checkers cannot find: wrong wiring, and the behaviour of
//! real atomics on this computer. They cannot prove the absence of a race.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::{hint, thread};

use plimsoll_host::Host;
use plimsoll_mm::laws::Law;
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;

/// The number of times that a thread checks the gate before it starts to yield. These checks take
/// about two microseconds.
const SPINS_MAX: u32 = 200;

/// Runs `law` for `rounds` rounds on a machine of `cpus` equal CPUs. Each round has new state.
/// Every body runs on a separate thread, which plays the body's CPU, and all bodies start at once.
///
/// # Panics
/// If the law is broken; the law and the round are printed. Also if the law has more bodies than
/// CPUs.
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

/// A barrier that releases all threads when the last one has arrived. It spins, because a sleeping
/// barrier would wake the threads one after the other, and short bodies would never overlap.
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
                // If there are more threads than CPUs, the missing threads may be waiting for this
                // CPU.
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
