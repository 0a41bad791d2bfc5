//! The prices of a lock between two CPUs: the times of the lock's steps. Each price is the mean of
//! the middle half of many timings.
//!
//! An interrupt spoils only the timing during which it happens, and such a long timing is not in
//! the middle half. So the measurement needs no [`Watch`](super::watch::Watch), which detects when
//! a thread did not run. The price is the mean of the middle half rather than the median, because
//! some clocks tick in steps of 10 ns. Every wait for the other CPU has a time limit.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::clock::{Rate, ticks, ticks_after_loads};
use super::contend::reading_ns;
use super::{CannotMeasure, Pair, Price, Prices, middle, quantile};
use crate::locks::TicketLock;

/// The number of rounds; each round measures all prices, the times of a lock's steps. A hypervisor
/// may move virtual CPUs to other cores in the middle of a measurement. If the prices were measured
/// one after the other, such a move would affect only the later prices. With rounds it affects all
/// prices.
const ROUNDS: u32 = 8;

/// The number of timings of one step of a lock in each round.
const TIMINGS: u64 = 2000;

/// The number of times that one timing repeats a step which is too short to be timed alone.
const STEPS: u32 = 64;

/// The time for which a CPU waits before a timing, without touching the lock's cache line, in
/// nanoseconds.
const SETTLE_NS: f64 = 400.0;

/// The time for which a holder keeps the lock, in nanoseconds. It is long enough for the other CPU
/// to start to wait.
const HOLD_NS: f64 = 500.0;

/// The longest time for which one CPU waits for the other before the measurement fails, in
/// nanoseconds.
const PATIENCE_NS: f64 = 3e9;

/// Measures the prices of a lock, which are the times of its steps, between the CPUs of `pair`.
/// Takes a fraction of a second if the CPUs are idle.
///
/// # Errors
/// If a thread cannot be pinned, or the CPUs are so busy that they do not run at the same time.
pub fn prices(pair: Pair) -> Result<Prices, CannotMeasure> {
    prices_of(pair, ROUNDS)
}

/// Measures the prices of a lock that the two CPUs of `pair` use, in `rounds` rounds of timings. 2
/// rounds take about a tenth of a second.
///
/// # Errors
/// If a thread cannot be pinned, or the CPUs are so busy that they do not run at the same time.
pub fn prices_of(pair: Pair, rounds: u32) -> Result<Prices, CannotMeasure> {
    let rate = Rate::measure();
    let mut timings: [Vec<f64>; 5] = Default::default();
    for _ in 0..rounds {
        timings[0].extend(transfer(pair, rate)?);
        timings[1].extend(handover(pair, rate)?);
        timings[2].extend(own(pair, rate)?);
        timings[3].extend(entry(pair, rate)?);
        timings[4].extend(remote(pair, rate)?);
    }
    let [transfer, handover, own, entry, remote] = timings.map(price);
    Ok(Prices {
        transfer: transfer?,
        handover: handover?,
        own: own?,
        entry: entry?,
        remote: remote?,
    })
}

/// A counter in cache lines that no other data shares.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Line {
    /// Waits until the counter holds `value`.
    fn wait_for(&self, value: u64, rate: Rate) -> Result<(), CannotMeasure> {
        const LOOKS_PER_READING: u32 = 1 << 12;
        let mut patience_end = None;
        loop {
            for _ in 0..LOOKS_PER_READING {
                // Acquire pairs with the Release in `put`.
                if self.0.load(Acquire) == value {
                    return Ok(());
                }
            }
            let end = *patience_end.get_or_insert_with(|| ticks() + rate.ticks(PATIENCE_NS));
            if ticks() > end {
                return Err(CannotMeasure::Stalled);
            }
        }
    }

    fn put(&self, value: u64) {
        // Release pairs with the Acquire in `wait_for`.
        self.0.store(value, Release);
    }
}

/// Measures the transfer of a cache line that alternates between the two CPUs. Each timing is half
/// of a round trip, in nanoseconds.
fn transfer(pair: Pair, rate: Rate) -> Result<Vec<f64>, CannotMeasure> {
    let line = Line::default();
    let trips = TIMINGS * u64::from(STEPS);
    let ping = || {
        let mut timings = Vec::new();
        let mut start = ticks();
        for trip in 0..trips {
            line.put(2 * trip + 1);
            line.wait_for(2 * trip + 2, rate)?;
            if (trip + 1).is_multiple_of(u64::from(STEPS)) {
                let now = ticks();
                timings.push(rate.ns(now.saturating_sub(start)) / f64::from(2 * STEPS));
                start = now;
            }
        }
        Ok(timings)
    };
    let pong = || {
        (0..trips).try_for_each(|trip| {
            line.wait_for(2 * trip + 1, rate)?;
            line.put(2 * trip + 2);
            Ok(())
        })
    };
    let (timings, answered): (Result<Vec<f64>, _>, Result<(), _>) = pair.run(ping, pong)?;
    answered?;
    timings
}

/// Times hand-overs: from one CPU's release of the lock to the other CPU's first read of the value,
/// in nanoseconds. Both CPUs request the lock all the time.
///
/// The waiter reads the clock between attempts, as in `lock_waits`. Otherwise a hand-over takes up
/// to a fifth longer.
fn handover(pair: Pair, rate: Rate) -> Result<Vec<f64>, CannotMeasure> {
    // The value holds the time of the last release, and the CPU that released the lock.
    let lock = TicketLock::new((0_u64, 0_u8));
    let side = |me: u8| {
        let mut timings = Vec::new();
        let reading_ns = reading_ns(rate);
        for _ in 0..TIMINGS {
            let waited = Cell::new(false);
            lock.with_relax(
                |_looks| {
                    waited.set(true);
                    std::hint::black_box(ticks());
                },
                |last| {
                    let (released, by) = *last;
                    let got = ticks_after_loads();
                    if waited.get() && by != me {
                        timings.push(rate.ns(got.saturating_sub(released)) - reading_ns);
                    }
                    let end = got + rate.ticks(HOLD_NS);
                    while ticks() < end {}
                    *last = (ticks(), me);
                },
            );
        }
        timings
    };
    let (one, other) = pair.run(|| side(1), || side(2))?;
    Ok([one, other].concat())
}

/// Times the acquisitions and releases of a lock that only one CPU uses. Each timing is the mean of
/// one acquisition and release, in nanoseconds.
fn own(pair: Pair, rate: Rate) -> Result<Vec<f64>, CannotMeasure> {
    let lock = TicketLock::new(0_u64);
    let side = || {
        let timing = |_| {
            let start = ticks();
            for _ in 0..STEPS {
                lock.with_relax(|_| (), |turns| *turns = std::hint::black_box(*turns) + 1);
            }
            rate.ns(ticks_after_loads().saturating_sub(start)) / f64::from(STEPS)
        };
        (0..TIMINGS).map(timing).collect()
    };
    Ok(pair.run(side, || ())?.0)
}

/// Times one CPU that acquires a lock which no other CPU uses. Before each acquisition the CPU
/// pauses for [`SETTLE_NS`]. Each timing lasts from the request to the first read of the value, in
/// nanoseconds.
fn entry(pair: Pair, rate: Rate) -> Result<Vec<f64>, CannotMeasure> {
    let lock = TicketLock::new(0_u64);
    let side = || {
        let reading_ns = reading_ns(rate);
        let timing = |_| {
            settle(rate);
            time_entry(&lock, rate) - reading_ns
        };
        (0..TIMINGS).map(timing).collect()
    };
    Ok(pair.run(side, || ())?.0)
}

/// Times two CPUs that acquire one lock in turn. Whenever a CPU requests the lock, the lock is
/// free, and the other CPU held it last. Each timing lasts from the request to the first read of
/// the value, in nanoseconds.
fn remote(pair: Pair, rate: Rate) -> Result<Vec<f64>, CannotMeasure> {
    let (lock, turn) = (TicketLock::new(0_u64), Line::default());
    let side = |me: u64| {
        let mut timings = Vec::new();
        let reading_ns = reading_ns(rate);
        for round in 0..TIMINGS {
            turn.wait_for(2 * round + me, rate)?;
            settle(rate);
            timings.push(time_entry(&lock, rate) - reading_ns);
            turn.put(2 * round + me + 1);
        }
        Ok(timings)
    };
    let (one, other): (Result<Vec<f64>, _>, Result<Vec<f64>, _>) =
        pair.run(|| side(0), || side(1))?;
    Ok([one?, other?].concat())
}

fn settle(rate: Rate) {
    let settled = ticks() + rate.ticks(SETTLE_NS);
    while ticks() < settled {}
}

/// Returns the time from the request for a free lock to the first read of the locked value, in
/// nanoseconds. The time of one clock reading is included.
fn time_entry(lock: &TicketLock<u64>, rate: Rate) -> f64 {
    let start = ticks_after_loads();
    let got = lock.with_relax(
        |_looks| (),
        |turns| {
            *turns = std::hint::black_box(*turns) + 1;
            ticks_after_loads()
        },
    );
    rate.ns(got.saturating_sub(start))
}

fn price(mut timings: Vec<f64>) -> Result<Price, CannotMeasure> {
    if timings.is_empty() {
        // There is no timing, because neither CPU ever waited for the other. So one of them was
        // always busy with other work.
        return Err(CannotMeasure::TooBusy { kept_share: 0.0 });
    }
    timings.sort_unstable_by(f64::total_cmp);
    Ok(Price {
        middle_ns: middle(&timings),
        low_ns: quantile(&timings, 0.25),
        high_ns: quantile(&timings, 0.75),
        timings: timings.len(),
    })
}
