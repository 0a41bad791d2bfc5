//! Times a lock between two CPUs of this computer, to check simulated machines.
//!
//! [`prices`] measures *prices*: the times of a lock's steps, which a simulated machine takes as
//! input. [`lock_waits`] measures the waits for the lock, which the simulated machine must predict
//! from these prices. Both return [`CannotMeasure`], rather than panic, if the measurement is
//! impossible.
//!
//! Other work on the computer need not prevent a measurement. Each thread watches its clock. If the
//! clock jumps, the thread was not running, and the samples of both threads near the jump are
//! dropped ([`Waits::kept_share`]). This requires clocks that agree between CPUs, as time-stamp
//! counters of the last fifteen years do.

mod calibrate;
mod clock;
mod contend;
mod soak;
mod watch;

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::{fmt, io, panic, thread};

pub use calibrate::{prices, prices_of};
pub use contend::lock_waits;
pub use soak::{Histogram, Soak, SoakOptions, Times, soak};

use crate::affinity::{self, CpuMask};

/// Two real CPUs on which the calling thread may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair([u32; 2]);

impl Pair {
    /// Finds the first two CPUs on which the calling thread may run.
    ///
    /// # Errors
    /// If the thread may run on fewer than two CPUs, or cannot be pinned to one of them.
    pub fn find() -> Result<Self, CannotMeasure> {
        let mask = CpuMask::of_this_thread();
        let &[first, second, ..] = mask.cpus() else {
            return Err(CannotMeasure::OneCpu);
        };
        let pinned = [first, second].map(|cpu| {
            let pinned = affinity::pin(&CpuMask::only(cpu));
            pinned.map_err(|why| CannotMeasure::PinRefused { cpu, why })
        });
        affinity::pin(&mask).map_err(|why| CannotMeasure::PinRefused { cpu: first, why })?;
        pinned.into_iter().collect::<Result<(), _>>()?;
        Ok(Self([first, second]))
    }

    /// The numbers of the two CPUs.
    #[must_use]
    pub fn cpus(self) -> [u32; 2] {
        self.0
    }

    /// Runs both closures at the same time, each on its own CPU.
    fn run<A: Send, B: Send>(
        self,
        a: impl FnOnce() -> A + Send,
        b: impl FnOnce() -> B + Send,
    ) -> Result<(A, B), CannotMeasure> {
        let missing = AtomicU32::new(2);
        thread::scope(|scope| {
            let other = scope.spawn(|| on_cpu(self.0[1], &missing, b));
            // This closure runs on a new thread, like the other closure, so that the caller's
            // affinity does not change.
            let one = scope.spawn(|| on_cpu(self.0[0], &missing, a));
            let one = one.join().unwrap_or_else(|bug| panic::resume_unwind(bug));
            let other = other.join().unwrap_or_else(|bug| panic::resume_unwind(bug));
            Ok((one?, other?))
        })
    }
}

/// Pins the calling thread, waits for the other thread, and runs `f`. If the thread cannot be
/// pinned, returns an error without running `f`. The other thread does not hang, because all of its
/// later waits have a time limit.
fn on_cpu<R>(cpu: u32, missing: &AtomicU32, f: impl FnOnce() -> R) -> Result<R, CannotMeasure> {
    let pinned = affinity::pin(&CpuMask::only(cpu));
    // Release and Acquire are the usual pair of a barrier, although this barrier publishes no data.
    missing.fetch_sub(1, Release);
    while missing.load(Acquire) != 0 {
        thread::yield_now();
    }
    pinned.map_err(|why| CannotMeasure::PinRefused { cpu, why })?;
    Ok(f())
}

/// How two threads use one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The mean of the times between a release and the next request, in nanoseconds. These times
    /// are exponentially distributed.
    pub think_ns: u32,
    /// The constant time between an acquisition and its release, in nanoseconds.
    pub hold_ns: u32,
}

/// The waits for a lock, each from the request to the first read of the locked value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waits {
    /// The share of acquisitions that found the lock held, from 0 to 1. Acquisitions that were
    /// disturbed by other work on the CPUs do not count.
    pub contended_share: f64,
    /// The mean wait, in nanoseconds.
    pub mean_ns: f64,
    /// The median wait, in nanoseconds.
    pub p50_ns: f64,
    /// The 90th percentile of the waits, in nanoseconds.
    pub p90_ns: f64,
    /// The 99th percentile of the waits, in nanoseconds.
    pub p99_ns: f64,
    /// The 99.9th percentile of the waits, in nanoseconds.
    pub p999_ns: f64,
    /// The actual mean length of a hold, in nanoseconds. A hold is a little longer than
    /// [`Load::hold_ns`], because the holder notices that this time is over only when it next reads
    /// the clock.
    pub hold_ns: f64,
    /// The mean time by which a request comes later than planned, in nanoseconds. A thread notices
    /// that the planned time has come only when it next reads the clock.
    pub late_ns: f64,
    /// The number of acquisitions that were kept, because neither thread was disturbed.
    pub kept: usize,
    /// The share of all acquisitions that were kept, because neither thread was disturbed; from 0
    /// to 1.
    pub kept_share: f64,
}

/// The time that one step takes, from the middle half of many timings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// The mean of the middle half of the timings, in nanoseconds.
    pub middle_ns: f64,
    /// The lower end of the middle half of the timings, in nanoseconds.
    pub low_ns: f64,
    /// The upper end of the middle half of the timings, in nanoseconds.
    pub high_ns: f64,
    /// The number of timings from which the price was computed.
    pub timings: usize,
}

/// Two cache lines never move from one core to another within this time, in nanoseconds. In
/// published tables, the move of one line takes at least 20 ns.
const TWO_LINES_NS: f64 = 30.0;

/// The time of each step of a lock that two CPUs use. A simulated machine takes these times as
/// prices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// The transfer of one cache line from one CPU to the other, in one direction.
    pub transfer: Price,
    /// A hand-over: the time from a release of the lock to the waiter's first read of the value.
    pub handover: Price,
    /// Acquiring and releasing a free lock that the same CPU held last.
    pub own: Price,
    /// The time to acquire a free lock that the same CPU held last, up to the first read of the
    /// value. A timing of `entry` ends only when all earlier loads are complete. So `entry` takes
    /// longer than the same part of `own`.
    pub entry: Price,
    /// The time to acquire a free lock that the other CPU held last, up to the first read of the
    /// value.
    pub remote: Price,
}

impl Prices {
    /// Returns whether the two CPUs were probably hardware threads (SMT) of one core most of the
    /// time, whatever the kernel reports. In that case, no cache line was transferred when one CPU
    /// took a lock that the other CPU had held last.
    #[must_use]
    pub fn look_like_one_core(&self) -> bool {
        self.remote.middle_ns < self.entry.middle_ns + TWO_LINES_NS
    }

    /// Returns how much two sets of prices (the times of the steps of a lock) differ: the largest
    /// ratio between the two values of a price. The prices `transfer`, `handover` and `remote` are
    /// compared. The result is 1 if all of them are equal.
    ///
    /// A hypervisor may move its virtual CPUs between cores at any time. If the prices before and
    /// after a measurement differ, the measurement fits neither set.
    #[must_use]
    pub fn drift(&self, other: &Self) -> f64 {
        let pairs = [
            (self.transfer, other.transfer),
            (self.handover, other.handover),
            (self.remote, other.remote),
        ];
        let ratio = |(a, b): (Price, Price)| {
            // Raise both values to at least 20 ns, two ticks of a slow clock, because shorter times
            // may differ just by the length of a tick.
            let (a, b) = (a.middle_ns.max(20.0), b.middle_ns.max(20.0));
            a.max(b) / a.min(b)
        };
        pairs.map(ratio).into_iter().fold(1.0, f64::max)
    }
}

/// The reason why the measurement was impossible on this computer.
#[derive(Debug)]
pub enum CannotMeasure {
    /// The calling thread may run on fewer than two CPUs.
    OneCpu,
    /// A thread could not be pinned to a CPU.
    PinRefused {
        /// The number of the CPU to which the thread was to be pinned.
        cpu: u32,
        /// The kernel's error.
        why: io::Error,
    },
    /// Too few samples were undisturbed.
    TooBusy {
        /// The share of samples that were kept, from 0 to 1.
        kept_share: f64,
    },
    /// One CPU did not respond to the other for several seconds.
    Stalled,
    /// The kernel refused to start a thread, or does not report a thread's CPU time, switches and
    /// page faults.
    Refused(io::Error),
}

impl fmt::Display for CannotMeasure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneCpu => f.write_str("this thread may not run on two CPUs"),
            Self::PinRefused { cpu, why } => {
                write!(f, "a thread cannot be pinned to CPU {cpu}: {why}")
            }
            Self::TooBusy { kept_share } => {
                let percent = kept_share * 100.0;
                write!(
                    f,
                    "the CPUs are too busy: {percent:.0} % of the samples were undisturbed"
                )
            }
            Self::Stalled => f.write_str("one CPU did not answer the other for seconds"),
            Self::Refused(why) => write!(f, "the kernel refused: {why}"),
        }
    }
}

impl std::error::Error for CannotMeasure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::PinRefused { why, .. } | Self::Refused(why) => Some(why),
            Self::OneCpu | Self::TooBusy { .. } | Self::Stalled => None,
        }
    }
}

/// The mean of the middle half of `sorted`; zero if `sorted` is empty.
fn middle(sorted: &[f64]) -> f64 {
    let quarter = sorted.len() / 4;
    let half = &sorted[quarter..sorted.len() - quarter];
    #[expect(clippy::cast_precision_loss, reason = "a length that fits memory")]
    let count = half.len().max(1) as f64;
    half.iter().sum::<f64>() / count
}

/// Returns the quantile `share` of `sorted` (nearest rank): the smallest value that is at least as
/// large as this share of all values. Zero if `sorted` is empty.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a rank within a slice that fits memory"
    )]
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_ranks() {
        let sorted = [1.0, 2.0, 3.0, 4.0];
        assert!((quantile(&sorted, 0.5) - 2.0).abs() < 1e-9);
        assert!((quantile(&sorted, 0.51) - 3.0).abs() < 1e-9);
        assert!((quantile(&sorted, 0.0) - 1.0).abs() < 1e-9);
        assert!((quantile(&sorted, 1.0) - 4.0).abs() < 1e-9);
        assert!(quantile(&[], 0.5).abs() < 1e-9);
        assert!((middle(&[1.0, 2.0, 4.0, 99.0]) - 3.0).abs() < 1e-9);
        assert!(middle(&[]).abs() < 1e-9);
    }

    #[test]
    fn drift_is_the_worst_ratio() {
        let price = |middle_ns| Price {
            middle_ns,
            low_ns: 0.0,
            high_ns: 0.0,
            timings: 1,
        };
        let prices = |handover, remote| Prices {
            transfer: price(50.0),
            handover: price(handover),
            own: price(6.0),
            entry: price(10.0),
            remote: price(remote),
        };
        let (near, far) = (prices(90.0, 30.0), prices(360.0, 90.0));
        assert!((near.drift(&far) - 4.0).abs() < 1e-9 && (far.drift(&near) - 4.0).abs() < 1e-9);
        assert!((near.drift(&near) - 1.0).abs() < 1e-9);
        assert!(near.look_like_one_core() && !far.look_like_one_core());
    }

    #[test]
    fn measuring_answers_or_says_why_not() {
        let pair = match Pair::find() {
            Ok(pair) => pair,
            Err(why) => return assert!(!why.to_string().is_empty()),
        };
        let brief = std::time::Duration::from_millis(30);
        match lock_waits(
            pair,
            Load {
                think_ns: 2000,
                hold_ns: 500,
            },
            brief,
        ) {
            Ok(waits) => {
                assert!((0.0..=1.0).contains(&waits.contended_share), "{waits:?}");
                assert!(
                    waits.p50_ns <= waits.p90_ns && waits.p90_ns <= waits.p999_ns,
                    "{waits:?}"
                );
                assert!(waits.kept_share >= 0.2 && waits.kept > 0, "{waits:?}");
            }
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
}
