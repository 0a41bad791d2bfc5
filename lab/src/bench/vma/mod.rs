//! Compares trees of mappings: lookups, walks, changes, and searches for free space.
//!
//! Every tree gets the same mappings and the same queries in the same order. The trees take turns,
//! so that other load on the computer affects all of them equally. The result for each tree is the
//! time of its fastest round: the work is the same in every round, and other load can only make a
//! round longer. The benchmark checks that the answers of all trees are equal.

mod subject;

use std::hint::black_box;
use std::time::Instant;

use plimsoll_mm::space::vma_tree::Vma;
use plimsoll_mm::units::Vpn;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use self::subject::{Ours, Radix, Ranges, Sorted, Tree};
use super::table;
use crate::error::Error;
use crate::report::Table;
use crate::report::value::NOTHING;
use crate::run::progress::Progress;

/// The sizes of the measured trees: the number of mappings, and the number of rounds that are
/// measured at this size.
const SIZES: [(usize, usize); 2] = [(10_000, 40), (100_000, 8)];
/// The number of pages that a round looks up.
const PROBES: usize = 1 << 15;
/// How many searches for free space a round has. These are few, because a tree that has to walk
/// over all mappings takes long for a search.
const GAPS: usize = 32;

const COLUMNS: [&str; 9] = [
    "tree",
    "lookup, independent",
    "lookup, dependent",
    "same VMA again",
    "step up",
    "step down",
    "unmap+map",
    "insert, random order",
    "lowest fitting gap",
];

/// Measures every tree of mappings at each size of [`SIZES`], and makes a table for each size.
pub(super) fn tables(progress: &Progress) -> Result<Vec<Table>, Error> {
    progress.start("bench vma");
    progress.expect(SIZES.iter().map(|(_, rounds)| rounds).sum());
    Ok(SIZES
        .map(|(count, rounds)| measure(count, rounds, progress))
        .into())
}

fn measure(count: usize, rounds: usize, progress: &Progress) -> Table {
    let work = Work::new(count);
    let mut best = [Costs::default(); 4];
    let mut bytes = None;
    for _ in 0..rounds {
        let (ours, answer) = work.run::<Ours>(&mut bytes);
        let others = [
            work.run::<Sorted>(&mut None),
            work.run::<Ranges>(&mut None),
            work.run::<Radix>(&mut None),
        ];
        best[0].lower(&ours);
        for (best, (costs, other)) in best[1..].iter_mut().zip(&others) {
            assert_eq!(*other, answer, "all trees give the same answers");
            best.lower(costs);
        }
        progress.step();
    }
    let [ours, sorted, ranges, radix] = best;
    let mut rows = vec![
        sorted.row("BTreeMap by start"),
        ranges.row("rangemap"),
        radix.row("blart"),
        ours.row("ours"),
    ];
    rows.push(ours.of(&sorted, "ours / BTreeMap"));
    let each = bytes.map_or_else(
        || NOTHING.to_owned(),
        |bytes| format!("{:.1}", bytes as f64 / count as f64),
    );
    let mut table = table(&format!("{count} mappings, ns"), &COLUMNS, rows);
    table.note = format!(
        "Mappings of 1 to 128 pages, a third adjacent. Best of {rounds} rounds in turns. \
         Ours takes {each} bytes per mapping and keeps gaps; the others look at every mapping for one."
    );
    table
}

/// The mappings that every measured tree stores, and the lookups and searches that every tree must
/// answer.
struct Work {
    vmas: Vec<Vma>,
    shuffled: Vec<Vma>,
    probes: Vec<u64>,
    gaps: Vec<u64>,
}

/// The largest number of free pages in a narrow gap between two mappings. A wide gap has up to
/// [`WIDE`] free pages. Wide gaps are rare, and exist only between mappings in the upper half of
/// the addresses.
const NARROW: u64 = 64;
const WIDE: u64 = 200;

impl Work {
    fn new(count: usize) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut at = 16;
        let vmas = (0..count).map(|nth| {
            let is_wide = nth > count / 2 && random.random_range(0..count) < 40;
            at += match random.random_range(0..3) {
                _ if is_wide => random.random_range(NARROW + 1..=WIDE),
                0 => 0,
                _ => random.random_range(1..=NARROW),
            };
            let start = at;
            at += random.random_range(1..=128);
            Vma {
                start: Vpn(start),
                end: Vpn(at),
                id: u32::try_from(nth + 1).expect("ids are small"),
            }
        });
        let vmas: Vec<Vma> = vmas.collect();
        let mut shuffled = vmas.clone();
        shuffled.shuffle(&mut random);
        let probe = |_| {
            let vma = vmas[random.random_range(0..count)];
            random.random_range(vma.start.0..vma.end.0)
        };
        let probes = (0..PROBES).map(probe).collect();
        let gap = |_| random.random_range(NARROW + 1..=WIDE);
        let gaps = (0..GAPS).map(gap).collect();
        Self {
            vmas,
            shuffled,
            probes,
            gaps,
        }
    }

    /// Builds a tree and runs all queries on the tree. Returns the costs, and the sum of all
    /// answers. Sets `bytes` to the memory that the tree uses.
    fn run<T: Tree>(&self, bytes: &mut Option<usize>) -> (Costs, u64) {
        let mut tree = T::empty();
        let count = self.vmas.len();
        let insert = ns_per(count, || {
            self.shuffled.iter().for_each(|&vma| tree.insert(vma));
            0
        });
        *bytes = tree.bytes();
        let independent = ns_per(PROBES, || {
            let ids = self.probes.iter().map(|&page| u64::from(tree.find(page)));
            ids.sum()
        });
        let dependent = ns_per(PROBES, || self.chase(&tree));
        let again = ns_per(count, || {
            let times = u32::try_from(count).expect("sizes are small");
            u64::from(tree.find_again(self.probes[0], times))
        });
        let up = ns_per(count, || u64::from(tree.up()));
        let down = ns_per(count, || u64::from(tree.down()));
        let lowest_gap = ns_per(GAPS, || {
            let found = self.gaps.iter().map(|&pages| tree.lowest_gap(pages, 0));
            found.sum()
        });
        let change = ns_per(count, || {
            for &vma in &self.shuffled {
                tree.remove(vma);
                tree.insert(vma);
            }
            0
        });
        let all = [
            independent,
            dependent,
            again,
            up,
            down,
            change,
            insert,
            lowest_gap,
        ];
        let answer = all.iter().map(|(_, answer)| answer).sum();
        (Costs(all.map(|(ns, _)| ns)), answer)
    }

    /// Looks up one page after another. The result of each lookup, the id of a mapping, determines
    /// the page of the next lookup. So the CPU cannot overlap two lookups.
    fn chase<T: Tree>(&self, tree: &T) -> u64 {
        let (mut sum, mut id) = (0, 0);
        for nth in 0..PROBES {
            let page = self.probes[(nth + id as usize) % PROBES];
            id = tree.find(page);
            sum += u64::from(id);
        }
        sum
    }
}

/// The nanoseconds per operation, for each column of [`COLUMNS`] except the first column, which has
/// the name of the tree.
#[derive(Clone, Copy)]
struct Costs([f64; COLUMNS.len() - 1]);

impl Default for Costs {
    fn default() -> Self {
        Self([f64::INFINITY; COLUMNS.len() - 1])
    }
}

impl Costs {
    fn lower(&mut self, other: &Self) {
        for (best, ns) in self.0.iter_mut().zip(other.0) {
            *best = best.min(ns);
        }
    }

    fn row(&self, name: &str) -> Vec<String> {
        let cells = self.0.iter().map(|&ns| match ns {
            ..10.0 => format!("{ns:.2}"),
            ..100.0 => format!("{ns:.1}"),
            _ => format!("{ns:.0}"),
        });
        [name.to_owned()].into_iter().chain(cells).collect()
    }

    fn of(&self, other: &Self, name: &str) -> Vec<String> {
        let ratios = self
            .0
            .iter()
            .zip(other.0)
            .map(|(ours, theirs)| ours / theirs);
        let cells = ratios.map(|ratio| format!("{ratio:.2}"));
        [name.to_owned()].into_iter().chain(cells).collect()
    }
}

/// Runs `work`, which makes `items` operations. Returns the nanoseconds per operation, and the
/// answer of `work`.
fn ns_per(items: usize, work: impl FnOnce() -> u64) -> (f64, u64) {
    let begin = Instant::now();
    let answer = black_box(work());
    (begin.elapsed().as_nanos() as f64 / items as f64, answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_trees_answer_alike() {
        let table = measure(2_000, 1, &Progress::hidden());
        let names: Vec<&str> = table.rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(names[3..], ["ours", "ours / BTreeMap"]);
    }
}
