//! The slices of one run (what each CPU and task did, and when) as data.

use plimsoll_mm::event::Phase;
use plimsoll_mm::site::Site;
use plimsoll_mm::units::{CpuId, Nanos, Pages};
use plimsoll_sim::profile::Disturbance;
use plimsoll_sim::{Hold, Runs, Wait};

/// The events of one run, in the windows of virtual time that the user chose.
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
    /// The time from which nothing was kept, because there were more slices than the limit. `None`
    /// if everything in the windows was kept.
    pub cut: Option<Nanos>,
    /// What CPUs ran.
    pub runs: Vec<Run>,
    /// The waits for locks.
    pub waits: Vec<Waited>,
    /// The holds of locks, in ascending order of [`Held::number`].
    pub holds: Vec<Held>,
    /// The disturbances, such as interrupts, that delayed CPUs.
    pub disturbed: Vec<Disturbed>,
    /// The phases of the work of tasks.
    pub phases: Vec<PhaseSlice>,
    /// Single events.
    pub marks: Vec<Mark>,
    /// Values over time.
    pub counts: Vec<Count>,
    /// The longest waits of the whole run, inside and outside the windows. The longest wait comes
    /// first.
    pub longest: Vec<Wait>,
}

/// A span of time in which a CPU ran one task or one piece of kernel work.
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
    /// True if the task lost the CPU although it could have continued.
    pub preempted: bool,
}

/// A wait for a lock, and the task that had the lock directly before the waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The wait.
    pub wait: Wait,
    /// The task that had the lock directly before the waiter.
    pub releaser: Releaser,
}

/// The task that had a lock directly before a waiter got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Releaser {
    /// The CPU of this task.
    pub cpu: CpuId,
    /// The call site at which this task took the lock.
    pub site: Site,
    /// The [`Held::number`] of this task's hold. `None` if the hold took no time.
    pub hold: Option<u64>,
}

/// A hold of a lock: the time from its acquisition to its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The number that identifies this hold of a lock. These numbers ascend in the order in which
    /// the holds ended.
    pub number: u64,
    /// The hold.
    pub hold: Hold,
    /// The pages that moved to or from the free lists of a zone during the hold. `None` if the lock
    /// is not a zone lock.
    pub moved: Option<Moved>,
}

/// The pages that moved during a hold of a zone lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// How many pages moved.
    pub pages: Pages,
    /// How many blocks the pages in `pages` formed.
    pub blocks: u32,
    /// The CPU whose page lists were filled or emptied during the hold of the lock.
    pub lists_of: CpuId,
}

/// A disturbance, such as an interrupt, that delayed a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disturbed {
    /// The CPU.
    pub cpu: CpuId,
    /// The kind.
    pub kind: Disturbance,
    /// The time at which the delay began.
    pub from: Nanos,
    /// The time at which the delay ended.
    pub until: Nanos,
}

/// A phase of the work of a task: a part that a profile of Linux shows as one function.
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
    /// Numbers that describe the event, each with its name.
    pub numbers: Vec<(&'static str, u64)>,
}

/// The value of a counted quantity at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The time.
    pub at: Nanos,
    /// What was counted.
    pub what: Counted,
    /// The value.
    pub value: i64,
}

/// A quantity that is counted over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counted {
    /// How many pages are on the page lists of all CPUs.
    Listed,
    /// How many pages are on the free lists of the zone with this index.
    Free(u32),
}

impl Slices {
    /// Returns this data with the names of the machine and the design that ran.
    #[must_use]
    pub fn named(self, machine: &str, design: &str) -> Self {
        Self {
            machine: machine.to_owned(),
            design: design.to_owned(),
            ..self
        }
    }

    /// Returns the hold whose [`Held::number`] is `number`, if this hold was kept.
    #[must_use]
    pub fn hold(&self, number: u64) -> Option<&Held> {
        let at = self.holds.binary_search_by_key(&number, |held| held.number);
        at.ok().map(|at| &self.holds[at])
    }

    /// How many slices and single events were kept.
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

    /// Returns true if neither a slice nor a single event was kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
