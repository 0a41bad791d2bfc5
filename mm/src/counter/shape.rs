//! The shape of a tree of counters: which CPUs share an item, and when an item carries.
//!
//! Level 0 has one cell per CPU. When a cell's value passes a multiple of the batch, the cell
//! carries (passes on) that multiple to an item. In the same way, an item carries to an item of the
//! next level, and an item of the last level carries to a root.
//!
//! Carries are rounded down, so the amount that a cell or item has not carried yet is never
//! negative. A cell keeps at most `batch − 1`. An item receives multiples of the batch of the level
//! below, so the item keeps at most its own batch minus the batch of the level below. The sum of
//! these maxima over all cells and items is `T`, [`Shape::error_max`], and the error can reach `T`.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::accuracy::Accuracy;
use super::error::ShapeError;
use crate::topology::{CpuPlace, Topology};
use crate::units::{CpuId, count_of};

/// In a tree of counters, each CPU's cell passes multiples of this amount on to the next level. The
/// amount is a power of two, and at least 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch(u32);

impl Batch {
    /// The batch that the proposed change to Linux uses for resident pages: 32.
    pub const RSS: Self = Self(32);

    /// Creates a batch of `size`.
    ///
    /// # Errors
    /// [`ShapeError::Batch`] if `size` is less than 2, or is not a power of two.
    pub const fn new(size: u32) -> Result<Self, ShapeError> {
        if size >= 2 && size.is_power_of_two() {
            Ok(Self(size))
        } else {
            Err(ShapeError::Batch(size))
        }
    }

    /// Returns the size of the batch, in units of the counter.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The maximum number of CPUs for which the tree proposed for Linux has a shape.
pub(super) const PUBLISHED_CPUS_MAX: u32 = 1 << 20;

/// The levels of the tree proposed for Linux, from the lowest to the root. The entry at index `i`
/// is for up to `2^i` CPUs. Each number is log₂ of how many cells or items of the level below share
/// one item.
#[rustfmt::skip]
const ARITIES: [&[u32]; 21] = [
    &[], &[1], &[1, 1], &[1, 1, 1], &[2, 1, 1], &[2, 2, 1], &[2, 2, 2], &[3, 2, 2], &[3, 3, 2],
    &[3, 3, 3], &[3, 3, 2, 2], &[3, 3, 3, 2], &[3, 3, 3, 3], &[3, 3, 3, 2, 2], &[3, 3, 3, 3, 2],
    &[3, 3, 3, 3, 3], &[4, 3, 3, 3, 3], &[4, 4, 3, 3, 3], &[4, 4, 4, 3, 3], &[4, 4, 4, 4, 3],
    &[4, 4, 4, 4, 4],
];

/// The shape of a tree of counters: the items of each level, and the CPUs that share each item. An
/// item adds up what CPUs pass upwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    batch: Batch,
    cpus: u32,
    levels: Box<[Level]>,
    /// For each CPU, the indices of the items (inner nodes of the tree) above the CPU's own cell,
    /// from the lowest level up. The last index is that of the root.
    paths: Box<[u32]>,
    /// The number of items (inner nodes of the tree) on all levels, including the roots. The roots
    /// have the highest indices.
    items: u32,
    roots: u32,
}

/// One level of a tree: the items that add up what the cells or items of the level below pass
/// upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    /// The batch of the level below. Every amount that an item of this level receives from there is
    /// a multiple of this number.
    pub(super) step: i64,
    /// Each item (inner node) of this level passes multiples of this amount to the next level or
    /// the root.
    pub(super) batch: i64,
    /// The number of items of this level.
    pub(super) items: u32,
}

impl Level {
    /// Returns the largest amount that an item of this level keeps before it passes an amount to
    /// the level above.
    pub(super) const fn kept_max(&self) -> u64 {
        self.batch.abs_diff(self.step)
    }
}

impl Shape {
    /// Creates the shape of the tree proposed for Linux, for `cpus` CPUs. On every level a CPU uses
    /// item `cpu mod items`, and there is one root.
    ///
    /// # Errors
    /// [`ShapeError::NoCpus`], or [`ShapeError::TooManyCpus`] above 2²⁰.
    pub fn published(cpus: u32, batch: Batch) -> Result<Self, ShapeError> {
        if cpus == 0 {
            return Err(ShapeError::NoCpus);
        }
        if cpus > PUBLISHED_CPUS_MAX {
            return Err(ShapeError::TooManyCpus {
                cpus,
                max: PUBLISHED_CPUS_MAX,
            });
        }
        let order = cpus.next_power_of_two().ilog2();
        let arities = ARITIES[order as usize];
        let mut levels = Vec::new();
        let (mut width, mut step) = (order, i64::from(batch.get()));
        // The last entry of `arities` belongs to the root, which does not count as a level.
        for arity in &arities[..arities.len().saturating_sub(1)] {
            width -= arity;
            let batch = step << arity;
            levels.push(Level {
                step,
                batch,
                items: 1 << width,
            });
            step = batch;
        }
        let mut paths = Vec::new();
        let below: u32 = levels.iter().map(|level| level.items).sum();
        for cpu in 0..cpus {
            let mut first = 0;
            for level in &levels {
                paths.push(first + (cpu & (level.items - 1)));
                first += level.items;
            }
            paths.push(first);
        }
        Ok(Self {
            batch,
            cpus,
            levels: levels.into(),
            paths: paths.into(),
            items: below + 1,
            roots: 1,
        })
    }

    /// Creates a tree that follows `topology`. At most `fan_in` neighbouring CPUs, all with the
    /// same last-level cache, share an item, which adds up what these CPUs pass on. At most
    /// `fan_in` of these items, all in the same socket, share an item of the next level. This
    /// continues up to one root per socket, so no addition crosses sockets.
    ///
    /// # Errors
    /// [`ShapeError::FanIn`] if `fan_in` is less than 2.
    pub fn of_topology(topology: &Topology, batch: Batch, fan_in: u32) -> Result<Self, ShapeError> {
        if fan_in < 2 {
            return Err(ShapeError::FanIn(fan_in));
        }
        let mut cpus: Vec<(CpuPlace, CpuId)> = topology
            .ids()
            .map(|cpu| (topology.place(cpu), cpu))
            .collect();
        cpus.sort_by_key(|(place, cpu)| (place.socket, place.node, place.llc, place.core, *cpu));
        let socket = |nth: usize| cpus[nth].0.socket;
        let llc = |nth: usize| cpus[nth].0.llc;
        // `starts` holds the positions, in the sorted list of CPUs, at which the groups of CPUs of
        // the current level begin.
        let mut levels: Vec<Level> = Vec::new();
        let mut of_level: Vec<Vec<u32>> = Vec::new();
        let mut starts: Vec<usize> = (0..cpus.len()).collect();
        let mut step = i64::from(batch.get());
        let mut within_caches = true;
        // The loop ends: from the second round on, a group may have CPUs of several caches. Each of
        // these rounds reduces the `n` groups of a socket to `n / 2`, rounded up, or fewer.
        while most_per(&starts, socket) > fan_in {
            let same =
                |a: usize, b: usize| socket(a) == socket(b) && (!within_caches || llc(a) == llc(b));
            let (next, fullest) = grouped(&starts, same, fan_in);
            within_caches = false;
            if fullest == 1 {
                continue; // Every cache has one CPU, so this level would join nothing.
            }
            let batch = step << fullest.next_power_of_two().ilog2();
            levels.push(Level {
                step,
                batch,
                items: count_of(next.len()),
            });
            of_level.push(owners(&next, cpus.len()));
            step = batch;
            starts = next;
        }
        let sockets = owners(&grouped_by(cpus.len(), socket), cpus.len());
        let roots = sockets.last().map_or(0, |last| last + 1);
        let width = levels.len() + 1;
        let below: u32 = levels.iter().map(|level| level.items).sum();
        let mut paths = vec![0; cpus.len() * width];
        for (nth, (_, cpu)) in cpus.iter().enumerate() {
            let path = &mut paths[cpu.index() * width..][..width];
            let mut first = 0;
            for (at, (owner, level)) in of_level.iter().zip(&levels).enumerate() {
                path[at] = first + owner[nth];
                first += level.items;
            }
            path[levels.len()] = first + sockets[nth];
        }
        Ok(Self {
            batch,
            cpus: topology.cpus(),
            levels: levels.into(),
            paths: paths.into(),
            items: below + roots,
            roots,
        })
    }

    /// Returns the batch. Each CPU's cell passes multiples of this amount on to the next level.
    #[must_use]
    pub fn batch(&self) -> Batch {
        self.batch
    }

    /// Returns the number of CPUs that the shape is for.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Returns the number of roots. An approximate sum reads one cache line per root.
    #[must_use]
    pub fn roots(&self) -> u32 {
        self.roots
    }

    /// Returns the number of items of all levels, roots included (Linux:
    /// `percpu_counter_tree_items_size` has a cache line for each item and counter).
    #[must_use]
    pub fn items(&self) -> usize {
        self.items as usize
    }

    /// Returns `T`: the maximum by which the roots' sum is too small when all CPUs have added and
    /// no addition is in progress. The roots' sum is never too large.
    #[must_use]
    pub fn error_max(&self) -> u64 {
        if self.cpus == 1 {
            return 0; // With one CPU, the cell is the sum.
        }
        let cells = u64::from(self.cpus) * u64::from(self.batch.get() - 1);
        let kept = self
            .levels
            .iter()
            .map(|level| u64::from(level.items) * level.kept_max());
        cells + kept.sum::<u64>()
    }

    /// While an addition of `delta` is in progress, the error of an approximate sum can exceed the
    /// sum's accuracy. Returns the largest possible excess: `delta` itself, plus what the addition
    /// collects from cells and items on its way up.
    #[must_use]
    pub fn in_flight(&self, delta: i64) -> u64 {
        let top = self.levels.last().map_or_else(
            || u64::from(self.batch.get()),
            |level| level.batch.unsigned_abs(),
        );
        delta.unsigned_abs().saturating_add(top - 1)
    }

    /// Returns the accuracy that the authors of the proposed tree document: a sum is at most
    /// `levels × 2^order × batch` too small, and at most `levels × 2^order × (batch − 1)` too
    /// large. Here `2^order` is the number of CPUs, rounded up to a power of two.
    pub(super) fn published_accuracy(&self) -> Accuracy {
        let levels = if self.cpus == 1 {
            0
        } else {
            self.levels.len() as u64 + 1
        };
        let multiplier = levels * u64::from(self.cpus.next_power_of_two());
        let batch = u64::from(self.batch.get());
        Accuracy {
            under: batch * multiplier,
            over: (batch - 1) * multiplier,
        }
    }

    pub(super) fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Returns the indices of the items above the cell of `cpu`, level by level, and then the index
    /// of its root.
    #[inline]
    pub(super) fn path(&self, cpu: usize) -> &[u32] {
        let width = self.levels.len() + 1;
        &self.paths[cpu * width..][..width]
    }

    /// Returns the indices of the roots among the items.
    pub(super) fn root_items(&self) -> core::ops::Range<usize> {
        self.items() - self.roots as usize..self.items()
    }
}

/// Returns the largest number of `starts` for which `key` returns the same value. Such starts must
/// be adjacent.
fn most_per<K: PartialEq>(starts: &[usize], key: impl Fn(usize) -> K) -> u32 {
    let runs = starts.chunk_by(|&a, &b| key(a) == key(b));
    let most = runs.map(<[usize]>::len).max().unwrap_or(0);
    count_of(most)
}

/// Joins neighbouring `starts` into groups of at most `fan_in` if `same` returns true for them. The
/// sizes of the groups are as equal as possible. Returns where each group starts, and the size of
/// the largest group.
fn grouped(
    starts: &[usize],
    same: impl Fn(usize, usize) -> bool,
    fan_in: u32,
) -> (Vec<usize>, usize) {
    let mut groups = Vec::new();
    let mut fullest = 1;
    for run in starts.chunk_by(|&a, &b| same(a, b)) {
        let count = run.len().div_ceil(fan_in as usize);
        let size = run.len().div_ceil(count);
        fullest = fullest.max(size);
        groups.extend((0..count).map(|nth| run[nth * run.len() / count]));
    }
    (groups, fullest)
}

/// Returns the positions in `0..count` at which a run of equal values of `key` starts.
fn grouped_by<K: PartialEq>(count: usize, key: impl Fn(usize) -> K) -> Vec<usize> {
    (0..count)
        .filter(|&nth| nth == 0 || key(nth - 1) != key(nth))
        .collect()
}

/// Returns, for each position in `0..count`, the index of the group that contains it. `starts`
/// holds the first position of each group.
fn owners(starts: &[usize], count: usize) -> Vec<u32> {
    let mut owners = Vec::with_capacity(count);
    let mut group = 0;
    for nth in 0..count {
        if starts.get(group as usize + 1) == Some(&nth) {
            group += 1;
        }
        owners.push(group);
    }
    owners
}

#[cfg(test)]
#[path = "shape_tests.rs"]
mod tests;
