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
}

/// The stream of `cpu` for `purpose` in runs with `seed`.
pub(crate) fn stream(seed: u64, cpu: usize, purpose: Purpose) -> Xoshiro256PlusPlus {
    // `lane` numbers the streams. The factor is the increment of SplitMix64. It makes the products
    // of neighbouring lanes very different, and `seed_from_u64` then mixes the bits thoroughly.
    let lane = (cpu as u64) << 1 | purpose as u64;
    let mixed = Xoshiro256PlusPlus::seed_from_u64(seed).next_u64();
    Xoshiro256PlusPlus::seed_from_u64(mixed ^ (lane + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A random number of at least 1, with a mean of about `mean_ns`.
pub(crate) fn around(rng: &mut Xoshiro256PlusPlus, mean_ns: u64) -> u64 {
    1 + rng.next_u64() % (2 * mean_ns)
}

/// A random CPU number below `cpus`.
pub(crate) fn below(rng: &mut Xoshiro256PlusPlus, cpus: usize) -> usize {
    let drawn = rng.next_u64() % cpus as u64;
    usize::try_from(drawn).expect("smaller than a usize")
}

/// A random number that depends only on the seed, the tick and `lane`, which numbers the draws of a
/// tick.
pub(crate) fn of_tick(seed: u64, tick: u64, lane: u64) -> u64 {
    let of = |state: u64| Xoshiro256PlusPlus::seed_from_u64(state).next_u64();
    of(of(of(seed) ^ tick) ^ lane)
}
