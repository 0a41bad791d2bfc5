//! Counting on many CPUs without sharing a cache line.
//!
//! Counters come in groups. A group has the counters of one owner, such as one counter for each
//! kind of a process's resident pages. The counters of a group are created, laid out and freed
//! together. Each counter can be read in two ways. The *approximate* sum is cheap, and its error is
//! at most [`Counters::accuracy`]. The *precise* sum reads every CPU's part. A precise comparison
//! of two counters first compares their approximate sums, and computes a precise sum only if the
//! approximate sums cannot decide.
//!
//! | variant | memory that an addition writes | error of the approximate sum |
//! |---|---|---|
//! | [`Shared`] | a cache line that all CPUs share | none |
//! | [`Flat`], Linux's `percpu_counter` | this CPU's part; and, each time this part reaches the batch of `2 × CPUs`, a shared part under a lock | up to `(batch − 1) × CPUs` either way |
//! | [`Tree`], the proposed `percpu_counter_tree` | this CPU's cell; and, each time this cell passes a multiple of the batch, an *item*, which several CPUs share, and so on up to a root | up to about `levels × batch × CPUs` either way |
//! | [`OneSidedTree`], Plimsoll's own | as [`Tree`], along the machine's topology | on one side only: at most the amounts that the cells and items of CPUs that ever added can keep |
//!
//! A reader can rely on the following while additions are in progress. An addition changes the
//! precise sum in one step, and the approximate sum somewhat later. The accuracy holds for
//! additions that have returned. Each addition still in progress may add up to [`Shape::in_flight`]
//! to the error. A sum takes several reads, so it may or may not include additions that start
//! between these reads.
//!
//! Nothing has to be done when a CPU goes offline: its part of each counter remains, and the sums
//! still include it.
//!
//! Locks: [`Flat`] has one lock per counter. [`Area`] has one lock, which a CPU takes when it
//! creates or destroys a group. [`Shared`] and the trees have no lock of their own.

mod accuracy;
mod adding;
mod any;
mod area;
mod carry;
mod cells;
mod error;
mod flat;
mod items;
mod local;
mod many;
mod named;
mod one_sided;
mod runs;
mod shape;
mod shared;
mod tree;
mod used;

use core::cmp::Ordering;

pub use self::accuracy::{Accuracy, Range, Reading};
pub use self::any::{AnyCounters, Counting, Plan};
pub use self::area::Area;
pub use self::error::{InitError, ShapeError};
pub use self::flat::{Flat, flat_batch};
pub use self::items::Items;
pub use self::local::LocalTree;
pub use self::many::precise_totals;
pub use self::named::{CounterId, CounterRow, CounterSpec, NamedCounters, NamedError};
pub use self::one_sided::OneSidedTree;
pub use self::shape::{Batch, Shape};
pub use self::shared::Shared;
pub use self::tree::Tree;
use crate::machine::Machine;
use crate::units::at_least_0;

/// A group of counters. The index of the first counter is 0. Each counter is a signed 64-bit sum
/// that wraps.
///
/// Every method that takes the index of a counter panics if the group has no such counter.
pub trait Counters<M: Machine> {
    /// Returns the number of counters in the group.
    fn width(&self) -> usize;

    /// Adds `delta` to a counter, in this CPU's part. If the task migrates during the call, the
    /// sums are still right; the addition only costs more. Never allocates: a caller may hold
    /// locks, and memory may have run out.
    fn add(&self, machine: &M, counter: usize, delta: i64);

    /// Adds `delta` to a counter like [`Counters::add`], for callers that may allocate and
    /// therefore hold no spinlock. A [`OneSidedTree`] that is still one shared cache line also
    /// creates its tree in this call, if the line has moved between CPUs often enough and memory is
    /// available. If callers use only [`Counters::add`] instead, the sums are still right, but the
    /// CPUs keep sharing that cache line.
    #[inline]
    fn add_growing(&self, machine: &M, counter: usize, delta: i64) {
        self.add(machine, counter, delta);
    }

    /// Returns the sum without reading every CPU's part; the error is at most
    /// [`Counters::accuracy`].
    fn approximate_sum(&self, machine: &M, counter: usize) -> i64;

    /// Returns the sum of all additions that have returned. Reads the part of every CPU that ever
    /// added.
    fn precise_sum(&self, machine: &M, counter: usize) -> i64;

    /// Returns the precise sums of all counters, added up. This reads no more CPUs' parts than a
    /// single precise sum, because a group's counters are adjacent in memory. For many groups see
    /// [`precise_totals`].
    fn precise_total(&self, machine: &M) -> i64;

    /// Returns by how much an approximate sum that is taken now can differ from the precise sum, if
    /// no addition is in progress.
    fn accuracy(&self, machine: &M, counter: usize) -> Accuracy;

    /// Sets the precise sum to `value`. An addition that is in progress can be lost.
    fn set(&self, machine: &M, counter: usize, value: i64);

    /// Returns the number of bytes that the group occupies now, including its share of memory that
    /// groups have in common.
    fn bytes(&self) -> usize;

    /// Returns [`Counters::approximate_sum`], or 0 if that sum is negative. This method is for
    /// counts that cannot be negative.
    fn approximate_sum_positive(&self, machine: &M, counter: usize) -> u64 {
        at_least_0(self.approximate_sum(machine, counter))
    }

    /// Returns [`Counters::precise_sum`], or 0 if that sum is negative. A reader may see only some
    /// of the additions in progress on different CPUs, so even a count that is never negative may
    /// read as negative for a moment.
    fn precise_sum_positive(&self, machine: &M, counter: usize) -> u64 {
        at_least_0(self.precise_sum(machine, counter))
    }

    /// Returns a range that contains the precise sum, without reading every CPU's part (Linux:
    /// `percpu_counter_tree_approximate_min_max_range`).
    fn min_max(&self, machine: &M, counter: usize) -> Range {
        let approximate = self.approximate_sum(machine, counter);
        self.accuracy(machine, counter).range(approximate)
    }

    /// Compares `counter` of this group with `value`, using only [`Counters::min_max`]. `Equal`
    /// means that the range cannot decide.
    ///
    /// The result is that of `counter.cmp(value)`. The proposed Linux function returns the opposite
    /// sign, because it compares the value with the counter.
    fn approximate_compare_value(&self, machine: &M, counter: usize, value: i64) -> Ordering {
        self.min_max(machine, counter)
            .compare(Range::exactly(value))
    }

    /// Compares `counter` of this group with `value`. Computes the precise sum only if the range
    /// cannot decide.
    fn precise_compare_value(&self, machine: &M, counter: usize, value: i64) -> Ordering {
        match self.approximate_compare_value(machine, counter, value) {
            Ordering::Equal => self.precise_sum(machine, counter).cmp(&value),
            told => told,
        }
    }

    /// Compares `counter` of this group with the counter `other` of the group `others`, using only
    /// their ranges. `Equal` means that the ranges cannot decide.
    fn approximate_compare<C: Counters<M> + ?Sized>(
        &self,
        machine: &M,
        counter: usize,
        others: &C,
        other: usize,
    ) -> Ordering {
        let range = self.min_max(machine, counter);
        range.compare(others.min_max(machine, other))
    }

    /// Compares `counter` of this group with the counter `other` of the group `others`. Computes
    /// precise sums only if the ranges cannot decide: first the sum of the counter with the wider
    /// range and then, if necessary, the sum of the other counter.
    fn precise_compare<C: Counters<M> + ?Sized>(
        &self,
        machine: &M,
        counter: usize,
        others: &C,
        other: usize,
    ) -> Ordering {
        let (mine, theirs) = (
            self.min_max(machine, counter),
            others.min_max(machine, other),
        );
        let told = mine.compare(theirs);
        if told != Ordering::Equal {
            return told;
        }
        let my_sum = || Range::exactly(self.precise_sum(machine, counter));
        let their_sum = || Range::exactly(others.precise_sum(machine, other));
        if mine.width() > theirs.width() {
            let mine = my_sum();
            match mine.compare(theirs) {
                Ordering::Equal => mine.compare(their_sum()),
                told => told,
            }
        } else {
            let theirs = their_sum();
            match mine.compare(theirs) {
                Ordering::Equal => my_sum().compare(theirs),
                told => told,
            }
        }
    }
}
