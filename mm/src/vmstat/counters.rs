//! Counters for which each CPU has a differential: an amount that it has counted and not yet added
//! to the shared word (Linux: `vm_stat_diff`).
//!
//! The value of a counter is its shared word plus all differentials. This sum is exact when no
//! operation is in progress. A differential beyond the threshold is folded into the shared word at
//! once; the periodic refresh folds the others. There is no lock: a fold takes a differential with
//! one atomic operation. So if a fold races with an addition or another fold, nothing is counted
//! twice and nothing is lost.
//!
//! Plimsoll computes the machine-wide value on demand, as the sum over all zones. Linux also folds
//! into a machine-wide word, which costs each fold a second shared write.

use alloc::boxed::Box;
use core::array;
use core::sync::atomic::Ordering::Relaxed;

use crate::machine::{LocalWord, Machine, Word};
use crate::units::{CpuId, at_least_0};

/// The counters that each zone has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneItem {
    /// The number of free pages, which are on the free lists or in bitmaps (Linux:
    /// `NR_FREE_PAGES`).
    FreePages,
    /// The number of anonymous pages in use (Linux: `NR_ZONE_ACTIVE_ANON` and
    /// `NR_ZONE_INACTIVE_ANON`).
    Anon,
}

/// The counters that each node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeItem {
    /// The number of mapped anonymous pages (Linux: `NR_ANON_MAPPED`).
    AnonMapped,
    /// The number of pages used for page tables (Linux: `NR_PAGETABLE`).
    PageTables,
}

impl ZoneItem {
    /// All counters of a zone, in declaration order.
    pub const ALL: [Self; ITEMS] = [Self::FreePages, Self::Anon];

    /// The name of the counter in listings. If a single counter in Linux counts the same pages,
    /// this is its name in `/proc/vmstat`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FreePages => "nr_free_pages",
            Self::Anon => "nr_zone_anon",
        }
    }
}

impl NodeItem {
    /// All counters of a node, in declaration order.
    pub const ALL: [Self; ITEMS] = [Self::AnonMapped, Self::PageTables];

    /// The name of the counter in `/proc/vmstat`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AnonMapped => "nr_anon_pages",
            Self::PageTables => "nr_page_table_pages",
        }
    }
}

/// The number of counters per zone, and also per node.
pub(crate) const ITEMS: usize = 2;

/// The counters of one zone or node.
pub(crate) struct Counters<M: Machine> {
    values: [M::Word; ITEMS],
    diffs: Box<[Diffs<M>]>,
    threshold: M::Word,
}

/// One CPU's differentials, which share no cache line with those of other CPUs.
#[repr(align(128))]
struct Diffs<M: Machine>([M::LocalWord; ITEMS]);

// All accesses are relaxed: these are statistics, and they order no other access. Whether there
// really is a free block is decided under the zone lock.
impl<M: Machine> Counters<M> {
    pub(crate) fn new(machine: &M, threshold: u32) -> Self {
        let diffs = |cpu| Diffs(array::from_fn(|_| machine.local_word(cpu, 0)));
        Self {
            values: array::from_fn(|_| machine.word(0)),
            diffs: machine.topology().ids().map(diffs).collect(),
            threshold: machine.word(i64::from(threshold)),
        }
    }

    /// Adds `delta` to this CPU's differential. If the differential is then beyond the threshold,
    /// adds it to the shared word (Linux: `mod_zone_page_state`). An overflow wraps around.
    #[inline]
    pub(crate) fn add(&self, machine: &M, item: usize, delta: i64) {
        let diff = &self.diffs[machine.this_cpu().index()].0[item];
        let now = diff.add(machine, delta);
        let threshold = self.threshold.load(machine, Relaxed);
        // This uses `unsigned_abs`, because `abs` would overflow for `i64::MIN`.
        if now.unsigned_abs() > threshold.unsigned_abs() {
            let taken = diff.take(machine);
            self.values[item].add(machine, taken, Relaxed);
        }
    }

    /// Adds `delta`, like [`Counters::add`]. If `delta` alone is beyond the threshold, adds it to the
    /// shared word at once, and leaves this CPU's differential as it is.
    #[inline]
    pub(crate) fn add_run(&self, machine: &M, item: usize, delta: i64) {
        let threshold = self.threshold.load(machine, Relaxed);
        if delta.unsigned_abs() > threshold.unsigned_abs() {
            self.values[item].add(machine, delta, Relaxed);
        } else {
            self.add(machine, item, delta);
        }
    }

    /// Adds `delta` for `blocks` blocks of about equal size on this CPU. Linux adds one block after
    /// another, and folds the differential each time it passes the threshold. This call leaves the
    /// same differential as Linux, but adds to the shared word at most once.
    #[inline]
    pub(crate) fn add_blocks(&self, machine: &M, item: usize, delta: i64, blocks: u32) {
        let diff = &self.diffs[machine.this_cpu().index()].0[item];
        let after = diff.add(machine, delta);
        let threshold = self.threshold.load(machine, Relaxed);
        let folded = folded(after - delta, delta, i64::from(blocks), threshold);
        if folded != 0 {
            diff.add(machine, -folded);
            self.values[item].add(machine, folded, Relaxed);
        }
    }

    /// Adds one to `item`, or subtracts one from it, on this CPU. When the differential passes the
    /// threshold, this CPU folds the differential and an extra half threshold into the shared word.
    /// The differential then restarts at half a threshold on the other side of zero. So a run of
    /// steps in one direction folds less often (Linux: `inc_zone_page_state`).
    #[inline]
    pub(crate) fn step(&self, machine: &M, item: usize, delta: Direction) {
        let sign = delta as i64;
        let diff = &self.diffs[machine.this_cpu().index()].0[item];
        let now = diff.add(machine, sign);
        let threshold = self.threshold.load(machine, Relaxed);
        if now.saturating_mul(sign) > threshold {
            let pushed = now.wrapping_add(sign * (threshold / 2));
            diff.add(machine, pushed.wrapping_neg());
            self.values[item].add(machine, pushed, Relaxed);
        }
    }

    /// Adds `cpu`'s differentials to the shared words, and sets them to zero. Returns whether any
    /// of them was not zero.
    pub(crate) fn fold(&self, machine: &M, cpu: CpuId) -> bool {
        let mut changed = false;
        for (diff, value) in self.diffs[cpu.index()].0.iter().zip(&self.values) {
            let taken = diff.take(machine);
            if taken != 0 {
                value.add(machine, taken, Relaxed);
                changed = true;
            }
        }
        changed
    }

    /// Returns whether any of `cpu`'s differentials is not zero.
    pub(crate) fn is_dirty(&self, machine: &M, cpu: CpuId) -> bool {
        self.diffs[cpu.index()]
            .0
            .iter()
            .any(|diff| diff.read(machine) != 0)
    }

    /// The shared word alone, or 0 if that is negative. This is cheap, but leaves out all
    /// differentials (Linux: `zone_page_state`).
    #[inline]
    pub(crate) fn approximate(&self, machine: &M, item: usize) -> u64 {
        at_least_0(self.values[item].load(machine, Relaxed))
    }

    /// The shared word plus all differentials, or 0 if that is negative. Exact when no operation is
    /// in progress (Linux: `zone_page_state_snapshot`).
    pub(crate) fn snapshot(&self, machine: &M, item: usize) -> u64 {
        let pending: i64 = self
            .diffs
            .iter()
            .map(|diffs| diffs.0[item].read(machine))
            .fold(0, i64::wrapping_add);
        let value = self.values[item].load(machine, Relaxed);
        at_least_0(value.wrapping_add(pending))
    }

    pub(crate) fn set_threshold(&self, machine: &M, threshold: u32) {
        self.threshold.store(machine, i64::from(threshold), Relaxed);
    }
}

/// The direction of a change by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// One is added.
    Up = 1,
    /// One is subtracted.
    Down = -1,
}

/// Returns the total amount that goes into the shared word when `delta` is added in `blocks` steps
/// to a differential that starts at `before`.
fn folded(before: i64, delta: i64, blocks: i64, threshold: i64) -> i64 {
    let size = delta / blocks.max(1);
    let (mut differential, mut folded) = (before, 0);
    for nth in 1..=blocks {
        // The last step adds the remainder of the division.
        differential += if nth == blocks {
            delta - size * (blocks - 1)
        } else {
            size
        };
        if differential.abs() > threshold {
            folded += differential;
            differential = 0;
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::folded;

    /// Checks how much `folded` moves to the shared counter if blocks are added one by one.
    #[test]
    fn each_block_is_counted_by_itself() {
        // If 63 pages were added at once, all of them would be folded (added to the shared
        // counter). Added one by one, they are folded 31 at a time, and one page remains in the
        // differential.
        assert_eq!(folded(0, -63, 63, 30), -62);
        assert_eq!(folded(-20, -63, 63, 30), -62);
        assert_eq!(folded(0, 63, 63, 125), 0);
        // In blocks of 8 pages: after every fourth block, the differential is 32, which is above
        // the threshold of 30.
        assert_eq!(folded(0, 64, 8, 30), 64);
        assert_eq!(folded(0, 56, 7, 30), 32);
        // A single block of 512 pages is folded as a whole, together with the differential of 5.
        // With a threshold of zero, every block is folded.
        assert_eq!(folded(5, 512, 1, 30), 517);
        assert_eq!(folded(0, -7, 7, 0), -7);
        assert_eq!(folded(3, 0, 0, 30), 0);
    }
}
