//! `reproduce reaper`: does a dying process exit faster if the OOM reaper walks in the opposite
//! direction?
//!
//! The mailing-list thread on the reaper profiled a phone on which the reaper empties each killed
//! app at once. On that phone, exit and reaper walk the same page tables in the same direction, and
//! wait for each other's locks. If the reaper walks in the opposite direction, exit and reaper meet
//! only once. This experiment runs both directions, the variant that was proposed later in the
//! thread, and our design. The report also shows results that reviewers asked for: the time until
//! all memory is free, results on other machines, and a victim with one large mapping. It also
//! shows for which locks tasks wait once they hardly wait for page-table locks any more.
//!
//! The submodule `scene` has the races, and `targets` has the targets for our design. `profile`
//! compares the reaper's phases with the profile in the mailing-list thread.

mod profile;
mod scene;
mod targets;

use self::scene::{LOCK, MAPPINGS, RMAP, Scene, Scenes};
use super::driver::{Clock, Code, Made, Part, Run, Runs, Tried};
use super::emptier::{self, ALONE, HELPERS, RAN};
use crate::measure::metric::{Metric, Unit};
use crate::report::value::{NOTHING, human};
use crate::report::{Table, tabulate};
use crate::workload::victim::{Contents, Party, Raced, START_WITHIN};

/// The races (exit and the reaper empty one address space) as a workload that experiment files can
/// name.
pub(super) static SUBJECT: &dyn Runs = &CODE;

static CODE: Code<Scenes, Raced> = Code {
    workload: "killed-app",
    about: "exit and the OOM reaper race to empty a killed app, in several scenes",
    numbers: &[MAPPINGS],
    of_designs: &[HELPERS],
    takes_memory: false,
    clock: Clock::Virtual,
    setup: Scenes::new,
    metrics: Scenes::metrics,
    measure: Scenes::measure,
    parts: &[
        Part::new("scenes", |run| Ok(scene_table(run).into())),
        Part::new("thread", |run| Ok(thread_table(run).into())),
        Part::new("targets", |run| {
            let targets = targets::of(&run.results, &run.setup);
            Ok(emptier::targets(&targets).into())
        })
        .naming(&[ALONE, ASCENDING, PATCH, OURS]),
        Part::new("waits", |run| Ok(emptier::waits(run.each()).into())),
        Part::new("profiles", |run| Ok(profiles(run))),
        Part::new("profile-of-the-phone", |run| Ok(profile_of_the_phone(run))),
    ],
    cells: &[],
};

/// The machine of the mailing-list thread's measurements.
const PHONE: &str = "phone-8";

const ASCENDING: &str = "ascending";
const PATCH: &str = "descending-by-vma";
const OURS: &str = "meet-in-the-middle";

/// For each design that has a helper, the table of the time in each phase of the work. Without a
/// helper, only one task empties the address space and waits for no other task, so this table would
/// show nothing about waiting.
fn profiles(run: &Run<'_, Scenes, Raced>) -> Made {
    let helped = run.each().filter(|(tried, _)| emptier::helpers(tried) > 0);
    let tables = helped.map(|(tried, raced)| profile_table(tried, raced));
    tables.collect::<Vec<_>>().into()
}

/// Makes the table of the reaper's phases with the published times. Only the report on the phone
/// has this table.
fn profile_of_the_phone(run: &Run<'_, Scenes, Raced>) -> Made {
    if run.machine == PHONE {
        profile::table(run).into()
    } else {
        Made::default()
    }
}

/// The row titles of the table in the mailing-list thread, each with the name of our metric for the
/// row.
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
/// because the thread does not state the size of its victim.
fn thread_table(run: &Run<'_, Scenes, Raced>) -> Table {
    let metrics = run.setup.metrics();
    let find = |(what, name): (&'static str, &str)| {
        let metric = metrics.iter().find(|metric| metric.name == name);
        (what, metric.expect("a metric of the first scene"))
    };
    let rows = THREAD.map(find);
    // The victim in the mailing-list thread and our victim differ in size, so absolute times cannot
    // be compared. The table therefore also shows the times for page-table locks and reverse
    // mappings as shares of the running time.
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

fn scene_table(run: &Run<'_, Scenes, Raced>) -> Table {
    let seed = run.options.seeds[0];
    let with_contents = |scene: &Scene| (*scene, Contents::of(&scene.victim.layout(seed)));
    let rows: Vec<_> = run.setup.all.iter().map(with_contents).collect();
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

fn profile_table(tried: &Tried, raced: &Raced) -> Table {
    let asleep = raced.asleep(Party::Exit).0 + raced.asleep(Party::Helpers).0;
    let note = if asleep == 0 {
        String::new()
    } else {
        let asleep = human(asleep as f64, Unit::Nanos);
        format!("In this profile, tasks slept for {asleep}, waiting for the mmap_lock.")
    };
    let title = format!("Profile of {}, first scene, first seed", tried.name);
    raced.tree.table(title, &note)
}
