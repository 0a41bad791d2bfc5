//! `reproduce rss-cost`: what does it cost to count resident pages?
//!
//! The mailing-list thread on counter trees ran will-it-scale's `page_fault1` to show that its
//! counters do not make that benchmark slower. Here every kind of counter runs the benchmark, with
//! one task and with many. In a second scene, all CPUs only count, which shows the cache lines that
//! each kind of counter moves when no other work hides them.
//!
//! The submodule `scene` has the benchmark, `predicted` the table of its rates beside the published
//! ones, `counting` the second scene, and `published` the published figures.

mod counting;
mod predicted;
mod published;
mod scene;

use plimsoll_mm::counter::Counting;

use self::counting::{Counted, FAR, PACED_REMOTE, Pace, RATE, REMOTE};
use self::scene::{Kept, MMAP_LOCK, PARTS, Scene, name, rate};
use super::Experiment;
use super::declared::{
    Cards, Clock, Declaration, Finding, OTHERS, Results, Run, cards, effect, variants_of,
};
use crate::catalog::designs::Named;
use crate::error::Error;
use crate::measure::metric::{Metric, Unit};
use crate::report::value::human;
use crate::report::{Table, tabulate};
use crate::run::options::Effort;
use crate::workload::page_fault::Mode;

/// The experiment's entry in the catalog.
pub(super) static EXPERIMENT: &dyn Experiment = &DECLARATION;

static DECLARATION: Declaration<Scene, Kept> = Declaration {
    name: "rss-cost",
    question: "what does it cost to count resident pages?",
    machines: &[MACHINE],
    clock: Clock::Virtual,
    designs,
    verdicts: &[(FLAT, OTHERS)],
    published: published::PUBLISHED,
    setup: Scene::new,
    metrics: Scene::metrics,
    shown: None,
    compared: None,
    measure: |scene, case| scene.measure(&case.design.design, case.seed),
    cards: Some(&CARDS),
    conclude,
};

/// The machine of the mailing-list thread's measurements.
const MACHINE: &str = "epyc-9654-2s";
const FLAT: &str = "flat";
const TREE: &str = "tree";
const OURS: &str = "one-sided";

/// The numbers of tasks for which a table shows what the tasks spend their time on.
const SHOWN_TASKS: [u32; 3] = [1, 24, 384];

/// One design for each kind of counter. The first design has the kind that Linux uses. In all other
/// mechanisms, every design is unpatched Linux.
fn designs() -> Result<Vec<Named>, Error> {
    let names = Counting::ALL.map(Counting::name);
    let others = names.into_iter().filter(|name| *name != FLAT);
    variants_of("unpatched", [FLAT].into_iter().chain(others))
}

/// All runs of this experiment on one machine.
type RssRun<'a> = Run<'a, Scene, Kept>;

fn conclude(run: &RssRun<'_>) -> Result<(Vec<Table>, Finding), Error> {
    let mut tables = vec![
        predicted::table(run),
        times(run, Mode::Processes, furthest(run)),
        times(run, Mode::Threads, mmap_lock(run)),
        lines(run),
    ];
    tables.extend(run.cards()?);
    Ok((tables, finding(&run.results)))
}

/// A table of what the benchmark's tasks spend their time on. `mode` says whether the tasks are
/// processes or threads.
fn times(run: &Run<'_, Scene, Kept>, mode: Mode, note: String) -> Table {
    let of_tasks = |tasks: u32| {
        let runs = run.each();
        runs.filter_map(move |(design, kept)| {
            Some((tasks, &*design.name, kept.times(mode, tasks)?))
        })
    };
    let rows: Vec<_> = SHOWN_TASKS.into_iter().flat_map(of_tasks).collect();
    let table = tabulate!(
        format!(
            "Where the time of {} goes, in percent, first seed",
            name(mode)
        ),
        note,
        &rows,
        |(tasks, design, _)| {
            "tasks" => tasks,
            "design" => design,
        }
    );
    table.with_each(
        &rows,
        PARTS.into_iter().zip(0_usize..),
        |(_, _, percents), nth| percent(percents[*nth]),
    )
}

/// Formats a value with two decimals, or as `0` if it rounds to zero.
fn percent(value: f64) -> String {
    if value.abs() < 0.005 {
        "0".to_owned()
    } else {
        format!("{value:.2}")
    }
}

/// A note for the report: for each kind of counter, the largest difference of its rate of page
/// faults from that of flat counters, and the number of tasks at which it occurs.
fn furthest(run: &Run<'_, Scene, Kept>) -> String {
    let rates = run.scene.rates();
    let said = |design: &str| {
        let ratios = rates
            .iter()
            .map(|rate| (rate, run.results.ratio((FLAT, design), rate)));
        let distance = |ratio: f64| (ratio - 1.0).abs();
        let most =
            ratios.max_by(|(_, one), (_, other)| distance(*one).total_cmp(&distance(*other)));
        let (rate, ratio) = most.expect("some number of tasks ran");
        let tasks = rate.name.trim_start_matches("faults_per_s_");
        format!("{design} {} ({})", change(ratio), tasks.replace('_', " "))
    };
    format!(
        "First kinds of work, then waiting for locks. `rest`: taking free locks and moving cache \
         lines. The page lists have the pages of a whole round by then, so hardly any page comes \
         from a zone. The largest differences of faults a second from flat counters, with any \
         number of tasks: {}, {}, {}.",
        said(TREE),
        said(OURS),
        said("shared"),
    )
}

/// A note for the report on how much the threads of one process wait for the process's mmap_lock.
fn mmap_lock(run: &Run<'_, Scene, Kept>) -> String {
    let tasks = run.scene.most_tasks();
    let flat = run.kept[0].times(Mode::Threads, tasks);
    let times = flat.expect("every number of tasks ran");
    let faults = |mode| run.results.show(FLAT, &rate(mode, tasks));
    format!(
        "A thread that waits for the mmap_lock sleeps. With flat counters, {tasks} threads of one \
         process make {} faults a second, and as many processes {}; the threads spend {:.1} % of \
         their time waiting for the mmap_lock.",
        faults(Mode::Threads),
        faults(Mode::Processes),
        times[MMAP_LOCK],
    )
}

fn lines(run: &Run<'_, Scene, Kept>) -> Table {
    let at_pace = |nth: usize| {
        let runs = run.each();
        runs.map(move |(design, kept)| (&*design.name, &kept.counting[nth]))
    };
    let rows: Vec<(&str, &Counted)> = at_pace(0).chain(at_pace(1)).collect();
    let heads = ["core", "LLC", "socket", "other socket"];
    let table = tabulate!(
        "Cache lines moved per 1000 additions, by distance, first seed",
        "All CPUs add 1 to one counter, as fast as they can (`full`) or with a page fault's work \
         in between (`faults`). The lines are those of shared words and of locks.",
        &rows,
        |(design, counted)| {
            "pace" => if counted.pace == Pace::Full { "full" } else { "faults" },
            "design" => design,
            "adds/s" => human(counted.adds_per_s(), Unit::PerSecond),
        }
    );
    let table = table.with_each(
        &rows,
        heads.into_iter().zip(FAR),
        |(_, counted), distance| format!("{:.2}", counted.per_1000(*distance)),
    );
    table.with_each(&rows, [("all", ())], |(_, counted), ()| {
        format!("{:.2}", counted.all_per_1000())
    })
}

/// The table of the most important metrics at the low and at the high card. At the low card, each
/// price is the lowest of its range; at the high card, it is the highest.
const CARDS: Cards<Scene, Kept> = Cards {
    title: "Trees (B) against flat, at each cost card",
    note: "A verdict that changes between cards is fragile.",
    effort: Effort::Quick,
    with_mid: false,
    pairs: &[(FLAT, TREE, on_cards), (FLAT, OURS, on_cards)],
    columns: &[
        ("card", cards::card),
        ("B", cards::b),
        ("metric", cards::metric),
        ("ratio", cards::ratio),
        ("verdict", cards::verdict),
    ],
};

fn on_cards(_: &Scene) -> Vec<Metric> {
    vec![
        rate(Mode::Processes, 1),
        rate(Mode::Processes, 24),
        rate(Mode::Threads, 24),
        REMOTE,
        RATE,
        PACED_REMOTE,
    ]
}

/// Makes the report's finding, its conclusion in words. Every statement in it is computed from the
/// medians and intervals of the runs.
fn finding(results: &Results) -> Finding {
    let one = rate(Mode::Processes, 1);
    let effect = |design| effect(results.compare((FLAT, design), &one).verdict);
    let against_flat = |design| change(results.ratio((FLAT, design), &one));
    let answer = format!(
        "Compared with flat counters, the published tree {} the page faults a second of one \
         process, and ours {} them.",
        effect(TREE),
        effect(OURS),
    );
    Finding::new(
        answer,
        [
            (
                "faults a second, flat (published: 614,783, to which the price of a fault is fitted)",
                results.show(FLAT, &one),
            ),
            ("tree (published: +0.13 %)", against_flat(TREE)),
            ("ours", against_flat(OURS)),
            (
                "cache lines moved between sockets per 1000 additions, tree",
                results.show(TREE, &REMOTE),
            ),
            ("ours", results.show(OURS, &REMOTE)),
        ],
    )
}

/// Formats a ratio as a change in percent.
fn change(ratio: f64) -> String {
    format!("{:+.2} %", 100.0 * (ratio - 1.0))
}
