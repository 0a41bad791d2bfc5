//! Models of the restartable sequences of `host` (`machines/host/src/fronts/rseq/`): each runs step
//! by step, and can be stopped before each store.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::checker::{self, Mutex};
use crate::sync::{AtomicI64, AtomicU32};

/// The number of real CPUs in a test.
pub(crate) const CPUS: usize = 2;

/// A real CPU. A restartable sequence on this CPU is stopped at its next store if, since the
/// sequence began, another thread has run on the CPU, or has called [`Cpu::switch`] to stop the
/// CPU's sequences.
#[derive(Default)]
pub(crate) struct Cpu {
    switches: Mutex<u32>,
}

/// A sequence that a thread has begun on `cpu`.
pub(crate) struct Sequence<'a> {
    cpu: &'a Cpu,
    begun: u32,
}

impl Cpu {
    /// Makes the restartable sequences that have begun on this CPU start again.
    pub(crate) fn switch(&self) -> u32 {
        let mut switches = self.switches.lock().expect("no thread panics inside");
        *switches += 1;
        *switches
    }

    /// Begins a sequence. The calling thread now runs on this CPU, so the sequences of other
    /// threads on the CPU are stopped.
    fn begin(&self) -> Sequence<'_> {
        let begun = self.switch();
        Sequence { cpu: self, begun }
    }

    /// Runs the steps of a sequence repeatedly, until they have run to the end without being
    /// stopped.
    pub(crate) fn restart<R>(&self, mut steps: impl FnMut(&Sequence<'_>) -> Option<R>) -> R {
        loop {
            if let Some(done) = steps(&self.begin()) {
                return done;
            }
        }
    }
}

impl Sequence<'_> {
    /// Runs `store`, unless the sequence has been stopped.
    pub(crate) fn step(&self, store: impl FnOnce()) -> Option<()> {
        let switches = self.cpu.switches.lock().expect("no thread panics inside");
        (*switches == self.begun).then(store)
    }
}

/// Stands for the kernel's `rseq` area of the threads on one real CPU. Holds the CPU's number.
pub(crate) struct Area {
    number: u32,
}

impl Area {
    pub(crate) fn cpu(&self) -> Option<u32> {
        Some(self.number)
    }
}

checker::thread_local! {
    static MINE: Cell<&'static Area> = Cell::new(&AREAS[0]);
}

static AREAS: [Area; CPUS] = [Area { number: 0 }, Area { number: 1 }];

/// Makes the calling thread run on this real CPU.
pub(crate) fn run_on(cpu: usize) {
    MINE.with(|mine| mine.set(&AREAS[cpu]));
}

pub(crate) fn mine() -> &'static Area {
    MINE.with(Cell::get)
}

pub(crate) fn set_up() -> Option<&'static Area> {
    Some(mine())
}

/// Stops the restartable sequences that run on a CPU. On real threads, the kernel does this for the
/// crate `host`.
pub(crate) fn abort_on(cpu: u32) {
    checker::cpus()[cpu as usize].switch();
}

/// The restartable sequence of an addition, step by step as in assembly (`rseq/x86_64.rs`).
pub(crate) fn add(area: &Area, home: &AtomicU32, word: &AtomicI64, delta: i64) -> Option<i64> {
    let cpu = &checker::cpus()[area.number as usize];
    cpu.restart(|sequence| {
        if home.load(Acquire) != area.number {
            return Some(None);
        }
        let new = word.load(Relaxed) + delta;
        sequence.step(|| word.store(new, Relaxed))?;
        Some(Some(new))
    })
}
