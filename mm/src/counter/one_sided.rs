//! Plimsoll's tree of counters: its error is on one side, it follows the machine's topology, and it
//! is allocated only when needed.
//!
//! - The amount that a tree has not yet carried to its roots is never negative, so the roots' sum
//!   `R` is never too large: the precise sum is in `[R, R + T]`. The approximate sum is the middle
//!   of that range.
//! - `T` covers only CPUs that ever added. A process that ran on eight CPUs has the error of eight
//!   CPUs, however many the machine has. The precise sum reads only those CPUs' cells.
//! - Each CPU has a *cell*, neighbouring CPUs share *items*, and each socket has a *root*, so no
//!   addition crosses sockets. Cells and items *carry*: they pass multiples of a batch upwards.
//! - A group starts as one shared cache line of plain integers, whose sums are exact. Whenever a
//!   different CPU adds, the line moves to that CPU. When these moves have cost about as much as a
//!   tree, the tree is created. So a process that stays on one CPU never pays for a tree. The cost
//!   of a group is at most twice the cost of the line or twice the cost of the tree, whichever is
//!   cheaper. If no memory is available for the tree, the group keeps using the shared line.
//! - [`Counters::add`] never creates the tree and never allocates. So a caller may hold a
//!   page-table lock, and the reaper may call it when memory has run out. [`Counters::add_growing`]
//!   is for callers that may allocate.
//!
//! Locks: a tree has no lock. The CPU that creates the tree takes the lock of the area.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use super::Counters;
use super::accuracy::{Accuracy, Range};
use super::area::{Area, Place};
use super::cells::{Cells, Parts};
use super::error::InitError;
use super::items::Items;
use super::shape::Shape;
use super::tree::check;
use super::used::{self, Used};
use crate::machine::{LINE_WORDS, Line, LocalWord, Machine, Once};
use crate::site::Work;

/// The largest number of counters in a group. The two other words of the group's first cache line
/// are for book-keeping.
pub(super) const WIDTH_MAX: usize = LINE_WORDS - 2;
/// The index, in the group's first cache line, of the word that holds `T`: the largest amount that
/// CPUs can have added without passing it up to the roots of the tree.
pub(super) const BEHIND: usize = WIDTH_MAX;
/// The index of a word in the group's first cache line. The word tells which CPU added last, and
/// how often an addition came from another CPU than the addition before it.
pub(super) const HOME: usize = WIDTH_MAX + 1;
/// Counters that start on one cache line and grow into a tree.
pub struct OneSidedTree<M: Machine> {
    /// The number of counters. It is stored here so that reading it follows no pointer.
    width: usize,
    area: Arc<Area<M>>,
    pub(super) shape: Arc<Shape>,
    /// The group's first cache line. A counter's word in this line counts additions before the tree
    /// existed, and additions of tasks that may have migrated. [`BEHIND`] and [`HOME`] follow.
    pub(crate) first: M::Line,
    pub(super) grown: M::Once<Grown<M>>,
}

/// Whether an addition is allowed to create the tree into which a group of counters grows.
#[derive(Clone, Copy)]
pub(super) enum Growth {
    Allowed,
    Refused,
}

/// The tree into which a group has grown.
pub(super) struct Grown<M: Machine> {
    pub(super) cells: Place<M>,
    /// The first cache lines have a bit for each cell (leaf) and item (inner node). Each further
    /// line has the words of one item or root: a word for each counter.
    items: Items<M>,
    /// The index of the first cache line that belongs to an item (inner node). The lines before it
    /// hold one bit for each cell (leaf) and item, set if the cell or item has been used.
    above: usize,
}

impl<M: Machine> OneSidedTree<M> {
    /// The default maximum number of CPUs that share an item, which adds up what these CPUs pass
    /// upwards. On most machines these CPUs also share a last-level cache.
    pub const FAN_IN: u32 = 16;

    /// Returns the number of cache lines that a tree of `shape` needs for all counters of a group.
    /// There is a line for each item and each root. Further lines have a bit per CPU and per item.
    #[must_use]
    pub fn items_lines(shape: &Shape) -> usize {
        marks(shape) + shape.items()
    }

    /// Returns the number of bytes in [`OneSidedTree::items_lines`] lines.
    #[must_use]
    pub fn items_size(shape: &Shape) -> usize {
        Self::items_lines(shape) * size_of::<M::Line>()
    }

    /// Creates a group of counters with the value 0. The group has as many counters as `area` was
    /// created for. The group starts as one shared cache line, without a tree.
    ///
    /// # Errors
    /// If `shape` and `area` are for different numbers of CPUs, or if `area` is for more than 6
    /// counters.
    pub fn init_many(
        machine: &M,
        area: &Arc<Area<M>>,
        shape: &Arc<Shape>,
    ) -> Result<Self, InitError> {
        check(area, shape, 0, 0)?;
        Self::check_width(area)?;
        Ok(Self {
            width: area.width(),
            area: Arc::clone(area),
            shape: Arc::clone(shape),
            first: machine.line(),
            grown: machine.once(),
        })
    }

    fn check_width(area: &Area<M>) -> Result<(), InitError> {
        if area.width() > WIDTH_MAX {
            return Err(InitError::Width {
                counters: area.width(),
                max: WIDTH_MAX,
            });
        }
        Ok(())
    }

    /// Creates a group like [`OneSidedTree::init_many`], but with its tree, in memory that the
    /// caller supplies. This is for an owner that is known to run on many CPUs and whose additions
    /// must not allocate.
    ///
    /// # Errors
    /// The errors of [`OneSidedTree::init_many`]. The function also fails if `items` has too few
    /// lines, or if there is not enough memory.
    pub fn init_many_grown(
        machine: &M,
        area: &Arc<Area<M>>,
        shape: &Arc<Shape>,
        items: Items<M>,
    ) -> Result<Self, InitError> {
        check(area, shape, items.lines(), Self::items_lines(shape))?;
        Self::check_width(area)?;
        items.clear(machine);
        let grown = Grown {
            cells: area.take(machine)?,
            items,
            above: marks(shape),
        };
        Ok(Self {
            width: area.width(),
            area: Arc::clone(area),
            shape: Arc::clone(shape),
            first: machine.line(),
            grown: M::Once::of(grown),
        })
    }

    /// Destroys the counters. Returns the memory of the tree's upper levels, if the tree existed.
    pub fn destroy_many(self, machine: &M) -> Option<Items<M>> {
        let grown = self.grown.into_inner()?;
        self.area.put(machine, grown.cells);
        Some(grown.items)
    }

    /// Returns whether the tree exists.
    pub fn is_grown(&self) -> bool {
        self.grown.get().is_some()
    }

    /// Creates the tree now unless it exists, for a process that is about to run on many CPUs.
    ///
    /// # Errors
    /// [`InitError::OutOfMemory`] if there is not enough memory.
    pub fn grow(&self, machine: &M) -> Result<(), InitError> {
        if self.is_grown() {
            return Ok(());
        }
        let items = Items::new(machine, Self::items_lines(&self.shape))?;
        let grown = Grown {
            cells: self.area.take(machine)?,
            items,
            above: marks(&self.shape),
        };
        if let Err(late) = self.grown.set(grown) {
            // Another CPU has installed its tree first, so this CPU's tree is not needed.
            self.area.put(machine, late.cells);
        }
        Ok(())
    }

    /// Panics if the group has no counter with this index. In the group's first cache line, other
    /// words follow the counters. An access to a cell makes a check of its own.
    #[inline]
    pub(super) fn check_counter(&self, counter: usize) {
        assert!(counter < self.width, "no such counter");
    }

    pub(super) fn position(&self) -> u64 {
        self.grown.get().map_or(0, |grown| grown.cells.number())
    }

    pub(super) fn parts(&self, machine: &M) -> Parts<'_, M> {
        let first = (0..self.width).map(|counter| self.first.load(machine, counter, Relaxed));
        Parts {
            elsewhere: first.fold(0, i64::wrapping_add),
            cells: self.grown.get().map(|grown| Cells {
                place: &grown.cells,
                used: Some(grown.used()),
                cpus: self.shape.cpus(),
                unused_max: self.unused_max(machine),
            }),
        }
    }

    /// Returns an upper bound on the number of CPUs that have never added. It is computed from
    /// [`Self::behind`], which each CPU's first addition raises by at least what a cell can keep.
    /// The value is on the cache line that every reader needs anyway.
    fn unused_max(&self, machine: &M) -> u32 {
        let cell = u64::from(self.shape.batch().get() - 1);
        let narrower = self
            .shape
            .error_max()
            .saturating_sub(self.behind(machine).unsigned_abs());
        // The largest error includes what items (inner nodes) keep, so the quotient can exceed 32
        // bits. In that case `u32::MAX` is a valid bound, because there are fewer CPUs than that.
        u32::try_from(narrower / cell).unwrap_or(u32::MAX)
    }

    /// Returns the sum of the tree's roots, plus the additions that never entered the tree.
    #[inline]
    fn settled(&self, machine: &M, counter: usize) -> i64 {
        self.check_counter(counter);
        let first = self.first.load(machine, counter, Relaxed);
        let Some(grown) = self.grown.get() else {
            return first;
        };
        if self.shape.cpus() == 1 {
            return first.wrapping_add(grown.cells.word(0, counter).read(machine));
        }
        let roots = self.shape.root_items();
        let roots = roots.map(|root| grown.item(root).load(machine, counter, Relaxed));
        roots.fold(first, i64::wrapping_add)
    }

    /// Returns `T`: the largest amount that the tree may not have carried to its roots yet. `T`
    /// covers only the CPUs that have ever added.
    #[inline]
    fn behind(&self, machine: &M) -> i64 {
        self.first.load(machine, BEHIND, Relaxed)
    }
}

impl<M: Machine> Grown<M> {
    #[inline]
    pub(super) fn used(&self) -> Used<'_, M> {
        Used(&self.items)
    }

    #[inline]
    pub(super) fn item(&self, item: usize) -> &M::Line {
        self.items.line(self.above + item)
    }
}

/// Returns the number of cache lines that hold one bit per cell (leaf) and item (inner node).
fn marks(shape: &Shape) -> usize {
    used::lines(shape.cpus() as usize + shape.items())
}

// All accesses are relaxed: a sum orders no other memory access. Before a CPU adds to its cell, it
// sets the bit that marks the cell as used. So a reader that knows of the addition by other means,
// such as a lock, finds the bit set.
impl<M: Machine> Counters<M> for OneSidedTree<M> {
    fn width(&self) -> usize {
        self.width
    }

    #[inline]
    fn add(&self, machine: &M, counter: usize, delta: i64) {
        self.add_on_this_cpu(machine, counter, delta, Growth::Refused);
    }

    #[inline]
    fn add_growing(&self, machine: &M, counter: usize, delta: i64) {
        self.add_on_this_cpu(machine, counter, delta, Growth::Allowed);
    }

    /// Returns the middle of the range that contains the precise sum.
    #[inline]
    fn approximate_sum(&self, machine: &M, counter: usize) -> i64 {
        let middle = self.behind(machine) / 2;
        self.settled(machine, counter).wrapping_add(middle)
    }

    fn precise_sum(&self, machine: &M, counter: usize) -> i64 {
        self.check_counter(counter);
        let first = self.first.load(machine, counter, Relaxed);
        let Some(grown) = self.grown.get() else {
            return first;
        };
        let cells = grown
            .used()
            .cpus(machine, self.shape.cpus() as usize)
            .map(|cpu| {
                machine.spend(Work::ScanCpu, 1);
                grown.cells.word(cpu, counter).read(machine)
            });
        cells.fold(first, i64::wrapping_add)
    }

    fn precise_total(&self, machine: &M) -> i64 {
        self.parts(machine).total(machine)
    }

    /// Returns half of `T` as the bound in each direction. `T` is the width of the range that
    /// contains the precise sum.
    fn accuracy(&self, machine: &M, counter: usize) -> Accuracy {
        self.check_counter(counter);
        let behind = self.behind(machine).unsigned_abs();
        Accuracy {
            under: behind - behind / 2,
            over: behind / 2,
        }
    }

    fn set(&self, machine: &M, counter: usize, value: i64) {
        let more = value.wrapping_sub(self.precise_sum(machine, counter));
        self.first.add(machine, counter, more, Relaxed);
    }

    fn bytes(&self) -> usize {
        let grown = self
            .grown
            .get()
            .map_or(0, |grown| grown.items.bytes() + self.area.bytes_per_group());
        size_of::<M::Line>() + grown
    }

    fn min_max(&self, machine: &M, counter: usize) -> Range {
        let min = self.settled(machine, counter);
        Range {
            min,
            max: min.saturating_add(self.behind(machine)),
        }
    }
}

impl<M: Machine> fmt::Debug for OneSidedTree<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneSidedTree")
            .field("shape", &self.shape)
            .field("is_grown", &self.is_grown())
            .finish_non_exhaustive()
    }
}
