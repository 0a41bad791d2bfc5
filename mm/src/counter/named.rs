//! Counters that a program finds by name, as in `/proc/vmstat`.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::any::{AnyCounters, Counting, Plan};
use super::one_sided::WIDTH_MAX;
use super::{Batch, Counters, InitError, Range};
use crate::machine::Machine;

/// The name and the unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CounterSpec {
    /// The name: letters, digits and `_`, as in `nr_free_pages`.
    pub name: &'static str,
    /// The unit of the counter's values, such as `pages` or `requests`.
    pub unit: &'static str,
}

/// The index of a counter within its [`NamedCounters`]. The index does not identify the
/// `NamedCounters`: in another `NamedCounters`, the same index stands for a different counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterId(usize);

/// A line of a listing of counters (Linux: a line of `/proc/vmstat`). Its text is the name and the
/// value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterRow {
    /// The name and the unit.
    pub spec: CounterSpec,
    /// The value.
    pub value: i64,
}

impl fmt::Display for CounterRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.spec.name, self.value)
    }
}

/// Counters with names, to which all CPUs add without sharing a cache line.
///
/// The list of counters is given to [`NamedCounters::new`] and never changes, so an addition needs
/// no look-up of names.
pub struct NamedCounters<M: Machine> {
    specs: Box<[CounterSpec]>,
    /// The groups of counters. Each group has `width` counters; in the last group, some of them may
    /// be unused.
    groups: Box<[AnyCounters<M>]>,
    /// The number of counters per group. It is at most [`WIDTH_MAX`], a width that every variant of
    /// counters supports.
    width: usize,
}

impl<M: Machine> NamedCounters<M> {
    /// Makes a counter at 0 for each of `specs`, of the variant `counting`. Each CPU's part takes 8
    /// bytes for each counter.
    ///
    /// # Errors
    /// [`NamedError`] if `specs` is empty, if a name is malformed or not unique, or if there is not
    /// enough memory.
    pub fn new(machine: &M, counting: Counting, specs: &[CounterSpec]) -> Result<Self, NamedError> {
        for (nth, spec) in specs.iter().enumerate() {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if spec.name.is_empty() || !spec.name.chars().all(is_part) {
                return Err(NamedError::Malformed(spec.name));
            }
            if specs[..nth].iter().any(|other| other.name == spec.name) {
                return Err(NamedError::Twice(spec.name));
            }
        }
        let width = specs.len().min(WIDTH_MAX);
        if width == 0 {
            return Err(NamedError::Empty);
        }
        let plan = Plan::new(machine, counting, width, Batch::RSS)?;
        let groups: Result<Vec<_>, _> = specs
            .chunks(width)
            .map(|_| plan.init_many(machine))
            .collect();
        Ok(Self {
            specs: specs.into(),
            groups: groups?.into(),
            width,
        })
    }

    /// Returns the counter that is called `name`, if there is one. Keep the result, because this
    /// method compares `name` with all names, one after the other.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<CounterId> {
        let position = self.specs.iter().position(|spec| spec.name == name);
        position.map(CounterId)
    }

    /// Returns the name and the unit of a counter.
    ///
    /// # Panics
    /// If `self` has no counter `id`.
    #[must_use]
    pub fn spec(&self, id: CounterId) -> CounterSpec {
        self.specs[id.0]
    }

    /// Returns the group of a counter, and the index of the counter within this group.
    ///
    /// # Panics
    /// If `self` has no counter `id`.
    #[inline]
    fn at(&self, CounterId(id): CounterId) -> (&AnyCounters<M>, usize) {
        // Check the index, because the last group may have spare counters without a name.
        assert!(id < self.specs.len(), "the counter is of other counters");
        (&self.groups[id / self.width], id % self.width)
    }

    /// Adds `delta` to a counter, in this CPU's part (Linux: `count_vm_events`). Never allocates.
    ///
    /// # Panics
    /// If `self` has no counter `id`.
    #[inline]
    pub fn add(&self, machine: &M, id: CounterId, delta: i64) {
        let (group, counter) = self.at(id);
        group.add(machine, counter, delta);
    }

    /// Adds `delta` to a counter like [`NamedCounters::add`], but can also allocate memory:
    /// counters of the variant [`Counting::OneSided`] grow into a tree when several CPUs add to
    /// them. The caller must hold no spinlock.
    ///
    /// # Panics
    /// If `self` has no counter `id`.
    #[inline]
    pub fn add_growing(&self, machine: &M, id: CounterId, delta: i64) {
        let (group, counter) = self.at(id);
        group.add_growing(machine, counter, delta);
    }

    /// Returns a range that contains the precise sum, without reading every CPU's part.
    ///
    /// # Panics
    /// If `self` has no counter `id`.
    pub fn range(&self, machine: &M, id: CounterId) -> Range {
        let (group, counter) = self.at(id);
        group.min_max(machine, counter)
    }

    /// Returns the approximate sum, without reading every CPU's part.
    ///
    /// # Panics
    /// If `self` has no counter `id`.
    pub fn approximate(&self, machine: &M, id: CounterId) -> i64 {
        let (group, counter) = self.at(id);
        group.approximate_sum(machine, counter)
    }

    /// Returns the sum of all additions that have returned. Reads the part of every CPU that ever
    /// added.
    ///
    /// # Panics
    /// If `self` has no counter `id`.
    pub fn precise(&self, machine: &M, id: CounterId) -> i64 {
        let (group, counter) = self.at(id);
        group.precise_sum(machine, counter)
    }

    /// Lists all counters with their precise sums, in the order in which they were named (Linux:
    /// `/proc/vmstat`).
    pub fn list<'c>(&'c self, machine: &'c M) -> impl Iterator<Item = CounterRow> + 'c {
        (0..).map(CounterId).zip(&self.specs).map(|(id, &spec)| {
            let value = self.precise(machine, id);
            CounterRow { spec, value }
        })
    }

    /// Lists all counters with their approximate sums, which are cheaper to read than precise sums.
    pub fn list_approximate<'c>(&'c self, machine: &'c M) -> impl Iterator<Item = CounterRow> + 'c {
        (0..).map(CounterId).zip(&self.specs).map(|(id, &spec)| {
            let value = self.approximate(machine, id);
            CounterRow { spec, value }
        })
    }

    /// Destroys the counters and frees their per-CPU memory. No other counters share this memory,
    /// so dropping the counters frees it too.
    pub fn destroy(self, machine: &M) {
        for group in self.groups {
            group.destroy_many(machine);
        }
    }
}

impl<M: Machine> fmt::Debug for NamedCounters<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedCounters")
            .field("specs", &self.specs)
            .finish_non_exhaustive()
    }
}

/// The reason why [`NamedCounters`] could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedError {
    /// The list of counters is empty.
    Empty,
    /// A name is empty, or has a character other than letters, digits and `_`.
    Malformed(&'static str),
    /// Two counters have this name.
    Twice(&'static str),
    /// The counters cannot be made on this machine, or there is not enough memory.
    Init(InitError),
}

impl From<InitError> for NamedError {
    fn from(why: InitError) -> Self {
        Self::Init(why)
    }
}

impl fmt::Display for NamedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no counter was named: name at least one"),
            Self::Malformed(name) => write!(
                f,
                "a counter cannot be called {name:?}: use letters, digits and `_`"
            ),
            Self::Twice(name) => {
                write!(
                    f,
                    "two counters are called {name:?}: give each its own name"
                )
            }
            Self::Init(why) => write!(f, "the counters cannot be made: {why}"),
        }
    }
}

impl core::error::Error for NamedError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Init(why) => Some(why),
            Self::Empty | Self::Malformed(_) | Self::Twice(_) => None,
        }
    }
}
