//! `reproduce drain`: how long may one CPU hold the zone lock, and how long do the others wait?
//!
//! The mailing-list thread on batching counted the calls of `free_pcppages_bulk` that freed more
//! than 1000 pages, on two large machines. The thread showed that batching does not reduce
//! throughput, but it could not show how long CPUs wait. This experiment also measures the longest
//! wait for the lock, the lock's holder when that wait began, and the number of CPUs that waited
//! long.
//!
//! The submodule `scene` has the workload and its metrics, `family` the side workloads, and
//! `published` the published figures. `swapping` is an experiment of its own, `drain-swap`: the
//! workload that maps more memory than the machine has.

mod family;
mod published;
mod scene;
mod swapping;

use plimsoll_sim::profile::Card;

use self::family::Member;
use self::scene::{
    DRAIN_HOLDS, FAILED, HOLD_MAX, Kept, METRICS, PCP_WAIT, PCP_WAIT_MAX, Pressure, RATE, Scene,
    WAIT_MAX, ZONE_WAIT,
};
use super::Experiment;
use super::declared::{
    Cards, Clock, Declaration, Finding, OTHERS, Results, Run, cards, metrics_of, variants_of,
};
use crate::error::Error;
use crate::measure::comparison::Comparison;
use crate::measure::holds::{self, BUCKETS};
use crate::measure::metric::{Metric, Unit};
use crate::measure::stats;
use crate::report::misses::Beside;
use crate::report::value::human;
use crate::report::{Report, Table, tabulate};
use crate::run::aging::Memory;
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;

/// The experiment's entry in the catalog.
pub(super) static EXPERIMENT: &dyn Experiment = &Drain;
pub(super) use self::swapping::SWAPPING;

/// The drain experiment, with a declaration for each state (such as fresh or aged) that memory may
/// have when the main runs start.
struct Drain;

impl Experiment for Drain {
    fn name(&self) -> &'static str {
        AGED.name
    }

    fn question(&self) -> &'static str {
        AGED.question
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn run(&self, options: &Options, progress: &Progress) -> Result<Vec<Report>, Error> {
        let declared = match options.memory.unwrap_or(Memory::Aged) {
            Memory::Fresh => &FRESH,
            Memory::Aged => &AGED,
            Memory::Fragmented => &FRAGMENTED,
        };
        declared.run(options, progress)
    }

    fn check(&self) -> Result<(), Error> {
        AGED.check()
    }

    fn figures(&self) -> Result<Vec<Beside>, Error> {
        AGED.figures()
    }

    fn machines(&self) -> &'static [&'static str] {
        AGED.machines()
    }

    fn is_simulated(&self) -> bool {
        AGED.is_simulated()
    }

    fn design_names(&self) -> Result<Vec<String>, Error> {
        AGED.design_names()
    }

    fn quick_metrics(&self, machine: &str) -> Result<Vec<String>, Error> {
        AGED.quick_metrics(machine)
    }

    fn compare_some(
        &self,
        machine: &str,
        designs: &[&str],
        options: &Options,
    ) -> Result<Comparison, Error> {
        AGED.compare_some(machine, designs, options)
    }
}

static FRESH: Declared =
    declare(|machine, card, effort| Scene::new(machine, card, effort, Memory::Fresh));
static AGED: Declared =
    declare(|machine, card, effort| Scene::new(machine, card, effort, Memory::Aged));
static FRAGMENTED: Declared =
    declare(|machine, card, effort| Scene::new(machine, card, effort, Memory::Fragmented));

type Declared = Declaration<Scene, Kept>;

const fn declare(setup: fn(&str, Card, Effort) -> Result<Scene, Error>) -> Declared {
    Declaration {
        name: "drain",
        question: "how long may one CPU hold the zone lock, and what do the others pay?",
        machines: &["bergamo-176", "turin-316"],
        clock: Clock::Virtual,
        designs: || variants_of("unpatched", DESIGNS),
        verdicts: &[(UNBATCHED, OTHERS), (MERGED, BOUNDED), (ONE_DRAIN, BOUNDED)],
        published: published::PUBLISHED,
        setup,
        metrics: |_| metrics_of(METRICS),
        shown: None,
        compared: Some(|_| COMPARED.to_vec()),
        measure: |scene, case| scene.measure(&case.design.design, case.seed),
        cards: Some(&CARDS),
        conclude,
    }
}

const UNBATCHED: &str = "unbatched";
/// A design that holds the zone lock as unbatched Linux does, but with our rule for drains: an
/// allocation drains all lists even while another CPU drains them.
const ALL_DRAIN: &str = "unbatched-all-drain";
/// A design with the predecessor of the merged patch, which releases only the zone lock between
/// batches.
const ZONE_LOCK: &str = "batched-zone-lock";
/// A design with only the second patch of the series as it was first posted: it divides drains into
/// batches, and nothing else.
const DRAINS: &str = "batched-drains";
/// The design of Linux with the merged patch that frees pages in batches.
const MERGED: &str = "batched";
const BOUNDED_PAGES: &str = "bounded-pages";
/// A design that holds the zone lock as ours does, but with Linux's rule for drains: only one CPU
/// at a time drains all lists.
const ONE_DRAIN: &str = "bounded-one-drain";
const BOUNDED: &str = "bounded";
const DESIGNS: [&str; 8] = [
    UNBATCHED,
    ALL_DRAIN,
    ZONE_LOCK,
    DRAINS,
    MERGED,
    BOUNDED_PAGES,
    ONE_DRAIN,
    BOUNDED,
];
/// The metrics in which the report compares designs, with a verdict for each difference.
const COMPARED: [Metric; 7] = [
    HOLD_MAX,
    WAIT_MAX,
    ZONE_WAIT,
    PCP_WAIT_MAX,
    PCP_WAIT,
    FAILED,
    RATE,
];
/// The designs that the tables about holds of the zone lock show.
const SHOWN: [&str; 4] = [UNBATCHED, MERGED, BOUNDED_PAGES, BOUNDED];

fn conclude(run: &Run<'_, Scene, Kept>) -> Result<(Vec<Table>, Finding), Error> {
    let family = family::run(run)?;
    let mut tables = vec![
        run.scene.table(),
        holds_and_drains(&run.results),
        family::table(&family, &RATE, "Throughput over the family of workloads"),
        family::table(
            &family,
            &WAIT_MAX,
            "Longest wait for the zone lock over the family of workloads",
        ),
    ];
    tables.extend(family::claims(run)?);
    tables.extend([
        histogram(run),
        by_site(run),
        longest_waits(run),
        throughput(run),
    ]);
    tables.extend(run.cards()?);
    Ok((tables, finding(&run.results, &family)))
}

/// For each design of [`SHOWN`]: its name, and what the experiment kept of its run with the first
/// seed, beyond the metrics.
fn shown<'a>(run: &'a Run<'_, Scene, Kept>) -> impl Iterator<Item = (&'a String, &'a Kept)> {
    let each = run.each().map(|(design, kept)| (&design.name, kept));
    each.filter(|(name, _)| SHOWN.contains(&name.as_str()))
}

/// Makes the table that separates the two differences between our variant and Linux: how many pages
/// one hold of the zone lock moves, and whether an allocation drains all lists although another CPU
/// is draining them.
fn holds_and_drains(results: &Results) -> Table {
    let rows = [
        ("Linux's", "one CPU at a time", UNBATCHED),
        ("Linux's", "every allocation", ALL_DRAIN),
        ("bounded", "one CPU at a time", ONE_DRAIN),
        ("bounded", "every allocation", BOUNDED),
    ];
    tabulate!(
        "What comes from holds, and what from drains",
        "Throughput is given as a multiple of unbatched Linux's. Linux lets one CPU at a time \
         drain all lists. `pcp`: waits for the locks of page lists; only drains and vmstat work \
         wait for these locks.",
        &rows,
        |(holds, drains, design)| {
            "holds" => holds,
            "who drains" => drains,
            "throughput" => results.show_ratio((UNBATCHED, design), &RATE),
            "longest wait" => results.show(design, &WAIT_MAX),
            "all waits" => results.show(design, &ZONE_WAIT),
            "pcp: longest" => results.show(design, &PCP_WAIT_MAX),
            "pcp: all" => results.show(design, &PCP_WAIT),
            "drain holds" => results.show(design, &DRAIN_HOLDS),
            "failed" => results.show(design, &FAILED),
        }
    )
}

fn histogram(run: &Run<'_, Scene, Kept>) -> Table {
    let range = |bucket: &usize| match *bucket {
        0 => "1 to 249".to_owned(),
        last if last == BUCKETS - 1 => format!("{} and more", last * 250),
        other => format!("{} to {}", other * 250, other * 250 + 249),
    };
    let buckets: Vec<usize> = (0..BUCKETS).collect();
    let table = tabulate!(
        "Zone-lock holds by pages moved, first seed",
        "The buckets are those of the mailing-list thread. Frees, refills and drains are counted \
         together.",
        &buckets,
        |bucket| {
            "pages" => range(bucket),
        }
    );
    table.with_each(&buckets, shown(run), |bucket, kept| {
        human(kept.holds.all().buckets[*bucket] as f64, Unit::Count)
    })
}

fn by_site(run: &Run<'_, Scene, Kept>) -> Table {
    let rows = shown(run).flat_map(|(design, kept)| kept.holds.rows(design));
    Table {
        title: "Zone-lock holds by call site, first seed".to_owned(),
        note: String::new(),
        columns: holds::COLUMNS.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

fn longest_waits(run: &Run<'_, Scene, Kept>) -> Table {
    let waits = run.each();
    let waits = waits.filter_map(|(design, kept)| Some((&design.name, kept.longest?)));
    tabulate!(
        "The longest waits for the zone lock, and the holder, first seed",
        "The holder is the CPU that held the lock when the wait began. During the wait, the CPUs \
         that were already in the queue held it too.",
        &waits.collect::<Vec<_>>(),
        |(design, longest)| {
            "design" => design,
            "wait" => human(longest.wait.0 as f64, Unit::Nanos),
            "CPU" => longest.cpu,
            "holder" => longest.blocker,
            "holder's call site" => longest.blocker_site.name(),
        }
    )
}

/// Makes a table with the columns of the mailing-list thread's table. They show how much the
/// throughput of one design varies between seeds, and how far a design's throughput is from that of
/// unbatched Linux.
fn throughput(run: &Run<'_, Scene, Kept>) -> Table {
    let spread = |design: &str| {
        let spread = stats::Spread::of(&run.results.values(design, &RATE));
        spread.expect("every design runs on a seed")
    };
    let baseline = spread(UNBATCHED).mean;
    tabulate!(
        "Throughput",
        "Means over the seeds; the rows of the report are medians.",
        &run.designs,
        |design| {
            "design" => design.name,
            "pages/s" => human(spread(&design.name).mean, Unit::PagesPerSecond),
            "variation %" => {
                let variation = spread(&design.name).variation_percent();
                format!("{:.3} %", variation.unwrap_or(0.0))
            },
            "delta %" => {
                let delta = stats::delta_percent(baseline, spread(&design.name).mean);
                delta.map_or_else(String::new, |delta| format!("{delta:+.3} %"))
            },
        }
    )
}

/// The table of the most important metrics at the low and at the high card. At these cards all
/// prices are at the low end, or at the high end, of their ranges.
const CARDS: Cards<Scene, Kept> = Cards {
    title: "Bounded (B) against unbatched, at each cost card",
    note: "Shorter runs than above. A verdict that changes between cards is fragile.",
    effort: Effort::Quick,
    with_mid: false,
    pairs: &[(UNBATCHED, BOUNDED, |_| vec![HOLD_MAX, WAIT_MAX, RATE])],
    columns: &[
        ("card", cards::card),
        ("metric", cards::metric),
        ("ratio", cards::ratio),
        ("verdict", cards::verdict),
    ],
};

/// Makes the report's finding, its conclusion in words. Every statement in it is computed from the
/// medians and intervals of the runs.
fn finding(results: &Results, family: &[Member]) -> Finding {
    let answer = format!(
        "{}; {}.",
        family::worth(family, Pressure::Plenty),
        family::worth(family, Pressure::Short),
    );
    let ratio = |a, b| results.show_ratio((a, b), &RATE);
    let show = |design, metric: &Metric| results.show(design, metric);
    Finding::new(
        answer,
        [
            ("longest hold unbatched", show(UNBATCHED, &HOLD_MAX)),
            ("bounded", show(BOUNDED, &HOLD_MAX)),
            (
                "throughput, merged against unbatched",
                ratio(UNBATCHED, MERGED),
            ),
            ("bounded against unbatched", ratio(UNBATCHED, BOUNDED)),
            (
                "bounded holds with Linux's rule for drains, against unbatched",
                ratio(UNBATCHED, ONE_DRAIN),
            ),
        ],
    )
}
