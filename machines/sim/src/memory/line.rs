//! A simulated cache line, and the integers in it.
//!
//! A writer fetches the line from the CPU that owns it. Writers wait for each other, so a line that
//! many CPUs write has a queue. Readers share the line until the next write. A `Relaxed` load does
//! not let CPUs with earlier clocks run first: it returns the latest value that the host has
//! computed, and costs only the fetch of the line.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::sync::atomic::Ordering;

use plimsoll_mm::machine::{LINE_WORDS, Line};
use plimsoll_mm::units::CpuId;

use crate::engine::record::WORD;
use crate::engine::state::{Inner, Sim};
use crate::engine::tree::time_of;

/// The state of one cache line: which CPUs have a copy, and when the last transfer ends.
pub(crate) struct LineState {
    /// The CPU that wrote the line last.
    owner: Cell<usize>,
    /// The end of the last transfer of the line to a CPU that writes it, in nanoseconds.
    busy_until: Cell<u64>,
    /// The last CPU, other than the owner, that has read the line since the owner's last write.
    reader: Cell<Option<usize>>,
    /// One bit for each CPU. The bit is set if the CPU, other than the owner, has a copy of the
    /// line. The bits are allocated at the first read.
    sharers: OnceCell<Box<[Cell<u64>]>>,
}

impl LineState {
    pub(crate) fn new() -> Self {
        Self {
            owner: Cell::new(0),
            busy_until: Cell::new(0),
            reader: Cell::new(None),
            sharers: OnceCell::new(),
        }
    }

    /// Makes the running CPU the owner of the line, so that it may write. First waits until no
    /// other CPU has an earlier clock; then lets the time of the transfer pass.
    #[inline(always)]
    pub(crate) fn own(&self, sim: &Inner) {
        let mine = sim.order();
        if sim.outside.get() {
            return;
        }
        let index = sim.cur.get();
        sim.record.fold(time_of(mine), index, WORD);
        // The write invalidates copies on other CPUs. If the running CPU owns the line and other
        // CPUs have copies, this costs a transfer from the last reader. If another CPU owns the
        // line, it costs a transfer from the owner.
        let from = match (self.owner.get(), self.reader.take()) {
            (owner, Some(reader)) if owner == index => reader,
            (owner, _) => owner,
        };
        let cost = if from == index {
            sim.prices.word_own()
        } else {
            sim.fetch(from, index)
        };
        let done = sim.clock.get().max(self.busy_until.get()) + cost;
        sim.clock.set(done);
        self.busy_until.set(done);
        self.owner.set(index);
        if let Some(sharers) = self.sharers.get() {
            sharers.iter().for_each(|word| word.set(0));
        }
    }

    /// Charges the running CPU for the time of a load. The caller then reads the value.
    #[inline]
    pub(crate) fn read(&self, sim: &Inner, order: Ordering) {
        if order != Ordering::Relaxed || sim.options.strict {
            sim.order();
        }
        self.share(sim);
    }

    /// Gives the running CPU a copy of the line for reading. If it has none yet, the time of a
    /// transfer passes.
    fn share(&self, sim: &Inner) {
        let index = sim.cur.get();
        // The last reader has a copy. Testing for it first saves the host an access to `sharers`,
        // which is in separate memory.
        let has_copy = self.owner.get() == index || self.reader.get() == Some(index);
        if has_copy || sim.outside.get() {
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
            sim.clock.set(start + sim.fetch(self.owner.get(), index));
        }
    }
}

impl Inner {
    /// Counts the transfer of a line from CPU `from` to CPU `to`, and returns its price in
    /// nanoseconds.
    #[inline]
    fn fetch(&self, from: usize, to: usize) -> u64 {
        let distance = self.prices.distance(from, to);
        self.record.line_moved(distance);
        u64::from(self.prices.transfer_ns[distance as usize])
    }

    /// Counts the transfer of a lock's line, unless both CPUs are the same.
    pub(crate) fn count_line(&self, from: CpuId, to: CpuId) {
        if from == to {
            return; // The lock passes between two tasks of one CPU.
        }
        let distance = self.prices.distance(from.index(), to.index());
        self.record.line_moved(distance);
    }
}

/// Shared integers in one cache line, in virtual time.
pub struct SimLine {
    values: [Cell<i64>; LINE_WORDS],
    line: LineState,
}

impl SimLine {
    pub(crate) fn new() -> Self {
        Self {
            values: [const { Cell::new(0) }; LINE_WORDS],
            line: LineState::new(),
        }
    }
}

impl Line<Sim> for SimLine {
    #[inline]
    fn load(&self, sim: &Sim, word: usize, order: Ordering) -> i64 {
        self.line.read(&sim.0, order);
        self.values[word].get()
    }

    #[inline]
    fn store(&self, sim: &Sim, word: usize, value: i64, _order: Ordering) {
        self.line.own(&sim.0);
        self.values[word].set(value);
    }

    #[inline]
    fn add(&self, sim: &Sim, word: usize, delta: i64, _order: Ordering) -> i64 {
        self.line.own(&sim.0);
        let value = &self.values[word];
        value.set(value.get().wrapping_add(delta));
        value.get()
    }

    #[inline]
    fn compare_exchange(
        &self,
        sim: &Sim,
        word: usize,
        old: i64,
        new: i64,
        _order: Ordering,
    ) -> Result<i64, i64> {
        self.line.own(&sim.0);
        let value = &self.values[word];
        if value.get() == old {
            Ok(value.replace(new))
        } else {
            Err(value.get())
        }
    }
}

impl fmt::Debug for SimLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimLine")
            .field(&self.values.each_ref().map(Cell::get))
            .finish()
    }
}
