//! `reproduce mrelease`: how much sooner is the memory of a large dead process free if helpers
//! empty it too?
//!
//! Any number of threads can call `process_mrelease` on one dying process to free its memory
//! sooner. Linux lets all these threads walk the same page tables. The experiment compares several
//! ways to share the work, each with different counts of helpers. It measures the time from the
//! kill until all memory is free, and finds the lock that limits the race.

mod setup;

use plimsoll_mm::site::LockClass;

use self::setup::{EXIT, MreleaseSetup, NUMBERS, helper_cpus};
use super::driver::{Clock, Code, Made, Part, Results, Run, Runs, Target, Tried, metrics_of};
use super::emptier::{
    self, ALONE, HELPERS, METRICS, RAN, TABLE_WAIT, WALL, faster, helpers, limiter, way,
};
use crate::error::Error;
use crate::measure::metric::Unit;
use crate::report::value::human;
use crate::report::{Table, tabulate};
use crate::workload::victim::{Contents, Raced, START_WITHIN};

/// The race (of an exiting task and its helpers) as a workload that experiment files can name.
pub(super) static SUBJECT: &dyn Runs = &CODE;

static CODE: Code<MreleaseSetup, Raced> = Code {
    workload: "killed-server",
    about: "exit and callers of process_mrelease race to empty a large killed process",
    numbers: NUMBERS,
    of_designs: &[HELPERS],
    takes_memory: false,
    clock: Clock::Virtual,
    setup: MreleaseSetup::new,
    metrics: |_| metrics_of(METRICS),
    measure: MreleaseSetup::measure,
    parts: &[
        Part::new("processes", |run| Ok(scene_table(run).into())),
        Part::new("by-helpers", curve).naming(&[ALONE]),
        Part::new("larger", larger).naming(&[ALONE]),
        Part::new("huge-pages", huge)
            .naming(&[ALONE, ASCENDING[1], OURS[1]])
            .giving(&["ours_with_huge_pages", "ascending_with_huge_pages"]),
        Part::new("targets", |run| {
            let all = targets(headline(run));
            let limit = headline(run).limit(OURS[1]);
            Ok(Made::from(emptier::targets(&all)).fact("limit_of_ours", limit))
        })
        .naming(&[
            ALONE,
            ASCENDING[0],
            ASCENDING[1],
            PATCH[0],
            PATCH[1],
            OURS[0],
            OURS[1],
            BOUNDED,
        ])
        .giving(&["limit_of_ours"]),
        Part::new("waits", |run| Ok(emptier::waits(run.each()).into())),
    ],
    cells: &[("limit", limiter)],
};

// Each pair names two designs. In the first, one task helps the exiting task, and in the second,
// eight tasks help it.
const ASCENDING: [&str; 2] = ["ascending, 1 helper", "ascending, 8 helpers"];
const PATCH: [&str; 2] = [
    "descending-by-vma, 1 helper",
    "descending-by-vma, 8 helpers",
];
const OURS: [&str; 2] = [
    "meet-in-the-middle, 1 helper",
    "meet-in-the-middle, 8 helpers",
];
const BOUNDED: &str = "bounded, meet-in-the-middle, 8 helpers";

/// The main runs: the designs of the experiment file with the victim of the experiment file.
fn headline<'a>(run: &'a Run<'_, MreleaseSetup, Raced>) -> Ran<'a> {
    Ran {
        designs: run.designs,
        results: &run.results,
        raced: &run.kept,
    }
}

/// Makes the table that shows how the time to empty the victim depends on the count of helpers. It
/// has the runs of the main table, and runs with further counts of helpers.
fn curve(run: &Run<'_, MreleaseSetup, Raced>) -> Result<Made, Error> {
    let designs = run.setup.on_curve(run.designs);
    let (about, seeds) = (
        "other numbers of helpers",
        run.numbers().count("curve_seeds"),
    );
    let (results, raced) = run.further_on_few(about, &run.setup, &designs, seeds)?;
    let curve = Ran {
        designs: &designs,
        results: &results,
        raced: &raced,
    };
    Ok(by_helpers(run, "By number of helpers", &[headline(run), curve]).into())
}

fn larger(run: &Run<'_, MreleaseSetup, Raced>) -> Result<Made, Error> {
    let designs = unbounded(run);
    let (larger, seeds) = (run.setup.larger(), run.numbers().count("larger_seeds"));
    let (results, raced) = run.further_on_few("larger victim", &larger, &designs, seeds)?;
    let larger = Ran {
        designs: &designs,
        results: &results,
        raced: &raced,
    };
    let title = "By number of helpers, with four times the memory";
    Ok(by_helpers(run, title, &[larger]).into())
}

fn huge(run: &Run<'_, MreleaseSetup, Raced>) -> Result<Made, Error> {
    let designs = unbounded(run);
    let (huge, seeds) = (run.setup.larger().huge(), run.numbers().count("huge_seeds"));
    let (results, raced) = run.further_on_few("huge pages", &huge, &designs, seeds)?;
    let huge = Ran {
        designs: &designs,
        results: &results,
        raced: &raced,
    };
    let title = "By number of helpers, with four times the memory in huge pages";
    let times = |design| format!("{:.2}", huge.faster(design));
    Ok(Made::from(by_helpers(run, title, &[huge]))
        .fact("ours_with_huge_pages", times(OURS[1]))
        .fact("ascending_with_huge_pages", times(ASCENDING[1])))
}

/// The designs that do not limit how long a zone lock is held.
fn unbounded(run: &Run<'_, MreleaseSetup, Raced>) -> Vec<Tried> {
    let designs = run.designs.iter().filter(|tried| tried.name != BOUNDED);
    designs.cloned().collect()
}

/// The runs of several designs (ways to empty an address space) on one victim.
#[derive(Clone, Copy)]
struct Ran<'a> {
    designs: &'a [Tried],
    results: &'a Results,
    raced: &'a [Raced],
}

impl Ran<'_> {
    fn faster(&self, design: &str) -> f64 {
        faster(self.results, design, &WALL)
    }

    /// Returns the name of what limits how fast a design empties the victim, such as a lock.
    fn limit(&self, design: &str) -> String {
        let mut races = self.designs.iter().zip(self.raced);
        let found = races.find(|(tried, _)| tried.name == design);
        limiter(found.expect("the design ran").1)
    }
}

fn scene_table(run: &Run<'_, MreleaseSetup, Raced>) -> Table {
    let contents = Contents::of(&run.setup.victim.layout(run.options.seeds[0]));
    let on_curve = run.setup.on_curve(run.designs);
    let most = on_curve.iter().chain(run.designs).map(helpers).max();
    let cpus = helper_cpus(&run.setup.profile.topology, most.unwrap_or(0));
    let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    let bytes = human((contents.resident() << 12) as f64, Unit::Bytes);
    Table::facts(
        "Processes and CPUs",
        format!(
            "Each helper runs at a last-level cache of its own; the helpers alternate between the \
             sockets. Each calls process_mrelease once, at most {} after the kill.",
            human(START_WITHIN.0 as f64, Unit::Nanos)
        ),
        &[
            (
                "victim",
                format!("{bytes} in {} mappings", contents.mappings),
            ),
            (
                "memory",
                "half on each node, as threads of both touched it".to_owned(),
            ),
            ("exit on CPU", EXIT.to_string()),
            ("helpers on CPUs, in this order", cpus.join(" ")),
        ],
    )
}

/// Makes a table with a row for each emptier (a way to empty the victim). A row shows the time
/// until all memory is free, the speed-up over an exit without helpers, and what limits the speed.
fn by_helpers(run: &Run<'_, MreleaseSetup, Raced>, title: &str, all: &[Ran<'_>]) -> Table {
    let seeds = |of: &str| run.numbers().get(of);
    let mut rows: Vec<(&Ran<'_>, &Tried)> = Vec::new();
    for (nth, ran) in all.iter().enumerate() {
        // Each set of runs includes a run in which no task helps the exiting task. The table shows
        // such a run only once.
        let new = ran
            .designs
            .iter()
            .filter(|tried| nth == 0 || helpers(tried) > 0);
        rows.extend(new.map(|tried| (ran, tried)));
    }
    rows.sort_by_key(|(_, tried)| helpers(tried));
    tabulate!(
        title,
        format!(
            "`running`: exit and helpers together, waits for spinlocks included. `limited by`, for the \
             first seed: what takes most of the running time besides work, if that is at least 5 %. It \
             is either waiting for one kind of lock, or taking free locks and moving cache lines. \
             Medians over all seeds with 1 and 8 helpers, over {} seeds with other numbers, \
             over {} with huge pages, and over {} with four times the memory.",
            seeds("curve_seeds"),
            seeds("huge_seeds"),
            seeds("larger_seeds"),
        ),
        &rows,
        |(ran, tried)| {
            "helpers" => helpers(tried),
            "way" => way(tried),
            "kill to free" => ran.results.show(&tried.name, &WALL),
            "times as fast" => format!("{:.2}", ran.faster(&tried.name)),
            "running" => ran.results.show(&tried.name, &RAN),
            "limited by" => ran.limit(&tried.name),
        }
    )
}

/// Our design must be at least this many times as fast as an exit that no task helps, first with
/// one helping task, then with eight.
const FASTER_MIN: [f64; 2] = [1.8, 5.0];
/// The exiting task and one helping task together must not take more CPU time than an exit without
/// help plus this percentage.
const WORK_PERCENT_MAX: f64 = 3.0;

fn targets(ran: Ran<'_>) -> Vec<Target> {
    let results = ran.results;
    let waits = [0, 1].map(|nth| 100.0 * results.ratio((ASCENDING[nth], OURS[nth]), &TABLE_WAIT));
    let (mut above, mut cases) = (0, 0);
    for nth in [0, 1] {
        let patch = results.values(PATCH[nth], &TABLE_WAIT).into_iter();
        for (patch, ours) in patch.zip(results.values(OURS[nth], &TABLE_WAIT)) {
            cases += 1;
            above += usize::from(ours > patch);
        }
    }
    let work = 100.0 * (results.ratio((ALONE, OURS[0]), &RAN) - 1.0);
    let speed = |what, wanted, design, least, excused: bool| {
        let (times, limit) = (ran.faster(design), ran.limit(design));
        Target {
            what,
            wanted,
            measured: format!("{times:.2} times; limited by {limit}"),
            met: Some(times >= least || excused && limit.starts_with(LockClass::Zone.name())),
        }
    };
    let mut all = emptier::waits_hardly(waits[0].max(waits[1]), (above, cases)).to_vec();
    all.extend([
        Target {
            what: "work beyond that of exit alone, one helper",
            wanted: "3 % at most",
            measured: format!("{work:+.2} %"),
            met: Some(work <= WORK_PERCENT_MAX),
        },
        speed(
            "from kill to free with one helper, against exit alone",
            "1.8 times as fast",
            OURS[0],
            FASTER_MIN[0],
            false,
        ),
        speed(
            "the same with 8 helpers",
            "5 times as fast, unless the zone lock limits",
            OURS[1],
            FASTER_MIN[1],
            true,
        ),
        speed(
            "the same if zone locks are held for a batch at most",
            "5 times as fast",
            BOUNDED,
            FASTER_MIN[1],
            false,
        ),
    ]);
    all
}
