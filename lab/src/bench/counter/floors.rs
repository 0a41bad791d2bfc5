//! The floors of the bench of counters: additions to words of which each thread has its own.

use std::cell::Cell;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_host::Host;
use plimsoll_host::cpu::Entered;
use plimsoll_mm::counter::Batch;
use plimsoll_mm::machine::{LocalWord, Machine};
use plimsoll_mm::units::CpuId;

use super::Subject;

/// Words of the CPUs 0 and 1 of a machine. Each of the two threads adds to the word of the CPU that
/// it plays, by a restartable sequence if the machine uses them. A one-sided counter adds to a cell
/// in the same way.
///
/// If `PASSES`, a thread also adds every whole batch of its word to a line that both threads share.
pub(super) struct OwnWords<const PASSES: bool> {
    name: &'static str,
    host: Host,
    words: [PaddedWord; 2],
    passed: PaddedCounter,
}

#[repr(align(128))]
struct PaddedWord(<Host as Machine>::LocalWord);

impl<const PASSES: bool> OwnWords<PASSES> {
    pub(super) fn new(name: &'static str, host: &Host) -> Self {
        Self {
            name,
            host: host.clone(),
            words: [0, 1].map(|cpu| PaddedWord(host.local_word(CpuId(cpu), 0))),
            passed: PaddedCounter(AtomicI64::new(0)),
        }
    }

    /// Adds `delta` to a word of `cpu` if a sequence has not added it. Returns the new value.
    #[cold]
    #[inline(never)]
    fn add_again(&self, word: &<Host as Machine>::LocalWord, cpu: CpuId, delta: i64) -> i64 {
        if word.admits(&self.host, cpu)
            && let Some(new) = word.add_here(&self.host, cpu, delta)
        {
            return new;
        }
        // The kernel has moved the thread from the home of this CPU. No other thread adds to the
        // word, so the count stays exact.
        word.add(&self.host, delta)
    }
}

impl<const PASSES: bool> Subject for OwnWords<PASSES> {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn enter(&self, thread: usize) -> Option<Entered> {
        SLOT.set(thread);
        Some(self.host.enter([CpuId(0), CpuId(1)][thread]))
    }

    fn add(&self, delta: i64) {
        self.add_all(&[delta]);
    }

    fn add_all(&self, deltas: &[i64]) {
        let slot = SLOT.get();
        let (cpu, word) = ([CpuId(0), CpuId(1)][slot], &self.words[slot].0);
        let whole = |value: i64| value & -i64::from(Batch::RSS.get());
        for &delta in deltas {
            let new = match word.add_here(&self.host, cpu, delta) {
                Some(new) => new,
                None => self.add_again(word, cpu, delta),
            };
            let passed = whole(new) - whole(new - delta);
            if PASSES && passed != 0 {
                // Relaxed: no other memory access has to be ordered with this addition.
                self.passed.0.fetch_add(passed, Relaxed);
            }
        }
    }

    fn precise_sum(&self) -> i64 {
        let words = self.words.iter();
        words.map(|word| word.0.read(&self.host)).sum()
    }
}

thread_local! {
    static SLOT: Cell<usize> = const { Cell::new(0) };
}

/// The floor, with which all counters are compared: the cost of an atomic addition to a word that
/// no other thread uses. Each thread has a slot in cache lines of its own, and stores the slot's
/// index.
pub(super) struct Floor(Box<[PaddedCounter]>);

#[repr(align(128))]
struct PaddedCounter(AtomicI64);

impl Floor {
    pub(super) fn new(slots: usize) -> Self {
        Self(
            (0..slots)
                .map(|_| PaddedCounter(AtomicI64::new(0)))
                .collect(),
        )
    }
}

impl Subject for Floor {
    fn name(&self) -> String {
        "floor: own atomic".to_owned()
    }

    fn enter(&self, thread: usize) -> Option<Entered> {
        SLOT.set(thread);
        None
    }

    // Relaxed: no other memory access has to be ordered with this addition.
    #[inline]
    fn add(&self, delta: i64) {
        self.0[SLOT.get()].0.fetch_add(delta, Relaxed);
    }

    fn precise_sum(&self) -> i64 {
        self.0.iter().map(|slot| slot.0.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_mm::topology::Topology;

    use super::*;

    #[test]
    fn a_floor_passes_whole_batches_on() {
        let host = Host::with_topology(Topology::flat(2));
        let floor = OwnWords::<true>::new("floor", &host);
        let _entered = floor.enter(0);
        floor.add_all(&[1; 40]);
        assert_eq!(floor.passed.0.load(Relaxed), 32);
        floor.add_all(&[500, -30]);
        assert_eq!(floor.passed.0.load(Relaxed), 480);
    }
}
