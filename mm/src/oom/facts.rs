//! The facts about a process by which the OOM killer decides whether to kill the process.

use core::fmt;

use crate::topology::NodeSet;

/// The properties of a candidate (a process that the OOM killer may choose), apart from its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The kind of candidate: a process, the first process or a kernel thread.
    pub kind: Kind,
    /// The owner and the state of the memory that the candidate uses.
    pub memory: Memory,
    /// The adjustment that makes the candidate more or less likely to be killed than others.
    pub adj: ScoreAdj,
    /// True if the candidate was chosen before and is still dying (Linux: `signal->oom_mm` is set).
    pub is_victim: bool,
    /// True if the candidate asked to be killed first (Linux: `oom_task_origin`, set while swap is
    /// turned off).
    pub is_origin: bool,
    /// The nodes from which any of the candidate's threads may allocate memory.
    pub nodes: NodeSet,
    /// The memory group that the candidate is in (Linux: memory cgroup).
    pub group: GroupId,
}

impl Facts {
    /// The facts of an ordinary process that may be killed. It has no adjustment, may use every
    /// node, and is in group 0.
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

/// The kind of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An ordinary process, which may be killed.
    Process,
    /// The first process, which the system cannot run without (Linux: `is_global_init`).
    Init,
    /// A kernel thread, which has no user memory.
    KernelThread,
}

/// The owner and the state of the memory that a candidate uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The candidate's own memory, perhaps shared with processes that would be killed with it.
    Own,
    /// The memory of the candidate's parent, until the candidate executes a program (Linux:
    /// `in_vfork`).
    Parents,
    /// No memory any more: every thread has left the address space.
    Gone,
    /// The candidate's own memory, but a kill would free no more of it: it was reaped, or the
    /// reaper gave up on it (Linux: `MMF_OOM_SKIP`).
    Reaped,
}

/// A memory group (Linux: memory cgroup).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// An adjustment of a process's points, in thousandths of all memory (Linux: `oom_score_adj`):
/// −1000 to 1000. A larger value makes the process more likely to be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScoreAdj(i16);

impl ScoreAdj {
    /// The process is never killed (Linux: `OOM_SCORE_ADJ_MIN`).
    pub const NEVER: Self = Self(-1000);
    /// The process's points are the number of its pages, without any adjustment.
    pub const ZERO: Self = Self(0);
    /// The process's points are its own pages plus all memory (Linux: `OOM_SCORE_ADJ_MAX`).
    pub const MAX: Self = Self(1000);

    /// Makes an adjustment that adds `adj` thousandths of all memory to the process's points.
    ///
    /// # Errors
    /// [`AdjOutOfRange`] if `adj` is below −1000 or above 1000.
    pub fn new(adj: i32) -> Result<Self, AdjOutOfRange> {
        match i16::try_from(adj) {
            Ok(adj @ -1000..=1000) => Ok(Self(adj)),
            _ => Err(AdjOutOfRange(adj)),
        }
    }

    /// Returns the adjustment in thousandths, −1000 to 1000.
    #[must_use]
    pub const fn get(self) -> i16 {
        self.0
    }
}

/// The error for an adjustment that is not from −1000 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdjOutOfRange(pub i32);

impl fmt::Display for AdjOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not an adjustment from -1000 to 1000", self.0)
    }
}

impl core::error::Error for AdjOutOfRange {}
