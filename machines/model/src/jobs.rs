//! The deferred jobs of all CPUs. They are only recorded, so that a law can inspect and run them.

use plimsoll_mm::machine::{Due, Job, JobState, WhenIdle};
use plimsoll_mm::units::CpuId;

/// The way in which a pending job was deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// The time at which the job is to run.
    pub due: Due,
    /// Whether the job's timer wakes an idle CPU.
    pub idle: WhenIdle,
}

/// The deferred jobs: one row for each CPU, with one slot for each kind of job. A job can be
/// pending and running at once: then it was deferred again while it ran.
#[derive(Debug)]
pub(crate) struct JobTable {
    rows: Vec<[Slot; Job::ALL.len()]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    pending: Option<Deferral>,
    running: bool,
}

impl JobTable {
    pub(crate) fn new(cpus: u32) -> Self {
        Self {
            rows: (0..cpus).map(|_| Default::default()).collect(),
        }
    }

    /// Makes `job` pending if `pending` is given; otherwise cancels it.
    pub(crate) fn set(&mut self, cpu: CpuId, job: Job, pending: Option<Deferral>) {
        self.slot(cpu, job).pending = pending;
    }

    pub(crate) fn pending(&mut self, cpu: CpuId, job: Job) -> Option<Deferral> {
        self.slot(cpu, job).pending
    }

    pub(crate) fn state(&mut self, cpu: CpuId, job: Job) -> JobState {
        match self.slot(cpu, job) {
            Slot {
                pending: Some(_), ..
            } => JobState::Pending,
            Slot { running: true, .. } => JobState::Running,
            Slot { .. } => JobState::Dormant,
        }
    }

    /// Marks `job` as running if it is pending and not already running. Returns whether it did so.
    pub(crate) fn begin(&mut self, cpu: CpuId, job: Job) -> bool {
        let slot = self.slot(cpu, job);
        let begins = slot.pending.is_some() && !slot.running;
        if begins {
            *slot = Slot {
                pending: None,
                running: true,
            };
        }
        begins
    }

    pub(crate) fn end(&mut self, cpu: CpuId, job: Job) {
        self.slot(cpu, job).running = false;
    }

    fn slot(&mut self, cpu: CpuId, job: Job) -> &mut Slot {
        &mut self.rows[cpu.index()][job as usize]
    }
}
