//! Values in bins of virtual time.
//!
//! The length of a run is not known when it begins. So bins are short at first. Whenever the time
//! passes the last bin, each pair of bins becomes one bin. All values of a run share one [`Clock`].
//!
//! The code that collects values runs on the small stacks of simulated tasks, so all arrays are in
//! the heap.

/// The largest number of bins.
pub(super) const BINS: usize = 256;
/// The largest number of rows of a heat map. If a machine has more CPUs than this, a row stands for
/// several CPUs.
const ROWS_MAX: u32 = 512;
/// The length of the first bins, in nanoseconds.
const FIRST_NS: u64 = 1024;

/// How the values of two bins become the value of one bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    /// The sum of the values of both bins.
    Sum,
    /// The value of the later bin. If the later bin has no value, the value of the earlier bin.
    Last,
    /// The value that is further from 0.
    Extreme,
}

impl Fold {
    fn join(self, one: Option<i64>, later: Option<i64>) -> Option<i64> {
        let (Some(a), Some(b)) = (one, later) else {
            return one.or(later);
        };
        Some(match self {
            Self::Sum => a.saturating_add(b),
            Self::Last => b,
            Self::Extreme if a.unsigned_abs() > b.unsigned_abs() => a,
            Self::Extreme => b,
        })
    }
}

/// The current length of a bin (an interval of virtual time). The length grows with the virtual
/// time that the run has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    pub(super) bin_ns: u64,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { bin_ns: FIRST_NS }
    }

    /// Doubles the length of the bins until `at_ns` is in one of them. Returns how often the length
    /// was doubled.
    pub(super) fn reach(&mut self, at_ns: u64) -> u32 {
        let mut doubled = 0;
        while at_ns / self.bin_ns >= BINS as u64 {
            self.bin_ns *= 2;
            doubled += 1;
        }
        doubled
    }

    /// The index of the bin that contains the time `at_ns`. The bins must reach up to this time.
    pub(super) fn bin(&self, at_ns: u64) -> usize {
        usize::try_from(at_ns / self.bin_ns)
            .unwrap_or(BINS)
            .min(BINS - 1)
    }
}

/// One value for each bin (an interval of virtual time), or none.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) fold: Fold,
    pub(super) values: Vec<Option<i64>>,
}

impl Series {
    pub(super) fn new(fold: Fold) -> Self {
        Self {
            fold,
            values: vec![None; BINS],
        }
    }

    pub(super) fn add(&mut self, bin: usize, value: i64) {
        self.values[bin] = self.fold.join(self.values[bin], Some(value));
    }

    /// Joins each pair of neighbouring bins (intervals of virtual time) to one bin.
    pub(super) fn halve(&mut self) {
        for bin in 0..BINS / 2 {
            let pair = (self.values[2 * bin], self.values[2 * bin + 1]);
            self.values[bin] = self.fold.join(pair.0, pair.1);
        }
        self.values[BINS / 2..].fill(None);
    }
}

/// How the values of two bins, or of the CPUs of one row, are joined in a [`Grid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    Sum,
    Max,
}

/// A value for each CPU and each bin (an interval of virtual time). The value 0 stands for no
/// value.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    join: Join,
    pub(super) cpus_per_row: u32,
    /// The values row by row. Each row has [`BINS`] values.
    pub(super) cells: Vec<u64>,
}

impl Grid {
    pub(super) fn new(cpus: u32, join: Join) -> Self {
        let cpus_per_row = cpus.div_ceil(ROWS_MAX).max(1);
        let rows = cpus.div_ceil(cpus_per_row) as usize;
        Self {
            join,
            cpus_per_row,
            cells: vec![0; rows * BINS],
        }
    }

    pub(super) fn add(&mut self, cpu: u32, bin: usize, value: u64) {
        let cell = &mut self.cells[(cpu / self.cpus_per_row) as usize * BINS + bin];
        *cell = match self.join {
            Join::Sum => cell.saturating_add(value),
            Join::Max => value.max(*cell),
        };
    }

    /// Adds the time from `from_ns` to `until_ns` to the bins in which it lies.
    pub(super) fn add_time(&mut self, clock: Clock, cpu: u32, from_ns: u64, until_ns: u64) {
        let mut from_ns = from_ns;
        // The loop ends because each iteration advances to the end of a bin.
        while from_ns < until_ns {
            let bin = clock.bin(from_ns);
            let end_ns = if bin + 1 == BINS {
                until_ns
            } else {
                ((bin as u64 + 1) * clock.bin_ns).min(until_ns)
            };
            self.add(cpu, bin, end_ns - from_ns);
            from_ns = end_ns;
        }
    }

    /// Joins each pair of neighbouring bins (intervals of virtual time) to one bin.
    pub(super) fn halve(&mut self) {
        for row in self.cells.chunks_exact_mut(BINS) {
            for bin in 0..BINS / 2 {
                let (one, later) = (row[2 * bin], row[2 * bin + 1]);
                row[bin] = match self.join {
                    Join::Sum => one.saturating_add(later),
                    Join::Max => one.max(later),
                };
            }
            row[BINS / 2..].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However often pairs of bins are joined, no wait is lost, and each wait is in the bin
        /// that contains its time.
        #[test]
        fn doubling_bins_keeps_sums_and_places(
            waits in prop::collection::vec((0..5_u32, 0..10_000_000_u64, 0..70_000_u64), 1..40),
        ) {
            let mut clock = Clock::new();
            let mut grid = Grid::new(5, Join::Sum);
            let mut series = Series::new(Fold::Sum);
            let mut sorted = waits.clone();
            sorted.sort_by_key(|wait| wait.1 + wait.2);
            for &(cpu, from, length) in &sorted {
                for _ in 0..clock.reach(from + length) {
                    grid.halve();
                    series.halve();
                }
                grid.add_time(clock, cpu, from, from + length);
                series.add(clock.bin(from), 1);
            }
            let bins = |cpu: usize| &grid.cells[cpu * BINS..][..BINS];
            for cpu in 0..5 {
                let mut want = vec![0; BINS];
                for &(_, from, length) in sorted.iter().filter(|wait| wait.0 as usize == cpu) {
                    (from..from + length).step_by(1).for_each(|ns| want[clock.bin(ns)] += 1);
                }
                prop_assert_eq!(bins(cpu), &want[..]);
            }
            let counted: i64 = series.values.iter().flatten().sum();
            prop_assert_eq!(counted, i64::try_from(waits.len()).unwrap());
        }
    }

    #[test]
    fn a_machine_with_many_cpus_has_rows_for_groups() {
        let grid = Grid::new(4096, Join::Max);
        assert_eq!((grid.cpus_per_row, grid.cells.len()), (8, 512 * BINS));
    }

    #[test]
    fn two_bins_join_as_their_line_says() {
        let joined = |fold: Fold| fold.join(Some(-7), Some(3));
        let all = [Fold::Sum, Fold::Last, Fold::Extreme].map(joined);
        assert_eq!(all, [Some(-4), Some(3), Some(-7)]);
        assert_eq!(Fold::Last.join(Some(1), None), Some(1));
    }
}
