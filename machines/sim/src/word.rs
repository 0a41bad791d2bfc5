//! Simulated shared and per-CPU integers.
//!
//! A shared word is alone in its cache line. Whoever writes it fetches the line from its owner,
//! and writers wait for each other: a hot word is a queue. Readers share until the next write.
//! A `Relaxed` load is not an order point: it returns what the host has got to, and pays only for
//! fetching the line.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::sync::atomic::Ordering;

use plimsoll_mm::machine::{LocalWord, Word};

use crate::engine::Inner;
use crate::handle::Sim;
use crate::record::WORD;
use crate::tree::time_of;

/// A shared integer in virtual time.
pub struct SimWord {
    value: Cell<i64>,
    /// Who wrote it last.
    owner: Cell<usize>,
    /// When the line arrives where it is going.
    busy_until: Cell<u64>,
    /// Who read it last since then, if not the owner.
    reader: Cell<Option<usize>>,
    /// Who has a copy besides the owner; made when somebody reads.
    sharers: OnceCell<Box<[Cell<u64>]>>,
}

impl SimWord {
    pub(crate) fn new(value: i64) -> Self {
        Self {
            value: Cell::new(value),
            owner: Cell::new(0),
            busy_until: Cell::new(0),
            reader: Cell::new(None),
            sharers: OnceCell::new(),
        }
    }

    /// Fetches the line for writing, in turn.
    #[inline(always)]
    fn own(&self, sim: &Inner) {
        let mine = sim.order();
        if sim.outside.get() {
            return;
        }
        let index = sim.cur.get();
        sim.record.fold(time_of(mine), index, WORD);
        // Copies elsewhere are called back: as far as the line itself, or as the last reader.
        let from = match (self.owner.get(), self.reader.take()) {
            (owner, Some(reader)) if owner == index => reader,
            (owner, _) => owner,
        };
        let cost = if from == index {
            u64::from(sim.prices.word_own_ns)
        } else {
            sim.prices.transfer(from, index)
        };
        let done = sim.clock.get().max(self.busy_until.get()) + cost;
        sim.clock.set(done);
        self.busy_until.set(done);
        self.owner.set(index);
        if let Some(sharers) = self.sharers.get() {
            sharers.iter().for_each(|word| word.set(0));
        }
    }

    /// Fetches the line for reading.
    fn share(&self, sim: &Inner) {
        let index = sim.cur.get();
        if sim.outside.get() || self.owner.get() == index {
            return;
        }
        let sharers = self.sharers.get_or_init(|| {
            (0..sim.cpus.len().div_ceil(64))
                .map(|_| Cell::new(0))
                .collect()
        });
        let (word, bit) = (&sharers[index / 64], 1 << (index % 64));
        if word.get() & bit == 0 {
            word.set(word.get() | bit);
            self.reader.set(Some(index));
            let start = sim.clock.get().max(self.busy_until.get());
            sim.clock
                .set(start + sim.prices.transfer(self.owner.get(), index));
        }
    }
}

impl Word<Sim> for SimWord {
    #[inline]
    fn load(&self, sim: &Sim, order: Ordering) -> i64 {
        if order != Ordering::Relaxed || sim.0.options.strict {
            sim.0.order();
        }
        self.share(&sim.0);
        self.value.get()
    }

    #[inline]
    fn store(&self, sim: &Sim, value: i64, _order: Ordering) {
        self.own(&sim.0);
        self.value.set(value);
    }

    #[inline]
    fn add(&self, sim: &Sim, delta: i64, _order: Ordering) -> i64 {
        self.own(&sim.0);
        self.value.set(self.value.get().wrapping_add(delta));
        self.value.get()
    }

    #[inline]
    fn swap(&self, sim: &Sim, value: i64, _order: Ordering) -> i64 {
        self.own(&sim.0);
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
        self.own(&sim.0);
        let found = self.value.get();
        if found != old {
            return Err(found);
        }
        self.value.set(new);
        Ok(found)
    }
}

/// An integer of one CPU, which costs nothing; what it is part of is priced as work.
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

impl fmt::Debug for SimWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimWord").field(&self.value.get()).finish()
    }
}
