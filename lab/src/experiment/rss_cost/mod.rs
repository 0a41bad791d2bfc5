//! `reproduce rss-cost`: how much slower does counting resident pages make a program?
//!
//! The author of the counter trees ran will-it-scale's `page_fault1` to show that the trees do not
//! make that benchmark slower. This experiment runs the benchmark with every kind of counter, with
//! one task and with many tasks. In a second setup, all CPUs only count. This setup shows the cache
//! lines that each kind of counter moves when no other work hides the moves.
//!
//! The submodule `setup` has the benchmark, `predicted` has the table of the simulated and the
//! published rates, and `counting` has the second setup.

mod counting;
mod predicted;
mod setup;

use self::counting::{Counted, FAR, Pace};
use self::setup::{FaultSetup, Kept, MMAP_LOCK, PARTS, TASKS, name, rate};
use super::driver::{Clock, Code, Part, Run, Runs};
use crate::measure::metric::Unit;
use crate::report::value::human;
use crate::report::{Table, tabulate};
use crate::workload::page_fault::Mode;

/// The workload of this experiment (page faults, and counting alone), which experiment files can
/// name.
pub(super) static SUBJECT: &dyn Runs = &CODE;

static CODE: Code<FaultSetup, Kept> = Code {
    workload: "page-faults-and-counting",
    about: "will-it-scale's page_fault1 with several numbers of tasks; then all CPUs only count",
    numbers: &[TASKS],
    of_designs: &[],
    takes_memory: false,
    clock: Clock::Virtual,
    setup: FaultSetup::new,
    metrics: FaultSetup::metrics,
    measure: |setup, case| setup.measure(&case.design.design, case.seed),
    parts: &[
        Part::new("predicted", |run| Ok(predicted::table(run).into())).naming(&[FLAT, TREE, OURS]),
        Part::new("times-of-processes", |run| {
            Ok(times(run, Mode::Processes, furthest(run)).into())
        })
        .naming(&[FLAT, TREE, OURS, "shared"]),
        Part::new("times-of-threads", |run| {
            Ok(times(run, Mode::Threads, mmap_lock(run)).into())
        })
        .naming(&[FLAT]),
        Part::new("lines", |run| Ok(lines(run).into())),
    ],
    cells: &[],
};

const FLAT: &str = "flat";
const TREE: &str = "tree";
const OURS: &str = "one-sided";

/// The task counts for which a table shows how the tasks spend their time.
const SHOWN_TASKS: [u32; 3] = [1, 24, 384];

/// All runs of this experiment on one machine.
type RssRun<'a> = Run<'a, FaultSetup, Kept>;

/// A table that shows how the benchmark's tasks spend their time. `mode` says whether the tasks are
/// processes or threads.
fn times(run: &Run<'_, FaultSetup, Kept>, mode: Mode, note: String) -> Table {
    let of_tasks = |tasks: u32| {
        let runs = run.each();
        runs.filter_map(move |(design, kept)| {
            Some((tasks, design.name.as_str(), kept.times(mode, tasks)?))
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

/// Makes a note for the report. For each kind of counter, the note says at which number of tasks
/// the page-fault rate differs most from the rate with flat counters (as in Linux), and by how
/// much.
fn furthest(run: &Run<'_, FaultSetup, Kept>) -> String {
    let rates = run.setup.rates();
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
fn mmap_lock(run: &Run<'_, FaultSetup, Kept>) -> String {
    let tasks = run.setup.most_tasks();
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

fn lines(run: &Run<'_, FaultSetup, Kept>) -> Table {
    let at_pace = |nth: usize| {
        let runs = run.each();
        runs.map(move |(design, kept)| (design.name.as_str(), &kept.counting[nth]))
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

/// Formats a ratio as a change in percent.
fn change(ratio: f64) -> String {
    format!("{:+.2} %", 100.0 * (ratio - 1.0))
}
