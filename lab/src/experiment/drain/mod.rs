//! `reproduce drain`: how long may one CPU hold the zone lock, and how long do the others wait?
//!
//! The mailing-list thread on batching counted the calls of `free_pcppages_bulk` that freed more
//! than 1000 pages, on two large machines. The thread showed that batching does not reduce
//! throughput, but it could not show how long CPUs wait. This experiment also measures the longest
//! wait for the lock, the lock's holder when that wait began, and the number of CPUs that waited
//! long.
//!
//! The submodule `scene` has the workload and its metrics, and `published` the published figures.

mod published;
mod scene;

use self::scene::{HOLD_MAX, Kept, METRICS, RATE, Scene, WAIT_MAX};
use super::Experiment;
use super::declared::{
    Cards, Clock, Declaration, Finding, OTHERS, Results, Run, cards, level, metrics_of, variants_of,
};
use crate::error::Error;
use crate::measure::holds::{self, BUCKETS};
use crate::measure::metric::{Metric, Unit};
use crate::measure::stats;
use crate::report::value::human;
use crate::report::{Table, tabulate};
use crate::run::options::Effort;

/// The experiment's entry in the catalog.
pub(super) static EXPERIMENT: &dyn Experiment = &DECLARATION;

static DECLARATION: Declaration<Scene, Kept> = Declaration {
    name: "drain",
    question: "how long may one CPU hold the zone lock, and what do the others pay?",
    machines: &["bergamo-176", "turin-316"],
    clock: Clock::Virtual,
    designs: || variants_of("unpatched", [UNBATCHED, MERGED, "bounded-pages", BOUNDED]),
    verdicts: &[(UNBATCHED, OTHERS), (MERGED, BOUNDED)],
    published: published::PUBLISHED,
    setup: Scene::new,
    metrics: |_| metrics_of(METRICS),
    shown: None,
    compared: None,
    measure: |scene, case| scene.measure(&case.design.design, case.seed),
    cards: Some(&CARDS),
    conclude,
};

const UNBATCHED: &str = "unbatched";
/// The patch as merged into Linux.
const MERGED: &str = "batched";
const BOUNDED: &str = "bounded";

fn conclude(run: &Run<'_, Scene, Kept>) -> Result<(Vec<Table>, Finding), Error> {
    let mut tables = vec![
        run.scene.table(),
        histogram(run),
        by_site(run),
        longest_waits(run),
        throughput(run),
    ];
    tables.extend(run.cards()?);
    Ok((tables, finding(&run.results)))
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
        "The thread's buckets; frees, refills and drains together.",
        &buckets,
        |bucket| {
            "pages" => range(bucket),
        }
    );
    table.with_each(
        &buckets,
        run.each().map(|(design, kept)| (&design.name, kept)),
        |bucket, kept| human(kept.holds.all().buckets[*bucket] as f64, Unit::Count),
    )
}

fn by_site(run: &Run<'_, Scene, Kept>) -> Table {
    let rows = run.each();
    let rows = rows.flat_map(|(design, kept)| kept.holds.rows(&design.name));
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
        "The CPU that held the lock when the wait began; CPUs queued in between held it too.",
        &waits.collect::<Vec<_>>(),
        |(design, longest)| {
            "design" => design,
            "wait" => human(longest.wait.0 as f64, Unit::Nanos),
            "CPU" => longest.cpu,
            "holder" => longest.blocker,
            "held for" => longest.blocker_site.name(),
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
        "Means over the seeds; rows above are medians. Published for the patch: delta within \
         ±0.02 % at a variation of 0.01 to 0.56 %.",
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

/// Makes the finding. Every statement in it follows from the medians and intervals of the runs.
fn finding(results: &Results) -> Finding {
    let shorter = |design: &str, metric: &Metric| {
        results.median(UNBATCHED, metric) / results.median(design, metric).max(1.0)
    };
    let rate = results.compare((UNBATCHED, BOUNDED), &RATE).verdict;
    let answer = format!(
        "Bounded, the longest hold of the zone lock is {:.0} times and the longest wait of any CPU \
         {:.0} times as short as unbatched (as merged {:.1} and {:.1} times), and throughput is {}.",
        shorter(BOUNDED, &HOLD_MAX),
        shorter(BOUNDED, &WAIT_MAX),
        shorter(MERGED, &HOLD_MAX),
        shorter(MERGED, &WAIT_MAX),
        level(rate),
    );
    let rate_ratio = results.show_ratio((UNBATCHED, BOUNDED), &RATE);
    let show = |design, metric: &Metric| results.show(design, metric);
    Finding::new(
        answer,
        [
            ("longest hold unbatched", show(UNBATCHED, &HOLD_MAX)),
            ("bounded", show(BOUNDED, &HOLD_MAX)),
            ("longest wait unbatched", show(UNBATCHED, &WAIT_MAX)),
            ("bounded", show(BOUNDED, &WAIT_MAX)),
            ("throughput, bounded against unbatched", rate_ratio),
        ],
    )
}
