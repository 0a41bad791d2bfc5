//! A clock that is quick to read: the time-stamp counter on x86-64, the system's clock elsewhere.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the time-stamp counter is read by an intrinsic")
)]

use std::time::{Duration, Instant};

pub(super) use imp::{ticks, ticks_after_loads};

/// The time over which [`ticks`] and the system's clock are compared, to measure the rate of
/// [`ticks`].
const COMPARED: Duration = Duration::from_millis(20);

/// The number of times that both clocks are read. Only the pair of readings that took the least
/// time is used.
const READINGS: u32 = 32;

/// The rate of [`ticks`], in nanoseconds per tick.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    ns_per_tick: f64,
}

impl Rate {
    /// Measures the rate of [`ticks`] against the system's clock.
    pub(super) fn measure() -> Self {
        let (start_ticks, start) = both_clocks();
        std::thread::sleep(COMPARED);
        let (end_ticks, end) = both_clocks();
        let elapsed_ns = end.duration_since(start).as_secs_f64() * 1e9;
        Self {
            ns_per_tick: elapsed_ns / as_f64(end_ticks.saturating_sub(start_ticks).max(1)),
        }
    }

    pub(super) fn ns(self, ticks: u64) -> f64 {
        as_f64(ticks) * self.ns_per_tick
    }

    pub(super) fn ticks(self, ns: f64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "spans of a measurement, positive and far below 2^53"
        )]
        let ticks = (ns / self.ns_per_tick) as u64;
        ticks
    }
}

/// Reads both clocks at nearly the same moment. Of [`READINGS`] such pairs, returns the pair whose
/// readings took the least time.
fn both_clocks() -> (u64, Instant) {
    let reading = || {
        let before = ticks();
        let now = Instant::now();
        let after = ticks_after_loads();
        (after.saturating_sub(before), before.midpoint(after), now)
    };
    let closest = (1..READINGS)
        .map(|_| reading())
        .fold(reading(), |a, b| if b.0 < a.0 { b } else { a });
    (closest.1, closest.2)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "spans of a measurement, far below 2^53"
)]
fn as_f64(ticks: u64) -> f64 {
    ticks as f64
}

#[cfg(target_arch = "x86_64")]
mod imp {
    use std::arch::x86_64::{__rdtscp, _rdtsc};

    /// The time now, in ticks.
    #[inline]
    pub(in crate::measure) fn ticks() -> u64 {
        // SAFETY: every x86-64 has the counter, and Linux leaves it readable.
        unsafe { _rdtsc() }
    }

    /// The time, in ticks, when every earlier load from memory is complete.
    #[inline]
    pub(in crate::measure) fn ticks_after_loads() -> u64 {
        let mut cpu = 0;
        // SAFETY: every x86-64 of the last fifteen years has the instruction, and it writes
        // `cpu` only.
        unsafe { __rdtscp(&raw mut cpu) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod imp {
    use std::sync::LazyLock;
    use std::time::Instant;

    use plimsoll_mm::units::Nanos;

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// The time since the clock was first read, in ticks of one nanosecond.
    pub(in crate::measure) fn ticks() -> u64 {
        Nanos::from(START.elapsed()).0
    }

    /// The time, in ticks, when every earlier load from memory is complete. Reading the system's
    /// clock takes so long that these loads are complete by then.
    pub(in crate::measure) fn ticks_after_loads() -> u64 {
        ticks()
    }
}
