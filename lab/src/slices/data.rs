//! The slices of one run as data.

use plimsoll_mm::event::Phase;
use plimsoll_mm::site::Site;
use plimsoll_mm::units::{CpuId, Nanos, Pages};
use plimsoll_sim::profile::Disturbance;
use plimsoll_sim::{Hold, Runs, Wait};

/// What happened in one run, in the windows that were asked for.
#[derive(Clone, Debug, Default)]
pub struct Slices {
    /// The machine.
    pub machine: String,
    /// The design.
    pub design: String,
    /// The seed.
    pub seed: u64,
    /// The number of CPUs.
    pub cpus: u32,
    /// The hash of the run.
    pub hash: u64,
    /// The virtual time at which the run ended.
    pub ended: Nanos,
    /// The time from which on slices are missing, because there were more than the limit. `None` if
    /// all slices of the windows were kept.
    pub cut: Option<Nanos>,
    /// What CPUs ran.
    pub runs: Vec<Run>,
    /// The waits for locks.
    pub waits: Vec<Waited>,
    /// The holds of locks, in the order of their numbers.
    pub holds: Vec<Held>,
    /// The disturbances that delayed CPUs.
    pub disturbed: Vec<Disturbed>,
    /// The phases of tasks.
    pub phases: Vec<PhaseSlice>,
    /// Single events.
    pub marks: Vec<Mark>,
    /// Values over time.
    pub counts: Vec<Count>,
    /// The longest waits of the whole run, in the windows or not; the longest first.
    pub longest: Vec<Wait>,
}

/// A time in which a CPU ran one task or one piece of kernel work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The CPU.
    pub cpu: CpuId,
    /// What the CPU ran.
    pub runs: Runs,
    /// The beginning.
    pub from: Nanos,
    /// The end.
    pub until: Nanos,
    /// Whether the task lost the CPU although it could have gone on.
    pub preempted: bool,
}

/// A wait, with the hold of the lock that let the waiter go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The wait.
    pub wait: Wait,
    /// The task that had the lock directly before the waiter.
    pub releaser: Releaser,
}

/// A task that had a lock directly before a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Releaser {
    /// Its CPU.
    pub cpu: CpuId,
    /// The call site at which it took the lock.
    pub site: Site,
    /// The number of its hold in [`Slices::holds`]. `None` if the hold took no time.
    pub hold: Option<u64>,
}

/// A hold of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The number of the hold. Numbers ascend in the order in which the holds ended.
    pub number: u64,
    /// The hold.
    pub hold: Hold,
    /// What moved to or from the free lists of a zone in the hold; `None` for other locks.
    pub moved: Option<Moved>,
}

/// The pages that moved in a hold of a zone lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The number of pages.
    pub pages: Pages,
    /// The number of blocks that these pages formed.
    pub blocks: u32,
    /// The CPU whose page lists the hold filled or emptied.
    pub lists_of: CpuId,
}

/// A disturbance that delayed a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disturbed {
    /// The CPU.
    pub cpu: CpuId,
    /// The kind.
    pub kind: Disturbance,
    /// The beginning of the delay.
    pub from: Nanos,
    /// The end of the delay.
    pub until: Nanos,
}

/// A phase of the work of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseSlice {
    /// The task.
    pub task: u32,
    /// The CPU on which the phase began.
    pub cpu: CpuId,
    /// The phase.
    pub phase: Phase,
    /// The beginning.
    pub from: Nanos,
    /// The end.
    pub until: Nanos,
}

/// A single event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The CPU.
    pub cpu: CpuId,
    /// The time.
    pub at: Nanos,
    /// What happened.
    pub what: &'static str,
    /// Numbers that belong to the event, each with its name.
    pub numbers: Vec<(&'static str, u64)>,
}

/// A value at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The time.
    pub at: Nanos,
    /// What was counted.
    pub what: Counted,
    /// The value.
    pub value: i64,
}

/// Something that is counted over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// The pages on the lists of all CPUs.
    Listed,
    /// The pages on the free lists of the zone with this index.
    Free(u32),
}

impl Slices {
    /// These slices, with the names of the machine and the design that ran.
    #[must_use]
    pub fn named(self, machine: &str, design: &str) -> Self {
        Self {
            machine: machine.to_owned(),
            design: design.to_owned(),
            ..self
        }
    }

    /// The hold with this number, if it was kept.
    #[must_use]
    pub fn hold(&self, number: u64) -> Option<&Held> {
        let at = self.holds.binary_search_by_key(&number, |held| held.number);
        at.ok().map(|at| &self.holds[at])
    }

    /// The number of slices and single events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.len()
            + self.waits.len()
            + self.holds.len()
            + self.disturbed.len()
            + self.phases.len()
            + self.marks.len()
            + self.counts.len()
    }

    /// Returns whether nothing was kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
