//! `reproduce reaper`: does it help a dying process if the OOM reaper goes the other way?
//!
//! The reaper thread profiled a phone on which a killed app is reaped at once: exit and reaper go
//! through the same page tables in the same direction, and wait for each other's locks. If the
//! reaper goes the other way, they meet once. Here both directions run again, with the variant
//! proposed later and with ours, and the report shows what reviewers asked for: how long it takes
//! until all memory is free, other machines, one large mapping, and which locks are waited for
//! instead.
//!
//! `scene`: the races. `targets`: what ours must reach. `finding`: the paragraph that follows.

mod finding;
mod scene;
mod targets;

use plimsoll_mm::space::reap::Reaping;
use plimsoll_sim::profile::{Card, Profile};

use self::scene::{Scenes, metrics};
use super::Experiment;
use super::emptier::metrics::{RAN, TABLE_WAIT, WALL};
use super::emptier::{self, Emptier};
use crate::error::Error;
use crate::measure::comparison::Comparison;
use crate::measure::metric::{Metric, Unit};
use crate::report::value::{NOTHING, human, human_ratio};
use crate::report::{Report, Table};
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;
use crate::workload::victim::{Contents, Party, Raced, START_WITHIN};

/// The experiment's entry in the catalog.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "reaper",
    title: "does it help a dying process if the OOM reaper goes the other way?",
    run,
};

/// The machines, that of the thread first.
const MACHINES: [&str; 3] = ["phone-8", "laptop-2", "epyc-9654-2s"];

/// Positions of the emptiers.
const ALONE: usize = 0;
const ASCENDING: usize = 1;
const BY_VMA: usize = 2;
const OURS: usize = 4;

fn run(options: &Options, progress: &Progress) -> Result<Vec<Report>, Error> {
    let machines = match options.effort {
        Effort::Full => &MACHINES[..],
        Effort::Quick => &MACHINES[..1],
    };
    machines
        .iter()
        .map(|machine| report(machine, options, progress))
        .collect()
}

fn report(machine: &str, options: &Options, progress: &Progress) -> Result<Report, Error> {
    let card = options.card.unwrap_or(Card::Mid);
    let profile = Profile::load(machine, card)?;
    let scenes = Scenes::of(&profile, options.effort);
    let emptiers = emptiers();
    progress.start(format!("reaper on {machine}"));
    let (runs, raced) = Comparison::run_keeping(&emptiers, options, progress, |case| {
        scenes.measure(&profile, case)
    })?;
    let mut report = Report::new("reaper", machine, card, runs.seeds(), runs.hash());
    report.rows = runs.rows(|design, metric| published(machine, design, metric));
    report.verdicts = runs.verdicts_between(ASCENDING, BY_VMA);
    for other in [3, OURS] {
        report
            .verdicts
            .extend(runs.verdicts_between(ASCENDING, other));
    }
    report.verdicts.extend(runs.verdicts_between(ALONE, OURS));
    report.tables.push(scene_table(&scenes, options));
    report
        .tables
        .push(thread_table(&report, machine == MACHINES[0]));
    let targets = targets::of(&runs, &scenes);
    report.tables.push(emptier::targets(&targets));
    let names = emptiers.iter().map(|emptier| &*emptier.name);
    report.tables.push(emptier::waits(names.zip(&raced)));
    for (emptier, raced) in emptiers.iter().zip(&raced).skip(ASCENDING) {
        report.tables.push(profile_table(emptier, raced));
    }
    if options.effort == Effort::Full && options.card.is_none() {
        report.tables.push(cards(machine, options, progress)?);
    }
    report.finding = finding::of(&report, &runs, &scenes, &targets);
    Ok(report)
}

/// Exit alone, then every way to help it.
fn emptiers() -> Vec<Emptier> {
    let helped = Reaping::ALL.into_iter().map(|reaping| Emptier {
        name: reaping.name().to_owned(),
        reaping,
        helpers: 1,
        bounded: false,
    });
    [Emptier::alone()].into_iter().chain(helped).collect()
}

/// The totals of the patch's tenth version, one run each; the patch is `descending-by-vma`.
fn published(machine: &str, design: &str, metric: &Metric) -> Option<f64> {
    if machine != MACHINES[0] {
        return None;
    }
    let nth = ["ascending", "descending-by-vma"]
        .iter()
        .position(|published| *published == design)?;
    let row = THREAD
        .into_iter()
        .find(|row| row.metric.name == metric.name)?;
    Some(row.published_ms[nth] * 1e6)
}

/// A row of the thread's table.
struct ThreadRow {
    what: &'static str,
    metric: Metric,
    /// Milliseconds before and after the patch.
    published_ms: [f64; 2],
}

const fn row(what: &'static str, metric: Metric, published_ms: [f64; 2]) -> ThreadRow {
    ThreadRow {
        what,
        metric,
        published_ms,
    }
}

const THREAD: [ThreadRow; 9] = [
    row("total running time", RAN, [167.1, 132.6]),
    row("· exit", metrics::EXIT_RAN, [90.7, 72.4]),
    row("· reaper", metrics::REAPER_RAN, [76.4, 60.2]),
    row("getting page-table locks", metrics::LOCK, [33.1, 1.0]),
    row("· exit", metrics::EXIT_LOCK, [10.0, 0.4]),
    row("· reaper", metrics::REAPER_LOCK, [23.1, 0.6]),
    row("taking away reverse mappings", metrics::RMAP, [41.3, 42.0]),
    row("· exit", metrics::EXIT_RMAP, [22.4, 18.4]),
    row("· reaper", metrics::REAPER_RMAP, [18.9, 23.6]),
];

/// A table in the thread's shape, with shares of the running time, because the thread gives no
/// sizes.
fn thread_table(report: &Report, has_published: bool) -> Table {
    let median = |design: &str, metric: &Metric| {
        let mut rows = report.rows.iter();
        let found = rows.find(|row| row.design == design && row.metric.name == metric.name);
        found.map_or(0.0, |row| row.estimate.median)
    };
    // The totals of parts are compared between victims of different sizes, so they get a share.
    let cell = |row: &ThreadRow, value: f64, of: f64| {
        let percent = 100.0 * value / of.max(1.0);
        let time = human(value, Unit::Nanos);
        if [metrics::LOCK, metrics::RMAP].contains(&row.metric) {
            format!("{time} ({percent:.1} %)")
        } else {
            time
        }
    };
    let mut columns = vec!["what".to_owned()];
    if has_published {
        columns.extend(["published before", "published after"].map(str::to_owned));
    }
    let names = emptiers().into_iter().map(|emptier| emptier.name);
    let names: Vec<String> = names.collect();
    columns.extend(names.iter().cloned());
    let mut rows = Vec::new();
    for row in &THREAD {
        let mut cells = vec![row.what.to_owned()];
        if has_published {
            let both = row.published_ms.iter().zip(THREAD[0].published_ms);
            cells.extend(both.map(|(ms, all)| cell(row, ms * 1e6, all * 1e6)));
        }
        let of = |name: &String| cell(row, median(name, &row.metric), median(name, &RAN));
        cells.extend(names.iter().map(of));
        rows.push(cells);
    }
    let mut walls = vec!["from the kill until all is free".to_owned()];
    if has_published {
        walls.extend([NOTHING, NOTHING].map(str::to_owned));
    }
    walls.extend(
        names
            .iter()
            .map(|name| human(median(name, &WALL), Unit::Nanos)),
    );
    rows.push(walls);
    Table {
        title: "The thread's table, first scene".to_owned(),
        note: "In brackets: the share of the running time. Published: one run each of a victim whose size is \
               not published, so compare shares and changes. Getting a lock takes time also when it \
               is free; `table_wait` is waiting alone."
            .to_owned(),
        columns,
        rows,
    }
}

fn scene_table(scenes: &Scenes, options: &Options) -> Table {
    let seed = options.seeds.first().copied().unwrap_or(1);
    let mib = |pages: u64| format!("{} MiB", pages >> 8);
    let row = |scene: &scene::Scene| {
        let contents = Contents::of(&scene.victim.layout(seed));
        vec![
            if scene.name.is_empty() {
                "first"
            } else {
                scene.name
            }
            .to_owned(),
            scene.about.to_owned(),
            format!("{}, {}", scene.exit, scene.reaper),
            contents.mappings.to_string(),
            mib(contents.private),
            mib(contents.file),
            mib(contents.shared),
            mib(contents.swapped),
        ]
    };
    Table {
        title: "Scenes, with what the first seed's victim has".to_owned(),
        note: format!(
            "Killed at time 0; exit and reaper start within {} of it. Layouts and starts differ by \
             seed.",
            human(START_WITHIN.0 as f64, Unit::Nanos)
        ),
        columns: [
            "scene", "about", "CPUs", "mappings", "private", "file", "shared", "in swap",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: scenes.all.iter().map(row).collect(),
    }
}

fn profile_table(emptier: &Emptier, raced: &Raced) -> Table {
    let asleep = raced.asleep(Party::Exit).0 + raced.asleep(Party::Helpers).0;
    let note = if asleep == 0 {
        String::new()
    } else {
        let asleep = human(asleep as f64, Unit::Nanos);
        format!("{asleep} of it asleep, waiting for the mmap_lock.")
    };
    let title = format!("Profile of {}, first scene, first seed", emptier.name);
    raced.tree.table(title, &note)
}

/// The headline at the low and at the high end of the costs' ranges.
fn cards(machine: &str, options: &Options, progress: &Progress) -> Result<Table, Error> {
    let emptiers = emptiers();
    let mut rows = Vec::new();
    for card in [Card::Low, Card::High] {
        let profile = Profile::load(machine, card)?;
        let scenes = Scenes::of(&profile, Effort::Quick);
        let runs = Comparison::run(&emptiers, options, progress, |case| {
            scenes.measure(&profile, case).0
        })?;
        let equal = scenes.equal();
        let wanted = [WALL, RAN, TABLE_WAIT].map(|metric| equal.metric(metric));
        for (a, b) in [(ASCENDING, BY_VMA), (ASCENDING, OURS), (ALONE, OURS)] {
            for row in runs.verdicts_between(a, b) {
                // Exit alone waits for no other task, so its waits say nothing.
                let says_nothing = a == ALONE && row.metric == equal.metric(TABLE_WAIT);
                if wanted.contains(&row.metric) && !says_nothing {
                    rows.push(vec![
                        card.name().to_owned(),
                        row.a.clone(),
                        row.b.clone(),
                        row.metric.name.to_string(),
                        human_ratio(&row.comparison.ratio),
                        row.comparison.verdict.to_string(),
                    ]);
                }
            }
        }
    }
    Ok(Table {
        title: "At each cost card, with a fifth of the mappings".to_owned(),
        note:
            "Cards change the share of a page's work that is done under the page table's lock. A \
               verdict that changes between cards is fragile."
                .to_owned(),
        columns: ["card", "A", "B", "metric", "B / A", "verdict"]
            .map(str::to_owned)
            .to_vec(),
        rows,
    })
}
