//! Random choices for a test. They follow from the seed and the number of the task that draws.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// One stream of random choices.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Xoshiro256PlusPlus);

impl Dice {
    /// Returns the stream of the task with number `who`, for the run with this seed.
    pub(crate) fn new(seed: u64, who: u64) -> Self {
        let mixed = Xoshiro256PlusPlus::seed_from_u64(seed).next_u64();
        Self(Xoshiro256PlusPlus::seed_from_u64(
            mixed ^ who.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        ))
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        let drawn = self.0.next_u64() % u64::from(end.max(1));
        u32::try_from(drawn).expect("below a u32")
    }

    /// Returns a number from `low` to `high`, inclusive.
    pub(crate) fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    /// Returns `true` with a probability of `percent` percent.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `choices`, which must not be empty.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let count = u32::try_from(choices.len()).expect("few choices");
        &choices[self.below(count) as usize]
    }

    /// Returns an index into a list of length `len`, or 0 if `len` is 0.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(u32::try_from(len).expect("a short list")) as usize
    }

    /// Puts `items` in random order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}
