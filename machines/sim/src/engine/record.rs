//! The counters of a running machine.
//!
//! The counters are plain cells: counting never waits, and never affects the simulation. The run's
//! hash is a sum over the hashes of its events. The hash of an event depends on the event's kind,
//! time and CPU. The sum does not depend on the order in which the host simulated the events. So
//! both variants of [`LockModel`](crate::LockModel) give the same hash, unless there was a
//! causality slip: a CPU accessed per-CPU data at a time before the owner's last access.

use std::cell::Cell;

use plimsoll_mm::machine::Job;
use plimsoll_mm::site::{LockClass, Site, Work};
use plimsoll_mm::topology::Distance;
use plimsoll_mm::units::Nanos;

use crate::profile::Disturbance;
use crate::stats::{HIST_BINS, LockStats, LongestWait};

/// The kinds of events that count for the run's hash. The low bits of a kind hold details of the
/// event.
pub(crate) const LOCK: u64 = 0x100;
pub(crate) const WORD: u64 = 0x200;
pub(crate) const JOB: u64 = 0x300;
pub(crate) const MIGRATE: u64 = 0x400;
pub(crate) const EMIT: u64 = 0x500;
pub(crate) const DISTURBANCE: u64 = 0x600;

/// The counters of a machine, and a hash of the events that happened on it.
pub(crate) struct Record {
    pub(crate) hash: Cell<u64>,
    pub(crate) hashed: Cell<u64>,
    pub(crate) work_ns: [Cell<u64>; Work::ALL.len()],
    pub(crate) jobs_run: [Cell<u64>; Job::ALL.len()],
    pub(crate) jobs_ignored: Cell<u64>,
    pub(crate) wakeups: Cell<u64>,
    pub(crate) context_switches: Cell<u64>,
    pub(crate) preemptions: Cell<u64>,
    pub(crate) migrations: Cell<u64>,
    pub(crate) slips: Cell<u64>,
    pub(crate) stalls: Cell<u64>,
    pub(crate) disturbances: [Cell<u64>; Disturbance::ALL.len()],
    pub(crate) disturbed_ns: [Cell<u64>; Disturbance::ALL.len()],
    pub(crate) lines: [Cell<u64>; 5],
    /// For each lock class and call site, the number of critical sections that took no virtual
    /// time, as nearly all sections of a per-CPU lock do. These counts are separate from `locks`,
    /// so that counting such a section touches few cache lines.
    instant: [[Cell<u64>; Site::ALL.len()]; LockClass::ALL.len()],
    locks: [[LockCells; Site::ALL.len()]; LockClass::ALL.len()],
}

/// The counters from which a [`LockStats`] is made.
pub(crate) struct LockCells {
    acquisitions: Cell<u64>,
    hold_total: Cell<u64>,
    hold_max: Cell<u64>,
    contentions: Cell<u64>,
    perf_contentions: Cell<u64>,
    perf_wait_total: Cell<u64>,
    perf_wait_max: Cell<u64>,
    failed_tries: Cell<u64>,
    wait_total: Cell<u64>,
    wait_max: Cell<Option<LongestWait>>,
    hold_hist: [Cell<u64>; HIST_BINS],
    wait_hist: [Cell<u64>; HIST_BINS],
}

impl Record {
    pub(crate) fn new() -> Self {
        Self {
            hash: Cell::default(),
            hashed: Cell::default(),
            work_ns: Default::default(),
            jobs_run: Default::default(),
            jobs_ignored: Cell::default(),
            wakeups: Cell::default(),
            context_switches: Cell::default(),
            preemptions: Cell::default(),
            migrations: Cell::default(),
            slips: Cell::default(),
            stalls: Cell::default(),
            disturbances: Default::default(),
            disturbed_ns: Default::default(),
            lines: Default::default(),
            instant: Default::default(),
            locks: std::array::from_fn(|_| std::array::from_fn(|_| LockCells::new())),
        }
    }

    /// Adds an event to the hash of the run: its time in nanoseconds, its CPU and its kind.
    #[inline]
    pub(crate) fn fold(&self, time: u64, cpu: usize, kind: u64) {
        let place = (cpu as u64) << 40 ^ kind;
        let mut mixed = time.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place.rotate_left(20);
        mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^= mixed >> 29;
        self.hash.set(self.hash.get().wrapping_add(mixed));
        bump(&self.hashed);
    }

    /// Counts the transfer of a cache line over `distance`.
    #[inline]
    pub(crate) fn line_moved(&self, distance: Distance) {
        bump(&self.lines[distance as usize]);
    }

    /// Counts a critical section that has ended, in which a CPU held a lock for `hold_ns`
    /// nanoseconds.
    #[inline(always)]
    pub(crate) fn held(&self, class: LockClass, site: Site, hold_ns: u64) {
        if hold_ns == 0 {
            bump(&self.instant[class as usize][site as usize]);
        } else {
            self.lock(class, site).held(hold_ns);
        }
    }

    pub(crate) fn lock_stats(&self, class: LockClass, site: Site) -> LockStats {
        let mut stats = self.lock(class, site).stats();
        let instant = self.instant[class as usize][site as usize].get();
        stats.acquisitions += instant;
        stats.hold_hist[bin(0)] += instant;
        stats
    }

    #[inline]
    pub(crate) fn lock(&self, class: LockClass, site: Site) -> &LockCells {
        &self.locks[class as usize][site as usize]
    }
}

impl LockCells {
    fn new() -> Self {
        Self {
            acquisitions: Cell::default(),
            hold_total: Cell::default(),
            hold_max: Cell::default(),
            contentions: Cell::default(),
            perf_contentions: Cell::default(),
            perf_wait_total: Cell::default(),
            perf_wait_max: Cell::default(),
            failed_tries: Cell::default(),
            wait_total: Cell::default(),
            wait_max: Cell::default(),
            hold_hist: [const { Cell::new(0) }; HIST_BINS],
            wait_hist: [const { Cell::new(0) }; HIST_BINS],
        }
    }

    /// Counts a critical section that has ended, in which a CPU held the lock for `hold_ns`
    /// nanoseconds.
    #[inline]
    fn held(&self, hold_ns: u64) {
        bump(&self.acquisitions);
        self.hold_total.set(self.hold_total.get() + hold_ns);
        self.hold_max.set(self.hold_max.get().max(hold_ns));
        bump(&self.hold_hist[bin(hold_ns)]);
    }

    /// Counts an attempt to acquire the lock that failed because the lock was held.
    pub(crate) fn gave_up(&self) {
        bump(&self.failed_tries);
    }

    /// Counts a finished wait. `traced` says whether `perf lock contention` would show this wait.
    pub(crate) fn waited(&self, wait: LongestWait, traced: bool) {
        bump(&self.contentions);
        if traced {
            bump(&self.perf_contentions);
            let total = self.perf_wait_total.get();
            self.perf_wait_total.set(total + wait.wait.0);
            let longest = self.perf_wait_max.get();
            self.perf_wait_max.set(longest.max(wait.wait.0));
        }
        self.wait_total.set(self.wait_total.get() + wait.wait.0);
        bump(&self.wait_hist[bin(wait.wait.0)]);
        if self
            .wait_max
            .get()
            .is_none_or(|max| wait.rank() > max.rank())
        {
            self.wait_max.set(Some(wait));
        }
    }

    fn stats(&self) -> LockStats {
        LockStats {
            acquisitions: self.acquisitions.get(),
            contentions: self.contentions.get(),
            perf_contentions: self.perf_contentions.get(),
            perf_wait_total: Nanos(self.perf_wait_total.get()),
            perf_wait_max: Nanos(self.perf_wait_max.get()),
            failed_tries: self.failed_tries.get(),
            wait_total: Nanos(self.wait_total.get()),
            wait_hist: self.wait_hist.each_ref().map(Cell::get),
            wait_max: self.wait_max.get(),
            hold_total: Nanos(self.hold_total.get()),
            hold_max: Nanos(self.hold_max.get()),
            hold_hist: self.hold_hist.each_ref().map(Cell::get),
        }
    }
}

/// Returns the index of the histogram bin for a time of `span_ns` nanoseconds: the number of its
/// binary digits, but at most the index of the last bin.
#[inline]
fn bin(span_ns: u64) -> usize {
    ((u64::BITS - span_ns.leading_zeros()) as usize).min(HIST_BINS - 1)
}

#[inline]
pub(crate) fn bump(count: &Cell<u64>) {
    count.set(count.get() + 1);
}
