//! The processes on a machine that is out of memory, and the CPUs on which each process touched its
//! pages.
//!
//! A population is a function of its kind, its size and a seed, so every design adds the same pages
//! on the same CPUs.

use plimsoll_mm::oom::ScoreAdj;
use plimsoll_mm::space::rss::RssKind;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

/// The number of pages in a mebibyte.
pub(super) const MB: i64 = 256;
/// The largest number of pages that a thread touches before it moves to another CPU.
const RUN_MAX: i64 = 2048;
/// The number of pages of a hog, a process that has almost all memory: 64 GiB.
const HOG: i64 = 64 << 18;
/// If a CPU adds this number of pages to a tree counter of this experiment, the counter passes all
/// of them up to its root. The lower levels of the counter keep none of these pages.
pub(super) const WHOLE: i64 = 1 << 15;

/// The kind of a population (set of processes): it says how many pages each process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One process has 64 GiB and grows. All other processes are small daemons that have run on 1
    /// to 4 CPUs.
    OneHog,
    /// Each process has exactly 400 MiB.
    Equal,
    /// Each process has 360 to 440 MiB.
    Alike,
    /// Each process has 0 to 800 MiB.
    Random,
    /// One process has 4 GiB, and another has 4 GiB and one page. Every other process has up to 200
    /// MiB.
    TwoGiants,
    /// Each process has 0 to 800 MiB, and an `oom_score_adj` that is one of seven values from −999
    /// to 1000.
    LargeAdj,
    /// Each process has 384 MiB that are in the shared parts of its counters. It has up to 60 MiB
    /// more that are only in the parts that single CPUs keep.
    InTheBand,
}

impl Kind {
    /// The kinds in which no process is a hog (has almost all memory).
    pub(super) const WITHOUT_A_HOG: [Self; 6] = [
        Self::Equal,
        Self::Alike,
        Self::Random,
        Self::TwoGiants,
        Self::LargeAdj,
        Self::InTheBand,
    ];

    /// The name of this kind of population, for the names of metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OneHog => "one_hog",
            Self::Equal => "equal",
            Self::Alike => "alike",
            Self::Random => "random",
            Self::TwoGiants => "two_giants",
            Self::LargeAdj => "large_adj",
            Self::InTheBand => "in_the_band",
        }
    }
}

/// Pages of one process that one CPU adds to one counter. If `pages` is negative, the CPU subtracts
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) process: u32,
    pub(super) kind: RssKind,
    pub(super) pages: i64,
}

/// The processes, and the CPUs on which each of them touched its pages.
#[derive(Debug)]
pub(super) struct Population {
    /// The adjustment (`oom_score_adj`) of each process.
    pub(super) adjs: Vec<ScoreAdj>,
    /// For each CPU, the processes that start on it.
    pub(super) born: Vec<Vec<u32>>,
    /// For each CPU, its additions to the counters of processes, in the order in which the CPU
    /// makes them.
    pub(super) runs: Vec<Vec<Run>>,
    /// The process that is much larger than all others, if there is one.
    pub(super) hog: Option<u32>,
    rng: Xoshiro256PlusPlus,
}

impl Population {
    /// Draws `count` processes at random, on a machine with `cpus` CPUs.
    pub(super) fn new(kind: Kind, count: u32, cpus: u32, seed: u64) -> Self {
        let mut population = Self {
            adjs: vec![ScoreAdj::ZERO; count as usize],
            born: (0..cpus).map(|_| Vec::new()).collect(),
            runs: (0..cpus).map(|_| Vec::new()).collect(),
            hog: None,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        };
        // The rank of a process determines its role: for example, the process with a certain rank
        // has almost all memory. Ranks are shuffled. So a process with a special role can be
        // anywhere in the list of processes.
        let mut ranks: Vec<u32> = (0..count).collect();
        ranks.shuffle(&mut population.rng);
        for (process, rank) in (0..count).zip(ranks) {
            let home = population.any_cpu();
            population.born[home].push(process);
            population.live(kind, process, rank);
        }
        population
    }

    /// Draws the CPUs on which a process touches its pages. Also draws how many pages the process
    /// has, unless `kind` determines this. `rank` is the process's position in a random order of
    /// all processes.
    fn live(&mut self, kind: Kind, process: u32, rank: u32) {
        match kind {
            Kind::OneHog if rank == 0 => {
                self.hog = Some(process);
                self.stay(process, HOG);
            }
            Kind::OneHog => {
                let pages = self.rng.random_range(256..=2304);
                self.stay(process, pages);
            }
            Kind::Equal => self.hop(process, 400 * MB),
            Kind::Alike => {
                let pages = self.rng.random_range(360 * MB..=440 * MB);
                self.hop(process, pages);
            }
            Kind::TwoGiants if rank < 2 => self.hop(process, 4096 * MB + i64::from(rank)),
            Kind::TwoGiants => {
                let pages = self.rng.random_range(1..=200 * MB);
                self.hop(process, pages);
            }
            Kind::Random | Kind::LargeAdj => {
                let pages = self.rng.random_range(1..=800 * MB);
                self.hop(process, pages);
                if kind == Kind::LargeAdj {
                    self.adjs[process as usize] = self.adj();
                }
            }
            Kind::InTheBand => self.hide(process, rank),
        }
    }

    fn adj(&mut self) -> ScoreAdj {
        const ADJS: [i32; 7] = [-999, -500, 0, 500, 998, 999, 1000];
        let adj = ADJS[self.rng.random_range(0..ADJS.len())];
        ScoreAdj::new(adj).expect("an adjustment in range")
    }

    /// Lets a process touch `pages` on 1 to 4 CPUs. Three quarters of these pages are file pages.
    /// The hog (the process that has almost all memory) is an exception: all its pages are
    /// anonymous.
    fn stay(&mut self, process: u32, pages: i64) {
        let cpus = self.rng.random_range(1..=4);
        for _ in 0..cpus {
            let cpu = self.any_cpu();
            let files = if pages == HOG {
                0
            } else {
                pages * 3 / 4 / cpus
            };
            self.run(cpu, process, RssKind::File, files);
            self.run(cpu, process, RssKind::Anon, pages / cpus - files);
        }
    }

    /// Lets a process run on random CPUs until it has `pages`: one third are file pages, two thirds
    /// are anonymous pages. The process also touches `pages / 4` more anonymous pages, and unmaps
    /// the same number of anonymous pages on random CPUs.
    fn hop(&mut self, process: u32, pages: i64) {
        let files = pages / 3;
        self.scatter(process, RssKind::File, files);
        self.scatter(process, RssKind::Anon, pages - files + pages / 4);
        self.scatter(process, RssKind::Anon, -(pages / 4));
    }

    fn scatter(&mut self, process: u32, kind: RssKind, pages: i64) {
        let mut left = pages.abs();
        // The loop ends because each iteration takes at least one page from `left`.
        while left > 0 {
            let run = self.rng.random_range(1..=RUN_MAX).min(left);
            let cpu = self.any_cpu();
            self.run(cpu, process, kind, run * pages.signum());
            left -= run;
        }
    }

    /// Gives a process two sorts of pages. Pages of the first sort are in the shared parts of the
    /// process's counters, and every process has the same number of them. Pages of the second sort
    /// are only in the parts that single CPUs keep: up to 31 pages of each of two kinds on each
    /// CPU. A process with a higher `rank` has more pages of the second sort.
    fn hide(&mut self, process: u32, rank: u32) {
        let home = self.any_cpu();
        self.run(home, process, RssKind::Anon, 3 * WHOLE);
        let cpus = self.runs.len();
        let places = i64::try_from(2 * cpus).expect("few CPUs");
        let count = i64::try_from(self.adjs.len()).expect("few processes");
        let more = i64::from(rank) * (30 * places) / count;
        for (cpu, nth) in (0..cpus).chain(0..cpus).zip(0..) {
            let kind = if nth < cpus {
                RssKind::Anon
            } else {
                RssKind::File
            };
            let one_more = i64::try_from(nth).is_ok_and(|nth| nth < more % places);
            let pages = 1 + more / places + i64::from(one_more);
            self.run(cpu, process, kind, pages);
        }
    }

    fn any_cpu(&mut self) -> usize {
        self.rng.random_range(0..self.runs.len())
    }

    fn run(&mut self, cpu: usize, process: u32, kind: RssKind, pages: i64) {
        self.runs[cpu].push(Run {
            process,
            kind,
            pages,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(kind: Kind, count: u32) -> Vec<i64> {
        let population = Population::new(kind, count, 16, 7);
        let mut sizes = vec![0; count as usize];
        for run in population.runs.iter().flatten() {
            sizes[run.process as usize] += run.pages;
        }
        sizes
    }

    #[test]
    fn sizes_are_what_their_kind_says() {
        let within = |kind, low, high| {
            let sizes = sizes(kind, 40);
            assert!(
                sizes.iter().all(|size| (low..=high).contains(size)),
                "{kind:?}: {sizes:?}"
            );
        };
        within(Kind::Equal, 400 * MB, 400 * MB);
        within(Kind::Alike, 360 * MB, 440 * MB);
        within(Kind::Random, 1, 800 * MB);
        within(Kind::LargeAdj, 1, 800 * MB);
        within(Kind::InTheBand, 3 * WHOLE + 32, 3 * WHOLE + 31 * 32);
        let mut giants = sizes(Kind::TwoGiants, 40);
        giants.sort_unstable();
        assert_eq!(giants[38..], [4096 * MB, 4096 * MB + 1]);
        assert!(giants[37] <= 200 * MB);
    }

    #[test]
    fn one_hog_is_alone_and_no_two_in_the_band_are_equal() {
        let mut hogs = sizes(Kind::OneHog, 40);
        hogs.sort_unstable();
        assert!(hogs[38] < 10 * MB && hogs[39] > 60_000 * MB);
        let mut band = sizes(Kind::InTheBand, 40);
        band.sort_unstable();
        assert!(band.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
