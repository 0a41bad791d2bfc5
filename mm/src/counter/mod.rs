//! Counting on many CPUs without sharing a cache line.
//!
//! Counters come in groups: those of one owner, such as a process's resident pages by kind, are
//! made, laid out and given back together. Each can be read in two ways. The *approximate* sum is
//! cheap and wrong by at most what [`Counters::accuracy`] says; the *precise* sum looks at every
//! CPU's part. The comparisons use the first and take the second only where the first cannot tell.
//!
//! | variant | an addition touches | the approximate sum is wrong by |
//! |---|---|---|
//! | [`Shared`] | one line that all CPUs share | nothing |
//! | [`Flat`], Linux's `percpu_counter` | this CPU's part; each `2 × CPUs` a lock | `(batch − 1) × CPUs` either way |
//! | [`Tree`], the proposed `percpu_counter_tree` | this CPU's part; each `batch` an item, and so on up | about `levels × batch × CPUs` either way |
//! | [`OneSidedTree`], ours | the same, along the machine's topology | at most `T`, on one side, and only for CPUs that ever added |
//!
//! What a reader may rely on while additions are under way: an addition takes effect on the precise
//! sum in one step, and on the approximate one somewhat later. Accuracy is promised for additions
//! that have returned; each one still under way may add [`Shape::in_flight`] to the error.
//! Both sums are made of several reads, so additions that start meanwhile may be in or not.
//!
//! Counters need no CPU hotplug: a CPU that goes offline leaves its part where it is, and it counts.
//!
//! Locks: [`Flat`] has one per counter; [`Area`] has one, taken when a group is made and given
//! back. The others take none.

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

pub use self::accuracy::{Accuracy, Range};
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

/// A group of counters: signed 64-bit sums that wrap, numbered from 0.
///
/// Every method panics when there is no such counter.
pub trait Counters<M: Machine> {
    /// How many counters there are.
    fn width(&self) -> usize;

    /// Adds `delta` to a counter, on this CPU. A stale CPU number costs speed, nothing else. Never
    /// allocates: may be called with locks held, and when memory is out.
    fn add(&self, machine: &M, counter: usize, delta: i64);

    /// The same where memory may be taken, so with no spinlock held: makes what additions by many CPUs
    /// need, if it is due and there is memory for it. An owner that only ever calls
    /// [`Counters::add`] has right sums too, but its CPUs go on sharing a line.
    #[inline]
    fn add_growing(&self, machine: &M, counter: usize, delta: i64) {
        self.add(machine, counter, delta);
    }

    /// The sum, within [`Counters::accuracy`] of the truth, without looking at every CPU.
    fn approximate_sum(&self, machine: &M, counter: usize) -> i64;

    /// The sum of every addition that has returned. Looks at every CPU that ever added.
    fn precise_sum(&self, machine: &M, counter: usize) -> i64;

    /// The precise sums of all counters together, which costs no more looks at other CPUs than one:
    /// a group's counters are neighbours. For many groups see [`precise_totals`].
    fn precise_total(&self, machine: &M) -> i64;

    /// How far an approximate sum taken now may be from the precise one when no addition is under
    /// way.
    fn accuracy(&self, machine: &M, counter: usize) -> Accuracy;

    /// Makes the precise sum `value`. Additions that are under way may be lost or kept.
    fn set(&self, machine: &M, counter: usize, value: i64);

    /// Bytes of memory the group occupies now, its part of what groups share included.
    fn bytes(&self) -> usize;

    /// [`Counters::approximate_sum`], or 0 if that is less: for what cannot be negative.
    fn approximate_sum_positive(&self, machine: &M, counter: usize) -> u64 {
        u64::try_from(self.approximate_sum(machine, counter)).unwrap_or(0)
    }

    /// [`Counters::precise_sum`], or 0 if that is less: additions under way on different CPUs may
    /// be seen in part, so even a sum that is never negative may read so for a moment.
    fn precise_sum_positive(&self, machine: &M, counter: usize) -> u64 {
        u64::try_from(self.precise_sum(machine, counter)).unwrap_or(0)
    }

    /// Where the precise sum is, as far as a cheap look can tell (Linux:
    /// `percpu_counter_tree_approximate_min_max_range`).
    fn min_max(&self, machine: &M, counter: usize) -> Range {
        let approximate = self.approximate_sum(machine, counter);
        self.accuracy(machine, counter).range(approximate)
    }

    /// How this counter compares with `value`, as far as a cheap look can tell: `Equal` means that
    /// it cannot.
    ///
    /// This is `counter.cmp(value)`. The sign is the opposite of the proposed Linux function, which
    /// says how the value compares with the counter.
    fn approximate_compare_value(&self, machine: &M, counter: usize, value: i64) -> Ordering {
        self.min_max(machine, counter)
            .compare(Range::exactly(value))
    }

    /// How this counter compares with `value`. Takes the precise sum only if a cheap look cannot
    /// tell.
    fn precise_compare_value(&self, machine: &M, counter: usize, value: i64) -> Ordering {
        match self.approximate_compare_value(machine, counter, value) {
            Ordering::Equal => self.precise_sum(machine, counter).cmp(&value),
            told => told,
        }
    }

    /// How this counter compares with one of `others`, as far as a cheap look can tell: `Equal`
    /// means that it cannot.
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

    /// How this counter compares with one of `others`. Takes precise sums only where a cheap look
    /// cannot tell: first of the one that is less certain, then, if need be, of both.
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
