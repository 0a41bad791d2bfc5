//! Counters with one part per CPU. When a CPU's part reaches the batch, that CPU *folds* it, that
//! is, moves it into a shared part (Linux: `percpu_counter`).
//!
//! The batch and the number of parts both grow with the number of CPUs. The error therefore grows
//! with the square of the number of CPUs: on 384 CPUs a count of 4 KiB pages may be wrong by 1150
//! MiB.
//!
//! Lock: each counter has one lock. A CPU takes the lock to fold its part into the shared part, and
//! to sum or set the counter.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::Counters;
use super::accuracy::Accuracy;
use super::area::{Area, Place};
use super::error::InitError;
use crate::machine::{LocalWord, Lock, Machine};
use crate::site::{LockClass, Site, Work};
use crate::units::count_of;

/// Returns the batch on a machine with `cpus` CPUs, in units of the counter. A CPU adds its part of
/// a counter to the shared part when its part has reached the batch (Linux: `compute_batch_value`).
#[must_use]
pub fn flat_batch(cpus: u32) -> i64 {
    i64::from(cpus).saturating_mul(2).max(32)
}

/// Counters with a part per CPU and a shared part.
pub struct Flat<M: Machine> {
    area: Arc<Area<M>>,
    parts: Place<M>,
    shared: Box<[SharedPart<M>]>,
    batch: i64,
}

/// The shared part of one counter. CPUs write the value under the lock, and read it without the
/// lock. In Linux the value and the lock share a cache line, so a CPU that has taken the lock
/// accesses the value at no further cost.
struct SharedPart<M: Machine> {
    lock: M::Lock<()>,
    value: M::LocalWord,
}

impl<M: Machine> Flat<M> {
    /// Creates a group of counters with the value 0. The group has as many counters as `area` was
    /// created for.
    ///
    /// # Errors
    /// [`InitError::OutOfMemory`] if there is not enough memory.
    pub fn init_many(machine: &M, area: &Arc<Area<M>>) -> Result<Self, InitError> {
        let home = machine.this_cpu();
        let shared = |_| SharedPart {
            lock: machine.lock(LockClass::Counter, home, ()),
            value: machine.local_word(home, 0),
        };
        let mut parts = Vec::new();
        parts
            .try_reserve_exact(area.width())
            .map_err(|_| InitError::OutOfMemory)?;
        parts.extend((0..area.width()).map(shared));
        Ok(Self {
            parts: area.take(machine)?,
            shared: parts.into(),
            batch: flat_batch(area.cpus()),
            area: Arc::clone(area),
        })
    }

    /// Destroys the counters and frees their per-CPU memory (Linux: `percpu_counter_destroy_many`).
    pub fn destroy_many(self, machine: &M) {
        self.area.put(machine, self.parts);
    }

    #[cold]
    #[inline(never)]
    fn fold(&self, machine: &M, counter: usize, part: &M::LocalWord) {
        let shared = &self.shared[counter];
        shared.lock.with(machine, Site::CounterFold, |()| {
            shared.value.add(machine, part.take(machine));
        });
    }

    pub(super) fn position(&self) -> u64 {
        self.parts.number()
    }

    fn sum(&self, machine: &M, counter: usize) -> i64 {
        let shared = &self.shared[counter];
        shared.lock.with(machine, Site::CounterSum, |()| {
            let parts = self.parts.words(self.area.cpus(), counter);
            let parts = parts.map(|part| part.read(machine));
            parts.fold(shared.value.read(machine), i64::wrapping_add)
        })
    }
}

impl<M: Machine> Counters<M> for Flat<M> {
    fn width(&self) -> usize {
        self.shared.len()
    }

    #[inline]
    fn add(&self, machine: &M, counter: usize, delta: i64) {
        machine.spend(Work::Count, 1);
        let part = self.parts.word(machine.this_cpu().index(), counter);
        if part.add(machine, delta).unsigned_abs() >= self.batch.unsigned_abs() {
            self.fold(machine, counter, part);
        }
    }

    #[inline]
    fn approximate_sum(&self, machine: &M, counter: usize) -> i64 {
        self.shared[counter].value.read(machine)
    }

    fn precise_sum(&self, machine: &M, counter: usize) -> i64 {
        machine.spend(Work::ScanCpu, self.area.cpus());
        self.sum(machine, counter)
    }

    /// Sums one counter after the other, each under its lock. From the second counter on, the cache
    /// lines have already been fetched, but each counter takes another pass through all CPUs.
    fn precise_total(&self, machine: &M) -> i64 {
        let cpus = self.area.cpus();
        machine.spend(Work::ScanCpu, cpus);
        machine.spend(Work::NextCpu, cpus * count_of(self.width() - 1));
        let sums = (0..self.width()).map(|counter| self.sum(machine, counter));
        sums.fold(0, i64::wrapping_add)
    }

    /// Returns `(batch − 1) × CPUs` as the largest error in both directions.
    fn accuracy(&self, _machine: &M, counter: usize) -> Accuracy {
        assert!(counter < self.shared.len(), "no such counter");
        let bound = (self.batch.unsigned_abs() - 1).saturating_mul(u64::from(self.area.cpus()));
        Accuracy {
            under: bound,
            over: bound,
        }
    }

    fn set(&self, machine: &M, counter: usize, value: i64) {
        let shared = &self.shared[counter];
        shared.lock.with(machine, Site::CounterSum, |()| {
            for part in self.parts.words(self.area.cpus(), counter) {
                part.set(machine, 0);
            }
            shared.value.set(machine, value);
        });
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.shared) + self.area.bytes_per_group()
    }
}

impl<M: Machine> fmt::Debug for Flat<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flat")
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_that_of_linux() {
        let cpus = [0, 1, 15, 16, 17, 72, 384, u32::MAX];
        let batches = [32, 32, 32, 32, 34, 144, 768, 2 * i64::from(u32::MAX)];
        assert_eq!(cpus.map(flat_batch), batches);
    }
}
