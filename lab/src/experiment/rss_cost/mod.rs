//! `reproduce rss-cost`: what does it cost to count resident pages?
//!
//! The counter-tree thread ran will-it-scale's `page_fault1` to show that its counters cost no
//! speed. Here every variant runs it, with one task and with many, and a second scene does nothing
//! but count, on all CPUs, to show which cache lines move when nothing hides them.
//!
//! `scene`: the benchmark. `counting`: the second scene. `finding`: the paragraph that follows from
//! both.

mod counting;
mod finding;
mod scene;

use plimsoll_mm::counter::Counting;
use plimsoll_sim::profile::{Card, Profile};

use self::counting::{Counted, FAR, Pace, metrics};
use self::scene::{Measured, PARTS, Scene, name, rate};
use super::Experiment;
use crate::catalog::designs::{self, Named};
use crate::error::Error;
use crate::measure::comparison::Comparison;
use crate::measure::metric::{Metric, Unit};
use crate::report::value::{human, human_ratio};
use crate::report::{Report, Table, VerdictRow};
use crate::run::options::{Effort, Options};
use crate::run::progress::Progress;
use crate::workload::page_fault::Mode;

/// The experiment's entry in the catalog.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "rss-cost",
    title: "what does it cost to count resident pages?",
    run,
};

/// The machine of the thread.
const MACHINE: &str = "epyc-9654-2s";

/// The variant that the others are compared with.
const BASELINE: Counting = Counting::Flat;

/// The numbers of tasks for which a table shows where time goes.
const SHOWN_TASKS: [u32; 3] = [1, 24, 384];

fn run(options: &Options, progress: &Progress) -> Result<Vec<Report>, Error> {
    let card = options.card.unwrap_or(Card::Mid);
    let profile = Profile::load(MACHINE, card)?;
    let scene = Scene::of(options.effort);
    let designs = designs()?;
    progress.start(format!("rss-cost on {MACHINE}"));
    let (runs, measured) = Comparison::run_keeping(&designs, options, progress, |case| {
        scene.measure(&profile, &case.design.design, case.seed)
    })?;
    let mut report = Report::new("rss-cost", MACHINE, card, runs.seeds(), runs.hash());
    report.rows = runs.rows(published);
    report.verdicts = runs.verdicts(0);
    for mode in scene::MODES {
        report.tables.push(times(mode, &designs, &measured));
    }
    report.tables.push(lines(&designs, &measured));
    if options.effort == Effort::Full && options.card.is_none() {
        report.tables.push(cards(designs, options, progress)?);
    }
    report.finding = finding::of(&report, &measured);
    Ok(vec![report])
}

/// The baseline first, then the other ways to count; all else is unpatched Linux.
fn designs() -> Result<Vec<Named>, Error> {
    let others = Counting::ALL
        .into_iter()
        .filter(|counting| *counting != BASELINE);
    let named = |counting: Counting| {
        let design = designs::find(&format!("unpatched+{}", counting.name()))?.design;
        let name = counting.name().to_owned();
        Ok(Named { name, design })
    };
    [BASELINE].into_iter().chain(others).map(named).collect()
}

/// The thread's averages over 100 s with one task, SMT off. About more tasks the thread says only
/// that the difference is noise.
fn published(design: &str, metric: &Metric) -> Option<f64> {
    let (processes, threads) = match design {
        "flat" => (614_783.0, 612_788.0),
        "tree" => (615_558.0, 612_447.0),
        _ => return None,
    };
    let is = |mode| metric.name == rate(mode, 1).name;
    if is(Mode::Processes) {
        Some(processes)
    } else {
        is(Mode::Threads).then_some(threads)
    }
}

fn texts(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|&column| column.to_owned()).collect()
}

/// A table of where the time of the tasks of `mode` goes.
fn times(mode: Mode, designs: &[Named], measured: &[Measured]) -> Table {
    let mut rows = Vec::new();
    for tasks in SHOWN_TASKS {
        for (design, it) in designs.iter().zip(measured) {
            let mut found = it.times.iter();
            let Some((_, _, times)) = found.find(|it| (it.0, it.1) == (mode, tasks)) else {
                continue;
            };
            let mut row = vec![tasks.to_string(), design.name.clone()];
            row.extend(times.percents().map(percent));
            rows.push(row);
        }
    }
    let mut columns = texts(&["tasks", "design"]);
    columns.extend(texts(&PARTS));
    Table {
        title: format!(
            "Where the time of {} goes, in percent, first seed",
            name(mode)
        ),
        note: match mode {
            Mode::Processes => {
                "Work, then waiting for locks. The rest is locks that were free, and moving cache \
                 lines. Page lists hold a round by then, so hardly a page comes from a zone."
            }
            Mode::Threads => "A thread that waits for the mmap_lock sleeps.",
        }
        .to_owned(),
        columns,
        rows,
    }
}

/// Two decimals, or `0` for a value that rounds to none.
fn percent(value: f64) -> String {
    if value.abs() < 0.005 {
        "0".to_owned()
    } else {
        format!("{value:.2}")
    }
}

fn lines(designs: &[Named], measured: &[Measured]) -> Table {
    let row = |design: &Named, counted: &Counted| {
        let pace = match counted.pace {
            Pace::Full => "full",
            Pace::Faults => "faults",
        };
        let mut row = texts(&[pace, &design.name]);
        row.push(human(counted.adds_per_s(), Unit::PerSecond));
        row.extend(FAR.map(|distance| format!("{:.2}", counted.per_1000(distance))));
        row.push(format!("{:.2}", counted.all_per_1000()));
        row
    };
    let both = |nth: usize| {
        let rows = designs.iter().zip(measured);
        rows.map(move |(design, it)| row(design, &it.counting[nth]))
    };
    Table {
        title: "Cache lines moved per 1000 additions, by distance, first seed".to_owned(),
        note: "All CPUs add 1 to one counter, as fast as they can or with a page fault's work in \
               between. Lines of shared words and of locks."
            .to_owned(),
        columns: texts(&[
            "pace",
            "design",
            "adds/s",
            "core",
            "LLC",
            "socket",
            "other socket",
            "all",
        ]),
        rows: both(0).chain(both(1)).collect(),
    }
}

/// The headline at the low and at the high end of the costs' ranges.
fn cards(designs: Vec<Named>, options: &Options, progress: &Progress) -> Result<Table, Error> {
    let trees = designs.into_iter();
    let trees: Vec<Named> = trees.filter(|design| design.name != "shared").collect();
    let wanted = [
        rate(Mode::Processes, 1),
        rate(Mode::Processes, 24),
        rate(Mode::Threads, 24),
        metrics::REMOTE,
        metrics::RATE,
        metrics::PACED_REMOTE,
    ];
    let is_wanted = |row: &&VerdictRow| wanted.contains(&row.metric);
    let mut rows = Vec::new();
    for card in [Card::Low, Card::High] {
        let profile = Profile::load(MACHINE, card)?;
        let scene = Scene::of(Effort::Quick);
        let runs = Comparison::run(&trees, options, progress, |case| {
            scene.measure(&profile, &case.design.design, case.seed).0
        })?;
        rows.extend(runs.verdicts(0).iter().filter(is_wanted).map(|row| {
            vec![
                card.name().to_owned(),
                row.b.clone(),
                row.metric.name.to_string(),
                human_ratio(&row.comparison.ratio),
                row.comparison.verdict.to_string(),
            ]
        }));
    }
    Ok(Table {
        title: "Trees (B) against flat, at each cost card".to_owned(),
        note: "A verdict that changes between cards is fragile.".to_owned(),
        columns: texts(&["card", "B", "metric", "ratio", "verdict"]),
        rows,
    })
}
