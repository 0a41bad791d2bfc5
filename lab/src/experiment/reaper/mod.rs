//! `reproduce reaper`: does a dying process exit faster if the OOM reaper walks the other way?
//!
//! The mailing-list thread on the reaper profiled a phone on which each killed app is reaped at
//! once. On that phone, exit and reaper walk the same page tables in the same direction, and wait
//! for each other's locks. If the reaper walks in the opposite direction, exit and reaper meet only
//! once. This experiment runs both directions, the variant that was proposed later in the thread,
//! and our design. The report also shows what reviewers asked for: the time until all memory is
//! free, other machines, one large mapping, and the locks that tasks wait for when they no longer
//! wait for those of page tables.
//!
//! The submodule `scene` has the races, `targets` the targets for our design. `profile` compares
//! the reaper's phases with the mailing-list thread's profile. `published` has the published
//! figures.

mod profile;
mod published;
mod scene;
mod targets;

use plimsoll_mm::space::reap::Reaping;

use self::scene::{LOCK, RMAP, Scene, Scenes};
use super::Experiment;
use super::declared::{Cards, Clock, Declaration, Finding, Run, cards, effect};
use super::emptier::{self, ALONE, Emptier, RAN, TABLE_WAIT, WALL, faster};
use crate::error::Error;
use crate::measure::metric::{Metric, Unit};
use crate::report::value::{NOTHING, human};
use crate::report::{Table, tabulate};
use crate::run::options::Effort;
use crate::workload::victim::{Contents, Party, Raced, START_WITHIN};

/// The experiment's entry in the catalog.
pub(super) static EXPERIMENT: &dyn Experiment = &DECLARATION;

static DECLARATION: Declaration<Scenes, Raced, Emptier> = Declaration {
    name: "reaper",
    question: "does it help a dying process if the OOM reaper goes the other way?",
    machines: &[PHONE, "laptop-2", "epyc-9654-2s"],
    clock: Clock::Virtual,
    designs: || Ok(emptiers()),
    verdicts: &[
        (ASCENDING, PATCH),
        (ASCENDING, "descending-chunks"),
        (ASCENDING, OURS),
        (ALONE, OURS),
    ],
    published: published::PUBLISHED,
    setup: Scenes::new,
    metrics: Scenes::metrics,
    shown: None,
    compared: None,
    measure: Scenes::measure,
    cards: Some(&CARDS),
    conclude,
};

/// The machine of the mailing-list thread's measurements.
const PHONE: &str = "phone-8";

const ASCENDING: &str = "ascending";
const PATCH: &str = "descending-by-vma";
const OURS: &str = "meet-in-the-middle";

/// The ways of emptying an address space to compare: first by the exiting process alone, then with
/// one helper, for every way in which the helper can walk.
fn emptiers() -> Vec<Emptier> {
    let helped = Reaping::ALL.into_iter().map(|reaping| Emptier {
        name: reaping.name().to_owned(),
        reaping,
        helpers: 1,
        bounded: false,
    });
    [Emptier::alone()].into_iter().chain(helped).collect()
}

fn conclude(run: &Run<'_, Scenes, Raced, Emptier>) -> Result<(Vec<Table>, Finding), Error> {
    let targets = targets::of(&run.results, &run.scene);
    let mut tables = vec![
        scene_table(run),
        thread_table(run),
        emptier::targets(&targets),
        emptier::waits(run.each()),
    ];
    // The first run, in which the exiting process has no helper, is skipped: a profile of one task
    // shows nothing about waiting.
    let helped = run.each().skip(1);
    tables.extend(helped.map(|(emptier, raced)| profile_table(emptier, raced)));
    if run.machine == PHONE {
        tables.push(profile::table(run));
    }
    tables.extend(run.cards()?);
    Ok((tables, finding(run)))
}

/// The row titles of the table that the mailing-list thread published, each with the name of our
/// metric for it.
const THREAD: [(&str, &str); 10] = [
    ("total running time", "ran_ns"),
    ("· exit", "exit_ran_ns"),
    ("· reaper", "reaper_ran_ns"),
    ("getting page-table locks", "table_lock_ns"),
    ("· exit", "exit_table_lock_ns"),
    ("· reaper", "reaper_table_lock_ns"),
    ("taking away reverse mappings", "rmap_ns"),
    ("· exit", "exit_rmap_ns"),
    ("· reaper", "reaper_rmap_ns"),
    ("from the kill until all is free", "wall_ns"),
];

/// A table with the rows of the mailing-list thread's table. It shows shares of the running time,
/// because the mailing-list thread does not give the size of its victim.
fn thread_table(run: &Run<'_, Scenes, Raced, Emptier>) -> Table {
    let metrics = run.scene.metrics();
    let find = |(what, name): (&'static str, &str)| {
        let metric = metrics.iter().find(|metric| metric.name == name);
        (what, metric.expect("a metric of the first scene"))
    };
    let rows = THREAD.map(find);
    // The mailing-list thread's victim and our victim differ in size. So the times for page-table
    // locks and reverse mappings are also shown as shares of the running time, which can be
    // compared.
    let cell = |metric: &Metric, value: f64, of: f64| {
        let percent = 100.0 * value / of.max(1.0);
        let time = human(value, Unit::Nanos);
        if [LOCK, RMAP].contains(metric) {
            format!("{time} ({percent:.1} %)")
        } else {
            time
        }
    };
    let published = [("published before", ASCENDING), ("published after", PATCH)];
    let published = published.into_iter().filter(|_| run.machine == PHONE);
    let table = tabulate!(
        "The thread's table, first scene",
        "In brackets: the share of the running time. Published: one run each of a victim whose \
         size is not published, so compare shares and changes. Getting a lock takes time even if \
         the lock is free; the metric `table_wait` is only the time of waiting.",
        &rows,
        |(what, _)| {
            "what" => what,
        }
    );
    let table = table.with_each(&rows, published, |(_, metric), design| {
        let values = run
            .published(design, metric)
            .zip(run.published(design, &RAN));
        values.map_or_else(|| NOTHING.to_owned(), |(value, of)| cell(metric, value, of))
    });
    table.with_each(
        &rows,
        run.designs.iter().map(|design| (design, design)),
        |(_, metric), design| {
            let median = |metric: &Metric| run.results.median(&design.name, metric);
            cell(metric, median(metric), median(&RAN))
        },
    )
}

fn scene_table(run: &Run<'_, Scenes, Raced, Emptier>) -> Table {
    let seed = run.options.seeds[0];
    let with_contents = |scene: &Scene| (*scene, Contents::of(&scene.victim.layout(seed)));
    let rows: Vec<_> = run.scene.all.iter().map(with_contents).collect();
    let mib = |pages: u64| format!("{} MiB", pages >> 8);
    tabulate!(
        "Scenes, with what the first seed's victim has",
        format!(
            "The process is killed at time 0; exit and reaper start at most {} later. Layouts and \
             starts differ by seed. `CPUs`: that of exit, that of the reaper.",
            human(START_WITHIN.0 as f64, Unit::Nanos)
        ),
        &rows,
        |(scene, contents)| {
            "scene" => match scene.name { "" => "first".to_owned(), name => name.to_owned(), },
            "about" => scene.about,
            "CPUs" => format!("{}, {}", scene.exit, scene.reaper),
            "mappings" => contents.mappings,
            "private" => mib(contents.private),
            "file" => mib(contents.file),
            "shared" => mib(contents.shared),
            "in swap" => mib(contents.swapped),
        }
    )
}

fn profile_table(emptier: &Emptier, raced: &Raced) -> Table {
    let asleep = raced.asleep(Party::Exit).0 + raced.asleep(Party::Helpers).0;
    let note = if asleep == 0 {
        String::new()
    } else {
        let asleep = human(asleep as f64, Unit::Nanos);
        format!("In this profile, tasks slept for {asleep}, waiting for the mmap_lock.")
    };
    let title = format!("Profile of {}, first scene, first seed", emptier.name);
    raced.tree.table(title, &note)
}

/// The table of the most important metrics at the low and at the high card. At these cards all
/// prices are at the low end, or at the high end, of their ranges.
const CARDS: Cards<Scenes, Raced> = Cards {
    title: "Ratios at each cost card, with a fifth of the mappings",
    note: "Cards change the share of a page's work that is done under the page table's lock. A \
           verdict that changes between cards is fragile.",
    effort: Effort::Quick,
    with_mid: false,
    pairs: &[
        (ASCENDING, PATCH, |scenes| {
            on_equal(scenes, &[WALL, RAN, TABLE_WAIT])
        }),
        (ASCENDING, OURS, |scenes| {
            on_equal(scenes, &[WALL, RAN, TABLE_WAIT])
        }),
        // Only times are compared here, not waits: an exiting process without a helper never waits.
        (ALONE, OURS, |scenes| on_equal(scenes, &[WALL, RAN])),
    ],
    columns: &[
        ("card", cards::card),
        ("A", cards::a),
        ("B", cards::b),
        ("metric", cards::metric),
        ("B / A", cards::ratio),
        ("verdict", cards::verdict),
    ],
};

fn on_equal(scenes: &Scenes, metrics: &[Metric]) -> Vec<Metric> {
    let metrics = metrics.iter().cloned();
    metrics
        .map(|metric| scenes.equal().metric(metric))
        .collect()
}

/// Makes the report's finding, its conclusion in words. Every statement in it is computed from the
/// medians and intervals of the runs.
fn finding(run: &Run<'_, Scenes, Raced, Emptier>) -> Finding {
    let results = &run.results;
    let effect = |design, metric| effect(results.compare((ASCENDING, design), &metric).verdict);
    let answer = format!(
        "If the reaper goes the other way, as in the patch, this {} the running time of exit and \
         reaper together and {} the time until all memory is free; meeting in the middle {} the \
         time until all memory is free.",
        effect(PATCH, RAN),
        effect(PATCH, WALL),
        effect(OURS, WALL),
    );
    let change = |metric| {
        let ratio = results.ratio((ASCENDING, PATCH), &metric);
        format!("{:+.1} %", 100.0 * (ratio - 1.0))
    };
    let share = |design| {
        let (lock, ran) = (results.median(design, &LOCK), results.median(design, &RAN));
        format!("{:.1} %", 100.0 * lock / ran.max(1.0))
    };
    let times = faster(results, OURS, &run.scene.short().metric(WALL));
    Finding::new(
        answer,
        [
            (
                "share of the running time spent on page-table locks (published: 19.8 %)",
                share(ASCENDING),
            ),
            ("with the patch (published: 0.8 %)", share(PATCH)),
            (
                "running time with the patch (published: -20.6 %)",
                change(RAN),
            ),
            (
                "time until all memory is free (not published)",
                change(WALL),
            ),
            (
                "without memory left, ours against exit alone",
                format!("{times:.2} times as fast"),
            ),
        ],
    )
}
