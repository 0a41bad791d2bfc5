//! `reproduce rss-memory`: what do a process's four counters cost before they have counted?
//!
//! The experiment measures the bytes of one owner, and the time to make and end one, on machines of
//! 2 to 4096 CPUs with two sockets and last-level caches of 16 CPUs. Times are real ones of this
//! computer; a seed is a repetition. *Warm*, an owner gets the memory of the one before, as a
//! process does from a slab cache. *Cold*, 64 owners are made and none has been given back.
//!
//! `owners`: makes owners and measures them.

mod owners;

use std::fmt;
use std::num::NonZeroUsize;

use plimsoll_mm::counter::Counting;
use plimsoll_sim::profile::Card;

use super::Experiment;
use crate::error::Error;
use crate::measure::comparison::{Comparison, Sample, fold_hashes};
use crate::measure::metric::{Metric, Unit};
use crate::measure::stats::{self, Estimate};
use crate::report::value::{human, human_estimate, human_ratio};
use crate::report::{Report, Table};
use crate::run::options::{Determinism, Options};
use crate::run::progress::Progress;

/// The experiment's entry in the catalog.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "rss-memory",
    title: "what do a process's counters cost in bytes, and to make and end?",
    run,
};

/// The CPUs of each machine, and the items that the published tree has there for one counter.
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

/// The CPUs of the thread's machine.
const HEADLINE: u32 = 384;

/// An owner of counters; prints as its design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// An owner as it is made.
    New(Counting),
    /// An owner of our counters whose process has run on many CPUs.
    Grown,
}

/// Positions among [`OWNERS`].
const FLAT: usize = 1;
const TREE: usize = 2;
const OURS: usize = 3;
const GROWN: usize = 4;

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

fn run(options: &Options, progress: &Progress) -> Result<Vec<Report>, Error> {
    progress.start("rss-memory");
    if options.determinism == Determinism::Check {
        // Only bytes are checked, because no two times are equal.
        Comparison::run(&OWNERS, options, progress, |case| bytes_of(case.design))?;
    }
    let timed = Options {
        // One case runs at a time, because two would slow each other down.
        jobs: NonZeroUsize::MIN,
        determinism: Determinism::Trust,
        ..options.clone()
    };
    let runs = Comparison::run(&OWNERS, &timed, progress, |case| {
        costs_of(case.design, options)
    })?;
    let card = options.card.unwrap_or(Card::Mid);
    let mut report = Report::new(
        "rss-memory",
        "this computer",
        card,
        runs.seeds(),
        runs.hash(),
    );
    report.rows = runs.rows(published);
    // Thirty columns would hide what matters, so a table has the other cold times.
    let shown = cold(HEADLINE);
    report
        .rows
        .retain(|row| !row.metric.name.starts_with("create_cold") || row.metric == shown);
    let compared = [bytes(HEADLINE), warm(HEADLINE), cold(HEADLINE)];
    report.verdicts = [OURS, GROWN]
        .into_iter()
        .flat_map(|ours| runs.verdicts_between(TREE, ours))
        .filter(|row| compared.contains(&row.metric))
        .collect();
    report.tables = vec![ratios(&runs), cold_times(&runs)];
    report.finding = finding(&runs);
    Ok(vec![report])
}

/// The bytes of an owner on every machine.
fn bytes_of(owner: Owner) -> Sample {
    let sizes = MACHINES.map(|(cpus, _)| (cpus, owners::bytes(owner, cpus).expect(HAS_MEMORY)));
    Sample {
        hash: fold_hashes(sizes.map(|(_, size)| size as u64)),
        metrics: sizes
            .map(|(cpus, size)| (bytes(cpus), size as f64))
            .to_vec(),
    }
}

/// The bytes and times of an owner on every machine. The hash covers the bytes alone.
fn costs_of(owner: Owner, options: &Options) -> Sample {
    let mut sample = bytes_of(owner);
    for (cpus, _) in MACHINES {
        let (warm_ns, cold_ns) = owners::times(owner, cpus, options.effort).expect(HAS_MEMORY);
        let times = [(warm(cpus), warm_ns), (cold(cpus), cold_ns)];
        sample.metrics.extend(times);
    }
    sample
}

const HAS_MEMORY: &str = "this computer has memory for 64 owners of counters";

/// The bytes in the tree's thread: a line of 64 bytes for each item of each of four counters, and a
/// word for each CPU and counter.
fn published(design: &str, metric: &Metric) -> Option<f64> {
    let of = |(cpus, items): &(u32, u32)| {
        (*metric == bytes(*cpus)).then(|| f64::from(4 * 64 * items + 4 * 8 * cpus))
    };
    if design == OWNERS[TREE].to_string() {
        MACHINES.iter().find_map(of)
    } else {
        None
    }
}

fn values(runs: &Comparison, owner: usize, metric: &Metric) -> Vec<f64> {
    let samples = runs.samples(owner);
    samples.filter_map(|sample| sample.value(metric)).collect()
}

fn estimate(runs: &Comparison, owner: usize, metric: &Metric) -> Estimate {
    let none = Estimate {
        median: 0.0,
        low: 0.0,
        high: 0.0,
    };
    stats::estimate(&values(runs, owner, metric)).unwrap_or(none)
}

fn against_tree(runs: &Comparison, owner: usize, metric: &Metric) -> Option<stats::Comparison> {
    stats::compare(&values(runs, TREE, metric), &values(runs, owner, metric))
}

fn ratios(runs: &Comparison) -> Table {
    let cell = |owner, metric: &Metric| {
        against_tree(runs, owner, metric).map_or_else(String::new, |it| human_ratio(&it.ratio))
    };
    let bytes_cell = |owner, cpus| {
        against_tree(runs, owner, &bytes(cpus))
            .map_or_else(String::new, |it| format!("{:.4}", it.ratio.median))
    };
    let row = |(cpus, _): (u32, u32)| {
        vec![
            cpus.to_string(),
            bytes_cell(OURS, cpus),
            cell(OURS, &warm(cpus)),
            bytes_cell(GROWN, cpus),
            cell(GROWN, &warm(cpus)),
            cell(GROWN, &cold(cpus)),
        ]
    };
    Table {
        title: "Ours over the published tree".to_owned(),
        note:
            "`new` is a process that stays on one CPU, `grown` one that runs on many. Time is to \
               make and end an owner in the memory of the one before, cold to make one where none \
               has been given back."
                .to_owned(),
        columns: ["CPUs", "new: bytes", "time", "grown: bytes", "time", "cold"]
            .map(str::to_owned)
            .to_vec(),
        rows: MACHINES.map(row).to_vec(),
    }
}

fn cold_times(runs: &Comparison) -> Table {
    let shown = [FLAT, TREE, OURS, GROWN];
    let row = |(cpus, _): (u32, u32)| {
        let mut row = vec![cpus.to_string()];
        let time = |owner| human_estimate(&estimate(runs, owner, &cold(cpus)), Unit::Nanos);
        row.extend(shown.map(time));
        row
    };
    let mut columns = vec!["CPUs".to_owned()];
    columns.extend(shown.map(|owner| OWNERS[owner].to_string()));
    Table {
        title: "Time to make an owner where none has been given back".to_owned(),
        note: "Mean of 64 in a row, new per-CPU memory for them included. All times are of this \
               computer, whose caches hold lines that a busy one would have to fetch."
            .to_owned(),
        columns,
        rows: MACHINES.map(row).to_vec(),
    }
}

/// One paragraph, every word of it following from this run's numbers.
fn finding(runs: &Comparison) -> String {
    let costs = |owner| {
        let size = estimate(runs, owner, &bytes(HEADLINE)).median;
        let time = estimate(runs, owner, &warm(HEADLINE));
        let size = human(size, Unit::Bytes);
        format!("{size} and {}", human_estimate(&time, Unit::Nanos))
    };
    format!(
        "On {HEADLINE} CPUs the four counters of a process that stays on one CPU cost {}, of one \
         that runs on many {}; the published tree takes {} for either, the flat counter {}. Ours \
         costs more than the published tree: new, {}; grown, {}.",
        costs(OURS),
        costs(GROWN),
        costs(TREE),
        costs(FLAT),
        dearer(runs, OURS),
        dearer(runs, GROWN),
    )
}

/// The machines on which an owner costs more than one of the published tree, in words.
fn dearer(runs: &Comparison, owner: usize) -> String {
    let on = |metric: fn(u32) -> Metric| {
        let machines = MACHINES.iter().filter(|(cpus, _)| {
            against_tree(runs, owner, &metric(*cpus)).is_some_and(|it| it.ratio.low > 1.0)
        });
        let machines: Vec<String> = machines.map(|(cpus, _)| cpus.to_string()).collect();
        if machines.is_empty() {
            "nowhere".to_owned()
        } else {
            format!("on {} CPUs", machines.join(", "))
        }
    };
    format!(
        "in bytes {}, in time {}, in time cold {}",
        on(bytes),
        on(warm),
        on(cold)
    )
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New(counting) => f.write_str(counting.name()),
            Self::Grown => f.write_str("one-sided, grown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::options::Effort;

    fn size(owner: usize, cpus: u32) -> usize {
        owners::bytes(OWNERS[owner], cpus).expect("memory for one owner")
    }

    #[test]
    fn the_tree_has_the_published_size_and_a_line_for_what_is_set() {
        for (cpus, _) in MACHINES {
            let published = published("tree", &bytes(cpus)).expect("a size");
            assert_eq!(size(TREE, cpus) as f64, published + 64.0, "{cpus} CPUs");
        }
        // The thread says: 9.5 KB of items on 256 CPUs, 18.7 on 512, and 32 bytes for each CPU.
        assert_eq!(published("tree", &bytes(256)), Some(9472.0 + 8192.0));
        assert_eq!(published("tree", &bytes(512)), Some(18688.0 + 16384.0));
    }

    #[test]
    fn ours_is_never_larger_than_the_tree_and_a_line_as_long_as_it_stays() {
        for (cpus, _) in MACHINES {
            assert_eq!(size(OURS, cpus), 64, "{cpus} CPUs");
            assert!(size(GROWN, cpus) < size(TREE, cpus), "{cpus} CPUs");
        }
    }

    #[test]
    fn every_owner_can_be_timed() {
        for owner in OWNERS {
            let (warm_ns, cold_ns) = owners::times(owner, 32, Effort::Quick).expect("memory");
            assert!(warm_ns > 0.0 && cold_ns > 0.0, "{owner}");
        }
    }

    #[test]
    fn the_finding_names_the_machines_where_ours_costs_more() {
        let made_up = |case: &crate::run::cases::Case<Owner>| {
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
        insta::assert_snapshot!(finding(&runs), @"On 384 CPUs the four counters of a process that stays on one CPU cost 64 B and 1.54 µs [1.54–1.54], of one that runs on many 13.75 KiB and 100 ns [100–100]; the published tree takes 30.31 KiB and 1.54 µs [1.54–1.54] for either, the flat counter 13.00 KiB and 1.54 µs [1.54–1.54]. Ours costs more than the published tree: new, in bytes nowhere, in time nowhere, in time cold nowhere; grown, in bytes nowhere, in time on 2, 8 CPUs, in time cold on 2, 8 CPUs.");
    }
}
