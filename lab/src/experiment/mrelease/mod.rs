//! `reproduce mrelease`: how much sooner is the memory of a dead large process free if others help?
//!
//! Any number of threads may call `process_mrelease` on one dying process to free its memory
//! sooner. Linux lets all these threads walk the same page tables. For each way to share the work
//! and for several numbers of helpers, the experiment measures two things: the time from the kill
//! until all memory is free, and which lock limits the race.

mod scene;

use plimsoll_mm::site::LockClass;
use plimsoll_mm::space::reap::Reaping;

use self::scene::{CURVE, EXIT, HEADLINE, Scene, emptiers, helpers};
use super::Experiment;
use super::declared::{
    Cards, Clock, Declaration, Finding, OTHERS, Results, Run, Target, cards, metrics_of,
};
use super::emptier::{self, ALONE, Emptier, METRICS, RAN, TABLE_WAIT, WALL, faster, limiter};
use crate::error::Error;
use crate::measure::metric::{Metric, Unit};
use crate::report::value::human;
use crate::report::{Table, tabulate};
use crate::run::options::Effort;
use crate::workload::victim::{Contents, Raced, START_WITHIN};

/// The experiment's entry in the catalog.
pub(super) static EXPERIMENT: &dyn Experiment = &DECLARATION;

static DECLARATION: Declaration<Scene, Raced, Emptier> = Declaration {
    name: "mrelease",
    question: "how much sooner is the memory of a dead large process free if others help?",
    machines: &["epyc-9654-2s"],
    clock: Clock::Virtual,
    designs: || {
        let mut all = emptiers(&HEADLINE);
        all.push(Emptier::helped(Reaping::MeetInTheMiddle, HEADLINE[1]).bounded());
        Ok(all)
    },
    verdicts: &[
        (ALONE, OTHERS),
        (ASCENDING[0], OURS[0]),
        (ASCENDING[1], OURS[1]),
    ],
    published: &[],
    setup: Scene::new,
    metrics: |_| metrics_of(METRICS),
    shown: None,
    compared: None,
    measure: Scene::measure,
    cards: Some(&CARDS),
    conclude,
};

// The names of the designs. An array has one name for each number of helpers in [`HEADLINE`].
const ASCENDING: [&str; 2] = ["ascending, 1 helper", "ascending, 8 helpers"];
const PATCH: [&str; 2] = [
    "descending-by-vma, 1 helper",
    "descending-by-vma, 8 helpers",
];
const CHUNKS: [&str; 2] = [
    "descending-chunks, 1 helper",
    "descending-chunks, 8 helpers",
];
const OURS: [&str; 2] = [
    "meet-in-the-middle, 1 helper",
    "meet-in-the-middle, 8 helpers",
];
const BOUNDED: &str = "bounded, meet-in-the-middle, 8 helpers";

/// Runs with a number of helpers in [`CURVE`] have at most this many seeds, because their results
/// appear only as medians in one table.
const CURVE_SEEDS: usize = 2;
/// Runs whose victim consists of huge pages have at most this many seeds.
const HUGE_SEEDS: usize = 3;
/// Runs with the larger victim have at most this many seeds, because one run takes seconds of real
/// time.
const LARGER_SEEDS: usize = 1;

fn conclude(run: &Run<'_, Scene, Raced, Emptier>) -> Result<(Vec<Table>, Finding), Error> {
    let other_numbers = emptiers(&CURVE);
    let about = "other numbers of helpers";
    let (results, raced) = run.further_on_few(about, &run.scene, &other_numbers, CURVE_SEEDS)?;
    let headline = Ran {
        emptiers: &run.designs,
        results: &run.results,
        raced: &run.kept,
    };
    let curve = Ran {
        emptiers: &other_numbers,
        results: &results,
        raced: &raced,
    };
    let of_headline = emptiers(&HEADLINE);
    let (huge, seeds) = (run.scene.larger().huge(), HUGE_SEEDS);
    let (huge_results, huge_raced) =
        run.further_on_few("huge pages", &huge, &of_headline, seeds)?;
    let huge = Ran {
        emptiers: &of_headline,
        results: &huge_results,
        raced: &huge_raced,
    };
    let (larger, seeds) = (run.scene.larger(), LARGER_SEEDS);
    let (results, raced) = run.further_on_few("larger victim", &larger, &of_headline, seeds)?;
    let larger = Ran {
        emptiers: &of_headline,
        results: &results,
        raced: &raced,
    };
    let mut tables = vec![
        scene_table(run),
        by_helpers("By number of helpers", &[headline, curve]),
        by_helpers(
            "By number of helpers, with four times the memory",
            &[larger],
        ),
        by_helpers(
            "By number of helpers, with four times the memory in huge pages",
            &[huge],
        ),
        emptier::targets(&targets(headline)),
        emptier::waits(run.each()),
    ];
    tables.extend(run.cards()?);
    Ok((tables, finding(headline, huge)))
}

/// The runs of several emptiers (ways to empty an address space) on one victim.
#[derive(Clone, Copy)]
struct Ran<'a> {
    emptiers: &'a [Emptier],
    results: &'a Results,
    raced: &'a [Raced],
}

impl Ran<'_> {
    fn faster(&self, design: &str) -> f64 {
        faster(self.results, design, &WALL)
    }

    /// Names what limits the speed with which a design empties the victim, such as a lock.
    fn limit(&self, design: &str) -> String {
        let mut races = self.emptiers.iter().zip(self.raced);
        let found = races.find(|(emptier, _)| emptier.name == design);
        limiter(found.expect("the design ran").1)
    }
}

fn scene_table(run: &Run<'_, Scene, Raced, Emptier>) -> Table {
    let contents = Contents::of(&run.scene.victim.layout(run.options.seeds[0]));
    let most = CURVE.into_iter().chain(HEADLINE).max().unwrap_or(0);
    let cpus = helpers(&run.scene.profile.topology, most);
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

/// A table with a row for each emptier: the time until all memory is free, how many times as fast
/// as exit alone this is, and what limits the speed.
fn by_helpers(title: &str, all: &[Ran<'_>]) -> Table {
    let mut rows: Vec<(&Ran<'_>, &Emptier)> = Vec::new();
    for (nth, ran) in all.iter().enumerate() {
        // Each of the sets has a run of the exiting process without helpers; the table shows that
        // run only once.
        let new = ran
            .emptiers
            .iter()
            .filter(|emptier| nth == 0 || emptier.helpers > 0);
        rows.extend(new.map(|emptier| (ran, emptier)));
    }
    rows.sort_by_key(|(_, emptier)| emptier.helpers);
    tabulate!(
        title,
        format!(
            "`running`: exit and helpers together, waits for spinlocks included. `limited by`, for the \
             first seed: what takes most of the running time besides work, if that is at least 5 %. It \
             is either waiting for one kind of lock, or taking free locks and moving cache lines. \
             Medians over all seeds with 1 and 8 helpers, over {CURVE_SEEDS} seeds with other numbers, \
             over {HUGE_SEEDS} with huge pages, and over {LARGER_SEEDS} with four times the memory.",
        ),
        &rows,
        |(ran, emptier)| {
            "helpers" => emptier.helpers,
            "way" => emptier.way(),
            "kill to free" => ran.results.show(&emptier.name, &WALL),
            "times as fast" => format!("{:.2}", ran.faster(&emptier.name)),
            "running" => ran.results.show(&emptier.name, &RAN),
            "limited by" => ran.limit(&emptier.name),
        }
    )
}

/// Our design must be at least this many times as fast as an exit without helpers: the first number
/// is for one helper, the second for eight.
const FASTER_MIN: [f64; HEADLINE.len()] = [1.8, 5.0];
/// Exit and one helper together may take at most this many percent more CPU time than an exit
/// without helpers.
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

/// The table of the time until all memory is free, at the low and at the high card. At these cards
/// all prices are at the low end, or at the high end, of their ranges.
const CARDS: Cards<Scene, Raced> = Cards {
    title: "From kill to free (B) against exit alone, at each cost card",
    note: "A victim of 4 GiB. A verdict that changes between cards is fragile.",
    effort: Effort::Quick,
    with_mid: false,
    pairs: &[
        (ALONE, ASCENDING[0], wall),
        (ALONE, PATCH[0], wall),
        (ALONE, CHUNKS[0], wall),
        (ALONE, OURS[0], wall),
        (ALONE, ASCENDING[1], wall),
        (ALONE, PATCH[1], wall),
        (ALONE, CHUNKS[1], wall),
        (ALONE, OURS[1], wall),
    ],
    columns: &[
        ("card", cards::card),
        ("B", cards::b),
        ("B / A", cards::ratio),
        ("verdict", cards::verdict),
        ("limited by", |row| limiter(row.kept)),
    ],
};

fn wall(_: &Scene) -> Vec<Metric> {
    vec![WALL]
}

/// Makes the report's finding, its conclusion in words. Every statement in it is computed from the
/// medians of the runs.
fn finding(ran: Ran<'_>, huge: Ran<'_>) -> Finding {
    let answer = format!(
        "With 8 helpers, all memory is free {:.2} times as fast as with exit alone if they meet in \
         the middle, and {:.2} times as fast if all ascend; what limits ours is {}.",
        ran.faster(OURS[1]),
        ran.faster(ASCENDING[1]),
        ran.limit(OURS[1]),
    );
    let times = |times: f64| format!("{times:.2} times as fast as exit alone");
    Finding::new(
        answer,
        [
            ("exit alone", ran.results.show(ALONE, &WALL)),
            ("ours with 8 helpers", ran.results.show(OURS[1], &WALL)),
            ("with bounded holds", times(ran.faster(BOUNDED))),
            ("with huge pages", times(huge.faster(OURS[1]))),
            (
                "ascending with huge pages",
                times(huge.faster(ASCENDING[1])),
            ),
        ],
    )
}
