//! A group of counters in one cache line that all CPUs write. The sums are exact, but each addition
//! may have to fetch the line from another CPU's cache.

use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use super::Counters;
use super::accuracy::Accuracy;
use super::error::InitError;
use crate::machine::{LINE_WORDS, Line, Machine};

/// Counters that are atomic integers, all in one cache line.
pub struct Shared<M: Machine> {
    line: M::Line,
    width: usize,
}

impl<M: Machine> Shared<M> {
    /// Creates `width` counters at 0.
    ///
    /// # Errors
    /// [`InitError::Width`] unless `width` is 1 to 8.
    pub fn init_many(machine: &M, width: usize) -> Result<Self, InitError> {
        if !(1..=LINE_WORDS).contains(&width) {
            return Err(InitError::Width {
                counters: width,
                max: LINE_WORDS,
            });
        }
        Ok(Self {
            line: machine.line(),
            width,
        })
    }
}

impl<M: Machine> Shared<M> {
    #[inline]
    fn checked(&self, counter: usize) -> usize {
        assert!(counter < self.width, "no such counter");
        counter
    }
}

// All accesses are relaxed: callers use a sum only as a number, and order no other memory access by
// it.
impl<M: Machine> Counters<M> for Shared<M> {
    fn width(&self) -> usize {
        self.width
    }

    #[inline]
    fn add(&self, machine: &M, counter: usize, delta: i64) {
        self.line
            .add(machine, self.checked(counter), delta, Relaxed);
    }

    #[inline]
    fn approximate_sum(&self, machine: &M, counter: usize) -> i64 {
        self.line.load(machine, self.checked(counter), Relaxed)
    }

    fn precise_sum(&self, machine: &M, counter: usize) -> i64 {
        self.line.load(machine, self.checked(counter), Relaxed)
    }

    fn precise_total(&self, machine: &M) -> i64 {
        let sums = (0..self.width).map(|counter| self.precise_sum(machine, counter));
        sums.fold(0, i64::wrapping_add)
    }

    fn accuracy(&self, _machine: &M, counter: usize) -> Accuracy {
        self.checked(counter);
        Accuracy::EXACT
    }

    fn set(&self, machine: &M, counter: usize, value: i64) {
        self.line
            .store(machine, self.checked(counter), value, Relaxed);
    }

    fn bytes(&self) -> usize {
        size_of::<M::Line>()
    }
}

impl<M: Machine> fmt::Debug for Shared<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("width", &self.width)
            .finish_non_exhaustive()
    }
}
