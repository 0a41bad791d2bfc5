//! Two threads that think, take one lock, hold it, release it, and again.
//!
//! The lock is the host's own; only its way of waiting differs: it looks at the clock between
//! looks at the lock, and never yields.

use std::cell::Cell;
use std::time::Duration;

use super::clock::{self, Rate};
use super::watch::{Jumps, Span, Watch};
use super::{CannotMeasure, Load, Pair, Waits, quantile};
use crate::locks::TicketLock;

/// With fewer of the samples kept, those kept are not typical.
const KEPT_SHARE_MIN: f64 = 0.2;

/// Samples this near to a jump are dropped, besides one hold time: caches are cold after it.
const MARGIN_NS: f64 = 2000.0;

/// More samples than this of one thread are not taken.
const SAMPLES_MAX: usize = 1 << 20;

/// Runs `load` on both CPUs of `pair` for `duration`.
///
/// # Errors
/// If a thread cannot be pinned, or the CPUs were too busy with other things.
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
    let samples = [one.0, other.0].concat();
    let kept = samples
        .iter()
        .copied()
        .filter(|sample| !jumps.are_near(sample.wait, margin));
    summarize(kept, samples.len(), |wait| {
        rate.ns(wait.saturating_sub(reading_ticks()))
    })
}

/// One acquisition.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// From asking for the lock to the first look at what it guards.
    wait: Span,
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
        watch.pass(now + side.rate.ticks(think_ns));
        let contended = Cell::new(false);
        let start = watch.look();
        let relax = |_looks| {
            contended.set(true);
            watch.look();
        };
        let got = lock.with_relax(relax, |turns| {
            *turns = std::hint::black_box(*turns) + 1;
            let got = watch.look_after_loads();
            watch.pass(got + hold_ticks);
            got
        });
        now = watch.look();
        samples.push(Sample {
            wait: Span { start, end: got },
            contended: contended.get(),
        });
    }
    (samples, watch.into_jumps())
}

/// What two readings of the clock cost when nothing is between them.
pub(super) fn reading_ticks() -> u64 {
    const READINGS: u32 = 64;
    let reading = |_| {
        let before = clock::ticks();
        clock::ticks_after_loads().saturating_sub(before)
    };
    (0..READINGS).map(reading).min().unwrap_or(0)
}

fn summarize(
    kept: impl Iterator<Item = Sample>,
    all: usize,
    ns: impl Fn(u64) -> f64,
) -> Result<Waits, CannotMeasure> {
    let mut contended = 0_u32;
    let mut waits: Vec<f64> = kept
        .map(|sample| {
            contended += u32::from(sample.contended);
            ns(sample.wait.end.saturating_sub(sample.wait.start))
        })
        .collect();
    let kept = u32::try_from(waits.len()).unwrap_or(u32::MAX);
    let all = u32::try_from(all).unwrap_or(u32::MAX);
    let kept_share = f64::from(kept) / f64::from(all.max(1));
    if kept == 0 || kept_share < KEPT_SHARE_MIN {
        return Err(CannotMeasure::TooBusy { kept_share });
    }
    waits.sort_unstable_by(f64::total_cmp);
    Ok(Waits {
        contended_share: f64::from(contended) / f64::from(kept),
        mean_ns: waits.iter().sum::<f64>() / f64::from(kept),
        p50_ns: quantile(&waits, 0.5),
        p90_ns: quantile(&waits, 0.9),
        p99_ns: quantile(&waits, 0.99),
        p999_ns: quantile(&waits, 0.999),
        kept: waits.len(),
        kept_share,
    })
}

/// Exponentially distributed numbers of mean 1, from a `SplitMix64`.
struct Exponential(u64);

impl Exponential {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = u32::try_from((bits ^ (bits >> 31)) >> 32).expect("32 bits are left");
        // In (0, 1], so that the logarithm is finite.
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
            wait: Span { start: 10, end: 30 },
            contended: true,
        };
        let ns = |ticks| f64::from(u32::try_from(ticks).expect("small"));
        let waits = summarize([sample; 2].into_iter(), 10, ns).expect("a fifth is enough");
        assert!(
            (waits.mean_ns - 20.0).abs() < 1e-9 && waits.kept == 2,
            "{waits:?}"
        );
        let few = summarize([sample].into_iter(), 10, ns);
        assert!(matches!(few, Err(CannotMeasure::TooBusy { .. })));
        let none = summarize([].into_iter(), 0, ns);
        assert!(matches!(none, Err(CannotMeasure::TooBusy { .. })));
    }
}
