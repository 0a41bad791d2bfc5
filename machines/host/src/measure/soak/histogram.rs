//! A log-linear histogram of times, from 1 ns to centuries. Each power of two has 16 equal bins, so
//! the width of a bin is at most 6.25 % of its times.

/// log₂ of the number of bins between two successive powers of two.
const LINEAR_BITS: u32 = 4;
const LINEAR: u64 = 1 << LINEAR_BITS;
const BINS: usize = ((u64::BITS - LINEAR_BITS + 1) << LINEAR_BITS) as usize;

/// A histogram of times in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    bins: Box<[u64]>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            bins: vec![0; BINS].into(),
            count: 0,
            sum: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Records a time. Allocates no memory.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.bins[bin_of(ns)] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
        self.max = self.max.max(ns);
    }

    /// Adds all times that `other` has recorded.
    pub fn merge(&mut self, other: &Self) {
        for (bin, more) in self.bins.iter_mut().zip(&other.bins) {
            *bin += more;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Adds all recorded times to `other`, and empties this histogram.
    pub fn move_to(&mut self, other: &mut Self) {
        other.merge(self);
        if self.count > 0 {
            self.bins.fill(0);
        }
        (self.count, self.sum, self.max) = (0, 0, 0);
    }

    /// The number of recorded times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all recorded times, in nanoseconds.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The longest recorded time, in nanoseconds; 0 if there is none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns the quantile `share` of all recorded times, in nanoseconds: at least this share of
    /// them are not longer. The result is rounded up to the end of its bin. `share` is between 0
    /// and 1. Returns 0 if no time was recorded.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a count of samples is far below 2^53"
        )]
        let wanted = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bin, count) in self.bins.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return end_of(bin).min(self.max);
            }
        }
        self.max
    }

    /// Returns how many recorded times are longer than `ns` nanoseconds. Times in the same bin as
    /// `ns` are not counted, because the histogram cannot tell which of them are longer.
    #[must_use]
    pub fn above(&self, ns: u64) -> u64 {
        self.bins[bin_of(ns) + 1..].iter().sum()
    }
}

fn bin_of(ns: u64) -> usize {
    if ns < LINEAR {
        return usize::try_from(ns).expect("less than 16");
    }
    let power = ns.ilog2() - LINEAR_BITS;
    let within = (ns >> power) - LINEAR;
    let bin = (u64::from(power) + 1) * LINEAR + within;
    usize::try_from(bin).expect("less than 1000")
}

/// The longest time that belongs to the bin, in nanoseconds.
fn end_of(bin: usize) -> u64 {
    let bin = bin as u64;
    if bin < LINEAR {
        return bin;
    }
    let (power, within) = (bin / LINEAR - 1, bin % LINEAR);
    let first = (LINEAR + within) << power;
    first + ((1 << power) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_a_narrow_bin() {
        for ns in (0..5000).chain([50_000, 1 << 40, u64::MAX - 1, u64::MAX]) {
            let end = end_of(bin_of(ns));
            assert!(
                end >= ns && end - ns <= ns / 16,
                "{ns} is in a bin up to {end}"
            );
        }
        assert!((0..u64::BITS).all(|bit| bin_of(1 << bit) < BINS));
    }

    #[test]
    fn quantiles_and_the_count_above_are_those_of_the_times() {
        let mut times = Histogram::default();
        (1..=1000).for_each(|ns| times.add(ns));
        assert_eq!((times.count(), times.max()), (1000, 1000));
        assert_eq!(times.sum(), 500_500);
        assert!((500..=531).contains(&times.quantile(0.5)));
        assert!((990..=1000).contains(&times.quantile(0.99)));
        assert_eq!(times.quantile(1.0), 1000);
        assert_eq!(times.above(1000), 0);
        assert!((460..=500).contains(&times.above(500)));
        let mut all = Histogram::default();
        times.move_to(&mut all);
        assert_eq!((times.count(), times.sum(), times.max()), (0, 0, 0));
        all.merge(&all.clone());
        let merged = (all.count(), all.sum(), all.max(), all.above(1000));
        assert_eq!(merged, (2000, 1_001_000, 1000, 0));
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
