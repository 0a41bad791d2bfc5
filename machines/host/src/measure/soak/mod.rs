//! How long an allocation can take: two threads use the page allocator for a minute, while page
//! lists are drained, decay, and get pages that the other thread allocated.
//!
//! Each thread is pinned to a CPU and works in *chunks* of a few microseconds. It alternates chunks
//! of allocations with chunks of an idle loop, which only reads the clock. Around each chunk the
//! thread asks the kernel how often it was switched from its CPU, and compares the clock with the
//! CPU time that it got, from which Linux also leaves out the time that a hypervisor *stole*. If
//! either says that the thread did not run all the time, all samples of the chunk are *disturbed*,
//! and counted apart. The gaps of the undisturbed idle loop then show what remains: interrupts.

mod histogram;
mod load;

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
    /// The time between two drains of all lists, by each thread.
    pub drain_every: Duration,
}

impl Default for SoakOptions {
    /// A minute, 256 MiB, and a drain every 2 ms.
    fn default() -> Self {
        Self {
            length: Duration::from_secs(60),
            pages: Pages(1 << 16),
            drain_every: Duration::from_millis(2),
        }
    }
}

/// Times of one kind, from chunks in which the thread ran all the time, and from others.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// The times of chunks in which the thread had its CPU all the time.
    pub undisturbed: Histogram,
    /// The times of chunks in which the thread was switched from its CPU, or a hypervisor took the
    /// CPU.
    pub disturbed: Histogram,
    /// The longest time of a disturbed chunk that remains if all the time that the thread did not
    /// run is subtracted from it, in nanoseconds. A lower bound for what the sample itself took.
    pub left_of_disturbed: u64,
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
    /// The number of pages on the lists that vmstat work gave back because they decayed.
    pub decayed: u64,
}

impl Soak {
    /// The longest allocation that the scheduler did not cause, in nanoseconds: the longest of the
    /// undisturbed chunks, or what is left of one in a disturbed chunk.
    #[must_use]
    pub fn longest_own(&self) -> u64 {
        let Times {
            undisturbed,
            left_of_disturbed,
            ..
        } = &self.allocs;
        undisturbed.max().max(*left_of_disturbed)
    }

    fn merge(&mut self, other: &Self) {
        for (to, from) in [
            (&mut self.allocs, &other.allocs),
            (&mut self.frees, &other.frees),
            (&mut self.idle, &other.idle),
            (&mut self.drains, &other.drains),
        ] {
            to.undisturbed.merge(&from.undisturbed);
            to.disturbed.merge(&from.disturbed);
            to.left_of_disturbed = to.left_of_disturbed.max(from.left_of_disturbed);
        }
        self.failed += other.failed;
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
