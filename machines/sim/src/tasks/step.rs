//! Steps: what a CPU runs, what takes it away from its work, and how long it holds locks. Observers
//! that need more than totals receive each step.

use plimsoll_mm::machine::Job;
use plimsoll_mm::site::{LockClass, Site};
use plimsoll_mm::units::{CpuId, Nanos};

use crate::profile::Disturbance;
use crate::tasks::wait::{Access, LockId};

/// Something that a CPU has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The CPU begins to run something else, or becomes idle.
    Switch {
        /// The CPU.
        cpu: CpuId,
        /// The time at which the CPU stopped what it ran before.
        at: Nanos,
        /// What the CPU runs from now on.
        runs: Runs,
    },
    /// The task that runs on the CPU loses the CPU, although it could go on.
    Preempted {
        /// The CPU.
        cpu: CpuId,
        /// The time at which the task lost the CPU.
        at: Nanos,
        /// The task.
        task: u32,
    },
    /// A disturbance has delayed the CPU.
    Disturbed {
        /// The CPU.
        cpu: CpuId,
        /// The kind of the disturbance.
        kind: Disturbance,
        /// The time at which the delay began.
        from: Nanos,
        /// The time at which the delay ended.
        until: Nanos,
    },
    /// A task has released a lock.
    Held(Hold),
}

/// What a CPU runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// The CPU is idle.
    Nothing,
    /// A task of the workload.
    Task(u32),
    /// A task that the run does not wait for, such as kswapd.
    Daemon(u32),
    /// Kernel work: a job.
    Job(Job),
    /// Kernel work that a CPU does when it becomes idle.
    Quiet,
}

/// A finished hold of a lock: the time from the acquisition to the release. Holds that took no time
/// are left out, unless another CPU may have waited for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The lock.
    pub lock: LockId,
    /// The class of the lock.
    pub class: LockClass,
    /// The call site that took the lock.
    pub site: Site,
    /// The way in which the task held the lock. If the task has downgraded a reader-writer lock
    /// from writing to reading, this is [`Access::Read`].
    pub access: Access,
    /// The CPU that released the lock.
    pub cpu: CpuId,
    /// The task that held the lock.
    pub task: u32,
    /// The time at which the task acquired the lock.
    pub from: Nanos,
    /// The time at which the task released the lock.
    pub until: Nanos,
}

/// A function that is called for each step.
pub(crate) type StepObserver = Box<dyn FnMut(&Step)>;
