//! Numbers the runs, chunks and places of an area. An area (`area.rs`) is per-CPU memory for groups
//! of counters, and a place is the memory of one group.
//!
//! An area allocates its memory in runs. A run consists of chunks, and a chunk has [`PLACES`]
//! places. Places are numbered through all runs, in the order of the runs.

/// The number of places in a chunk; each place is memory for one group of counters. With four
/// counters per group, each CPU's part of a chunk takes 2 KiB on 64-bit hosts.
pub(super) const PLACES: usize = 64;
/// A run is memory that is allocated at once, in chunks. This is the number of consecutive runs
/// that have equally many chunks. The runs after them have twice as many chunks each.
const RUNS_OF_A_LENGTH: usize = 4;
/// The maximum number of runs (pieces of memory allocated at once) in an area. Together these runs
/// have 16,380 chunks, which is room for a million groups.
pub(super) const RUNS: usize = 48;

/// Returns the number of chunks in the run with the index `run`. A run is the unit in which the
/// memory of counters is allocated, and a chunk has room for 64 groups of counters.
pub(super) const fn chunks_of(run: usize) -> usize {
    1 << (run / RUNS_OF_A_LENGTH)
}

/// Returns the index of the first place of the run with the index `run`, among the places of all
/// runs.
pub(super) const fn first_of(run: usize) -> usize {
    // The first `RUNS_OF_A_LENGTH` runs have 1 chunk each, the next `RUNS_OF_A_LENGTH` runs have 2,
    // the next have 4, and so on. So all runs with fewer chunks than this run together have
    // `RUNS_OF_A_LENGTH * (2^longer - 1)` chunks.
    let (longer, same) = (run / RUNS_OF_A_LENGTH, run % RUNS_OF_A_LENGTH);
    let chunks = RUNS_OF_A_LENGTH * ((1 << longer) - 1) + same * (1 << longer);
    chunks * PLACES
}

/// Returns the index of the run that contains the place with the index `number`, and the index of
/// the place within that run.
pub(super) const fn run_of(number: usize) -> (usize, usize) {
    let chunk = number / PLACES;
    let longer = (chunk / RUNS_OF_A_LENGTH + 1).ilog2() as usize;
    let run = longer * RUNS_OF_A_LENGTH;
    let same = (number - first_of(run)) / (PLACES << longer);
    (run + same, number - first_of(run + same))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_follow_each_other_without_a_gap() {
        let mut first = 0;
        for run in 0..RUNS {
            assert_eq!(first_of(run), first);
            let next = first + chunks_of(run) * PLACES;
            for number in [first, first + 1, next - 1] {
                assert_eq!(run_of(number), (run, number - first));
            }
            first = next;
        }
        assert_eq!(first, 16_380 * PLACES);
    }
}
