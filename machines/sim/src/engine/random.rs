//! Random streams, one for each CPU and purpose.
//!
//! A stream is a function of the run's seed, the CPU and the purpose. So a draw on one CPU never
//! changes the numbers of another CPU, and faults never change the numbers of the program.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The purpose of a random stream.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Program = 0,
    Faults = 1,
    Disturbances = 2,
}

/// The random stream of `cpu` for `purpose`, in runs with `seed`.
pub(crate) fn stream(seed: u64, cpu: usize, purpose: Purpose) -> Xoshiro256PlusPlus {
    // `lane` is the number of the stream. The factor is the increment of SplitMix64. It makes the
    // products of neighbouring lanes very different, and `seed_from_u64` then mixes the bits
    // thoroughly.
    let lane = match purpose {
        Purpose::Program | Purpose::Faults => (cpu as u64) << 1 | purpose as u64,
        Purpose::Disturbances => 1 << 32 | cpu as u64,
    };
    let mixed = Xoshiro256PlusPlus::seed_from_u64(seed).next_u64();
    Xoshiro256PlusPlus::seed_from_u64(mixed ^ (lane + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A uniformly distributed random number of at least 1, with a mean of about `mean_ns`.
pub(crate) fn around(rng: &mut Xoshiro256PlusPlus, mean_ns: u64) -> u64 {
    1 + rng.next_u64() % (2 * mean_ns)
}

/// A random number with the exponential distribution of mean `mean`. Only integers are used, so all
/// hosts compute the same number.
pub(crate) fn exponential(rng: &mut Xoshiro256PlusPlus, mean: u64) -> u64 {
    const BITS: u32 = 20;
    /// The natural logarithm of 2, with `BITS` bits after the point.
    const LN_2: u128 = 726_817;
    // `drawn` / 2⁶⁴ is uniformly distributed between 0 and 1. So the natural logarithm of this
    // number, times -1, is exponentially distributed.
    let drawn = rng.next_u64() | 1;
    let zeros = drawn.leading_zeros();
    // The loop computes the binary logarithm of `mantissa`, a number from 1 to 2 with 31 bits after
    // the point. In each iteration, the next bit of the logarithm is 1 if the square of `mantissa`
    // is at least 2.
    let mut mantissa = drawn << zeros >> 32;
    let mut log_2 = 0;
    for _ in 0..BITS {
        mantissa = (mantissa * mantissa) >> 31;
        let bit = mantissa >> 32;
        mantissa >>= bit;
        log_2 = log_2 << 1 | bit;
    }
    let minus_log_2 = (u64::from(zeros + 1) << BITS) - log_2;
    let drawn = (u128::from(mean) * u128::from(minus_log_2) * LN_2) >> (2 * BITS);
    u64::try_from(drawn).unwrap_or(u64::MAX >> 1)
}

/// A random CPU number below `cpus`.
pub(crate) fn below(rng: &mut Xoshiro256PlusPlus, cpus: usize) -> usize {
    let drawn = rng.next_u64() % cpus as u64;
    usize::try_from(drawn).expect("smaller than a usize")
}

/// A random number that depends only on the seed, the tick, and `lane`, the number of the draw
/// among the draws of this tick.
pub(crate) fn of_tick(seed: u64, tick: u64, lane: u64) -> u64 {
    let of = |state: u64| Xoshiro256PlusPlus::seed_from_u64(state).next_u64();
    of(of(of(seed) ^ tick) ^ lane)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exponential_number_has_its_mean_its_median_and_its_tail() {
        const DRAWS: u64 = 100_000;
        const MEAN: u64 = 1_000_000;
        let mut rng = stream(1, 0, Purpose::Disturbances);
        let drawn: Vec<u64> = (0..DRAWS).map(|_| exponential(&mut rng, MEAN)).collect();
        let mean = drawn.iter().sum::<u64>() / DRAWS;
        assert!(mean.abs_diff(MEAN) < MEAN / 100, "{mean}");
        // The median of an exponential distribution is ln 2 = 0.693 times the mean, so half of the
        // numbers should exceed it. A share of e⁻³ = 4.98 % should exceed 3 times the mean.
        let above = |limit: u64| drawn.iter().filter(|drawn| **drawn > limit).count();
        assert!(above(693_147).abs_diff(50_000) < 500);
        assert!(above(3 * MEAN).abs_diff(4979) < 250);
    }

    #[test]
    fn streams_of_one_seed_differ() {
        let purposes = [Purpose::Program, Purpose::Faults, Purpose::Disturbances];
        let firsts = (0..3).flat_map(|cpu| purposes.map(|of| stream(7, cpu, of).next_u64()));
        let mut firsts: Vec<u64> = firsts.collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 9);
    }
}
