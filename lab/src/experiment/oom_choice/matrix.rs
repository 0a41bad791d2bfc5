//! Runs every selector (algorithm that chooses a victim) with every kind of counters. The results
//! show how much of a gain in speed comes from the counters, and how much comes from the selector.
//!
//! The main table of `oom-latency` compares whole designs. This matrix changes the selector and the
//! counters separately. One-sided counters of a process grow into a tree only if several CPUs have
//! counted for the process. So the matrix has the one-sided counters twice: once with trees only
//! for such processes, and once with a tree for every process.

use std::fmt;

use plimsoll_sim::profile::Profile;

use super::population::{Kind, Population};
use super::processes::{self, Growth};
use super::{APPROXIMATE, OURS, PATCH};
use crate::error::Error;
use crate::experiment::driver::{Results, Tried, variants};
use crate::measure::comparison::{Comparison, Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::measure::stats::Estimate;
use crate::report::{Table, tabulate};
use crate::run::cases::Case;
use crate::run::options::Options;
use crate::run::progress::Progress;

const SELECTORS: [&str; 4] = [
    "select-precise",
    "select-approximate",
    "select-two-pass",
    "select-bounded",
];
const COUNTERS: [(&str, Growth); 4] = [
    ("flat", Growth::AsUsed),
    ("tree", Growth::AsUsed),
    ("one-sided", Growth::AsUsed),
    ("one-sided", Growth::Every),
];
/// Two mixed designs: our counters with the patch's selector (algorithm that chooses a victim), and
/// our selector with the patch's counters.
const OUR_COUNTERS: &str = "select-two-pass+one-sided";
const OUR_SELECTOR: &str = "select-bounded+tree";
/// The number of seeds with which each design is measured. Two are enough, because the designs
/// differ from each other much more than the seeds do.
const SEEDS: usize = 2;

const HOG: Metric = Metric::lower("hog_ns", Unit::Nanos);
const BAND: Metric = Metric::lower("band_ns", Unit::Nanos);
/// The percentage of selections that choose a wrong victim, in a population in which approximate
/// sums cannot tell the processes apart.
const BAND_WRONG: Metric = Metric::lower("band_wrong_percent", Unit::Percent);

/// One cell of the matrix: a selector (algorithm that chooses a victim) with one kind of counters.
#[derive(Clone, Debug)]
struct Cell {
    named: Tried,
    growth: Growth,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named.name)?;
        f.write_str(suffix(self.growth))
    }
}

const fn suffix(growth: Growth) -> &'static str {
    match growth {
        Growth::AsUsed => "",
        Growth::Every => ", every tree grown",
    }
}

/// The measurements of all cells of the matrix.
pub(super) struct Matrix {
    results: Results,
    /// The number of processes among which a victim is chosen.
    count: u32,
}

impl Matrix {
    /// Measures two selections among `count` processes, for each selector with each kind of
    /// counters. In one selection, there is a hog (a process that has almost all memory). In the
    /// other, approximate sums cannot tell the processes apart (all are in the band).
    pub(super) fn measure(
        profile: &Profile,
        count: u32,
        options: &Options,
        progress: &Progress,
    ) -> Result<Self, Error> {
        let mut few = options.clone();
        few.seeds.truncate(SEEDS);
        let mut cells = Vec::new();
        for (counters, growth) in COUNTERS {
            let names = SELECTORS.map(|selector| format!("{selector}+{counters}"));
            let named = variants("unpatched", names)?.into_iter();
            cells.extend(named.map(|named| Cell { named, growth }));
        }
        let about = format!("each selector with each kind of counters, {count} processes");
        progress.start_on("oom-latency", &profile.name, &about);
        let measure = |case: &Case<Cell>| sample(profile, count, case);
        let results = Results::new(Comparison::run(&cells, &few, progress, measure)?);
        Ok(Self { results, count })
    }

    /// The two tables of the matrix. The first has the time of a selection with one hog (a process
    /// that has almost all memory). The second has the selections among processes whose true sizes
    /// differ by less than the error of approximate sums.
    pub(super) fn tables(&self) -> [Table; 2] {
        let count = self.count;
        let hog = self.table(
            format!("Selector and counters: one hog among {count} processes"),
            format!(
                "The patch is two-pass over tree, ours is bounded over one-sided. Our counters alone \
                 make the patch's selector {} times as fast; our selector alone makes it {} times \
                 as fast, and in addition to our counters {}.",
                self.gain(OUR_COUNTERS, PATCH, &HOG),
                self.gain(OUR_SELECTOR, PATCH, &HOG),
                self.gain(OURS, OUR_COUNTERS, &HOG),
            ),
            |cell| self.results.show(cell, &HOG),
        );
        let band = self.table(
            format!("Selector and counters: all of {count} processes in the band"),
            format!(
                "Compared with precise sums of all over the same counters, our selector is {} times \
                 as fast over tree and {} times over one-sided. Our counters make precise sums of \
                 all {} times as fast as flat ones do.",
                self.gain(OUR_SELECTOR, "select-precise+tree", &BAND),
                self.gain(OURS, "select-precise+one-sided", &BAND),
                self.gain("select-precise+one-sided", "select-precise+flat", &BAND),
            ),
            |cell| {
                let time = self.results.show(cell, &BAND);
                let is_wrong = self.results.max(cell, &BAND_WRONG) > 0.0;
                format!("{time}{}", if is_wrong { ", wrong" } else { "" })
            },
        );
        [hog, band]
    }

    /// The sentence of the report's conclusion that compares our speed with the patch's speed. It
    /// says how much of the difference is due to the counters, and how much to the selector.
    pub(super) fn conclusion(&self) -> String {
        format!(
            "With one hog among {}, our design is {} times as fast as the patch: {} by the counters, {} \
             by the selector.",
            self.count,
            self.gain(OURS, PATCH, &HOG),
            self.gain(OUR_COUNTERS, PATCH, &HOG),
            self.gain(OURS, OUR_COUNTERS, &HOG),
        )
    }

    /// Returns our selector's time, divided by the time to make one approximate sum of each process
    /// over flat counters (as in Linux). The counters of our selector are trees. One process is a
    /// hog.
    pub(super) fn every_tree_grown(&self) -> Estimate {
        let grown = format!("{OURS}{}", suffix(Growth::Every));
        self.results.compare((APPROXIMATE, &grown), &HOG).ratio
    }

    /// Formats the median ratio of `metric`: its value with `slower`, divided by its value with
    /// `faster`.
    fn gain(&self, faster: &str, slower: &str, metric: &Metric) -> String {
        format!("{:.2}", self.results.ratio((faster, slower), metric))
    }

    /// Makes a table of the matrix, with a row for each kind of counters and a column for each
    /// selector (algorithm that chooses a victim).
    fn table(&self, title: String, note: String, cell: impl Fn(&str) -> String) -> Table {
        let table = tabulate!(title, note, &COUNTERS, |(counters, growth)| {
            "counters" => format!("{counters}{}", suffix(*growth)),
        });
        let heads = SELECTORS.map(|selector| {
            let head = selector.trim_start_matches("select-");
            (head.to_owned(), selector)
        });
        table.with_each(&COUNTERS, heads, |(counters, growth), selector| {
            cell(&format!("{selector}+{counters}{}", suffix(*growth)))
        })
    }
}

/// Makes the two selections of one cell of the matrix on one seed: one with a hog (a process that
/// has almost all memory), and one among processes whose true sizes differ by less than the error
/// of approximate sums.
fn sample(profile: &Profile, count: u32, case: &Case<Cell>) -> Sample {
    let choose = |kind| {
        let population = Population::new(kind, count, profile.topology.cpus(), case.seed);
        let Cell { named, growth } = &case.design;
        processes::select_grown(profile, &named.design, population, *growth, case.seed)
    };
    let (hog, band) = (choose(Kind::OneHog), choose(Kind::InTheBand));
    let wrong = if band.judged.regret > 0 { 100.0 } else { 0.0 };
    Sample {
        hash: fold_hashes([hog.hash, band.hash]),
        metrics: vec![
            (HOG, hog.ns as f64),
            (BAND, band.ns as f64),
            (BAND_WRONG, wrong),
        ],
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::profile::Card;

    use super::*;
    use crate::experiment::oom_choice::{MACHINE, PRECISE};

    /// The matrix has each selector (algorithm that chooses a victim) with each kind of counters. A
    /// gain is a ratio of times. With one seed, the gain from the counters multiplied by the gain
    /// from the selector must equal the whole gain.
    #[test]
    fn the_matrix_has_every_pair_and_divides_the_gain() {
        let profile = Profile::load(MACHINE, Card::Mid).expect("built in");
        let options = Options::of_seeds(1);
        let matrix = Matrix::measure(&profile, 60, &options, &Progress::hidden());
        let matrix = matrix.expect("the names are right");
        let [hog, band] = matrix.tables();
        assert_eq!((hog.rows.len(), hog.columns.len()), (4, 5));
        assert!(hog.rows.iter().chain(&band.rows).all(|row| row.len() == 5));
        let ratio = |a, b| matrix.results.ratio((a, b), &HOG);
        let product = ratio(OURS, OUR_COUNTERS) * ratio(OUR_COUNTERS, PATCH);
        assert!((product - ratio(OURS, PATCH)).abs() < 1e-9, "one seed");
        assert!(
            matrix.every_tree_grown().median > 1.0,
            "a tree takes longer to read"
        );
        let wrong = |cell: &str| matrix.results.max(cell, &BAND_WRONG);
        assert_eq!([wrong(PRECISE), wrong(OURS)], [0.0; 2]);
        assert!(wrong(APPROXIMATE) > 0.0, "it cannot tell them apart");
    }
}
