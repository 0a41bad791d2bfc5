//! Groups of counters of any variant. The creator of a group chooses at run time whether the group
//! counts in a shared cache line, per CPU, or in a tree.

use alloc::sync::Arc;
use core::cmp::Ordering;
use core::fmt;

use super::accuracy::{Accuracy, Range};
use super::cells::Parts;
use super::error::InitError;
#[cfg(doc)]
use super::precise_totals;
use super::{Area, Batch, Counters, Flat, Items, OneSidedTree, Shape, Shared, Tree};
use crate::machine::Machine;

/// The variants of counters, one of which is chosen at run time, for example to count resident
/// pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counting {
    /// All CPUs write one cache line: [`Shared`].
    Shared,
    /// Linux's counter, with a part per CPU: [`Flat`].
    Flat,
    /// The tree that was proposed for Linux (`percpu_counter_tree`): [`Tree`].
    Tree,
    /// Plimsoll's tree: [`OneSidedTree`].
    OneSided,
}

impl Counting {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Shared, Self::Flat, Self::Tree, Self::OneSided];

    /// Returns the name by which users choose the variant.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Flat => "flat",
            Self::Tree => "tree",
            Self::OneSided => "one-sided",
        }
    }

    /// Returns how many times faster [`precise_totals`] is than a loop that sums one group after
    /// the other and jumps through memory in random order. The factor holds for groups to which
    /// every CPU has added, and is 1 for variants for which [`precise_totals`] is not faster. The
    /// OOM killer's selection uses the factor as its
    /// [`Candidates::batch_gain`](crate::oom::Candidates::batch_gain).
    ///
    /// The factor was measured with `plimsoll bench oom`. In that benchmark, a selection needed the
    /// precise sums of all candidates, and the candidates were in random order in memory. The
    /// measured time does not include the reading of approximate sums.
    #[must_use]
    pub const fn batch_gain(self) -> u32 {
        match self {
            Self::Shared | Self::Flat => 1,
            Self::Tree | Self::OneSided => 6,
        }
    }
}

/// Creates groups of counters, all of one variant and with the same number of counters. The plan
/// holds the parts that all these groups share: the per-CPU memory, and the shape of their trees.
pub struct Plan<M: Machine> {
    counting: Counting,
    area: Arc<Area<M>>,
    shape: Arc<Shape>,
}

impl<M: Machine> Plan<M> {
    /// Creates a plan for groups of `width` counters of the variant `counting`. In a tree, each CPU
    /// counts in its own cell, and passes multiples of `batch` on to the next level of the tree.
    ///
    /// # Errors
    /// [`InitError::Width`] if `width` is 0 or more than 8. [`InitError::Cpus`] if the machine has
    /// more CPUs than the tree proposed for Linux supports.
    pub fn new(
        machine: &M,
        counting: Counting,
        width: usize,
        batch: Batch,
    ) -> Result<Self, InitError> {
        let topology = machine.topology();
        let shape = match counting {
            Counting::OneSided => Shape::of_topology(topology, batch, OneSidedTree::<M>::FAN_IN),
            _ => Shape::published(topology.cpus(), batch),
        };
        let shape = shape.map_err(|_| InitError::Cpus {
            shape: super::shape::PUBLISHED_CPUS_MAX,
            machine: topology.cpus(),
        })?;
        Ok(Self {
            counting,
            area: Arc::new(Area::new(machine, width)?),
            shape: Arc::new(shape),
        })
    }

    /// Returns the variant of counters that this plan creates.
    #[must_use]
    pub fn counting(&self) -> Counting {
        self.counting
    }

    /// Returns the shape of the groups' trees.
    #[must_use]
    pub fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// Returns the per-CPU memory that all groups of this plan share.
    #[must_use]
    pub fn area(&self) -> &Arc<Area<M>> {
        &self.area
    }

    /// Creates a group of counters with the value 0.
    ///
    /// # Errors
    /// [`InitError::OutOfMemory`] if there is not enough memory. [`InitError::Width`] if the
    /// counters are of the variant [`Counting::OneSided`] and the plan is for more than 6 of them.
    pub fn init_many(&self, machine: &M) -> Result<AnyCounters<M>, InitError> {
        let (area, shape) = (&self.area, &self.shape);
        Ok(match self.counting {
            Counting::Shared => AnyCounters::Shared(Shared::init_many(machine, area.width())?),
            Counting::Flat => AnyCounters::Flat(Flat::init_many(machine, area)?),
            Counting::Tree => {
                let items = Items::new(machine, Tree::<M>::items_lines(shape, area.width()))?;
                AnyCounters::Tree(Tree::init_many(machine, area, shape, items)?)
            }
            Counting::OneSided => {
                AnyCounters::OneSided(OneSidedTree::init_many(machine, area, shape)?)
            }
        })
    }
}

/// A group of counters of the variant chosen at run time.
#[derive(Debug)]
pub enum AnyCounters<M: Machine> {
    /// All CPUs write one cache line.
    Shared(Shared<M>),
    /// A part per CPU, which the CPU adds to a shared part once its own part is large enough.
    Flat(Flat<M>),
    /// The tree that was proposed for Linux.
    Tree(Tree<M>),
    /// Plimsoll's tree, which counts in one shared cache line until the tree is allocated.
    OneSided(OneSidedTree<M>),
}

/// Evaluates the expression `$do`, in which `$counters` stands for the counters in `$any`. This
/// works for counters of every variant.
macro_rules! each {
    ($any:expr, $counters:ident => $do:expr) => {
        match $any {
            AnyCounters::Shared($counters) => $do,
            AnyCounters::Flat($counters) => $do,
            AnyCounters::Tree($counters) => $do,
            AnyCounters::OneSided($counters) => $do,
        }
    };
}

impl<M: Machine> AnyCounters<M> {
    /// Returns the variant of the counters in this group.
    #[must_use]
    pub const fn counting(&self) -> Counting {
        match self {
            Self::Shared(_) => Counting::Shared,
            Self::Flat(_) => Counting::Flat,
            Self::Tree(_) => Counting::Tree,
            Self::OneSided(_) => Counting::OneSided,
        }
    }

    /// Returns the position of the group's per-CPU memory in the plan's per-CPU memory, or 0 if the
    /// group has none. A caller that sums groups in ascending order of their positions reads memory
    /// in ascending order.
    pub fn position(&self) -> u64 {
        match self {
            Self::Shared(_) => 0,
            Self::Flat(flat) => flat.position(),
            Self::Tree(tree) => tree.position(),
            Self::OneSided(tree) => tree.position(),
        }
    }

    /// Returns the two parts of the sum of all counters of the group: an amount that this function
    /// has already read, and the group's per-CPU cells, which the caller must still read. A caller
    /// that sums many groups can then read the cells of all these groups together.
    pub(super) fn parts(&self, machine: &M) -> Parts<'_, M> {
        match self {
            Self::Tree(tree) => tree.parts(machine),
            Self::OneSided(tree) => tree.parts(machine),
            // A flat counter's parts may be read only under the counter's lock, so this function
            // sums the parts here and returns no cells for the caller to sum.
            Self::Shared(_) | Self::Flat(_) => Parts {
                elsewhere: self.precise_total(machine),
                cells: None,
            },
        }
    }

    /// Destroys the counters and frees their per-CPU memory.
    pub fn destroy_many(self, machine: &M) {
        match self {
            Self::Shared(_) => {}
            Self::Flat(flat) => flat.destroy_many(machine),
            Self::Tree(tree) => drop(tree.destroy_many(machine)),
            Self::OneSided(tree) => drop(tree.destroy_many(machine)),
        }
    }
}

impl<M: Machine> Counters<M> for AnyCounters<M> {
    fn width(&self) -> usize {
        each!(self, counters => counters.width())
    }

    #[inline]
    fn add(&self, machine: &M, counter: usize, delta: i64) {
        each!(self, counters => counters.add(machine, counter, delta));
    }

    #[inline]
    fn add_growing(&self, machine: &M, counter: usize, delta: i64) {
        each!(self, counters => counters.add_growing(machine, counter, delta));
    }

    fn approximate_sum(&self, machine: &M, counter: usize) -> i64 {
        each!(self, counters => counters.approximate_sum(machine, counter))
    }

    fn precise_sum(&self, machine: &M, counter: usize) -> i64 {
        each!(self, counters => counters.precise_sum(machine, counter))
    }

    fn precise_total(&self, machine: &M) -> i64 {
        each!(self, counters => counters.precise_total(machine))
    }

    fn accuracy(&self, machine: &M, counter: usize) -> Accuracy {
        each!(self, counters => counters.accuracy(machine, counter))
    }

    fn set(&self, machine: &M, counter: usize, value: i64) {
        each!(self, counters => counters.set(machine, counter, value));
    }

    fn bytes(&self) -> usize {
        each!(self, counters => counters.bytes())
    }

    fn min_max(&self, machine: &M, counter: usize) -> Range {
        each!(self, counters => counters.min_max(machine, counter))
    }

    fn approximate_compare_value(&self, machine: &M, counter: usize, value: i64) -> Ordering {
        each!(self, counters => counters.approximate_compare_value(machine, counter, value))
    }
}

impl<M: Machine> fmt::Debug for Plan<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("counting", &self.counting)
            .finish_non_exhaustive()
    }
}
