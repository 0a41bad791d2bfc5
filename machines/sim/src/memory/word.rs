//! Simulated shared and per-CPU integers.
//!
//! A shared word is alone in its cache line; the module `line` explains the cost of an access.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::Ordering;

use plimsoll_mm::machine::{Field, LocalWord, Word};

use crate::engine::state::Sim;
use crate::memory::line::LineState;

/// A shared integer alone in its cache line, in virtual time.
pub struct SimWord {
    value: Cell<i64>,
    line: LineState,
}

impl SimWord {
    pub(crate) fn new(value: i64) -> Self {
        Self {
            value: Cell::new(value),
            line: LineState::new(),
        }
    }
}

impl Word<Sim> for SimWord {
    #[inline]
    fn load(&self, sim: &Sim, order: Ordering) -> i64 {
        self.line.read(&sim.0, order);
        self.value.get()
    }

    #[inline]
    fn store(&self, sim: &Sim, value: i64, _order: Ordering) {
        self.line.own(&sim.0);
        self.value.set(value);
    }

    #[inline]
    fn add(&self, sim: &Sim, delta: i64, _order: Ordering) -> i64 {
        self.line.own(&sim.0);
        self.value.set(self.value.get().wrapping_add(delta));
        self.value.get()
    }

    #[inline]
    fn swap(&self, sim: &Sim, value: i64, _order: Ordering) -> i64 {
        self.line.own(&sim.0);
        self.value.replace(value)
    }

    #[inline]
    fn compare_exchange(
        &self,
        sim: &Sim,
        old: i64,
        new: i64,
        _order: Ordering,
    ) -> Result<i64, i64> {
        self.line.own(&sim.0);
        let found = self.value.get();
        if found != old {
            return Err(found);
        }
        self.value.set(new);
        Ok(found)
    }
}

/// An integer of one CPU. An access takes no virtual time of its own: it is part of an operation
/// that is priced as work.
#[derive(Debug)]
pub struct SimLocalWord {
    value: Cell<i64>,
}

impl SimLocalWord {
    pub(crate) fn new(value: i64) -> Self {
        Self {
            value: Cell::new(value),
        }
    }

    #[inline(always)]
    fn reach(&self, sim: &Sim) {
        if sim.0.options.strict {
            sim.0.order();
        }
    }
}

impl LocalWord<Sim> for SimLocalWord {
    #[inline(always)]
    fn add(&self, sim: &Sim, delta: i64) -> i64 {
        self.reach(sim);
        self.value.set(self.value.get().wrapping_add(delta));
        self.value.get()
    }

    #[inline(always)]
    fn set(&self, sim: &Sim, value: i64) {
        self.reach(sim);
        self.value.set(value);
    }

    #[inline(always)]
    fn take(&self, sim: &Sim) -> i64 {
        self.reach(sim);
        self.value.take()
    }

    #[inline(always)]
    fn read(&self, sim: &Sim) -> i64 {
        self.reach(sim);
        self.value.get()
    }
}

/// A plain integer. Reads and writes take no virtual time.
#[derive(Debug)]
pub struct SimField(Cell<u64>);

impl SimField {
    pub(crate) fn new(value: u64) -> Self {
        Self(Cell::new(value))
    }
}

impl Field for SimField {
    #[inline]
    fn get(&self) -> u64 {
        self.0.get()
    }

    #[inline]
    fn set(&self, value: u64) {
        self.0.set(value);
    }
}

impl fmt::Debug for SimWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimWord").field(&self.value.get()).finish()
    }
}
