//! Counting on many CPUs without sharing a cache line.
//!
//! Counters come in groups: the counters of one owner, such as a process's resident pages by kind,
//! are made, laid out and given back together. Each counter can be read in two ways. The
//! *approximate* sum is cheap and wrong by at most what [`Counters::accuracy`] says; the *precise*
//! sum looks at every CPU's part. The comparisons use the approximate sum, and take the precise one
//! only where the approximate one cannot decide.
//!
//! | variant | an addition touches | the approximate sum is wrong by |
//! |---|---|---|
//! | [`Shared`] | one line that all CPUs share | nothing |
//! | [`Flat`], Linux's `percpu_counter` | this CPU's part; a lock once per `2 × CPUs` | `(batch − 1) × CPUs` either way |
//! | [`Tree`], the proposed `percpu_counter_tree` | this CPU's part; an item once per `batch`, and so on up | about `levels × batch × CPUs` either way |
//! | [`OneSidedTree`], ours | as [`Tree`], along the machine's topology | at most `T`, on one side, and only for CPUs that ever added |
//!
//! What a reader may rely on while additions are under way: an addition takes effect on the precise
//! sum in one step, and on the approximate sum somewhat later. The accuracy is promised for
//! additions that have returned; each addition still under way may add [`Shape::in_flight`] to the
//! error. Both sums are made of several reads, so they may or may not include additions that start
//! meanwhile.
//!
//! Counters need no CPU hotplug: when a CPU goes offline, its part stays where it is and still
//! counts.
//!
//! Locks: [`Flat`] has one per counter; [`Area`] has one, taken when a group is made and when it is
//! given back. [`Shared`] and the trees take no other lock.

mod accuracy;
mod any;
mod area;
mod carry;
mod cells;
mod error;
mod flat;
mod items;
mod many;
mod one_sided;
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
pub use self::many::precise_totals;
pub use self::one_sided::OneSidedTree;
pub use self::shape::{Batch, Shape};
pub use self::shared::Shared;
pub use self::tree::Tree;
use crate::machine::Machine;
use crate::units::at_least_0;

/// A group of counters: signed 64-bit sums that wrap, numbered from 0.
///
/// Every method that takes a counter's number panics if the group has no such counter.
pub trait Counters<M: Machine> {
    /// Returns the number of counters in the group.
    fn width(&self) -> usize;

    /// Adds `delta` to a counter, on this CPU. A stale CPU number costs speed, never correctness.
    /// Never allocates: a caller may hold locks, and memory may be out.
    fn add(&self, machine: &M, counter: usize, delta: i64);

    /// Does what [`Counters::add`] does, for callers that may allocate and therefore hold no
    /// spinlock. Also makes the structure for additions by many CPUs, if that is due and there is
    /// memory. The sums are also right for an owner that only ever calls [`Counters::add`], but its
    /// CPUs go on sharing a line.
    #[inline]
    fn add_growing(&self, machine: &M, counter: usize, delta: i64) {
        self.add(machine, counter, delta);
    }

    /// Returns the sum, within [`Counters::accuracy`] of the truth, without looking at every CPU.
    fn approximate_sum(&self, machine: &M, counter: usize) -> i64;

    /// Returns the sum of every addition that has returned. Looks at every CPU that ever added.
    fn precise_sum(&self, machine: &M, counter: usize) -> i64;

    /// Returns the precise sums of all counters, added up. This looks at no more CPUs than one
    /// precise sum does, because a group's counters lie side by side. For many groups see
    /// [`precise_totals`].
    fn precise_total(&self, machine: &M) -> i64;

    /// Returns how far an approximate sum taken now may be from the precise one while no addition
    /// is under way.
    fn accuracy(&self, machine: &M, counter: usize) -> Accuracy;

    /// Sets the precise sum to `value`. Additions that are under way may be lost or kept.
    fn set(&self, machine: &M, counter: usize, value: i64);

    /// Returns the bytes of memory the group occupies now, including its part of what groups share.
    fn bytes(&self) -> usize;

    /// [`Counters::approximate_sum`], or 0 if that is less: for counts that cannot be negative.
    fn approximate_sum_positive(&self, machine: &M, counter: usize) -> u64 {
        at_least_0(self.approximate_sum(machine, counter))
    }

    /// [`Counters::precise_sum`], or 0 if that is less. A reader may see only some of the additions
    /// under way on different CPUs, so even a count that is never negative may read as negative for
    /// a moment.
    fn precise_sum_positive(&self, machine: &M, counter: usize) -> u64 {
        at_least_0(self.precise_sum(machine, counter))
    }

    /// Returns the range that must hold the precise sum, found without looking at every CPU (Linux:
    /// `percpu_counter_tree_approximate_min_max_range`).
    fn min_max(&self, machine: &M, counter: usize) -> Range {
        let approximate = self.approximate_sum(machine, counter);
        self.accuracy(machine, counter).range(approximate)
    }

    /// Compares this counter with `value` by [`Counters::min_max`] alone: `Equal` means that the
    /// range cannot decide.
    ///
    /// This is `counter.cmp(value)`. The sign is the opposite of that of the proposed Linux
    /// function, which compares the value with the counter.
    fn approximate_compare_value(&self, machine: &M, counter: usize, value: i64) -> Ordering {
        self.min_max(machine, counter)
            .compare(Range::exactly(value))
    }

    /// Compares this counter with `value`. Takes the precise sum only if the approximate one cannot
    /// decide.
    fn precise_compare_value(&self, machine: &M, counter: usize, value: i64) -> Ordering {
        match self.approximate_compare_value(machine, counter, value) {
            Ordering::Equal => self.precise_sum(machine, counter).cmp(&value),
            told => told,
        }
    }

    /// Compares this counter with counter `other` of `others` by their ranges alone: `Equal` means
    /// that the ranges cannot decide.
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

    /// Compares this counter with counter `other` of `others`. Takes precise sums only where the
    /// ranges cannot decide: first of the counter with the wider range, then, if need be, of both.
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
