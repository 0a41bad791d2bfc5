//! What a selection may know of a candidate, and the trait through which it asks.

use core::fmt;

use super::scope::NodeSet;
use super::select::Slot;
use crate::counter::Range;

/// Those of whom one may be killed, numbered from 0 in the order in which they were made.
///
/// Of equal candidates the later one is chosen. A candidate may exit at any time; its number is not
/// used for another one as long as the selection runs, and those that are made meanwhile are not
/// part of it. A selection asks for facts first, and for memory only of those that may be killed.
pub trait Candidates {
    /// How many there are. Asked once, when a selection begins.
    fn len(&self) -> u32;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is known of a candidate without counting its memory; `None` if it has exited.
    fn facts(&self, candidate: u32) -> Option<Facts>;

    /// Where its memory is, in pages, as a cheap look can tell; `None` if it has exited.
    fn approximate(&self, candidate: u32) -> Option<Reading>;

    /// Its memory in pages, exactly; `None` if it has exited. May be slow.
    fn precise(&self, candidate: u32) -> Option<i64>;

    /// Precise sums of several candidates at once: calls [`Slot::add`] on each slot with parts of
    /// what [`Slot::candidate`] occupies, or [`Slot::exited`].
    ///
    /// Slots are in the order of the candidates, and may be put in any other. Whoever keeps counters in
    /// per-CPU memory overrides this to go CPU by CPU and, on each, candidate by candidate, as
    /// [`AddressSpace::add_usages`](crate::space::AddressSpace::add_usages) does: that reads memory
    /// in its order.
    fn precise_many(&self, slots: &mut [Slot]) {
        for slot in slots {
            match self.precise(slot.candidate()) {
                Some(pages) => slot.add(pages),
                None => slot.exited(),
            }
        }
    }

    /// How many times cheaper [`Candidates::precise_many`] sums all candidates than
    /// [`Candidates::precise`] does in no particular order, which memory likes less than one after
    /// the other; 1 if it gains nothing, and is not worth a sum too many.
    fn batch_gain(&self) -> u32 {
        1
    }

    /// Whether a member of `group` belongs to `ancestor` as well. Groups that are not nested need
    /// not override it.
    fn is_within(&self, group: GroupId, ancestor: GroupId) -> bool {
        group == ancestor
    }
}

/// What a selection looks at, apart from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What it is.
    pub kind: Kind,
    /// Whether its memory would come back.
    pub memory: Memory,
    /// How much more or less than others it should be killed.
    pub adj: ScoreAdj,
    /// It was chosen before and is still dying (Linux: `signal->oom_mm` is set).
    pub is_victim: bool,
    /// It asked to be killed first (Linux: `oom_task_origin`, set while swap is turned off).
    pub is_origin: bool,
    /// The nodes any of its threads may take memory from.
    pub nodes: NodeSet,
    /// The memory group it is in (Linux: memory cgroup).
    pub group: GroupId,
}

impl Facts {
    /// A process like most.
    pub const PROCESS: Self = Self {
        kind: Kind::Process,
        memory: Memory::Own,
        adj: ScoreAdj::ZERO,
        is_victim: false,
        is_origin: false,
        nodes: NodeSet::ALL,
        group: GroupId(0),
    };
}

/// What a candidate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A process that may be killed.
    Process,
    /// The first process; without it there is no system (Linux: `is_global_init`).
    Init,
    /// A thread of the kernel, which has no memory of its own.
    KernelThread,
}

/// Whose memory a candidate uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Its own, perhaps shared with processes that would be killed with it.
    Own,
    /// Its parent's, until it starts a program (Linux: `in_vfork`).
    Parents,
    /// None any more: every thread has left the address space.
    Gone,
    /// Its own, but nothing more is to be had: reaped, or given up on (Linux: `MMF_OOM_SKIP`).
    Reaped,
}

/// A memory group (Linux: memory cgroup).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// How much more or less than others a process should be killed, in thousandths of all memory
/// (Linux: `oom_score_adj`): −1000 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScoreAdj(i16);

impl ScoreAdj {
    /// Never killed (Linux: `OOM_SCORE_ADJ_MIN`).
    pub const NEVER: Self = Self(-1000);
    /// By its memory alone.
    pub const ZERO: Self = Self(0);
    /// As if it had all memory in addition (Linux: `OOM_SCORE_ADJ_MAX`).
    pub const MAX: Self = Self(1000);

    /// An adjustment.
    ///
    /// # Errors
    /// Below −1000 or above 1000.
    pub fn new(adj: i32) -> Result<Self, AdjOutOfRange> {
        match i16::try_from(adj) {
            Ok(adj @ -1000..=1000) => Ok(Self(adj)),
            _ => Err(AdjOutOfRange(adj)),
        }
    }

    /// −1000 to 1000.
    #[must_use]
    pub const fn get(self) -> i16 {
        self.0
    }
}

/// An adjustment that is not from −1000 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdjOutOfRange(pub i32);

impl fmt::Display for AdjOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not an adjustment from -1000 to 1000", self.0)
    }
}

impl core::error::Error for AdjOutOfRange {}

/// A cheap look at a candidate's memory, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The one number to report.
    pub estimate: i64,
    /// Where the precise sum is; the estimate is in it as well.
    pub range: Range,
}

impl Reading {
    /// A cheap look that is exact.
    #[must_use]
    pub const fn exactly(pages: i64) -> Self {
        Self {
            estimate: pages,
            range: Range::exactly(pages),
        }
    }

    /// Whether `min ≤ estimate ≤ max`.
    #[must_use]
    pub const fn is_ordered(self) -> bool {
        self.range.contains(self.estimate)
    }
}
