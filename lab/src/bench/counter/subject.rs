//! A counter as the bench measures it.

use plimsoll_host::cpu::Entered;

/// A counter to which several threads can add.
pub trait Subject: Send + Sync {
    /// The name of this counter in the tables.
    fn name(&self) -> String;

    /// Prepares the calling thread for its additions. `thread` is 0 or 1: the index of the thread
    /// in the measurement. With Plimsoll's counters, the thread plays a CPU of a machine until the
    /// returned value is dropped.
    fn enter(&self, _thread: usize) -> Option<Entered> {
        None
    }

    /// Adds `delta` to the counter. The timed loop inlines this function.
    fn add(&self, delta: i64);

    /// The approximate sum, if the counter has one. It does not read every CPU's part of the
    /// counter.
    fn approximate_sum(&self) -> Option<i64> {
        None
    }

    /// The sum of all CPUs' parts of the counter. It is exact if no other thread adds during the
    /// call.
    fn precise_sum(&self) -> i64;

    /// Adds each of `deltas` to the counter, one after the other. The benchmark measures the time
    /// of this call.
    fn add_all(&self, deltas: &[i64]) {
        for &delta in deltas {
            self.add(delta);
        }
    }

    /// Takes the approximate sum, which does not read every CPU's part, `times` times. The caller
    /// measures the mean time.
    fn approximate_sums(&self, times: u32) {
        for _ in 0..times {
            std::hint::black_box(self.approximate_sum());
        }
    }

    /// Takes the precise sum, which reads every CPU's part, `times` times. The caller measures the
    /// mean time.
    fn precise_sums(&self, times: u32) {
        for _ in 0..times {
            std::hint::black_box(self.precise_sum());
        }
    }
}
