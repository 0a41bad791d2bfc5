//! `reproduce rss-memory`: how much memory and time do a process's four counters take before they
//! are used?
//!
//! An *owner* has four counters, as a process does. The experiment measures the bytes of one owner
//! and two times, *warm* and *cold*. The warm time is the time to create and destroy an owner that
//! reuses the memory of the previous owner, as a process reuses memory of a slab cache. The cold
//! time is the time to create an owner without such memory: the mean over 64 owners that are all
//! created before the first of them is destroyed. The machines have two sockets and 2 to 4096 CPUs.
//! 16 CPUs share a last-level cache. Times are real times of this computer, and each seed is a
//! repetition of the measurement.
//!
//! The submodule `owners` creates owners and measures them.

mod owners;

use plimsoll_mm::counter::Counting;

use super::driver::{Clock, Code, Made, Number, Part, Results, Run, Runs, Setting, Tried};
use crate::error::Error;
use crate::measure::comparison::{Comparison, Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::report::{Table, tabulate};
use crate::run::cases::Case;
use crate::run::options::Determinism;

/// Owners of counters, such as processes, as a workload that experiment files can name.
pub(super) static SUBJECT: &dyn Runs = &CODE;

static CODE: Code<RssMemorySetup> = Code {
    workload: "owners-of-counters",
    about: "creates and destroys the four counters of a process on this computer",
    numbers: &[
        Number::list(
            "cpus",
            (2, 4096),
            "numbers of CPUs of the machines for which the counters are made",
        ),
        Number::one(
            "rounds",
            (1, 1000),
            "repetitions of each measurement, of which the fastest counts",
        ),
    ],
    of_designs: &[Number::one(
        "grown",
        (0, 1),
        "1 if the tree has grown, because the process has run on many CPUs; only for one-sided",
    )],
    takes_memory: false,
    clock: Clock::Real,
    setup: |setting| Ok(RssMemorySetup::new(setting)),
    metrics: RssMemorySetup::metrics,
    measure: |setup, case| (setup.costs_of(Owner::of(&case.design)), ()),
    parts: &[
        Part::new("ratios", ratios).naming(&[TREE, OURS, GROWN]),
        Part::new("cold-times", |run| Ok(cold_times(run).into()))
            .naming(&[FLAT, TREE, OURS, GROWN]),
    ],
    cells: &[],
};

/// The machines to measure, each given by its number of CPUs, and the number of times that each
/// machine is measured.
struct RssMemorySetup {
    cpus: Vec<u32>,
    rounds: u64,
}

/// An owner of four counters, such as a process: either new, or with counters that have grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// An owner of four counters of this kind, just created and not used yet.
    New(Counting),
    /// An owner of four one-sided counters that have grown into a tree, as they do in a process
    /// that runs on many CPUs.
    Grown,
}

impl Owner {
    /// Returns the owner (such as a process) whose four counters are of the kind that the design
    /// `tried` gives.
    fn of(tried: &Tried) -> Self {
        match tried.design.counting {
            Counting::OneSided if tried.numbers.get("grown") == 1 => Self::Grown,
            counting => Self::New(counting),
        }
    }
}

// The names of the owners that are compared. An owner, such as a process, has four counters; the
// names say of which kind.
const FLAT: &str = "flat";
const TREE: &str = "tree";
const OURS: &str = "one-sided";
const GROWN: &str = "one-sided, grown";

fn bytes(cpus: u32) -> Metric {
    Metric::lower("", Unit::Bytes).named(format!("bytes_at_{cpus}_cpus"))
}

fn warm(cpus: u32) -> Metric {
    Metric::lower("", Unit::Nanos).named(format!("create_at_{cpus}_cpus_ns"))
}

fn cold(cpus: u32) -> Metric {
    Metric::lower("", Unit::Nanos).named(format!("create_cold_at_{cpus}_cpus_ns"))
}

impl RssMemorySetup {
    fn new(setting: &Setting<'_>) -> Self {
        let cpus = setting.numbers.list("cpus").iter();
        Self {
            cpus: cpus
                .map(|cpus| u32::try_from(*cpus).expect("at most 4096"))
                .collect(),
            rounds: setting.get("rounds"),
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let sizes = self.cpus.iter().map(|cpus| bytes(*cpus));
        let times = self.cpus.iter().flat_map(|cpus| [warm(*cpus), cold(*cpus)]);
        sizes.chain(times).collect()
    }

    /// Measures how many bytes the counters of `owner` take on each machine. There is a metric for
    /// each machine.
    fn bytes_of(&self, owner: Owner) -> Sample {
        let size = |cpus: &u32| (*cpus, owners::bytes(owner, *cpus).expect(HAS_MEMORY));
        let sizes: Vec<(u32, usize)> = self.cpus.iter().map(size).collect();
        Sample {
            hash: fold_hashes(sizes.iter().map(|(_, size)| *size as u64)),
            metrics: sizes
                .iter()
                .map(|(cpus, size)| (bytes(*cpus), *size as f64))
                .collect(),
        }
    }

    /// Measures how many bytes and how much time a group of four counters takes on every machine.
    /// `owner` is the kind of these counters. The hash covers only the bytes, because the times of
    /// two runs are never equal.
    fn costs_of(&self, owner: Owner) -> Sample {
        let mut sample = self.bytes_of(owner);
        for &cpus in &self.cpus {
            let (warm_ns, cold_ns) = owners::times(owner, cpus, self.rounds).expect(HAS_MEMORY);
            let times = [(warm(cpus), warm_ns), (cold(cpus), cold_ns)];
            sample.metrics.extend(times);
        }
        sample
    }
}

const HAS_MEMORY: &str = "this computer has memory for 64 owners of counters";

fn ratios(run: &Run<'_, RssMemorySetup>) -> Result<Made, Error> {
    if run.options.determinism == Determinism::Check {
        // Check that two runs of each design give equal results. Only the numbers of bytes are
        // compared, because two measurements of time are never equal.
        let bytes = |case: &Case<Tried>| run.setup.bytes_of(Owner::of(&case.design));
        Comparison::run(run.designs, run.options, run.progress, bytes)?;
    }
    Ok(table_of_ratios(&run.results, &run.setup.cpus).into())
}

fn table_of_ratios(results: &Results, cpus: &[u32]) -> Table {
    let bytes = |owner, cpus| format!("{:.4}", results.ratio((TREE, owner), &bytes(cpus)));
    let time = |owner, metric: Metric| results.show_ratio((TREE, owner), &metric);
    tabulate!(
        "Ours over the published tree",
        format!(
            "An owner has the four counters of a process. `new`: the process has stayed on one \
             CPU; `grown`: it has run on many. `time`: to create and destroy an owner in the \
             memory of the one before. `cold`: to create one without such memory. Where ours costs \
             more than the published tree: new, {}; grown, {}.",
            dearer(results, cpus, OURS),
            dearer(results, cpus, GROWN),
        ),
        cpus,
        |cpus| {
            "CPUs" => cpus,
            "new: bytes" => bytes(OURS, *cpus),
            "time" => time(OURS, warm(*cpus)),
            "grown: bytes" => bytes(GROWN, *cpus),
            "time" => time(GROWN, warm(*cpus)),
            "cold" => time(GROWN, cold(*cpus)),
        }
    )
}

fn cold_times(run: &Run<'_, RssMemorySetup>) -> Table {
    let machines = &run.setup.cpus;
    let table = tabulate!(
        "Time to create an owner without the memory of an earlier one",
        "The mean over 64 owners in a row, including new per-CPU memory for them. All times are \
         those of this computer, whose caches hold lines that a busy computer would have to fetch.",
        machines,
        |cpus| {
            "CPUs" => cpus,
        }
    );
    table.with_each(
        machines,
        [FLAT, TREE, OURS, GROWN].map(|owner| (owner, owner)),
        |cpus, owner| run.results.show_interval(owner, &cold(*cpus)),
    )
}

/// Names the machines on which the counters `owner` take more bytes or more time than the published
/// tree.
fn dearer(results: &Results, cpus: &[u32], owner: &str) -> String {
    let on = |metric: fn(u32) -> Metric| {
        let is_dearer = |cpus: &u32| results.compare((TREE, owner), &metric(*cpus)).ratio.low > 1.0;
        let machines = cpus.iter().filter(|cpus| is_dearer(cpus));
        let machines: Vec<String> = machines.map(|cpus| cpus.to_string()).collect();
        if machines.is_empty() {
            "nowhere".to_owned()
        } else {
            format!("on {} CPUs", machines.join(", "))
        }
    };
    format!(
        "in bytes {}, in time {}, in cold time {}",
        on(bytes),
        on(warm),
        on(cold)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::find;
    use crate::report::misses::Values;
    use crate::run::options::Options;
    use crate::run::progress::Progress;

    /// The number of CPUs of each machine, and the number of items (inner nodes) that one tree
    /// counter of the published patch has on that machine.
    const MACHINES: [(u32, u32); 10] = [
        (2, 1),
        (8, 7),
        (32, 11),
        (64, 21),
        (128, 21),
        (256, 37),
        (384, 73),
        (512, 73),
        (1024, 149),
        (4096, 585),
    ];

    fn size(owner: Owner, cpus: u32) -> usize {
        owners::bytes(owner, cpus).expect("memory for one owner")
    }

    /// Plimsoll's version of the tree counter of the published patch is one cache line larger than
    /// the published size. The additional line holds the amounts that `Counters::set` adds. The
    /// experiment file has the published sizes.
    #[test]
    fn the_tree_has_the_published_size_and_a_line_for_what_is_set() {
        let figures = find("rss-memory").unwrap().figures().unwrap();
        assert_eq!(figures.len(), MACHINES.len());
        for ((cpus, items), figure) in MACHINES.into_iter().zip(figures) {
            let published = f64::from(4 * 64 * items + 4 * 8 * cpus);
            let tree = size(Owner::New(Counting::Tree), cpus);
            assert_eq!(tree as f64, published + 64.0, "{cpus} CPUs");
            assert_eq!(figure.published, Values::Levels(vec![published]));
            assert!(figure.what.ends_with(&format!(" {cpus} CPUs")));
            assert_eq!(figure.place.unwrap().metric, bytes(cpus).name);
        }
    }
    /// The one-sided counters of a new owner, such as a process, take one cache line. Even after
    /// they have grown into a tree, they take less memory than an owner's counters in the published
    /// design.
    #[test]
    fn ours_is_never_larger_than_the_tree_and_a_line_as_long_as_it_stays() {
        for (cpus, _) in MACHINES {
            let tree = size(Owner::New(Counting::Tree), cpus);
            assert_eq!(
                size(Owner::New(Counting::OneSided), cpus),
                64,
                "{cpus} CPUs"
            );
            assert!(size(Owner::Grown, cpus) < tree, "{cpus} CPUs");
        }
    }

    #[test]
    fn owners_with_a_part_for_each_cpu_take_longer_than_ours_when_new() {
        let times = |owner| owners::times(owner, 4096, 4).expect("memory");
        let (warm_ns, cold_ns) = times(Owner::New(Counting::OneSided));
        for owner in [
            Owner::New(Counting::Flat),
            Owner::New(Counting::Tree),
            Owner::Grown,
        ] {
            // An owner is a set of four counters, such as a process has. For each of these designs,
            // both times are more than a thousand times as long as for a new owner with one-sided
            // counters. This test demands only a factor of 4, so it passes even on a busy computer.
            let (its_warm_ns, its_cold_ns) = times(owner);
            assert!(
                its_warm_ns > 4.0 * warm_ns && its_cold_ns > 4.0 * cold_ns,
                "{owner:?}: {its_warm_ns} and {its_cold_ns} ns, ours {warm_ns} and {cold_ns} ns"
            );
        }
    }

    #[test]
    fn the_table_names_the_machines_where_ours_costs_more() {
        let metrics = |name: &'static str| {
            let of = move |cpus: u32| {
                let ns = if name == GROWN { 100 } else { 4 * cpus };
                let size = size(
                    if name == GROWN {
                        Owner::Grown
                    } else {
                        Owner::New(Counting::Tree)
                    },
                    cpus,
                );
                [
                    (bytes(cpus), size as f64),
                    (warm(cpus), f64::from(ns)),
                    (cold(cpus), f64::from(2 * ns)),
                ]
            };
            MACHINES
                .iter()
                .flat_map(move |(cpus, _)| of(*cpus))
                .collect()
        };
        let made_up = |case: &Case<&'static str>| Sample {
            hash: 1,
            metrics: metrics(case.design),
        };
        let (options, progress) = (Options::of_seeds(8), Progress::hidden());
        let runs = Comparison::run(&[TREE, GROWN], &options, &progress, made_up).unwrap();
        let cpus = MACHINES.map(|(cpus, _)| cpus);
        assert_eq!(
            dearer(&Results::new(runs), &cpus, GROWN),
            "in bytes nowhere, in time on 2, 8 CPUs, in cold time on 2, 8 CPUs"
        );
    }
}
