//! Runs laws (contracts that hold on every machine) on real threads, for many rounds.
//!
//! Such runs find errors that the model checkers cannot find: errors in how the parts of
//! `plimsoll-host` work together, and errors that occur only on a real CPU. They cannot prove the
//! absence of a race.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::mpsc::{self, Receiver, Sender};
use std::{hint, thread};

use plimsoll_host::affinity::{self, CpuMask};
use plimsoll_host::fronts::Fronts;
use plimsoll_host::{Host, OwnerLocks};
use plimsoll_mm::laws::{Body, Law};
use plimsoll_mm::topology::Topology;
use plimsoll_mm::units::CpuId;

/// The number of times that a thread checks the gate before it starts to yield. These checks take
/// about two microseconds.
const SPINS_MAX: u32 = 200;

/// Runs `law` for `rounds` rounds on a machine of `cpus` equal CPUs. Each round has new state.
/// Every *body* of the law, which is the code of one CPU, runs on a separate thread that plays this
/// CPU. All bodies start at once.
///
/// The threads last for all rounds, because to create a thread takes longer than most bodies run.
/// Each of them stays on one real CPU. Otherwise the kernel would tend to wake all of them on the
/// CPU of the thread that begins the round. There they would run one after the other.
///
/// # Panics
/// If the law is broken; the law and the round are printed. Also if the law has more bodies than
/// CPUs.
pub(crate) fn run_law<S: Send + Sync + 'static>(law: &Law<Host, S>, cpus: u32, rounds: u32) {
    // If `after` is 0, nearly every acquisition of a lock makes the thread the lock's owner or ends
    // an ownership.
    for ways in [
        (Fronts::Off, OwnerLocks::Exchanged),
        (Fronts::Restartable, OwnerLocks::Exchanged),
        (Fronts::Owned, OwnerLocks::Biased { after: 0 }),
    ] {
        run_law_with(ways, law, cpus, rounds / 3);
    }
}

fn run_law_with<S: Send + Sync + 'static>(
    (fronts, locks): (Fronts, OwnerLocks),
    law: &Law<Host, S>,
    cpus: u32,
    rounds: u32,
) {
    assert!(
        law.bodies.len() <= cpus as usize,
        "law {:?} needs a CPU per body",
        law.name
    );
    let host = &Host::with_fronts(Topology::flat(cpus), fronts, locks);
    let real = &CpuMask::of_this_thread();
    thread::scope(|scope| {
        let bodies = (0..).map(CpuId).zip(law.bodies.iter().copied());
        let players: Vec<Player<S>> = bodies
            .map(|(cpu, body)| {
                let (rounds, begun) = mpsc::channel();
                let (ended, done) = mpsc::channel();
                scope.spawn(move || {
                    stay_on(real, cpu);
                    play(host, cpu, body, &begun, &ended);
                });
                Player { rounds, done }
            })
            .collect();
        for number in 0..rounds {
            let _says = SaysWhich {
                law: law.name,
                round: number,
            };
            let state = {
                let _entered = host.enter(CpuId(0));
                (law.setup)(host)
            };
            let gate = Gate {
                missing: AtomicUsize::new(law.bodies.len()),
            };
            let round = Arc::new(Round { state, gate });
            for player in &players {
                let begun = player.rounds.send(Arc::clone(&round));
                begun.expect("the thread waits for a round");
            }
            for player in &players {
                player.done.recv().expect("no body panicked");
            }
            let _entered = host.enter(CpuId(0));
            (law.check)(host, &round.state);
        }
    });
}

/// Pins this thread to the real CPU that stands for `cpu`, if the system can pin threads. Without
/// pinning, tests of laws find fewer errors.
fn stay_on(real: &CpuMask, cpu: CpuId) {
    if let Some(real) = real.real(cpu.0) {
        let _pinned = affinity::pin(&CpuMask::only(real));
    }
}

/// One round: the state that all bodies of the law (its functions, one for each CPU) share, and the
/// gate at which they wait for each other.
struct Round<S> {
    state: S,
    gate: Gate,
}

/// The runner's handle on a thread that plays a CPU: the thread receives each round from `rounds`,
/// and reports when it has run its body.
struct Player<S> {
    rounds: Sender<Arc<Round<S>>>,
    done: Receiver<()>,
}

/// Runs `body` in each round until there are no more rounds. If the body panics, the channel
/// `ended` is closed.
fn play<S>(
    host: &Host,
    cpu: CpuId,
    body: Body<Host, S>,
    begun: &Receiver<Arc<Round<S>>>,
    ended: &Sender<()>,
) {
    for round in begun {
        let entered = host.enter(cpu);
        round.gate.pass();
        body(host, &round.state);
        drop(entered);
        // The state must be dropped by the thread that made it. So this thread drops its own
        // reference before it reports that its part of the round has ended.
        drop(round);
        if ended.send(()).is_err() {
            return;
        }
    }
}

/// A barrier that releases all threads when the last one has arrived. It spins, because a sleeping
/// barrier would wake the threads one after the other, and threads that run only briefly would
/// never overlap.
struct Gate {
    missing: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        // Release pairs with the Acquire below, so that the threads start to run the law after all
        // setup.
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

/// Prints the law and the round when it is dropped by a panic.
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
