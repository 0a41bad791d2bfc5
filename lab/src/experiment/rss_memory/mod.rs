//! `reproduce rss-memory`: what do a process's four counters cost before they have counted?
//!
//! Bytes of one owner, and the time to make and end one, on machines of 2 to 4096 CPUs: two
//! sockets, last-level caches of 16 CPUs. Times are real ones of this computer; a seed is a
//! repetition. *Warm*, an owner gets the memory of the one before, as a process does from a slab
//! cache. *Cold*, 64 are made and none has been given back.
//!
//! `owners`: how they are made and measured.

mod owners;

use std::fmt;
use std::num::NonZeroUsize;

use plimsoll_mm::counter::Counting;
use plimsoll_sim::profile::Card;

use super::{Determinism, Experiment, Options};
use crate::compare::{Comparison, Sample, fold_hashes};
use crate::error::Error;
use crate::metric::{Metric, Unit};
use crate::progress::Progress;
use crate::report::value::{human, human_estimate, human_ratio};
use crate::report::{Report, Table};
use crate::stats::{self, Estimate, Verdict};

/// In the catalog.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "rss-memory",
    title: "what do a process's counters cost in bytes, and to make and end?",
    run,
};

/// CPUs of the machines, and the published tree's items of one counter on each.
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

/// CPUs of the thread's machine.
const HEADLINE: u32 = 384;

/// An owner of counters, which prints as its design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// As it is made.
    New(Counting),
    /// Ours, of a process that runs on many CPUs.
    Grown,
}

/// Positions among [`OWNERS`].
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
        // Of bytes alone: no two times are equal.
        Comparison::run(&OWNERS, options, progress, |case| bytes_of(case.design))?;
    }
    let timed = Options {
        // One at a time, or one would slow the other down.
        jobs: NonZeroUsize::MIN,
        determinism: Determinism::Trust,
        ..options.clone()
    };
    let runs = Comparison::run(&OWNERS, &timed, progress, |case| {
        costs_of(case.design, options)
    })?;
    let card = options.card.unwrap_or(Card::Mid);
    let mut report = Report::new("rss-memory", "this computer", card, &runs);
    report.rows = runs.rows(published);
    // Thirty columns would hide what matters; a table has the other cold ones.
    let shown = cold(HEADLINE);
    report
        .rows
        .retain(|row| !row.metric.name.starts_with("create_cold") || row.metric == shown);
    let compared = [bytes(HEADLINE), warm(HEADLINE), cold(HEADLINE)];
    report.verdicts = runs.verdicts(TREE);
    report
        .verdicts
        .retain(|row| row.a != row.b && compared.contains(&row.metric));
    report.tables = vec![ratios(&runs), cold_times(&runs)];
    report.finding = finding(&runs);
    Ok(vec![report])
}

/// The bytes on every machine.
fn bytes_of(owner: Owner) -> Sample {
    let sizes = MACHINES.map(|(cpus, _)| (cpus, owners::bytes(owner, cpus).expect(HAS_MEMORY)));
    Sample {
        hash: fold_hashes(sizes.map(|(_, size)| size as u64)),
        metrics: sizes
            .map(|(cpus, size)| (bytes(cpus), size as f64))
            .to_vec(),
    }
}

/// Bytes and times on every machine. The hash is of the bytes alone.
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

/// Those of the tree's thread: a line of 64 bytes for each item of each of four counters, and a
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
            .map_or_else(String::new, |it| format!("{:.3}", it.ratio.median))
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
    let row = |(cpus, _): (u32, u32)| {
        let mut row = vec![cpus.to_string()];
        let time = |owner| human_estimate(&estimate(runs, owner, &cold(cpus)), Unit::Nanos);
        row.extend((0..OWNERS.len()).map(time));
        row
    };
    let mut columns = vec!["CPUs".to_owned()];
    columns.extend(OWNERS.iter().map(ToString::to_string));
    Table {
        title: "Making an owner where none has been given back".to_owned(),
        note: "Mean of 64 in a row, per-CPU memory for them included; the others were made and \
               ended over and over. Times are of this computer, whose caches hold what a process \
               under load would have to fetch."
            .to_owned(),
        columns,
        rows: MACHINES.map(row).to_vec(),
    }
}

/// One paragraph, every word of it following from this run's numbers.
fn finding(runs: &Comparison) -> String {
    let size = |owner| human(estimate(runs, owner, &bytes(HEADLINE)).median, Unit::Bytes);
    let time = |owner| human_estimate(&estimate(runs, owner, &warm(HEADLINE)), Unit::Nanos);
    let dearer = |owner, metric: fn(u32) -> Metric| -> Vec<u32> {
        let is_higher = |&cpus: &u32| {
            against_tree(runs, owner, &metric(cpus))
                .is_some_and(|it| it.verdict == Verdict::Higher || it.ratio.low > 1.0)
        };
        MACHINES
            .iter()
            .map(|(cpus, _)| *cpus)
            .filter(is_higher)
            .collect()
    };
    let target = |what: &str, metric: fn(u32) -> Metric| {
        let list = |cpus: Vec<u32>| match &*cpus {
            [] => "nowhere".to_owned(),
            some => {
                let some: Vec<String> = some.iter().map(u32::to_string).collect();
                format!("at {} CPUs", some.join(", "))
            }
        };
        let (new, grown) = (list(dearer(OURS, metric)), list(dearer(GROWN, metric)));
        format!("{what} than the published tree {new} new and {grown} grown")
    };
    format!(
        "On {HEADLINE} CPUs a process that stays on one CPU pays {} and {} for its counters, one \
         that runs on many {} and {}; the published tree takes {} and {} of either, the flat \
         counter {} and {}. Ours takes {}, {}, and {}.",
        size(OURS),
        time(OURS),
        size(GROWN),
        time(GROWN),
        size(TREE),
        time(TREE),
        size(1),
        time(1),
        target("more bytes", bytes),
        target("longer to make and end", warm),
        target("longer to make cold", cold),
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
