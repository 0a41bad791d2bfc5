//! Measures how long allocations take. Two threads use the page allocator for a minute. During this
//! time, page lists are drained, shrink periodically (*decay*), and each thread frees pages that
//! the other thread allocated.
//!
//! Each thread is pinned to a CPU and works in *chunks* of a few microseconds. It alternates chunks
//! of allocations with chunks of an idle loop, which only reads the clock. Around each chunk the
//! thread asks the kernel how often it was switched from its CPU. It also compares the clock with
//! its CPU time, from which Linux leaves out the time that a hypervisor *stole*. If one of these
//! two checks shows that the thread did not run all the time, the times of the chunk are
//! *disturbed*. They go to a separate histogram. A long time of an undisturbed chunk also goes to a
//! separate histogram if another thread lost its CPU during the chunk. That thread may have held a
//! lock. The gaps of the undisturbed idle loop then show the only disturbance that remains:
//! interrupts. Divide the number of long times by the sum of all times, for allocations and for
//! gaps: if allocations have no more long times per second than the idle loop, then interrupts
//! alone cause them.

mod histogram;
mod load;
mod outcome;

use std::time::Duration;

use plimsoll_mm::units::Pages;

pub use self::histogram::Histogram;
use super::{CannotMeasure, Pair};

/// The settings of a soak, a long measurement of allocations: its length, its memory, and how often
/// page lists are drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoakOptions {
    /// The time for which the threads work.
    pub length: Duration,
    /// The number of pages of the allocator, at least 16,384.
    pub pages: Pages,
    /// The time between two drains of all page lists by one thread. The threads drain only in every
    /// other second. In the other seconds, lists can become long, and the periodic work then
    /// shrinks them.
    pub drain_every: Duration,
}

impl Default for SoakOptions {
    /// A soak takes one minute, and its allocator has 256 MiB. In every other second, each thread
    /// drains all page lists every 2 ms.
    fn default() -> Self {
        Self {
            length: Duration::from_secs(60),
            pages: Pages(1 << 16),
            drain_every: Duration::from_millis(2),
        }
    }
}

/// The times of one kind of operation, in a histogram for each kind of disturbance.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// Times in chunks (a few microseconds of work each) during which the thread had its CPU all
    /// the time, except those in `behind`.
    pub undisturbed: Histogram,
    /// Times of at least 10 µs in chunks (short periods of work) that were not disturbed, but
    /// during which another thread lost its CPU. That other thread may have held a lock.
    pub behind: Histogram,
    /// The times of operations in disturbed chunks. In such a chunk (a short period of work), the
    /// thread was switched from its CPU, or a hypervisor took the CPU.
    pub disturbed: Histogram,
}

/// The results of a soak, a long measurement of allocations. All times are in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Soak {
    /// The times of allocations. One in 16 allocations, chosen at random, allocates a block of 2 to
    /// 8 pages; the others allocate single pages.
    pub allocs: Times,
    /// The times of frees. Half of the freed pages were allocated by the other thread.
    pub frees: Times,
    /// The gaps between successive readings of the clock, in a loop that does nothing else.
    pub idle: Times,
    /// How long it took to drain all page lists, for each drain.
    pub drains: Times,
    /// The number of allocations that failed because no page was free.
    pub failed: u64,
    /// The number of all chunks (parts of a thread's work, each of a few microseconds), and the
    /// number of disturbed chunks.
    pub chunks: [u64; 2],
    /// The number of page faults of the two threads. The faults come from first touches of the
    /// allocator's records.
    pub faults: u64,
    /// The number of pages by which the CPUs' page lists became shorter while the periodic vmstat work
    /// ran, mostly because it moved pages to their zones.
    pub decayed: u64,
}

impl Soak {
    /// Returns the time of the longest undisturbed allocation, in nanoseconds. An allocation is
    /// undisturbed if the thread had its CPU during the whole chunk of operations to which the
    /// allocation belongs.
    #[must_use]
    pub fn longest_own(&self) -> u64 {
        self.allocs.undisturbed.max()
    }

    /// The times of allocations, of frees, of idle gaps and of drains, in the order of `Kind`.
    fn times(&mut self) -> [&mut Times; 4] {
        [
            &mut self.allocs,
            &mut self.frees,
            &mut self.idle,
            &mut self.drains,
        ]
    }

    fn merge(&mut self, other: &mut Self) {
        for (to, from) in self.times().into_iter().zip(other.times()) {
            to.undisturbed.merge(&from.undisturbed);
            to.behind.merge(&from.behind);
            to.disturbed.merge(&from.disturbed);
        }
        self.failed += other.failed;
        self.faults += other.faults;
        for (to, from) in self.chunks.iter_mut().zip(other.chunks) {
            *to += from;
        }
    }
}

/// Runs a soak, a long measurement of allocations, on two CPUs of this computer.
///
/// # Errors
/// If fewer than two CPUs are available, a thread cannot be pinned, or the kernel does not report
/// the CPU time of threads.
pub fn soak(options: &SoakOptions) -> Result<Soak, CannotMeasure> {
    load::run(Pair::find()?, options)
}
