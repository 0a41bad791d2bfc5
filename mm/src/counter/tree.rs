//! The tree of counters that was proposed for Linux (`percpu_counter_tree`), as published.
//!
//! Each CPU's cell holds the sum of all that the CPU has added. When this value passes a multiple
//! of the batch, the CPU carries a multiple of the batch to an item, and so on up to a single root.
//! CPUs whose numbers have equal low bits share an item. On most machines these CPUs are far apart.
//!
//! The published version has two faults, which this file keeps for comparison. The documented
//! accuracy is about twice as wide as necessary, and the comparisons swap the two sides of the
//! accuracy. [`OneSidedTree`](super::OneSidedTree) has neither fault.
//!
//! The tree takes no lock.

use alloc::sync::Arc;
use core::cmp::Ordering;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use super::Counters;
use super::accuracy::Accuracy;
use super::area::{Area, Place};
use super::carry::carry;
use super::cells::{Cells, Parts};
use super::error::InitError;
use super::items::Items;
use super::shape::Shape;
use crate::machine::{LINE_WORDS, Line, LocalWord, Machine};
use crate::site::Work;
use crate::units::count_of;

/// Counters that are trees. Each tree has one cell per CPU, a root, and levels of items (inner
/// nodes) in between.
pub struct Tree<M: Machine> {
    /// The number of counters. It is stored here so that reading it follows no pointer.
    width: usize,
    shape: Arc<Shape>,
    area: Arc<Area<M>>,
    cells: Place<M>,
    /// The items (the upper levels of the trees) of all counters, one counter after the other. Each
    /// item has a cache line to itself.
    items: Items<M>,
    /// For each counter, the amount that [`Counters::set`] has added to the counter's sum.
    bias: M::Line,
}

impl<M: Machine> Tree<M> {
    /// Returns the number of cache lines that the items (the upper levels of the trees) of a group
    /// of `counters` counters need, if their trees have the shape `shape`.
    #[must_use]
    pub fn items_lines(shape: &Shape, counters: usize) -> usize {
        shape.items() * counters
    }

    /// Returns the number of bytes in [`Tree::items_lines`] lines (Linux:
    /// `percpu_counter_tree_items_size`).
    #[must_use]
    pub fn items_size(shape: &Shape, counters: usize) -> usize {
        Self::items_lines(shape, counters) * size_of::<M::Line>()
    }

    /// Creates a group of counters with the value 0. The group has as many counters as `area` was
    /// created for. The upper levels of the counters' trees use the memory `items` (Linux:
    /// `percpu_counter_tree_init_many`).
    ///
    /// # Errors
    /// [`InitError`] if `shape`, `area` and `items` do not fit together, or if there is not enough
    /// memory. In these cases nothing has been written.
    pub fn init_many(
        machine: &M,
        area: &Arc<Area<M>>,
        shape: &Arc<Shape>,
        items: Items<M>,
    ) -> Result<Self, InitError> {
        let needed = Self::items_lines(shape, area.width());
        if area.width() > LINE_WORDS {
            return Err(InitError::Width {
                counters: area.width(),
                max: LINE_WORDS,
            });
        }
        check(area, shape, items.lines(), needed)?;
        let cells = area.take(machine)?;
        items.clear(machine);
        Ok(Self {
            shape: Arc::clone(shape),
            width: area.width(),
            area: Arc::clone(area),
            cells,
            items,
            bias: machine.line(),
        })
    }

    /// Destroys the counters and returns the memory of their upper levels (Linux:
    /// `percpu_counter_tree_destroy_many`).
    pub fn destroy_many(self, machine: &M) -> Items<M> {
        self.area.put(machine, self.cells);
        self.items
    }

    #[inline]
    fn item(&self, counter: usize, item: usize) -> &M::Line {
        self.items.line(counter * self.shape.items() + item)
    }

    /// Panics if the group has no counter with this index. An access to a cell (a CPU's part of the
    /// counter) checks the index itself. An access to an item (an inner node) might not notice a
    /// wrong index, because the caller of `init_many` may have supplied more items than the
    /// counters need.
    fn check_counter(&self, counter: usize) {
        assert!(counter < self.width, "no such counter");
    }

    /// Adds `carried` to the item (the count of one tree node) above the cell of `cpu`. The cell is
    /// this CPU's part of the counter, and has just passed this amount on. When an item's value
    /// passes a multiple of the item's own batch, adds that multiple to the item one level up, and
    /// so on up to the root.
    #[cold]
    #[inline(never)]
    fn carry_up(&self, machine: &M, cpu: usize, counter: usize, mut carried: i64) {
        let path = self.shape.path(cpu);
        for (level, &item) in self.shape.levels().iter().zip(path) {
            // An item (an inner node) passes on multiples of its batch. An amount that it would
            // pass on as a whole skips the item, which saves a write to the item's cache line.
            if carried & (level.batch - 1) == 0 {
                continue;
            }
            let new = self
                .item(counter, item as usize)
                .add(machine, 0, carried, Relaxed);
            carried = carry(new.wrapping_sub(carried), new, level.batch);
            if carried == 0 {
                return;
            }
        }
        let root = path[path.len() - 1] as usize;
        self.item(counter, root).add(machine, 0, carried, Relaxed);
    }

    pub(super) fn position(&self) -> u64 {
        self.cells.number()
    }

    pub(super) fn parts(&self, machine: &M) -> Parts<'_, M> {
        let bias = (0..self.width).map(|counter| self.bias.load(machine, counter, Relaxed));
        Parts {
            elsewhere: bias.fold(0, i64::wrapping_add),
            cells: Some(Cells {
                place: &self.cells,
                used: None,
                cpus: self.shape.cpus(),
                unused_max: 0,
            }),
        }
    }

    fn unbiased_sum(&self, machine: &M, counter: usize) -> i64 {
        machine.spend(Work::ScanCpu, self.shape.cpus());
        let cells = self.cells.words(self.shape.cpus(), counter);
        cells.fold(0, |sum, cell| sum.wrapping_add(cell.read(machine)))
    }
}

/// Checks that a shape and an area are for the same number of CPUs, and that enough cache lines are
/// given for the upper levels of the tree.
pub(super) fn check<M: Machine>(
    area: &Area<M>,
    shape: &Shape,
    given: usize,
    needed: usize,
) -> Result<(), InitError> {
    if shape.cpus() != area.cpus() {
        return Err(InitError::Cpus {
            shape: shape.cpus(),
            machine: area.cpus(),
        });
    }
    if given < needed {
        return Err(InitError::Items { needed, given });
    }
    Ok(())
}

// All accesses are relaxed: a sum orders no other memory access, and no CPU depends on how far up
// the tree an amount has been passed.
impl<M: Machine> Counters<M> for Tree<M> {
    fn width(&self) -> usize {
        self.width
    }

    #[inline]
    fn add(&self, machine: &M, counter: usize, delta: i64) {
        machine.spend(Work::Count, 1);
        let cpu = machine.this_cpu().index();
        let new = self.cells.word(cpu, counter).add(machine, delta);
        let batch = i64::from(self.shape.batch().get());
        let carried = carry(new.wrapping_sub(delta), new, batch);
        if carried != 0 && self.shape.cpus() > 1 {
            self.carry_up(machine, cpu, counter, carried);
        }
    }

    fn approximate_sum(&self, machine: &M, counter: usize) -> i64 {
        self.check_counter(counter);
        let sum = if self.shape.cpus() == 1 {
            self.cells.word(0, counter).read(machine)
        } else {
            let root = self.shape.items() - 1;
            self.item(counter, root).load(machine, 0, Relaxed)
        };
        sum.wrapping_add(self.bias.load(machine, counter, Relaxed))
    }

    fn precise_sum(&self, machine: &M, counter: usize) -> i64 {
        let bias = self.bias.load(machine, counter, Relaxed);
        self.unbiased_sum(machine, counter).wrapping_add(bias)
    }

    /// Passes through all CPUs once, and reads all counters of each CPU together. The proposed code
    /// for Linux passes through all CPUs once for each counter. So this method also reports the
    /// work of these further passes to the machine.
    fn precise_total(&self, machine: &M) -> i64 {
        let further = self.shape.cpus() * count_of(self.width() - 1);
        machine.spend(Work::NextCpu, further);
        self.parts(machine).total(machine)
    }

    /// Returns the accuracy that the authors of the published tree document.
    fn accuracy(&self, _machine: &M, counter: usize) -> Accuracy {
        self.check_counter(counter);
        self.shape.published_accuracy()
    }

    fn set(&self, machine: &M, counter: usize, value: i64) {
        let bias = value.wrapping_sub(self.unbiased_sum(machine, counter));
        self.bias.store(machine, counter, bias, Relaxed);
    }

    fn bytes(&self) -> usize {
        self.items.bytes() + self.area.bytes_per_group() + size_of::<M::Line>()
    }

    /// Compares as the published code does, which exchanges the two bounds of the error, `under`
    /// and `over`. So with small batches on many CPUs, the result for a counter and its own precise
    /// value may be `Greater` or `Less`.
    fn approximate_compare_value(&self, machine: &M, counter: usize, value: i64) -> Ordering {
        let Accuracy { under, over } = self.accuracy(machine, counter);
        let ahead = value.wrapping_sub(self.approximate_sum(machine, counter));
        if ahead < 0 && ahead.unsigned_abs() > under {
            Ordering::Greater
        } else if ahead > 0 && ahead.unsigned_abs() > over {
            Ordering::Less
        } else {
            Ordering::Equal
        }
    }
}

impl<M: Machine> fmt::Debug for Tree<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree")
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}
