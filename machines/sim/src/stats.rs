//! What a run has counted: plain data, equal for equal runs.

use std::cmp::Reverse;

use plimsoll_mm::machine::Job;
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::units::{CpuId, Nanos};

/// Bins of a histogram: bin `b` counts spans whose binary length is `b`, that is 0, 1, 2–3, 4–7
/// and so on nanoseconds; the last bin takes all that are longer.
pub const HIST_BINS: usize = 40;

/// All statistics of a machine. Two runs of the same inputs have equal ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// How far the run got.
    pub now: Nanos,
    /// A hash over all ordered events with their time and CPU; the same wherever the run is
    /// repeated, in whatever build.
    pub hash: u64,
    /// Events in the hash.
    pub hashed_events: u64,
    /// Resumptions by the scheduler loop: host effort, not part of the simulated machine.
    pub resumptions: u64,
    /// Virtual time spent per kind of work, indexed by `Work as usize`, all CPUs together.
    pub work_ns: [u64; Work::ALL.len()],
    /// Jobs that ran, indexed by `Job as usize`.
    pub jobs_run: [u64; Job::ALL.len()],
    /// Jobs deferred to an offline CPU, and ignored.
    pub jobs_ignored: u64,
    /// Times an idle CPU started to run.
    pub wakeups: u64,
    /// Times a task was switched to.
    pub context_switches: u64,
    /// Tasks that were taken off a CPU because their slice was over or kernel work came.
    pub preemptions: u64,
    /// Tasks that changed CPU.
    pub migrations: u64,
    /// Remote accesses to per-CPU data whose owner had run past them. Zero in strict mode.
    pub causality_slips: u64,
    /// Stalls injected.
    pub stalls: u64,
    /// Cache lines of shared words and locks that moved between CPUs, indexed by
    /// `Distance as usize`.
    pub lines: [u64; 5],
    /// Per lock class and call site, indexed by `LockClass as usize`, then `Site as usize`.
    pub locks: Vec<Vec<LockStats>>,
    /// Waits per lock class and CPU, indexed by `LockClass as usize`, then CPU.
    pub cpu_waits: Vec<Vec<CpuWaits>>,
}

impl Stats {
    /// Everything about locks of `class`.
    #[must_use]
    pub fn class(&self, class: LockClass) -> LockStats {
        LockStats::sum(&self.locks[class as usize])
    }

    /// Everything about locks of `class` taken at `site`.
    #[must_use]
    pub fn site(&self, class: LockClass, site: Site) -> &LockStats {
        &self.locks[class as usize][site as usize]
    }

    /// How many CPUs waited at least once for longer than `wait` for a lock of `class`.
    #[must_use]
    pub fn cpus_that_waited(&self, class: LockClass, wait: Nanos) -> usize {
        self.cpu_waits[class as usize]
            .iter()
            .filter(|cpu| cpu.max > wait)
            .count()
    }
}

/// Acquisitions, waits and holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockStats {
    /// Times it was taken.
    pub acquisitions: u64,
    /// Acquisitions that waited.
    pub contentions: u64,
    /// Contentions that `perf lock contention` would show: the first waiter of a queued spinlock
    /// spins on the pending bit and is not traced.
    pub perf_contentions: u64,
    /// Attempts that gave up because somebody held it.
    pub failed_tries: u64,
    /// Sum of waits.
    pub wait_total: Nanos,
    /// Log2 histogram of waits of contentions; see [`HIST_BINS`].
    pub wait_hist: [u64; HIST_BINS],
    /// The longest wait.
    pub wait_max: Option<LongestWait>,
    /// Sum of holds.
    pub hold_total: Nanos,
    /// The longest hold.
    pub hold_max: Nanos,
    /// Log2 histogram of holds; see [`HIST_BINS`].
    pub hold_hist: [u64; HIST_BINS],
}

/// The longest wait, the first of equals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongestWait {
    /// How long.
    pub wait: Nanos,
    /// When it began.
    pub at: Nanos,
    /// Who waited.
    pub cpu: CpuId,
    /// Who held the lock when the wait began.
    pub blocker: CpuId,
    /// What the holder held it for.
    pub blocker_site: Site,
}

/// What one CPU waited for locks of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuWaits {
    /// Sum of waits.
    pub total: Nanos,
    /// The longest.
    pub max: Nanos,
}

impl LongestWait {
    /// Orders waits by length; of equals the earliest is first, then the lowest CPU.
    pub(crate) fn rank(&self) -> impl Ord + use<> {
        (self.wait, Reverse((self.at, self.cpu)))
    }
}

impl LockStats {
    /// Nothing counted.
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

    /// All of `parts` together.
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
