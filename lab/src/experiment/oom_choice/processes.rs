//! A population (set of processes) on a simulated machine, and one selection of a victim from this
//! population.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_mm::counter::{AnyCounters, Batch, Counting, Plan, Range, Reading, flat_batch};
use plimsoll_mm::design::Design;
use plimsoll_mm::machine::{Line, Machine};
use plimsoll_mm::oom::{
    Candidates, Facts, Outcome, Scope, ScoreAdj, Selecting, Selection, Slot, TotalPages, badness,
    sum_rss,
};
use plimsoll_mm::site::Work;
use plimsoll_mm::space::rss::{Rss, RssKind};
use plimsoll_mm::units::{CpuId, PAGE_SIZE};
use plimsoll_sim::Sim;
use plimsoll_sim::profile::Profile;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::oracle::{self, Judged, Truth};
use super::population::{Population, Run, WHOLE};
use crate::measure::comparison::fold_hashes;
use crate::run::testbed::simulated;

/// The nanoseconds that a selector (an algorithm that chooses a victim) takes for its second look
/// at a process. By then, all cache lines of the process are in the caches of the selector's CPU.
/// This price was measured with 1000 processes. The first look at a process takes 180 to 190 ns.
const LOOK_AGAIN_NS: u32 = 25;

/// A machine with processes that have touched their pages.
pub(super) struct ProcessSet {
    sim: Sim,
    people: Rc<People>,
    total: TotalPages,
    /// The process that grows while a victim is selected. `None` if no process grows.
    hog: Option<u32>,
    seed: u64,
}

/// The result of a selection: the time that it took, the number of precise sums, and the quality of
/// the choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    /// The virtual time that the selection took, in nanoseconds.
    pub(super) ns: u64,
    pub(super) parts: Parts,
    pub(super) sums: u64,
    pub(super) judged: Judged,
    /// The hash of everything that happened in the simulated run.
    pub(super) hash: u64,
}

/// The time of a selection, divided by kinds of work. The rest of the time passes while the CPU
/// fetches cache lines and takes locks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts {
    /// The time to look at processes, in nanoseconds.
    pub(super) looks_ns: u64,
    /// The time to sum the counters of one process at a time.
    pub(super) scans_ns: u64,
    /// The time to sum the counters of many processes together.
    pub(super) streams_ns: u64,
    /// The time to sort processes.
    pub(super) sorts_ns: u64,
}

/// The processes of a set, with their counters.
struct People {
    counting: Counting,
    members: Vec<Process>,
}

struct Process {
    rss: Rss<Sim>,
    adj: ScoreAdj,
    /// The cache line of the shared values of flat counters. The simulator charges for the lock of
    /// these values but not for their cache line, so this experiment adds the price of the cache
    /// line. In Linux, the four values are 160 contiguous bytes on three cache lines. In this
    /// experiment, they cost only one line.
    values: <Sim as Machine>::Line,
}

impl ProcessSet {
    /// Creates the machine of `profile`, with the processes of `population`. Counters of the kind
    /// `counting` count the pages of these processes.
    ///
    /// # Panics
    /// If the host has not enough memory for the counters.
    pub(super) fn gather(
        profile: &Profile,
        counting: Counting,
        population: Population,
        growth: Growth,
        seed: u64,
    ) -> Self {
        let sim = Sim::new(profile, simulated(seed));
        let plan = Plan::new(&sim, counting, Rss::<Sim>::WIDTH, Batch::RSS);
        let plan = plan.expect("four counters on as many CPUs as a profile may have");
        let process = |&adj: &ScoreAdj| {
            let rss = Rss::new(&sim, &plan).expect("the host has memory for the counters");
            if let (Growth::Every, AnyCounters::OneSided(tree)) = (growth, rss.counters()) {
                tree.grow(&sim).expect("the host has memory for the tree");
            }
            Process {
                rss,
                adj,
                values: sim.line(),
            }
        };
        let people = Rc::new(People {
            counting,
            members: population.adjs.iter().map(process).collect(),
        });
        for (cpu, born) in (0..).map(CpuId).zip(population.born) {
            let people = Rc::clone(&people);
            sim.spawn(cpu, move |sim| people.start(sim, &born));
        }
        sim.run();
        for (cpu, runs) in (0..).map(CpuId).zip(population.runs) {
            let people = Rc::clone(&people);
            sim.spawn(cpu, move |sim| people.touch(sim, &runs));
        }
        sim.run();
        let pages = profile.node_bytes.iter().sum::<u64>() / PAGE_SIZE;
        Self {
            sim,
            people,
            total: TotalPages::new(pages).expect("a machine has memory"),
            hog: population.hog,
            seed,
        }
    }

    /// Runs a selector (algorithm that chooses a victim) on one CPU. If there is a hog (a process
    /// that has almost all memory), the hog keeps touching pages on another CPU until the selection
    /// has ended.
    ///
    /// # Panics
    /// If the selector chooses no victim, or if another process exceeds the victim by more points
    /// than the selector's bound allows.
    pub(super) fn choose(&self, selecting: Selecting) -> Chosen {
        let scope = Scope::machine(self.total);
        let over = Rc::new(Cell::new(false));
        let result = Rc::new(RefCell::new(None));
        let [cpu, other] = self.two_cpus();
        let (people, seen, is_over) = (
            Rc::clone(&self.people),
            Rc::clone(&result),
            Rc::clone(&over),
        );
        self.sim.spawn(cpu, move |sim| {
            let mut slots = vec![Slot::EMPTY; people.members.len()];
            let candidates = Looking {
                sim,
                people: &people,
                seen: people.members.iter().map(|_| Cell::new(false)).collect(),
            };
            let (start, before) = (sim.now(), Parts::so_far(sim));
            let selection = selecting.select(&candidates, &scope, &mut slots);
            let ns = sim.now().0 - start.0;
            seen.replace(Some((ns, Parts::so_far(sim).since(before), selection)));
            is_over.set(true);
        });
        if let Some(hog) = self.hog {
            let people = Rc::clone(&self.people);
            self.sim.spawn(other, move |sim| {
                while !over.get() {
                    sim.spend(Work::Fault, 1);
                    people.member(hog).rss.add_growing(sim, RssKind::Anon, 1);
                }
            });
        }
        self.sim.run();
        let (ns, parts, selection) = result.take().expect("the selection has ended");
        let selection = selection.expect("counters read in order");
        Chosen {
            ns,
            parts,
            ..self.judge(ns, &selection)
        }
    }

    /// The CPU that selects a victim, and the CPU of the hog (the process that has almost all
    /// memory). Neither of them is CPU 0, which owns all cache lines that were never written. A
    /// selector on CPU 0 would not have to fetch these cache lines.
    fn two_cpus(&self) -> [CpuId; 2] {
        let cpus = self.sim.topology().cpus();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let first = rng.random_range(1..cpus);
        let other = 1 + (first + rng.random_range(0..cpus - 2)) % (cpus - 1);
        [CpuId(first), CpuId(other)]
    }

    fn judge(&self, ns: u64, selection: &Selection) -> Chosen {
        let Outcome::Victim(victim) = selection.outcome else {
            panic!("no process was chosen (seed {})", self.seed);
        };
        let judged = oracle::judge(&self.truths(), victim.candidate);
        assert!(
            judged.regret <= victim.behind,
            "{} behind, said to be {} at most (seed {})",
            judged.regret,
            victim.behind,
            self.seed
        );
        let hash = self.sim.stats().hash;
        Chosen {
            ns,
            parts: Parts::default(),
            sums: selection.precise_sums,
            judged,
            hash: fold_hashes([
                hash,
                ns,
                u64::from(victim.candidate),
                selection.precise_sums,
            ]),
        }
    }

    /// Returns for each candidate its exact points (Linux: `oom_badness`), and the range of points
    /// that follows from an approximate sum of the candidate's counters. The machine is stopped, so
    /// reading the counters takes no virtual time.
    fn truths(&self) -> Vec<Truth> {
        let truth = |nth: u32| {
            let process = self.people.member(nth);
            let facts = process.facts();
            let points = |pages| {
                badness(&facts, pages, self.total).expect("every process here may be killed")
            };
            let Range { min, max } = self.people.reading(&self.sim, nth).range;
            let pages = process.rss.usage_precise(&self.sim);
            Truth {
                points: points(pages),
                range: Range {
                    min: points(min),
                    max: points(max),
                },
            }
        };
        (0..self.people.len()).map(truth).collect()
    }
}

impl Parts {
    /// The time that all CPUs together have spent on each kind of work of selections since the
    /// machine started.
    fn so_far(sim: &Sim) -> Self {
        let work_ns = sim.stats().work_ns;
        let of = |work: Work| work_ns[work as usize];
        Self {
            looks_ns: of(Work::Candidate),
            scans_ns: of(Work::ScanCpu) + of(Work::NextCpu),
            streams_ns: of(Work::StreamCpu),
            sorts_ns: of(Work::Compare),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            looks_ns: self.looks_ns - before.looks_ns,
            scans_ns: self.scans_ns - before.scans_ns,
            streams_ns: self.streams_ns - before.streams_ns,
            sorts_ns: self.sorts_ns - before.sorts_ns,
        }
    }
}

impl Process {
    fn facts(&self) -> Facts {
        Facts {
            adj: self.adj,
            ..Facts::PROCESS
        }
    }
}

impl People {
    /// Starts each process of `born` on the calling CPU. A new process first has a copy of its
    /// parent's pages, and soon replaces them by pages of its own program. So the calling CPU
    /// writes to the counters of the process, and has the cache lines of the counters in its cache
    /// afterwards.
    fn start(&self, sim: &Sim, born: &[u32]) {
        for &process in born {
            let process = self.member(process);
            for (kind, pages) in RssKind::ALL
                .into_iter()
                .flat_map(|kind| [(kind, WHOLE), (kind, -WHOLE)])
            {
                process.rss.add_growing(sim, kind, pages);
            }
            process.values.store(sim, 0, 0, Relaxed);
        }
    }

    fn len(&self) -> u32 {
        u32::try_from(self.members.len()).expect("few processes")
    }

    fn member(&self, process: u32) -> &Process {
        &self.members[process as usize]
    }

    /// Counts `runs` on the calling CPU. Each run is a number of pages and is added in two steps.
    /// The first step adds all whole batches of the run, which a flat counter folds from its
    /// per-CPU part into the shared value. The second step adds the remaining pages, which stay in
    /// the per-CPU part. Adding one page at a time would give the same result.
    fn touch(&self, sim: &Sim, runs: &[Run]) {
        let batch = flat_batch(sim.topology().cpus());
        for run in runs {
            let process = self.member(run.process);
            let rest = run.pages % batch;
            for pages in [run.pages - rest, rest] {
                if pages != 0 {
                    process.rss.add_growing(sim, run.kind, pages);
                }
            }
            if self.counting == Counting::Flat {
                process.values.store(sim, 0, 0, Relaxed);
            }
        }
    }

    /// Returns the approximate sum of a candidate's resident and swapped pages. Does not read every
    /// CPU's part of this sum.
    fn reading(&self, sim: &Sim, candidate: u32) -> Reading {
        let process = self.member(candidate);
        if self.counting == Counting::Flat {
            process.values.load(sim, 0, Relaxed);
        }
        process.rss.usage(sim)
    }
}

/// The processes, as the candidates of a selection that runs on one CPU.
struct Looking<'a> {
    sim: &'a Sim,
    people: &'a People,
    /// For each process, whether this selection has looked at it before.
    seen: Vec<Cell<bool>>,
}

impl Candidates for Looking<'_> {
    fn len(&self) -> u32 {
        self.people.len()
    }

    fn facts(&self, candidate: u32) -> Option<Facts> {
        if self.seen[candidate as usize].replace(true) {
            self.sim.spend(Work::Think, LOOK_AGAIN_NS);
        } else {
            self.sim.spend(Work::Candidate, 1);
        }
        Some(self.people.member(candidate).facts())
    }

    fn approximate(&self, candidate: u32) -> Option<Reading> {
        Some(self.people.reading(self.sim, candidate))
    }

    fn precise(&self, candidate: u32) -> Option<i64> {
        let process = self.people.member(candidate);
        Some(process.rss.usage_precise(self.sim))
    }

    fn precise_many(&self, slots: &mut [Slot]) {
        let rss_of = |candidate: u32| Some(&self.people.member(candidate).rss);
        sum_rss(self.sim, slots, rss_of);
    }

    fn compared(&self, comparisons: u32) {
        self.sim.spend(Work::Compare, comparisons);
    }

    fn batch_gain(&self) -> u32 {
        self.people.counting.batch_gain()
    }
}

/// Says which processes have counters that have grown into a tree. Only some kinds of counters can
/// grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// Counters are trees only if they grew into trees while the pages of their process were
    /// counted.
    AsUsed,
    /// The counters of every process are trees as soon as the process is created.
    Every,
}

/// Lets `design` choose one victim from `population` (a set of processes), on a fresh machine.
/// `seed` decides, among other things, on which CPU this happens.
pub(super) fn select(
    profile: &Profile,
    design: &Design,
    population: Population,
    seed: u64,
) -> Chosen {
    select_grown(profile, design, population, Growth::AsUsed, seed)
}

/// Makes one selection as [`select`] does, but `growth` says for which processes the counters have
/// grown into a tree.
pub(super) fn select_grown(
    profile: &Profile,
    design: &Design,
    population: Population,
    growth: Growth,
    seed: u64,
) -> Chosen {
    let processes = ProcessSet::gather(profile, design.counting, population, growth, seed);
    processes.choose(design.selecting)
}
