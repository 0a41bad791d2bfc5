//! The deferred jobs of all CPUs. They are only recorded, so that a test can inspect and run them.

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

/// The deferred jobs: one row for each CPU, with one entry for each kind of job. A job that is
/// deferred again while it runs is both pending and running.
#[derive(Debug)]
pub(crate) struct JobTable {
    rows: Vec<[JobEntry; Job::ALL.len()]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct JobEntry {
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
        self.entry(cpu, job).pending = pending;
    }

    pub(crate) fn pending(&mut self, cpu: CpuId, job: Job) -> Option<Deferral> {
        self.entry(cpu, job).pending
    }

    pub(crate) fn state(&mut self, cpu: CpuId, job: Job) -> JobState {
        match self.entry(cpu, job) {
            JobEntry {
                pending: Some(_), ..
            } => JobState::Pending,
            JobEntry { running: true, .. } => JobState::Running,
            JobEntry { .. } => JobState::Dormant,
        }
    }

    /// Marks `job` as running if it is pending and not already running. Returns whether it did so.
    pub(crate) fn begin(&mut self, cpu: CpuId, job: Job) -> bool {
        let entry = self.entry(cpu, job);
        let begins = entry.pending.is_some() && !entry.running;
        if begins {
            *entry = JobEntry {
                pending: None,
                running: true,
            };
        }
        begins
    }

    pub(crate) fn end(&mut self, cpu: CpuId, job: Job) {
        self.entry(cpu, job).running = false;
    }

    fn entry(&mut self, cpu: CpuId, job: Job) -> &mut JobEntry {
        &mut self.rows[cpu.index()][job as usize]
    }
}
