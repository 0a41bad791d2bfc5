//! `reproduce drain`: how long may one CPU hold the zone lock, and how long do other CPUs wait for
//! this lock?
//!
//! The mailing-list thread on batching counted the calls of `free_pcppages_bulk` that freed more
//! than 1000 pages, on two large machines. The thread showed that batching does not reduce
//! throughput, but it could not show how long CPUs wait. This experiment also measures the longest
//! wait for the lock, the CPU that held the lock when that wait began, and the number of CPUs that
//! waited long.
//!
//! The submodule `setup` has the workload and its metrics, and `family` has the side workloads.
//! `swapping` is a separate experiment, `drain-swap`, whose workload maps more memory than the
//! machine has.

mod family;
mod setup;
mod swapping;

use self::setup::{
    DRAIN_HOLDS, DrainSetup, FAILED, Kept, METRICS, NUMBERS, PCP_WAIT, PCP_WAIT_MAX, Pressure,
    RATE, WAIT_MAX, ZONE_WAIT,
};
pub(super) use self::swapping::SUBJECT as SWAPPING;
use super::driver::{Clock, Code, Made, Part, Results, Run, Runs, metrics_of};
use crate::measure::holds::{self, BUCKETS};
use crate::measure::metric::Unit;
use crate::measure::stats;
use crate::report::value::human;
use crate::report::{Table, tabulate};

/// The workload of this experiment, which experiment files can name.
pub(super) static SUBJECT: &dyn Runs = &CODE;

static CODE: Code<DrainSetup, Kept> = Code {
    workload: "busy-workers",
    about: "workers that map, use and unmap memory without a pause, while memory is short",
    numbers: NUMBERS,
    of_designs: &[],
    takes_memory: true,
    clock: Clock::Virtual,
    setup: DrainSetup::new,
    metrics: |_| metrics_of(METRICS),
    measure: |setup, case| setup.measure(&case.design.design, case.seed),
    parts: &[
        Part::new("workload", |run| Ok(run.setup.table().into())),
        Part::new("holds-and-drains", |run| {
            Ok(holds_and_drains(&run.results).into())
        })
        .naming(&[UNBATCHED, ALL_DRAIN, ONE_DRAIN, BOUNDED]),
        Part::new("family", |run| {
            let family = family::run(run)?;
            let tables = vec![
                family::table(&family, &RATE, "Throughput over the family of workloads"),
                family::table(
                    &family,
                    &WAIT_MAX,
                    "Longest wait for the zone lock over the family of workloads",
                ),
            ];
            Ok(Made::from(tables)
                .fact(
                    "worth_with_plenty",
                    family::worth(&family, Pressure::Plenty),
                )
                .fact("worth_if_short", family::worth(&family, Pressure::Short)))
        })
        .naming(&SHOWN)
        .giving(&["worth_with_plenty", "worth_if_short"]),
        Part::new("claims", |run| {
            let tables: Vec<Table> = family::claims(run)?.into_iter().collect();
            Ok(tables.into())
        })
        .naming(&[UNBATCHED, MERGED]),
        Part::new("histogram", |run| Ok(histogram(run).into())),
        Part::new("sites", |run| Ok(by_site(run).into())),
        Part::new("longest-waits", |run| Ok(longest_waits(run).into())),
        Part::new("throughput", |run| Ok(throughput(run).into())).naming(&[UNBATCHED]),
    ],
    cells: &[],
};

const UNBATCHED: &str = "unbatched";
/// A design that holds the zone lock like unbatched Linux (before it freed pages in batches), but
/// has our rule for drains: an allocation drains all lists even while another CPU drains them.
const ALL_DRAIN: &str = "unbatched-all-drain";
/// The design of Linux after it merged the patch that frees pages in batches.
const MERGED: &str = "batched";
const BOUNDED_PAGES: &str = "bounded-pages";
/// A design that holds the zone lock like our design, but has Linux's rule for drains: only one CPU
/// at a time drains all lists.
const ONE_DRAIN: &str = "bounded-one-drain";
const BOUNDED: &str = "bounded";
/// The designs that are in the tables about holding the zone lock.
const SHOWN: [&str; 4] = [UNBATCHED, MERGED, BOUNDED_PAGES, BOUNDED];

/// For each design of [`SHOWN`]: its name, and the data that the experiment kept of the run with
/// the first seed. The metrics of the run are kept elsewhere.
fn shown<'a>(run: &'a Run<'_, DrainSetup, Kept>) -> impl Iterator<Item = (&'a String, &'a Kept)> {
    let each = run.each().map(|(design, kept)| (&design.name, kept));
    each.filter(|(name, _)| SHOWN.contains(&name.as_str()))
}

/// Makes the table that separates the effects of two differences between our variant and Linux. One
/// difference is the number of pages that one hold of the zone lock moves. The other is whether an
/// allocation drains all lists although another CPU is already draining them.
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

fn histogram(run: &Run<'_, DrainSetup, Kept>) -> Table {
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

fn by_site(run: &Run<'_, DrainSetup, Kept>) -> Table {
    let rows = shown(run).flat_map(|(design, kept)| kept.holds.rows(design));
    Table {
        title: "Zone-lock holds by call site, first seed".to_owned(),
        note: String::new(),
        columns: holds::COLUMNS.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

fn longest_waits(run: &Run<'_, DrainSetup, Kept>) -> Table {
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

/// Makes a table with the columns of the mailing-list thread's table. The columns show how much
/// each design's throughput varies between seeds, and how far it is from the throughput of
/// unbatched Linux (before it freed pages in batches).
fn throughput(run: &Run<'_, DrainSetup, Kept>) -> Table {
    let spread = |design: &str| {
        let spread = stats::Spread::of(&run.results.values(design, &RATE));
        spread.expect("every design runs on a seed")
    };
    let baseline = spread(UNBATCHED).mean;
    tabulate!(
        "Throughput",
        "Means over the seeds; the rows of the report are medians.",
        run.designs,
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
