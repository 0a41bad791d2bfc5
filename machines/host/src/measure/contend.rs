//! Two threads share one lock. Each thread repeatedly waits for a while (*thinks*), acquires the
//! lock, holds it and releases it.
//!
//! The lock is the host's [`TicketLock`], but waiters behave differently here: they read the clock
//! between attempts and never yield.

use std::cell::Cell;
use std::time::Duration;

use super::clock::{self, Rate};
use super::watch::{Jumps, Span, Watch};
use super::{CannotMeasure, Load, Pair, Waits, middle, quantile};
use crate::locks::TicketLock;

/// The smallest acceptable share of samples that are kept because nothing disturbed their threads.
/// If fewer are kept, they are not representative.
const KEPT_SHARE_MIN: f64 = 0.2;

/// A sample is dropped if the clock jumped within a margin before or after the sample, because
/// caches are cold after a jump. The margin is this number of nanoseconds plus the time for which
/// the lock is held.
const MARGIN_NS: f64 = 2000.0;

/// The maximum number of samples that one thread takes.
const SAMPLES_MAX: usize = 1 << 20;

/// Runs `load` on both CPUs of `pair` for `duration`.
///
/// # Errors
/// If a thread cannot be pinned, or the CPUs are too busy with other work.
pub fn lock_waits(pair: Pair, load: Load, duration: Duration) -> Result<Waits, CannotMeasure> {
    let rate = Rate::measure();
    let lock = TicketLock::new(0_u64);
    let side = |seed| {
        contend(
            &lock,
            load,
            Side {
                rate,
                duration,
                seed,
            },
        )
    };
    let (one, other) = pair.run(|| side(1), || side(2))?;
    let jumps = Jumps::of([one.1, other.1].concat());
    let margin = rate.ticks(MARGIN_NS + f64::from(load.hold_ns));
    let hold_ticks = rate.ticks(f64::from(load.hold_ns));
    let samples = [one.0, other.0].concat();
    // Long waits must not be dropped more often than short ones. So the span that must be
    // undisturbed is equally long for all samples. Its length is that of one hold, because with two
    // threads no wait is longer than a hold.
    let span = |sample: &Sample| Span {
        start: sample.start,
        end: sample.start + hold_ticks,
    };
    let kept: Vec<Sample> = samples
        .iter()
        .copied()
        .filter(|sample| !jumps.are_near(span(sample), margin))
        .collect();
    let (reading_ns, _) = pair.run(|| reading_ns(rate), || ())?;
    summarize(&kept, samples.len(), |ticks| rate.ns(ticks), reading_ns)
}

/// One acquisition of the lock.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The clock reading at which the lock was requested.
    start: u64,
    /// The time from the request to the first read of the value, in ticks.
    wait: u64,
    /// The time from the first read of the locked value until just before the lock is released, in
    /// ticks.
    hold: u64,
    /// The delay between the planned and the actual time of the request, in ticks.
    late: u64,
    contended: bool,
}

#[derive(Clone, Copy)]
struct Side {
    rate: Rate,
    duration: Duration,
    seed: u64,
}

fn contend(lock: &TicketLock<u64>, load: Load, side: Side) -> (Vec<Sample>, Vec<Span>) {
    let mut random = Exponential(side.seed);
    let hold_ticks = side.rate.ticks(f64::from(load.hold_ns));
    let mut samples = Vec::with_capacity(SAMPLES_MAX);
    let watch = Watch::start(side.rate);
    let end = watch.look() + side.rate.ticks(side.duration.as_secs_f64() * 1e9);
    let mut now = watch.look();
    while now < end && samples.len() < SAMPLES_MAX {
        let think_ns = random.next() * f64::from(load.think_ns);
        let planned = now + side.rate.ticks(think_ns);
        watch.pass(planned);
        let contended = Cell::new(false);
        let start = watch.look();
        let relax = |_looks| {
            contended.set(true);
            watch.look();
        };
        let (got, ended) = lock.with_relax(relax, |turns| {
            *turns = std::hint::black_box(*turns) + 1;
            let got = watch.look_after_loads();
            (got, watch.pass(got + hold_ticks))
        });
        now = watch.look();
        samples.push(Sample {
            start,
            wait: got.saturating_sub(start),
            hold: ended.saturating_sub(got),
            late: start.saturating_sub(planned),
            contended: contended.get(),
        });
    }
    (samples, watch.into_jumps())
}

/// The mean time between two consecutive readings of the clock, in nanoseconds. If the clock
/// advances in steps, only the mean shows the true time.
pub(super) fn reading_ns(rate: Rate) -> f64 {
    const READINGS: u32 = 1024;
    let reading = |_| {
        let before = clock::ticks();
        rate.ns(clock::ticks_after_loads().saturating_sub(before))
    };
    let mut readings: Vec<f64> = (0..READINGS).map(reading).collect();
    readings.sort_unstable_by(f64::total_cmp);
    middle(&readings)
}

fn summarize(
    kept: &[Sample],
    all: usize,
    ns: impl Fn(u64) -> f64,
    reading_ns: f64,
) -> Result<Waits, CannotMeasure> {
    let count = |count: usize| f64::from(u32::try_from(count).expect("fewer than 2³² samples"));
    let kept_share = count(kept.len()) / count(all.max(1));
    if kept.is_empty() || kept_share < KEPT_SHARE_MIN {
        return Err(CannotMeasure::TooBusy { kept_share });
    }
    let sorted = |of: fn(&Sample) -> u64| {
        let mut all: Vec<f64> = kept.iter().map(|sample| ns(of(sample))).collect();
        all.sort_unstable_by(f64::total_cmp);
        all
    };
    let mut waits = sorted(|sample| sample.wait);
    waits.iter_mut().for_each(|wait| *wait -= reading_ns);
    let contended = kept.iter().filter(|sample| sample.contended).count();
    Ok(Waits {
        contended_share: count(contended) / count(kept.len()),
        mean_ns: waits.iter().sum::<f64>() / count(kept.len()),
        p50_ns: quantile(&waits, 0.5),
        p90_ns: quantile(&waits, 0.9),
        p99_ns: quantile(&waits, 0.99),
        p999_ns: quantile(&waits, 0.999),
        hold_ns: middle(&sorted(|sample| sample.hold)),
        late_ns: middle(&sorted(|sample| sample.late)),
        kept: waits.len(),
        kept_share,
    })
}

/// Exponentially distributed random numbers with a mean of 1, from a `SplitMix64`.
struct Exponential(u64);

impl Exponential {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = u32::try_from((bits ^ (bits >> 31)) >> 32).expect("32 bits are left");
        // `uniform` is in (0, 1], so that its logarithm is finite.
        let uniform = (f64::from(high) + 1.0) / 4_294_967_296.0;
        -uniform.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinking_has_the_mean_and_the_spread_it_claims() {
        let mut random = Exponential(1);
        let numbers: Vec<f64> = (0..100_000).map(|_| random.next()).collect();
        let mean = numbers.iter().sum::<f64>() / 1e5;
        let beyond_two = numbers
            .iter()
            .map(|&n| f64::from(u8::from(n > 2.0)))
            .sum::<f64>()
            / 1e5;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        assert!((beyond_two - 0.1353).abs() < 0.005, "{beyond_two}");
    }

    #[test]
    fn too_few_kept_samples_are_no_measurement() {
        let sample = Sample {
            start: 10,
            wait: 20,
            hold: 50,
            late: 5,
            contended: true,
        };
        let ns = |ticks| f64::from(u32::try_from(ticks).expect("small"));
        let waits = summarize(&[sample; 2], 10, ns, 1.0).expect("a fifth is enough");
        assert!(
            (waits.mean_ns - 19.0).abs() < 1e-9
                && (waits.hold_ns - 50.0).abs() < 1e-9
                && waits.kept == 2,
            "{waits:?}"
        );
        let few = summarize(&[sample], 10, ns, 1.0);
        assert!(matches!(few, Err(CannotMeasure::TooBusy { .. })));
        let none = summarize(&[], 0, ns, 1.0);
        assert!(matches!(none, Err(CannotMeasure::TooBusy { .. })));
    }
}
