//! `reproduce rss-accuracy`: how wrong is the cheap sum of resident pages?
//!
//! In the mailing-list thread on counter trees, a program moves across 384 CPUs and maps and unmaps
//! memory, while two kinds of counter count its pages side by side. This experiment uses four kinds
//! of counter. Every run checks that precise sums are exact, and that the error of every
//! approximate sum is within the counter's bound.
//!
//! The submodule `program` has the program that moves across CPUs. `setup` has one run and its
//! metrics. `influence` shows how the program's mapping sizes and moves affect the errors, and
//! which programs reach the published error.

mod influence;
mod program;
mod setup;

use plimsoll_mm::counter::Shape;
use plimsoll_mm::units::PAGE_SIZE;
use plimsoll_sim::profile::{Card, Profile};

use self::program::{Hops, Program, Sizes};
use self::setup::{BOUND, METRICS, SAMPLES, Seen};
use super::driver::{Clock, Code, Made, Number, Part, Run, Runs, Setting, Tried, metrics_of};
use crate::error::Error;
use crate::measure::comparison::run_checked;
use crate::measure::metric::Unit;
use crate::report::spark::spark;
use crate::report::value::human;
use crate::report::{Table, tabulate};
use crate::run::options::Effort;

/// The program as a workload that experiment files can name.
pub(super) static SUBJECT: &dyn Runs = &CODE;

static CODE: Code<RssAccuracySetup, Seen> = Code {
    workload: "hopping-program",
    about: "a thread hops over CPUs, maps and touches memory, and unmaps its oldest mapping",
    numbers: &[
        Number::one("pages", (1, 1 << 40), "pages that the program touches"),
        Number::one(
            "mapping_pages_max",
            (1, 1 << 20),
            "the largest size of a mapping; sizes are drawn from 1 page to this many",
        ),
        Number::one("kept", (1, 1 << 20), "mappings that the program keeps"),
        Number::one(
            "influence_pages",
            (1, 1 << 40),
            "pages that each program of the table `influence` touches",
        ),
    ],
    of_designs: &[],
    takes_memory: false,
    clock: Clock::Virtual,
    setup: RssAccuracySetup::new,
    metrics: |_| metrics_of(METRICS),
    measure: |setup, case| {
        let counting = case.design.design.counting;
        let seen = setup::run(&setup.profile, setup.program, counting, case.seed);
        (seen.sample(), seen)
    },
    parts: &[
        Part::new("workload", |run| Ok(workload(run).into())),
        Part::new("courses", |run| Ok(courses(run)))
            .naming(&[OURS])
            .giving(&["promised", "share_of_tree"]),
        Part::new("influence", |run| {
            let cells = influence::measure(run);
            Ok(influence::table(&cells).into())
        }),
        Part::new("errors-at-cards", cards),
    ],
    cells: &[],
};

const OURS: &str = "one-sided";

const PAGE: f64 = PAGE_SIZE as f64;
const MIB: f64 = (1 << 20) as f64;

/// The machine, and the program whose resident pages are counted on the machine. The rows of the
/// report show the errors of the counters.
pub(super) struct RssAccuracySetup {
    profile: Profile,
    program: Program,
}

impl RssAccuracySetup {
    fn new(setting: &Setting<'_>) -> Result<Self, Error> {
        Ok(Self {
            profile: setting.profile()?,
            program: Program {
                sizes: Sizes::UpTo(setting.get("mapping_pages_max")),
                hops: Hops::Random,
                kept: setting.numbers.count("kept"),
                pages: setting.get("pages"),
            },
        })
    }
}

fn workload(run: &Run<'_, RssAccuracySetup, Seen>) -> Table {
    let program = run.setup.program;
    let length = run.kept[0].length.0 as f64;
    Table::facts(
        "Workload: one thread hops, maps and touches, hops, unmaps the oldest",
        format!(
            "The program of the mailing-list thread is not published, so sizes and hops are chosen \
             here. Each touched page adds 1; the pages unmapped in one page table are subtracted \
             together. The error is that of the number of anonymous pages, read after each mapping \
             and unmapping; precise sums were exact in all {SAMPLES} samples of each run."
        ),
        &[
            ("mapping", program.sizes.to_string()),
            ("hops", program.hops.to_string()),
            ("mappings that stay", program.kept.to_string()),
            ("pages touched", human(program.pages as f64, Unit::Pages)),
            ("virtual time", human(length, Unit::Nanos)),
        ],
    )
}

/// A table that shows how each design's error changes over time, in the run with the first seed.
fn courses(run: &Run<'_, RssAccuracySetup, Seen>) -> Made {
    let cpus = run.setup.profile.topology.cpus();
    let tree = Shape::published(cpus, setup::BATCH);
    let behind = tree.map_or(0, |shape| shape.error_max()) as f64;
    let sizes = |seen: &Seen| -> Vec<u64> {
        let errors = seen.errors.iter();
        errors.map(|error| error.unsigned_abs()).collect()
    };
    let table = tabulate!(
        "Error over the run, first seed",
        format!(
            "{SAMPLES} samples of the error's size, each row on its own scale up to `highest`; \
             `mean` is the mean of the approximate number minus the true one. The published tree \
             is never too high, and at most {} too low. If the parts that cells and items keep are \
             evenly spread, it is too low by half of that on average, {}, near the thread's 80 MB. \
             Ours is the middle of the possible range, so it may be too high or too low.",
            mib(behind),
            mib(behind / 2.0)
        ),
        &run.each().collect::<Vec<_>>(),
        |(design, seen)| {
            "design" => design.name,
            "error" => spark(&sizes(seen)),
            "highest" => mib(sizes(seen).into_iter().max().unwrap_or(0) as f64),
            "mean" => {
                let count = seen.errors.len().max(1);
                mib(seen.errors.iter().sum::<i64>() as f64 / count as f64)
            },
        }
    );
    let bound = run.results.median(OURS, &BOUND) * PAGE;
    Made::from(table)
        .fact("promised", format!("{:.1} MiB either way", bound / MIB))
        .fact("share_of_tree", format!("{:.2}", bound / (192.0 * MIB)))
}

/// Makes a table of the worst errors at every card (with low, middle and high prices), on the first
/// seed. A quick run has no such table. Prices should not affect on which CPU a page is counted, so
/// the errors should be the same at every card.
fn cards(run: &Run<'_, RssAccuracySetup, Seen>) -> Result<Made, Error> {
    if run.options.effort == Effort::Quick {
        return Ok(Made::default());
    }
    let mut rows = Vec::new();
    for card in Card::ALL {
        let setup = run.setup_on(run.machine, card, Effort::Quick)?;
        let seed = run.options.seeds[0];
        let of_design = |design: &Tried| {
            setup::run(&setup.profile, setup.program, design.design.counting, seed)
        };
        let seen = run_checked(run.designs, run.options, run.progress, of_design)?;
        rows.push((card, seen));
    }
    let errors =
        |seen: &[Seen]| -> Vec<_> { seen.iter().map(|seen| seen.errors.clone()).collect() };
    let all_equal = rows
        .windows(2)
        .all(|pair| errors(&pair[0].1) == errors(&pair[1].1));
    let table = tabulate!(
        "Worst error at each cost card, a shorter run of the first seed",
        if all_equal {
            "Costs decide when a page is counted, not on which CPU: every sample is equal at all \
             three cards."
        } else {
            "Samples differ between cards: errors depend on costs."
        },
        &rows,
        |(card, seen)| {
            "card" => card.name(),
            "virtual time" => human(seen[0].length.0 as f64, Unit::Nanos),
        }
    );
    let table = table.with_each(
        &rows,
        run.designs.iter().zip(0_usize..),
        |(_, seen), nth| mib(seen[*nth].worst as f64),
    );
    Ok(table.into())
}

/// Formats a number of pages as MiB.
fn mib(pages: f64) -> String {
    let tenths = (pages * PAGE / MIB * 10.0).round();
    // Adding zero removes the sign of a negative zero.
    format!("{:.1} MiB", tenths / 10.0 + 0.0)
}
