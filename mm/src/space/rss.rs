//! The resident pages of an address space, by kind (Linux: `mm->rss_stat`).

use core::fmt;

use crate::counter::{AnyCounters, Counters, InitError, Plan, Range, Reading};
use crate::machine::Machine;

/// The kind of the pages that one counter counts: one of three kinds of resident pages, or pages in
/// swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RssKind {
    /// Pages of files (Linux: `MM_FILEPAGES`).
    File,
    /// Anonymous pages (Linux: `MM_ANONPAGES`).
    Anon,
    /// Pages that are in swap and not in memory (Linux: `MM_SWAPENTS`).
    Swap,
    /// Shared memory (Linux: `MM_SHMEMPAGES`).
    Shmem,
}

impl RssKind {
    /// Every kind, in the order of Linux.
    pub const ALL: [Self; 4] = [Self::File, Self::Anon, Self::Swap, Self::Shmem];

    /// The kinds of pages that occupy memory.
    const RESIDENT: [Self; 3] = [Self::File, Self::Anon, Self::Shmem];

    /// Returns the name of this kind in Linux.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "MM_FILEPAGES",
            Self::Anon => "MM_ANONPAGES",
            Self::Swap => "MM_SWAPENTS",
            Self::Shmem => "MM_SHMEMPAGES",
        }
    }
}

/// Four counters of pages, one for each [`RssKind`].
#[derive(Debug)]
pub struct Rss<M: Machine>(AnyCounters<M>);

impl<M: Machine> Rss<M> {
    /// The number of counters in a group, which has one counter for each kind. The [`Plan`] for
    /// resident pages must be for groups of this size.
    pub const WIDTH: usize = RssKind::ALL.len();

    /// Makes counters that are all 0.
    ///
    /// # Errors
    /// [`InitError::AreaWidth`] if `plan` is for groups of another size. [`InitError::OutOfMemory`]
    /// if there is not enough memory.
    pub fn new(machine: &M, plan: &Plan<M>) -> Result<Self, InitError> {
        let width = plan.area().width();
        if width != Self::WIDTH {
            return Err(InitError::AreaWidth {
                counters: Self::WIDTH,
                area: width,
            });
        }
        Ok(Self(plan.init_many(machine)?))
    }

    /// Adds `pages`, which may be negative, to the counter of a kind (Linux: `add_mm_counter`).
    /// Never allocates.
    #[inline]
    pub fn add(&self, machine: &M, kind: RssKind, pages: i64) {
        self.0.add(machine, kind as usize, pages);
    }

    /// Adds `pages` to the counter of a kind, for callers that hold no spinlock. If so many CPUs
    /// add to a [`OneSidedTree`](crate::counter::OneSidedTree) that it should become a tree, this
    /// call also creates the tree, provided that memory is available.
    #[inline]
    pub fn add_growing(&self, machine: &M, kind: RssKind, pages: i64) {
        self.0.add_growing(machine, kind as usize, pages);
    }

    /// Returns the approximate number of pages of a kind (Linux: `get_mm_counter`).
    pub fn approximate(&self, machine: &M, kind: RssKind) -> u64 {
        self.0.approximate_sum_positive(machine, kind as usize)
    }

    /// Returns the number of pages of a kind. The number is exact if no addition is under way
    /// (Linux: `get_mm_counter_sum`).
    pub fn precise(&self, machine: &M, kind: RssKind) -> u64 {
        self.0.precise_sum_positive(machine, kind as usize)
    }

    /// Returns the approximate number of resident pages of all kinds (Linux: `get_mm_rss`).
    pub fn resident(&self, machine: &M) -> u64 {
        let of = |kind| self.approximate(machine, kind);
        RssKind::RESIDENT.into_iter().map(of).sum()
    }

    /// Returns the range that must contain the number of resident pages, computed from the
    /// approximate sums.
    pub fn resident_range(&self, machine: &M) -> Range {
        let of = |kind| self.0.min_max(machine, kind as usize);
        RssKind::RESIDENT
            .into_iter()
            .map(of)
            .fold(Range::exactly(0), |sum, range| sum + range)
    }

    /// Returns the number of resident pages of all kinds. The number is exact if no addition is
    /// under way (Linux: `get_mm_rss_sum`).
    pub fn resident_precise(&self, machine: &M) -> u64 {
        let of = |kind| self.precise(machine, kind);
        RssKind::RESIDENT.into_iter().map(of).sum()
    }

    /// Returns the approximate number of pages of all kinds together, resident and in swap. The
    /// estimate adds up the estimates of the kinds; as in Linux, a negative estimate of a kind
    /// counts as 0. The range certainly contains the exact number.
    pub fn usage(&self, machine: &M) -> Reading {
        let of = |kind| {
            let counter = kind as usize;
            let estimate = self.0.approximate_sum(machine, counter);
            // The range is computed from this estimate, so it contains the estimate.
            let Range { min, max } = self.0.accuracy(machine, counter).range(estimate);
            let (estimate, min, max) = (estimate.max(0), min.max(0), max.max(0));
            let range = Range { min, max };
            Reading { estimate, range }
        };
        RssKind::ALL
            .into_iter()
            .map(of)
            .fold(Reading::exactly(0), |sum, kind| Reading {
                estimate: sum.estimate.saturating_add(kind.estimate),
                range: sum.range + kind.range,
            })
    }

    /// Returns the number of pages of all kinds together, resident and in swap. It is exact when no
    /// addition is under way.
    pub fn usage_precise(&self, machine: &M) -> i64 {
        self.0.precise_total(machine).max(0)
    }

    /// Returns the underlying counters. The index of a counter is its `RssKind as usize`.
    pub fn counters(&self) -> &AnyCounters<M> {
        &self.0
    }

    /// Destroys the counters. All of them must be exactly 0 (Linux: `check_mm`).
    ///
    /// # Errors
    /// [`BadRss`] with the first counter that is not 0, and its value. The counters are destroyed
    /// in this case, too.
    pub fn destroy(self, machine: &M) -> Result<(), BadRss> {
        let left = RssKind::ALL.into_iter().find_map(|kind| {
            let pages = self.0.precise_sum(machine, kind as usize);
            (pages != 0).then_some(BadRss { kind, pages })
        });
        self.0.destroy_many(machine);
        left.map_or(Ok(()), Err)
    }
}

/// Pages that an ended address space still counts, which shows a miscount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRss {
    /// The kind of the pages.
    pub kind: RssKind,
    /// The value of the counter, in pages.
    pub pages: i64,
}

impl fmt::Display for BadRss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, pages) = (self.kind.name(), self.pages);
        write!(
            f,
            "bad rss-counter state: {kind} is {pages} when the address space ends"
        )
    }
}

impl core::error::Error for BadRss {}
