//! The statistics of a run: plain data, equal for equal runs.

use std::cmp::Reverse;

use plimsoll_mm::machine::Job;
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::{CpuId, Nanos};

/// Number of bins of a histogram. Bin `b` counts spans whose binary length is `b`, that is 0, 1,
/// 2–3, 4–7 and so on nanoseconds. The last bin counts all longer spans too.
pub const HIST_BINS: usize = 40;

/// All statistics of a machine. Two runs with the same inputs have equal statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// The virtual time that the run has reached.
    pub now: Nanos,
    /// A hash over all ordered events with their time and CPU. It is the same wherever the run is
    /// repeated, in any build.
    pub hash: u64,
    /// Number of events in the hash.
    pub hashed_events: u64,
    /// Number of resumptions by the scheduler loop: effort of the host, not part of the simulated
    /// machine.
    pub resumptions: u64,
    /// Virtual time spent on each kind of work, indexed by `Work as usize`, over all CPUs.
    pub work_ns: [u64; Work::ALL.len()],
    /// Number of jobs that ran, indexed by `Job as usize`.
    pub jobs_run: [u64; Job::ALL.len()],
    /// Number of jobs that were ignored because they were deferred to an offline CPU.
    pub jobs_ignored: u64,
    /// Number of times an idle CPU started to run.
    pub wakeups: u64,
    /// Number of times a CPU switched to a task.
    pub context_switches: u64,
    /// Number of times a task was taken off a CPU because its slice was over or kernel work came.
    pub preemptions: u64,
    /// Number of times a task changed its CPU.
    pub migrations: u64,
    /// Number of remote accesses to per-CPU data whose owner had run past them. Zero in strict
    /// mode.
    pub causality_slips: u64,
    /// Number of injected stalls.
    pub stalls: u64,
    /// Number of cache lines of shared words and locks that moved between CPUs, indexed by
    /// `Distance as usize`.
    pub lines: [u64; 5],
    /// Statistics per lock class and call site, indexed by `LockClass as usize`, then `Site as
    /// usize`.
    pub locks: Vec<Vec<LockStats>>,
    /// Waits per lock class and CPU, indexed by `LockClass as usize`, then CPU.
    pub cpu_waits: Vec<Vec<CpuWaits>>,
}

impl Stats {
    /// The statistics of all locks of `class`.
    #[must_use]
    pub fn class(&self, class: LockClass) -> LockStats {
        LockStats::sum(&self.locks[class as usize])
    }

    /// The statistics of locks of `class` taken at `site`.
    #[must_use]
    pub fn site(&self, class: LockClass, site: Site) -> &LockStats {
        &self.locks[class as usize][site as usize]
    }

    /// Number of CPUs that waited at least once for longer than `wait` for a lock of `class`.
    #[must_use]
    pub fn cpus_that_waited(&self, class: LockClass, wait: Nanos) -> usize {
        self.cpu_waits[class as usize]
            .iter()
            .filter(|cpu| cpu.max > wait)
            .count()
    }
}

/// Acquisitions, waits and holds of locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockStats {
    /// Number of times a lock was taken.
    pub acquisitions: u64,
    /// Number of acquisitions that waited.
    pub contentions: u64,
    /// Number of contentions that `perf lock contention` would show: the first waiter of a queued
    /// spinlock spins on the pending bit and is not traced.
    pub perf_contentions: u64,
    /// Number of attempts that gave up because the lock was taken.
    pub failed_tries: u64,
    /// The sum of all waits.
    pub wait_total: Nanos,
    /// Log2 histogram of waits of contentions; see [`HIST_BINS`].
    pub wait_hist: [u64; HIST_BINS],
    /// The longest wait.
    pub wait_max: Option<LongestWait>,
    /// The sum of all holds.
    pub hold_total: Nanos,
    /// The longest hold.
    pub hold_max: Nanos,
    /// Log2 histogram of holds; see [`HIST_BINS`].
    pub hold_hist: [u64; HIST_BINS],
}

/// The longest wait; of equal waits the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongestWait {
    /// The length of the wait.
    pub wait: Nanos,
    /// The time at which the wait began.
    pub at: Nanos,
    /// The CPU that waited.
    pub cpu: CpuId,
    /// The CPU that held the lock when the wait began.
    pub blocker: CpuId,
    /// The site at which that CPU had taken the lock.
    pub blocker_site: Site,
}

/// The waits of one CPU for locks of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuWaits {
    /// The sum of all waits.
    pub total: Nanos,
    /// The longest wait.
    pub max: Nanos,
}

impl LongestWait {
    /// Orders waits by length. Of equal waits the earliest ranks highest, then the lowest CPU.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        (self.wait, Reverse((self.at, self.cpu)))
    }
}

impl LockStats {
    /// Statistics with nothing counted.
    #[must_use]
    pub const fn zero() -> Self {
        Self {
            acquisitions: 0,
            contentions: 0,
            perf_contentions: 0,
            failed_tries: 0,
            wait_total: Nanos(0),
            wait_hist: [0; HIST_BINS],
            wait_max: None,
            hold_total: Nanos(0),
            hold_max: Nanos(0),
            hold_hist: [0; HIST_BINS],
        }
    }

    /// The sum of all `parts`.
    #[must_use]
    pub fn sum(parts: &[Self]) -> Self {
        parts.iter().fold(Self::zero(), Self::plus)
    }

    fn plus(mut self, other: &Self) -> Self {
        self.acquisitions += other.acquisitions;
        self.contentions += other.contentions;
        self.perf_contentions += other.perf_contentions;
        self.failed_tries += other.failed_tries;
        self.wait_total = self.wait_total + other.wait_total;
        self.hold_total = self.hold_total + other.hold_total;
        self.hold_max = self.hold_max.max(other.hold_max);
        for (sum, part) in self.wait_hist.iter_mut().zip(other.wait_hist) {
            *sum += part;
        }
        for (sum, part) in self.hold_hist.iter_mut().zip(other.hold_hist) {
            *sum += part;
        }
        let waits = [self.wait_max, other.wait_max].into_iter().flatten();
        self.wait_max = waits.max_by_key(LongestWait::rank);
        self
    }
}
