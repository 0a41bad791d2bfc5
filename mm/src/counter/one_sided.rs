//! Our tree of counters: its error has one side, it follows the machine, and it grows when needed.
//!
//! - What a tree has not carried yet is never negative, so the roots' sum `R` is never ahead: the
//!   precise sum is in `[R, R + T]`. The approximate sum is the middle of that range.
//! - `T` counts only CPUs that ever added. So an owner that ran on eight CPUs has the error of
//!   eight CPUs, however many the machine has. The precise sum looks at those CPUs only.
//! - Neighbours share an item, and each socket has a root: no addition crosses sockets.
//! - The counters of one owner share each item's line.
//! - A group begins as one line of plain integers, exact and shared. Each time another CPU than the
//!   last one adds, the line moves. When it has moved as often as making a tree costs, the tree is
//!   made. So an owner that stays on one CPU never pays for a tree, and no owner pays more than
//!   twice what it would have paid knowing its future. If there is no memory for the tree, the
//!   group stays a line.
//! - [`Counters::add`] never makes the tree and never allocates, so a caller may hold a page-table
//!   lock, and the reaper may call it when memory is out. [`Counters::add_growing`] is for callers
//!   that may allocate.
//!
//! Locks: none of its own; making the tree takes the lock of the area.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use super::Counters;
use super::accuracy::{Accuracy, Range};
use super::area::{Area, Place};
use super::carry::carry;
use super::cells::{Cells, Parts};
use super::error::InitError;
use super::items::Items;
use super::shape::Shape;
use super::tree::check;
use super::used::{self, Used};
use crate::machine::{LINE_WORDS, Line, LocalWord, Machine, Once};
use crate::site::Work;
use crate::units::CpuId;

/// The largest number of counters of a group: their line has two more words.
pub(super) const WIDTH_MAX: usize = LINE_WORDS - 2;
/// The word of the first line that holds `T`: how much the tree may be behind.
const BEHIND: usize = WIDTH_MAX;
/// The word of the first line that holds the CPU that added last, and how often that CPU changed.
const HOME: usize = WIDTH_MAX + 1;
/// The low bits of [`HOME`], which hold the CPU's number plus one; the number of changes is above.
const CPU_BITS: u32 = 32;
/// The number of CPUs whose words are cleared in about the time of moving one line: a few
/// nanoseconds each, streamed, against one to two hundred.
const CPUS_PER_MOVE: i64 = 16;

/// Counters that begin as one line and become a tree.
pub struct OneSidedTree<M: Machine> {
    /// The number of counters. It is kept here so that reading it follows no pointer.
    width: usize,
    area: Arc<Area<M>>,
    shape: Arc<Shape>,
    /// The sums of all additions made before there was a tree, and two words of book-keeping.
    first: M::Line,
    grown: M::Once<Grown<M>>,
}

/// The rule that allows an addition to make the tree, or not.
#[derive(Clone, Copy)]
enum Growth {
    Allowed,
    Refused,
}

/// The tree that a group becomes.
struct Grown<M: Machine> {
    cells: Place<M>,
    /// First the marks of the cells and items that were ever used; then a line per item and root,
    /// with a word per counter.
    items: Items<M>,
    /// The index of the first line of an item.
    above: usize,
}

impl<M: Machine> OneSidedTree<M> {
    /// The most CPUs that share an item by default: on most machines, those of one last-level
    /// cache.
    pub const FAN_IN: u32 = 16;

    /// Returns the number of lines that `shape` needs once there is a tree, for all counters of a
    /// group: one for each item and root, and those for a bit per CPU and item.
    #[must_use]
    pub fn items_lines(shape: &Shape) -> usize {
        marks(shape) + shape.items()
    }

    /// Returns the bytes of [`OneSidedTree::items_lines`] lines.
    #[must_use]
    pub fn items_size(shape: &Shape) -> usize {
        Self::items_lines(shape) * size_of::<M::Line>()
    }

    /// Makes as many counters at 0 as `area` has room for in each place. There is no tree yet.
    ///
    /// # Errors
    /// If `shape` and `area` do not belong together, or if they are for more than 6 counters.
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

    /// Makes a group like [`OneSidedTree::init_many`], but with its tree, in memory that the caller
    /// supplies. This is for an owner that is known to run on many CPUs and whose additions must
    /// not allocate.
    ///
    /// # Errors
    /// Those of [`OneSidedTree::init_many`]; if `items` has too few lines, before anything is
    /// written; and if there is no memory.
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

    /// Ends the counters and returns the memory of their items, if there was a tree.
    pub fn destroy_many(self, machine: &M) -> Option<Items<M>> {
        let grown = self.grown.into_inner()?;
        self.area.put(machine, grown.cells);
        Some(grown.items)
    }

    /// Returns whether there is a tree.
    pub fn is_grown(&self) -> bool {
        self.grown.get().is_some()
    }

    /// Makes the tree now, if there is none: for an owner that is about to run on many CPUs.
    /// Makes the tree now, if there is none: for an owner that is about to run on many CPUs.
    /// # Errors
    /// [`InitError::OutOfMemory`] if there is no memory.
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
            // Another CPU was first, and its tree is kept.
            self.area.put(machine, late.cells);
        }
        Ok(())
    }

    /// Panics if the group has no such counter: the words of the first line behind the counters are
    /// book-keeping. A tree's cells do their own check.
    #[inline]
    fn check_counter(&self, counter: usize) {
        assert!(counter < self.width, "no such counter");
    }

    /// Adds to the line if this CPU added last; otherwise the line moves, see [`Self::add_moved`].
    #[inline]
    fn add_to_line(&self, machine: &M, cpu: CpuId, counter: usize, delta: i64, may: Growth) {
        self.check_counter(counter);
        let home = self.first.load(machine, HOME, Relaxed);
        if home & ((1 << CPU_BITS) - 1) == home_of(cpu) {
            self.first.add(machine, counter, delta, Relaxed);
        } else {
            self.add_moved(machine, counter, delta, home, may);
        }
    }

    /// Notes that the line moves to this CPU. If it has moved often enough, makes the tree, unless
    /// `may` refuses that: a later addition that may allocate will make it. Then adds.
    #[cold]
    #[inline(never)]
    fn add_moved(&self, machine: &M, counter: usize, delta: i64, home: i64, may: Growth) {
        let cpu = machine.this_cpu();
        let moves = (home >> CPU_BITS) + i64::from(home != 0);
        let next = moves << CPU_BITS | home_of(cpu);
        // If another CPU changes the word first, this move goes uncounted.
        let _ = self
            .first
            .compare_exchange(machine, HOME, home, next, Relaxed);
        let enough = (i64::from(self.shape.cpus()) / CPUS_PER_MOVE).max(2);
        if moves >= enough
            && matches!(may, Growth::Allowed)
            && self.grow(machine).is_ok()
            && let Some(grown) = self.grown.get()
        {
            // Making the tree took a while, and the task may have migrated meanwhile.
            let cpu = machine.this_cpu();
            return self.add_to_tree(machine, grown, cpu, counter, delta);
        }
        self.first.add(machine, counter, delta, Relaxed);
    }

    #[inline]
    fn add_to_tree(&self, machine: &M, grown: &Grown<M>, cpu: CpuId, counter: usize, delta: i64) {
        // This is the price of a local addition; an addition to the first line has the line's own
        // price.
        machine.spend(Work::Count, 1);
        if grown.used().has(machine, cpu.index()) {
            self.add_to_cell(machine, grown, cpu.index(), counter, delta);
        } else {
            self.add_first(machine, grown, cpu.index(), counter, delta);
        }
    }

    /// Makes the first addition on `cpu`.
    #[cold]
    #[inline(never)]
    fn add_first(&self, machine: &M, grown: &Grown<M>, cpu: usize, counter: usize, delta: i64) {
        // Mark the CPU before its cell holds anything: a reader of the used cells must find it.
        self.use_cpu(machine, grown, cpu);
        self.add_to_cell(machine, grown, cpu, counter, delta);
    }

    #[inline]
    fn add_to_cell(&self, machine: &M, grown: &Grown<M>, cpu: usize, counter: usize, delta: i64) {
        let new = grown.cells.word(cpu, counter).add(machine, delta);
        let batch = i64::from(self.shape.batch().get());
        let carried = carry(new.wrapping_sub(delta), new, batch);
        if carried != 0 {
            self.carry_up(machine, grown, cpu, counter, carried);
        }
    }

    /// Carries `carried` from the cell of `cpu` upwards.
    #[cold]
    #[inline(never)]
    fn carry_up(
        &self,
        machine: &M,
        grown: &Grown<M>,
        cpu: usize,
        counter: usize,
        mut carried: i64,
    ) {
        let path = self.shape.path(cpu);
        for (level, &item) in self.shape.levels().iter().zip(path) {
            if carried & (level.batch - 1) == 0 {
                continue;
            }
            let item = grown.item(item as usize);
            let new = item.add(machine, counter, carried, Relaxed);
            carried = carry(new.wrapping_sub(carried), new, level.batch);
            if carried == 0 {
                return;
            }
        }
        let root = path[path.len() - 1] as usize;
        grown.item(root).add(machine, counter, carried, Relaxed);
    }

    /// Widens the bound by what the cell and the items of `cpu` may keep, once for each of them.
    #[cold]
    fn use_cpu(&self, machine: &M, grown: &Grown<M>, cpu: usize) {
        let cells = self.shape.cpus() as usize;
        let mut more = 0;
        for (level, &item) in self.shape.levels().iter().zip(self.shape.path(cpu)) {
            if grown.used().mark(machine, cells + item as usize) {
                more += level.kept_max().cast_signed();
            }
        }
        if grown.used().mark(machine, cpu) && self.shape.cpus() > 1 {
            more += i64::from(self.shape.batch().get() - 1);
        }
        self.first.add(machine, BEHIND, more, Relaxed);
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

    /// Returns at most how many CPUs have never added: each of them would have widened the bound,
    /// which is on the line that every reader needs anyway.
    fn unused_max(&self, machine: &M) -> u32 {
        let cell = u64::from(self.shape.batch().get() - 1);
        let narrower = self
            .shape
            .error_max()
            .saturating_sub(self.behind(machine).unsigned_abs());
        // The levels above the cells may make the quotient larger than 32 bits. Then it bounds
        // nothing, as `u32::MAX` does.
        u32::try_from(narrower / cell).unwrap_or(u32::MAX)
    }

    /// Returns `R`: what has arrived at the roots, plus what was added before there was a tree.
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

    /// Returns `T`, counted over the CPUs that ever added.
    #[inline]
    fn behind(&self, machine: &M) -> i64 {
        self.first.load(machine, BEHIND, Relaxed)
    }
}

impl<M: Machine> Grown<M> {
    #[inline]
    fn used(&self) -> Used<'_, M> {
        Used(&self.items)
    }

    #[inline]
    fn item(&self, item: usize) -> &M::Line {
        self.items.line(self.above + item)
    }
}

/// Returns the number of lines that hold a bit for each cell and item.
fn marks(shape: &Shape) -> usize {
    used::lines(shape.cpus() as usize + shape.items())
}

/// Returns `cpu` as [`HOME`] encodes it; 0 there means that no CPU has added yet.
#[inline]
fn home_of(cpu: CpuId) -> i64 {
    i64::from(cpu.0) + 1
}

// Relaxed throughout: a sum orders no other memory access. A CPU marks its cell before it adds to
// it, so a reader that has learnt of an addition in some other way finds the mark too.
impl<M: Machine> Counters<M> for OneSidedTree<M> {
    fn width(&self) -> usize {
        self.width
    }

    #[inline]
    fn add(&self, machine: &M, counter: usize, delta: i64) {
        let cpu = machine.this_cpu();
        match self.grown.get() {
            Some(grown) => self.add_to_tree(machine, grown, cpu, counter, delta),
            None => self.add_to_line(machine, cpu, counter, delta, Growth::Refused),
        }
    }

    #[inline]
    fn add_growing(&self, machine: &M, counter: usize, delta: i64) {
        let cpu = machine.this_cpu();
        match self.grown.get() {
            Some(grown) => self.add_to_tree(machine, grown, cpu, counter, delta),
            None => self.add_to_line(machine, cpu, counter, delta, Growth::Allowed),
        }
    }

    /// The middle of the range that holds the precise sum.
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

    /// Half of `T` either way.
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
