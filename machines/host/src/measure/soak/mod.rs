//! How long an allocation can take: two threads use the page allocator for a minute, while page
//! lists are drained, decay, and get pages that the other thread allocated.
//!
//! Each thread is pinned to a CPU and works in *chunks* of a few microseconds. It alternates chunks
//! of allocations with chunks of an idle loop, which only reads the clock. Around each chunk the
//! thread asks the kernel how often it was switched from its CPU, and compares the clock with the
//! CPU time that it got, from which Linux also leaves out the time that a hypervisor *stole*. If
//! either says that the thread did not run all the time, all samples of the chunk are *disturbed*,
//! and counted apart. A long sample of an undisturbed chunk is counted apart too if another thread
//! lost its CPU meanwhile, because that thread may have held a lock. The gaps of the undisturbed
//! idle loop then show what remains: interrupts.

mod histogram;
mod load;
mod outcome;

use std::time::Duration;

use plimsoll_mm::units::Pages;

pub use self::histogram::Histogram;
use super::{CannotMeasure, Pair};

/// The sizes of a soak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoakOptions {
    /// The time for which the threads work.
    pub length: Duration,
    /// The number of pages of the allocator, at least 16,384.
    pub pages: Pages,
    /// The time between two drains of all lists, by each thread. There are drains only in every
    /// other second, so that lists can become long and decay in the other ones.
    pub drain_every: Duration,
}

impl Default for SoakOptions {
    /// A minute, 256 MiB, and a drain every 2 ms in every other second.
    fn default() -> Self {
        Self {
            length: Duration::from_secs(60),
            pages: Pages(1 << 16),
            drain_every: Duration::from_millis(2),
        }
    }
}

/// Times of one kind, by what the scheduler did meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// The times of chunks in which the thread had its CPU all the time.
    pub undisturbed: Histogram,
    /// Times of at least 10 µs of such chunks, while another thread had lost its CPU.
    pub behind: Histogram,
    /// The times of chunks in which the thread was switched from its CPU, or a hypervisor took the
    /// CPU.
    pub disturbed: Histogram,
}

/// The results of a soak. All times are in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Soak {
    /// The times of allocations: single pages, and every 16th time a block of 2 to 8 pages.
    pub allocs: Times,
    /// The times of frees, half of them of pages that the other thread allocated.
    pub frees: Times,
    /// The gaps between two readings of the clock in the idle loop.
    pub idle: Times,
    /// The times of drains of all lists.
    pub drains: Times,
    /// The number of allocations that found no page.
    pub failed: u64,
    /// The number of chunks, and of those that were disturbed.
    pub chunks: [u64; 2],
    /// The number of page faults of the two threads: first touches of the allocator's records.
    pub faults: u64,
    /// The number of pages on the lists that vmstat work gave back because they decayed.
    pub decayed: u64,
}

impl Soak {
    /// The longest allocation that the scheduler did not cause, in nanoseconds.
    #[must_use]
    pub fn longest_own(&self) -> u64 {
        self.allocs.undisturbed.max()
    }

    /// The times of all kinds.
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

/// Runs a soak on two CPUs of this computer.
///
/// # Errors
/// If fewer than two CPUs are there, a thread cannot be pinned, or the kernel does not report the
/// CPU time of threads.
pub fn soak(options: &SoakOptions) -> Result<Soak, CannotMeasure> {
    load::run(Pair::find()?, options)
}
