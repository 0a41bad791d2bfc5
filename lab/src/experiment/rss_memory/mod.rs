//! `reproduce rss-memory`: what do a process's four counters cost before they are used?
//!
//! An *owner* has four counters, as a process does. The experiment measures the bytes of one owner
//! and two times, *warm* and *cold*. The warm time is the time to create and destroy an owner that
//! reuses the memory of the previous owner, as a process reuses memory of a slab cache. The cold
//! time is the time to create an owner without such memory. It is the mean over 64 owners that are
//! all created before the first of them is destroyed. Machines have 2 to 4096 CPUs, two sockets,
//! and last-level caches that 16 CPUs share. Times are real times of this computer, and each seed
//! is a repetition of the measurement.
//!
//! The submodule `owners` creates owners and measures them.

mod owners;
mod published;

use std::fmt;

use plimsoll_mm::counter::Counting;

use super::Experiment;
use super::declared::{Clock, Declaration, Finding, Results, Run, level};
use crate::error::Error;
use crate::measure::comparison::{Comparison, Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::report::{Table, tabulate};
use crate::run::cases::Case;
use crate::run::options::{Determinism, Effort};

/// The experiment's entry in the catalog.
pub(super) static EXPERIMENT: &dyn Experiment = &DECLARATION;

/// The declaration of the experiment. It has no workload besides the effort, which says how long to
/// measure.
static DECLARATION: Declaration<Effort, (), Owner> = Declaration {
    name: "rss-memory",
    question: "what do the counters of a process cost in memory, to create, to destroy?",
    machines: &["this computer"],
    clock: Clock::Real,
    designs: || Ok(OWNERS.to_vec()),
    verdicts: &[(TREE, OURS), (TREE, GROWN)],
    published: published::PUBLISHED,
    setup: |_, _, effort| Ok(effort),
    metrics: |_| all_metrics(),
    shown: Some(shown),
    compared: Some(|_| vec![bytes(HEADLINE), warm(HEADLINE), cold(HEADLINE)]),
    measure: |effort, case| (costs_of(case.design, *effort), ()),
    cards: None,
    conclude,
};

/// For each machine, the number of its CPUs, and the number of items that one counter of the
/// published tree has on it.
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

/// The number of CPUs of the machine on which the mailing-list thread measured. The report's
/// headline figures are for this number.
const HEADLINE: u32 = 384;

/// A kind of owner of four counters. This experiment compares owners as others compare designs; the
/// `Display` text is the name of that design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// An owner of four counters of this kind, just created and not used yet.
    New(Counting),
    /// An owner of our counters whose tree has grown, because its process has run on many CPUs.
    Grown,
}

// The names of owners.
const FLAT: &str = "flat";
const TREE: &str = "tree";
const OURS: &str = "one-sided";
const GROWN: &str = "one-sided, grown";

const OWNERS: [Owner; 5] = [
    Owner::New(Counting::Shared),
    Owner::New(Counting::Flat),
    Owner::New(Counting::Tree),
    Owner::New(Counting::OneSided),
    Owner::Grown,
];

fn bytes(cpus: u32) -> Metric {
    Metric::lower("", Unit::Bytes).named(format!("bytes_at_{cpus}_cpus"))
}

fn warm(cpus: u32) -> Metric {
    Metric::lower("", Unit::Nanos).named(format!("create_at_{cpus}_cpus_ns"))
}

fn cold(cpus: u32) -> Metric {
    Metric::lower("", Unit::Nanos).named(format!("create_cold_at_{cpus}_cpus_ns"))
}

/// The number of bytes of four counters of the published tree, on the machine at index `nth` of
/// [`MACHINES`].
const fn tree_bytes(nth: usize) -> f64 {
    let (cpus, items) = MACHINES[nth];
    (4 * 64 * items + 4 * 8 * cpus) as f64
}

fn all_metrics() -> Vec<Metric> {
    let sizes = MACHINES.map(|(cpus, _)| bytes(cpus));
    let times = MACHINES.map(|(cpus, _)| [warm(cpus), cold(cpus)]);
    sizes
        .into_iter()
        .chain(times.into_iter().flatten())
        .collect()
}

/// Returns the metrics that the report shows as columns. Of the cold times, only that at
/// [`HEADLINE`] CPUs is a column. A separate table shows the other cold times, because the
/// important columns would be hard to find among thirty.
fn shown(_: &Effort) -> Vec<Metric> {
    let mut shown = all_metrics();
    let headline = cold(HEADLINE);
    shown.retain(|metric| !metric.name.starts_with("create_cold") || *metric == headline);
    shown
}

fn conclude(run: &Run<'_, Effort, (), Owner>) -> Result<(Vec<Table>, Finding), Error> {
    if run.options.determinism == Determinism::Check {
        // Each design is run twice, to check that the results are equal. Only bytes are compared,
        // because real times are never equal.
        let bytes = |case: &Case<Owner>| bytes_of(case.design);
        Comparison::run(&OWNERS, run.options, run.progress, bytes)?;
    }
    let tables = vec![ratios(&run.results), cold_times(&run.results)];
    Ok((tables, finding(&run.results)))
}

/// Measures the bytes of an owner of this kind on every machine of [`MACHINES`], with one metric
/// for each machine.
fn bytes_of(owner: Owner) -> Sample {
    let sizes = MACHINES.map(|(cpus, _)| (cpus, owners::bytes(owner, cpus).expect(HAS_MEMORY)));
    Sample {
        hash: fold_hashes(sizes.map(|(_, size)| size as u64)),
        metrics: sizes
            .map(|(cpus, size)| (bytes(cpus), size as f64))
            .to_vec(),
    }
}

/// Measures the bytes and the times of an owner of this kind on every machine of [`MACHINES`]. The
/// hash covers only the bytes, because the times of two runs are never equal.
fn costs_of(owner: Owner, effort: Effort) -> Sample {
    let mut sample = bytes_of(owner);
    for (cpus, _) in MACHINES {
        let (warm_ns, cold_ns) = owners::times(owner, cpus, effort).expect(HAS_MEMORY);
        let times = [(warm(cpus), warm_ns), (cold(cpus), cold_ns)];
        sample.metrics.extend(times);
    }
    sample
}

const HAS_MEMORY: &str = "this computer has memory for 64 owners of counters";

fn ratios(results: &Results) -> Table {
    let bytes = |owner, cpus| format!("{:.4}", results.ratio((TREE, owner), &bytes(cpus)));
    let time = |owner, metric: Metric| results.show_ratio((TREE, owner), &metric);
    tabulate!(
        "Ours over the published tree",
        format!(
            "An owner has the four counters of a process. `new`: the process has stayed on one \
             CPU; `grown`: it has run on many. `time`: to create and destroy an owner in the \
             memory of the one before. `cold`: to create one without such memory. Where ours costs \
             more than the published tree: new, {}; grown, {}.",
            dearer(results, OURS),
            dearer(results, GROWN),
        ),
        &MACHINES.map(|(cpus, _)| cpus),
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

fn cold_times(results: &Results) -> Table {
    let machines = MACHINES.map(|(cpus, _)| cpus);
    let table = tabulate!(
        "Time to create an owner without the memory of an earlier one",
        "The mean over 64 owners in a row, including new per-CPU memory for them. All times are \
         those of this computer, whose caches hold lines that a busy computer would have to fetch.",
        &machines,
        |cpus| {
            "CPUs" => cpus,
        }
    );
    table.with_each(
        &machines,
        [FLAT, TREE, OURS, GROWN].map(|owner| (owner, owner)),
        |cpus, owner| results.show_interval(owner, &cold(*cpus)),
    )
}

/// Makes the report's finding, its conclusion in words. Every statement in it is computed from the
/// results of the runs.
fn finding(results: &Results) -> Finding {
    let size = |owner| results.show(owner, &bytes(HEADLINE));
    let time = |owner| results.show_interval(owner, &warm(HEADLINE));
    let than_tree = |owner| level(results.compare((TREE, owner), &warm(HEADLINE)).verdict);
    let answer = format!(
        "On {HEADLINE} CPUs, four counters of ours take {} while their process stays on one CPU, \
         and {} once it runs on many; the published tree takes {}. Compared with the tree, the \
         time to create and destroy them is {} when new and {} when grown.",
        size(OURS),
        size(GROWN),
        size(TREE),
        than_tree(OURS),
        than_tree(GROWN),
    );
    Finding::new(
        answer,
        [
            ("flat counters", size(FLAT)),
            ("time of ours when new", time(OURS)),
            ("when grown", time(GROWN)),
            ("of the tree", time(TREE)),
            ("of flat counters", time(FLAT)),
        ],
    )
}

/// Says on which machines `owner` takes more bytes or more time than an owner of the published
/// tree.
fn dearer(results: &Results, owner: &str) -> String {
    let on = |metric: fn(u32) -> Metric| {
        let machines = MACHINES.map(|(cpus, _)| cpus).into_iter();
        let is_dearer = |cpus: &u32| results.compare((TREE, owner), &metric(*cpus)).ratio.low > 1.0;
        let machines: Vec<String> = machines
            .filter(is_dearer)
            .map(|cpus| cpus.to_string())
            .collect();
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

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New(counting) => f.write_str(counting.name()),
            Self::Grown => f.write_str(GROWN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::options::Options;
    use crate::run::progress::Progress;

    fn size(owner: Owner, cpus: u32) -> usize {
        owners::bytes(owner, cpus).expect("memory for one owner")
    }

    /// Plimsoll's version of the published tree has the published size plus one cache line, which
    /// holds the amounts that `Counters::set` adds.
    #[test]
    fn the_tree_has_the_published_size_and_a_line_for_what_is_set() {
        for (nth, (cpus, _)) in MACHINES.into_iter().enumerate() {
            let tree = size(Owner::New(Counting::Tree), cpus);
            assert_eq!(tree as f64, tree_bytes(nth) + 64.0, "{cpus} CPUs");
            let figure = &DECLARATION.published[0].figures[nth];
            assert_eq!(bytes(cpus).name, figure.metric);
            let value = figure.values.level(TREE);
            assert_eq!(value, Some(tree_bytes(nth)), "{cpus} CPUs");
            assert!(figure.what.ends_with(&format!(" {cpus} CPUs")));
        }
        // The mailing-list thread gives these sizes for its tree: 9.5 KB of items on 256 CPUs, 18.7
        // KB on 512 CPUs, and in addition 32 bytes for each CPU.
        assert_eq!(tree_bytes(5), 9472.0 + 8192.0);
        assert_eq!(tree_bytes(7), 18688.0 + 16384.0);
    }

    /// A new owner of our counters takes one cache line. A grown tree is smaller than the published
    /// tree.
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
        let times = |owner| owners::times(owner, 4096, Effort::Full).expect("memory");
        let (warm_ns, cold_ns) = times(Owner::New(Counting::OneSided));
        for owner in [
            Owner::New(Counting::Flat),
            Owner::New(Counting::Tree),
            Owner::Grown,
        ] {
            // Other owners take more than a thousand times as long as a new owner of our counters,
            // so the difference shows on a busy computer, too.
            let (its_warm_ns, its_cold_ns) = times(owner);
            assert!(
                its_warm_ns > 4.0 * warm_ns && its_cold_ns > 4.0 * cold_ns,
                "{owner}: {its_warm_ns} and {its_cold_ns} ns, ours {warm_ns} and {cold_ns} ns"
            );
        }
    }

    #[test]
    fn the_table_names_the_machines_where_ours_costs_more() {
        let made_up = |case: &Case<Owner>| {
            let mut sample = bytes_of(case.design);
            for (cpus, _) in MACHINES {
                let ns = if case.design == Owner::Grown {
                    100
                } else {
                    4 * cpus
                };
                let times = [(warm(cpus), f64::from(ns)), (cold(cpus), f64::from(2 * ns))];
                sample.metrics.extend(times);
            }
            sample
        };
        let (options, progress) = (Options::of_seeds(8), Progress::hidden());
        let runs = Comparison::run(&OWNERS, &options, &progress, made_up).expect("no check");
        let results = Results::new(runs);
        assert_eq!(
            dearer(&results, OURS),
            "in bytes nowhere, in time nowhere, in cold time nowhere"
        );
        assert_eq!(
            dearer(&results, GROWN),
            "in bytes nowhere, in time on 2, 8 CPUs, in cold time on 2, 8 CPUs"
        );
        insta::assert_snapshot!(finding(&results), @"On 384 CPUs, four counters of ours take 64 B while their process stays on one CPU, and 13.75 KiB once it runs on many; the published tree takes 30.31 KiB. Compared with the tree, the time to create and destroy them is equal when new and lower when grown. In numbers: flat counters 13.00 KiB; time of ours when new 1.54 µs [1.54–1.54]; when grown 100 ns [100–100]; of the tree 1.54 µs [1.54–1.54]; of flat counters 1.54 µs [1.54–1.54].");
    }
}
