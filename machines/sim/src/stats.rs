//! The statistics of a run: plain data, and equal for equal runs.

use std::cmp::Reverse;

use plimsoll_mm::machine::Job;
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::{CpuId, Nanos};

use crate::profile::Disturbance;

/// The number of bins of a histogram of times. Bin `b` counts the times whose number of nanoseconds
/// has `b` binary digits: bin 0 counts 0 ns, bin 1 counts 1 ns, bin 2 counts 2 and 3 ns, bin 3
/// counts 4 to 7 ns, and so on. The last bin also counts all longer times.
pub const HIST_BINS: usize = 40;

/// All statistics of a machine. Two runs with the same inputs have equal statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// The virtual time that the run has reached.
    pub now: Nanos,
    /// A hash over the events of the run, with their times and CPUs. A repetition of the run gives
    /// the same hash, on any host and in any build.
    pub hash: u64,
    /// The number of events that [`Stats::hash`] covers.
    pub hashed_events: u64,
    /// The number of times that the scheduler loop resumed a CPU. This number measures the work of
    /// the host, and is not a property of the simulated machine.
    pub resumptions: u64,
    /// The virtual time that all CPUs together spent on each kind of work, in nanoseconds, indexed
    /// by `Work as usize`.
    pub work_ns: [u64; Work::ALL.len()],
    /// The number of jobs that ran, indexed by `Job as usize`.
    pub jobs_run: [u64; Job::ALL.len()],
    /// The number of jobs that were dropped because they were deferred to an offline CPU.
    pub jobs_ignored: u64,
    /// The number of times an idle CPU started to run.
    pub wakeups: u64,
    /// The number of times a CPU switched to a task.
    pub context_switches: u64,
    /// The number of times a task lost its CPU because its time slice ended or kernel work was due.
    pub preemptions: u64,
    /// The number of times a task moved to another CPU.
    pub migrations: u64,
    /// How many remote accesses to per-CPU data came too late: the owner's clock was already past
    /// the time of the access. Zero in strict mode.
    pub causality_slips: u64,
    /// The number of injected stalls.
    pub stalls: u64,
    /// The number of disturbances, indexed by `Disturbance as usize`.
    pub disturbances: [u64; Disturbance::ALL.len()],
    /// The virtual time by which disturbances delayed all CPUs together, in nanoseconds, indexed by
    /// `Disturbance as usize`.
    pub disturbed_ns: [u64; Disturbance::ALL.len()],
    /// The number of transfers of cache lines of shared words and locks between CPUs, indexed by
    /// `Distance as usize`.
    pub lines: [u64; 5],
    /// Statistics for each lock class and call site, indexed by `LockClass as usize`, then by
    /// `Site as usize`.
    pub locks: Vec<Vec<LockStats>>,
    /// The waits of each CPU for the locks of each class, indexed by `LockClass as usize`, then by
    /// CPU.
    pub cpu_waits: Vec<Vec<CpuWaits>>,
}

impl Stats {
    /// The combined statistics of all locks of `class`.
    #[must_use]
    pub fn class(&self, class: LockClass) -> LockStats {
        LockStats::sum(&self.locks[class as usize])
    }

    /// The statistics of locks of `class` that were acquired at the call site `site`.
    #[must_use]
    pub fn site(&self, class: LockClass, site: Site) -> &LockStats {
        &self.locks[class as usize][site as usize]
    }

    /// The number of CPUs that waited at least once for longer than `wait` for a lock of `class`.
    #[must_use]
    pub fn cpus_that_waited(&self, class: LockClass, wait: Nanos) -> usize {
        self.cpu_waits[class as usize]
            .iter()
            .filter(|cpu| cpu.max > wait)
            .count()
    }
}

/// How often the locks of a set were acquired, for how long CPUs waited for them, and for how long
/// CPUs held them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockStats {
    /// The number of times a lock was acquired.
    pub acquisitions: u64,
    /// The number of acquisitions that had to wait.
    pub contentions: u64,
    /// The number of contentions that `perf lock contention` would show. `perf` does not show the
    /// first waiter of a queued spinlock. This waiter spins on the pending bit, and is not traced.
    pub perf_contentions: u64,
    /// The sum of the waits that [`LockStats::perf_contentions`] counts.
    pub perf_wait_total: Nanos,
    /// The longest of the waits that [`LockStats::perf_contentions`] counts.
    pub perf_wait_max: Nanos,
    /// The number of attempts to acquire a lock that failed because the lock was held.
    pub failed_tries: u64,
    /// The total time of all waits.
    pub wait_total: Nanos,
    /// A log2 histogram of the waits; see [`HIST_BINS`].
    pub wait_hist: [u64; HIST_BINS],
    /// The longest wait; `None` if no acquisition had to wait.
    pub wait_max: Option<LongestWait>,
    /// The total time for which the locks were held.
    pub hold_total: Nanos,
    /// The longest time from an acquisition to the release.
    pub hold_max: Nanos,
    /// A log2 histogram of the holds; see [`HIST_BINS`].
    pub hold_hist: [u64; HIST_BINS],
}

/// The longest wait. Of several equal waits, it is the first.
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
    /// The call site at which the blocker had acquired the lock.
    pub blocker_site: Site,
}

/// The waits of one CPU for the locks of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuWaits {
    /// The total time of all waits.
    pub total: Nanos,
    /// The longest wait.
    pub max: Nanos,
}

impl LongestWait {
    /// A key that is larger for a longer wait. Of two equally long waits, the one that began
    /// earlier has the larger key; if both began at the same time, the wait on the CPU with the
    /// lower number has the larger key.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        (self.wait, Reverse((self.at, self.cpu)))
    }
}

impl LockStats {
    /// Statistics in which every counter is zero.
    #[must_use]
    pub const fn zero() -> Self {
        Self {
            acquisitions: 0,
            contentions: 0,
            perf_contentions: 0,
            perf_wait_total: Nanos(0),
            perf_wait_max: Nanos(0),
            failed_tries: 0,
            wait_total: Nanos(0),
            wait_hist: [0; HIST_BINS],
            wait_max: None,
            hold_total: Nanos(0),
            hold_max: Nanos(0),
            hold_hist: [0; HIST_BINS],
        }
    }

    /// Returns the combined statistics of all `parts`.
    #[must_use]
    pub fn sum(parts: &[Self]) -> Self {
        parts.iter().fold(Self::zero(), Self::plus)
    }

    fn plus(mut self, other: &Self) -> Self {
        self.acquisitions += other.acquisitions;
        self.contentions += other.contentions;
        self.perf_contentions += other.perf_contentions;
        self.perf_wait_total = self.perf_wait_total + other.perf_wait_total;
        self.perf_wait_max = self.perf_wait_max.max(other.perf_wait_max);
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
