//! The cost of allocating and freeing page frames on this computer.
//!
//! A *subject* is an allocator that is measured. Every subject manages 512 MiB, and no memory is
//! touched, so the benchmark measures only the allocators' own work. The ratio beside each time
//! compares the subject, round by round, with the fastest subject that is not Plimsoll. The package
//! `plimsoll-peers`, in the folder `peers`, adds allocators of other projects to the tables: `cargo
//! run --release --manifest-path peers/Cargo.toml`.

mod exactness;
mod floors;
mod report;
mod subject;
mod timing;

use plimsoll_host::affinity::{self, CpuMask};
use plimsoll_host::fronts::Fronts;
use plimsoll_host::measure::Pair;
use plimsoll_mm::design::Design;
use plimsoll_mm::page::owned::Owning;
use plimsoll_mm::units::Pages;

pub use plimsoll_host::cpu::Entered;

use self::floors::{Bare, Floor};
use self::subject::Plimsoll;
pub use self::subject::{Frames, HUGE, NO_BLOCK, Size, Subject};
use self::timing::{ALONE, ROUNDS, Sample, Samples, TOGETHER};
use super::Found;
use crate::error::Error;
use crate::measure::stats::{self, Estimate};
use crate::run::progress::Progress;

/// The number of frames that each subject manages: 512 MiB in frames of 4 KiB.
pub const FRAMES: Pages = Pages(1 << 17);
/// The number of CPUs of the machine on which Plimsoll's allocator runs. A thread plays each CPU.
const CPUS: u32 = 2;

/// Measures Plimsoll's page allocator, the floor (a minimal allocator), and the allocators that
/// `others` makes.
///
/// # Errors
/// If an allocator cannot be made.
pub fn run(
    progress: &Progress,
    others: impl Fn() -> Vec<Box<dyn Subject>>,
) -> Result<Found, Error> {
    run_for(ROUNDS, progress, others())
}

fn run_for(
    rounds: usize,
    progress: &Progress,
    others: Vec<Box<dyn Subject>>,
) -> Result<Found, Error> {
    progress.start("bench page");
    progress.expect(2 * rounds);
    let mut subjects = ours()?;
    // Each ratio compares an allocator with the fastest allocator of other projects. If `others` is
    // empty, each ratio compares the allocator with the floor (a minimal allocator), which is the
    // last of our subjects.
    let base = if others.is_empty() {
        "last floor"
    } else {
        "fastest other allocator"
    };
    let others_from = subjects.len() - usize::from(others.is_empty());
    subjects.extend(others);
    let pair = Pair::find();
    let mask = CpuMask::of_this_thread();
    let first = mask.cpus().first().copied();
    // If the thread cannot be pinned to its CPU, the times only become noisier, so ignore the
    // failure.
    let _ = first.map(|first| affinity::pin(&CpuMask::only(first)));
    let alone = timing::alone(&subjects, rounds, progress);
    let _ = affinity::pin(&mask);
    let mut columns = columns(&ALONE, &alone, others_from);
    let mut note = format!(
        "ns per operation, or per pair of an allocation and its freeing. {rounds} rounds in turns, \
         medians; rounds in which the thread lost its CPU do not count. × is to the {base}, round by \
         round, with its 95 % interval. A machine on this computer uses this kind of fronts unless \
         the program chooses another: {}.",
        Fronts::best(),
    );
    if !timing::sees_lost_cpus() {
        note.push_str(
            " This system does not say when a thread loses its CPU, so all rounds count.",
        );
    }
    match pair {
        Ok(pair) => {
            let both = timing::together(&subjects, pair.cpus(), rounds, progress);
            columns.extend(self::columns(&TOGETHER, &both, others_from));
        }
        Err(why) => note = format!("{note} Not with two threads: {why}."),
    }
    let mut tables = report::tables(&subjects, &columns);
    tables[0].note = note;
    tables.push(exactness::table_of(&subjects));
    let rows = report::rows(&subjects, &columns);
    Ok(Found { tables, rows })
}

/// A front is a stack of free pages in front of a CPU's page lists. These are the ways in which a
/// thread can use a front ([`Fronts`]). Each way has its name in the tables.
const MODES: [(&str, Fronts); 3] = [
    ("plimsoll, rseq", Fronts::Restartable),
    ("plimsoll, owned", Fronts::Owned),
    ("plimsoll, no fronts", Fronts::Off),
];

/// The floors of the kinds of fronts, and their names in the tables. A front is a stack of free pages
/// in front of a CPU's page lists.
const FLOORS: [(&str, Fronts); 2] = [
    ("floor: rseq alone", Fronts::Restartable),
    ("floor: owned alone", Fronts::Owned),
];

/// The designs in which page lists own blocks, and their names in the tables: as proposed for Linux,
/// and ours. They have no fronts.
const OWNERS: [(&str, Owning); 2] = [
    ("plimsoll, block-owned-rfc", Owning::Rfc),
    ("plimsoll, block-owned", Owning::Inbox),
];

/// Makes the subjects of this package. A subject is a measured allocator. The first are Plimsoll's
/// page allocator with each kind of fronts (stacks of free pages that a CPU uses without a lock)
/// that this computer supports, and with page lists that own blocks. The others are the floors,
/// which do less than a page allocator must do. If there are no allocators of other projects, the
/// last floor is the one with which the others are compared.
fn ours() -> Result<Vec<Box<dyn Subject>>, Error> {
    let design = Design::default;
    let mut ours: Vec<Box<dyn Subject>> = Vec::new();
    for (name, fronts) in MODES {
        if fronts.is_available() {
            ours.push(Box::new(Plimsoll::new(name, design(), fronts)?));
        }
    }
    for (name, owning) in OWNERS {
        let design = Design { owning, ..design() };
        ours.push(Box::new(Plimsoll::new(name, design, Fronts::Off)?));
    }
    for (name, fronts) in FLOORS {
        if let Some(bare) = Bare::new(name, fronts) {
            ours.push(Box::new(bare));
        }
    }
    ours.push(Box::new(Floor::new()));
    Ok(ours)
}

/// A column of the result table: one load, with a cell for each subject (allocator).
struct Column {
    load: &'static str,
    cells: Vec<Cell>,
}

/// The result of one subject (allocator) under one load.
struct Cell {
    /// The nanoseconds per operation. `None` if other work on the computer disturbed every sample.
    ns: Option<Estimate>,
    /// The allocator's time divided by the time of the fastest allocator of another project. A
    /// round counts only if neither of the two samples was disturbed.
    ratio: Option<Estimate>,
    /// The number of samples.
    rounds: usize,
    /// The number of samples that do not count, because they were disturbed or could not be taken.
    disturbed: usize,
}

/// Returns a column for each load. Each ratio divides the time of a subject (a measured allocator)
/// by the time of the fastest subject whose index is at least `others_from`.
fn columns<const LOADS: usize>(
    loads: &[&'static str; LOADS],
    samples: &[Samples<LOADS>],
    others_from: usize,
) -> Vec<Column> {
    let column = |load: usize| {
        let of: Vec<&[Sample]> = samples.iter().map(|samples| &*samples[load]).collect();
        let estimates: Vec<_> = of.iter().map(|samples| estimate(samples)).collect();
        let median = |at: &usize| estimates[*at].map_or(f64::INFINITY, |ns| ns.median);
        let fastest = (others_from..of.len()).min_by(|a, b| median(a).total_cmp(&median(b)));
        let cell = |at: usize| Cell {
            ns: estimates[at],
            ratio: fastest.and_then(|fastest| ratio(of[at], of[fastest])),
            rounds: of[at].len(),
            disturbed: of[at].iter().filter(|sample| sample.is_none()).count(),
        };
        Column {
            load: loads[load],
            cells: (0..of.len()).map(cell).collect(),
        }
    };
    (0..LOADS).map(column).collect()
}

fn estimate(samples: &[Sample]) -> Option<Estimate> {
    let kept: Vec<f64> = samples.iter().copied().flatten().collect();
    stats::estimate(&kept)
}

fn ratio(of: &[Sample], base: &[Sample]) -> Option<Estimate> {
    let both = base.iter().zip(of).filter_map(|(base, of)| base.zip(*of));
    let (base, of): (Vec<f64>, Vec<f64>) = both.unzip();
    Some(stats::compare(&base, &of)?.ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_the_fastest_other_and_of_undisturbed_rounds() {
        let samples = [
            [vec![Some(4.0), Some(6.0), None]],
            [vec![Some(50.0), Some(50.0), Some(50.0)]],
            [vec![Some(2.0), None, Some(2.0)]],
        ];
        let columns = columns(&["load"], &samples, 1);
        let cells = &columns[0].cells;
        let medians = |of: fn(&Cell) -> Option<Estimate>| {
            let medians = cells
                .iter()
                .map(|cell| of(cell).map(|sample| sample.median));
            medians.collect::<Vec<_>>()
        };
        assert_eq!(medians(|cell| cell.ns), [Some(5.0), Some(50.0), Some(2.0)]);
        assert_eq!(
            medians(|cell| cell.ratio),
            [Some(2.0), Some(25.0), Some(1.0)]
        );
        assert_eq!(cells[0].disturbed, 1);
    }

    #[test]
    fn our_allocator_and_the_floor_run_every_load_they_have() {
        let found = run_for(1, &Progress::hidden(), Vec::new()).expect("an arena is a layout");
        let [first, .., exact] = &found.tables[..] else {
            panic!("there are several tables");
        };
        let kinds = MODES.iter().filter(|(_, fronts)| fronts.is_available());
        let ours = kinds.count() + OWNERS.len();
        let bare = FLOORS.iter().filter(|(_, fronts)| fronts.is_available());
        let floors = 1 + bare.count();
        assert_eq!(first.rows.len(), ours + floors);
        for plimsoll in &exact.rows[..ours] {
            assert_eq!(
                plimsoll[1], plimsoll[2],
                "every huge block comes back: {plimsoll:?}"
            );
        }
    }
}
